//! Forwards from the node's ports to one address of the attachment.

use crate::capability::leaves::{EffectKind, Reapplied};
use crate::capability::shared::numbers::{self, made_by_iptables, recorded};
use crate::context::{Context, System, View};
use crate::errors::{firewall_error, kernel_error};
use crate::right::Right;
use ipnet::IpNet;
use postern_firewall::conntrack::{Flow, forget_udp};
use postern_firewall::hostport::{self, HostPorts, MarkBy, Syntax, localnet};
use postern_firewall::iptables::{self, RuleHandles};
use postern_firewall::{AttachmentKey, ChainKind};
use postern_kernel::{KernelError, Link, Netlink, Sysctl, sysctl};
use postern_types::{Backend, Forward, IptablesVariant, NatSources, OpError, Transport};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::net::IpAddr;

/// Forwards to one address. The record has all data of the rules. So the rules can be compared and removed without the
/// network's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMappings {
    /// The packet filter of the rules.
    pub backend: Backend,
    /// The variant of iptables that has the rules, if known. Records of Postern 0.1 lack the variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<IptablesVariant>,
    /// The container's address.
    pub address: IpNet,
    /// The ports.
    pub forwards: Vec<Forward>,
    /// The masqueraded senders.
    pub masquerade: NatSources,
    /// The bit of the mark, for iptables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit: Option<u8>,
    /// The chain that marks packets, for iptables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The network's conditions, in the words of iptables.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub conditions: String,
}

/// The native plugin's bit of the mark.
pub const DEFAULT_BIT: u8 = 13;

impl PortMappings {
    /// Returns the rules for the packet filter.
    pub fn rules(&self, key: AttachmentKey) -> HostPorts {
        let v6 = self.address.addr().is_ipv6();
        let words: Vec<String> = self.conditions.split_whitespace().map(str::to_owned).collect();
        HostPorts {
            key,
            address: self.address,
            forwards: self.forwards.iter().flat_map(|forward| singles(*forward, v6)).collect(),
            sources: self.masquerade,
            mark: match &self.chain {
                Some(chain) => MarkBy::Chain(chain.clone()),
                None => MarkBy::Bit(self.bit.unwrap_or(DEFAULT_BIT)),
            },
            // The text was made from conditions, so it can be parsed.
            conditions: Syntax::Iptables.read(&words, v6).unwrap_or_default(),
        }
    }

    /// Makes the rules, and notes their handles. With `is_first`, the attachment has no rules yet, and nftables is not
    /// searched for existing rules. For nftables, handles are noted only if they are complete. Without noted handles
    /// the next check searches all rules.
    pub(crate) fn make(&self, run: &mut Context, is_first: bool) -> Result<(), OpError> {
        let rules = self.rules(run.request.masquerade_key());
        if self.backend == Backend::Iptables {
            return made_by_iptables(run, &self.clone().into(), &[self.address], iptables::nat_tables, |runner| {
                rules.iptables_ensure_in(self.variant, runner)
            });
        }
        let mut nft = run.system.nft()?;
        let before = rules.nft_table(&mut nft).map_err(firewall_error)?;
        let handles = rules.nft_ensure(&mut nft, is_first).map_err(firewall_error)?;
        let after = rules.nft_table(&mut nft).map_err(firewall_error)?;
        drop(nft);
        if handles.len() == rules.nft_count() {
            let tables: Vec<u64> = after.into_iter().filter(|_| before == after).collect();
            run.journal.known_in(&self.clone().into(), &handles, &tables);
        }
        Ok(())
    }

    /// True if all rules exist. In nftables a native plugin may have made the rules, even if a record says otherwise.
    pub(crate) fn is_whole(&self, run: &Context) -> Result<bool, OpError> {
        let rules = self.rules(run.request.masquerade_key());
        let (handles, tables) = run.journal.numbers(self);
        match self.backend {
            Backend::Nftables => {
                let mut nft = run.system.nft()?;
                match rules.nft_check(&mut nft, &handles) {
                    Ok(false) => rules.nft_check_native(&mut nft),
                    checked => checked,
                }
            }
            Backend::Iptables => {
                let recorded = recorded(run, &self.clone().into(), self.variant, &handles);
                let known = RuleHandles { handles: &handles, tables: &tables, recorded };
                rules.iptables_check(known, run.system.program_runner())
            }
        }
        .map_err(firewall_error)
    }

    /// Deletes the tracked UDP connections that lead through the forwarded ports to the container. With `all`, it also
    /// deletes connections that are older than the forward. A kernel without connection tracking is no error.
    pub(crate) fn forget_connections(&self, system: &System, all: bool) -> Result<(), OpError> {
        let address = self.address.addr();
        let is_udp = |forward: &&Forward| forward.transport == Transport::Udp;
        let forwards: Vec<hostport::PortForward> =
            self.forwards.iter().filter(is_udp).flat_map(|forward| singles(*forward, address.is_ipv6())).collect();
        if forwards.is_empty() {
            return Ok(());
        }
        let ports: Vec<u16> =
            forwards.iter().map(|forward| forward.host_port).collect::<HashSet<_>>().into_iter().collect();
        let host = system.host()?;
        // Only connections to the node's own addresses count: the same port of another node does not belong to the
        // forward.
        let is_local = |address| host.is_local(address).or_else(|_| host.is_local(address)).unwrap_or(false);
        let is_ours = |flow: &Flow| {
            let (destination, port) = flow.destination;
            forwards.iter().any(|forward| {
                forward.host_port == port
                    && forward.host_ip.map_or_else(|| is_local(destination), |host_ip| host_ip == destination)
                    && (all || flow.answerer == (address, forward.container_port))
            })
        };
        system.unless_absent(|nft| forget_udp(nft, address.is_ipv6(), &ports, is_ours)).map(drop)
    }

    /// Returns the link towards the container, if connections from the node's 127.0.0.1 need `route_localnet` on this
    /// link.
    pub fn localnet_link(&self, host: &Netlink) -> Result<Option<Link>, KernelError> {
        let address = self.address.addr();
        if self.masquerade == NatSources::None || address.is_ipv6() {
            return Ok(None);
        }
        host.link_towards(address)?.map_or(Ok(None), |index| host.link_by_index(index))
    }

    /// Makes the missing rules that block 127.0.0.0/8, if the link towards the container delivers packets for
    /// 127.0.0.0/8.
    fn restore_guard(&self, system: &System) -> Result<Reapplied, OpError> {
        let Some(link) = self.localnet_link(system.host()?).map_err(kernel_error)? else {
            return Ok(Reapplied::Complete);
        };
        let is_open = localnet_is_on(&link.name.to_string()).map_err(kernel_error)?;
        if !is_open || system.nft()?.is_absent() || localnet::check(&mut *system.nft()?).map_err(firewall_error)? {
            return Ok(Reapplied::Complete);
        }
        localnet::ensure(&mut *system.nft()?).map_err(firewall_error)?;
        Ok(Reapplied::Restored)
    }
}

/// True if a link delivers packets for 127.0.0.0/8.
pub fn localnet_is_on(link: &str) -> Result<bool, KernelError> {
    let key = Sysctl::Ipv4Conf(link.to_owned(), "route_localnet");
    Ok(sysctl::get(&key)?.as_deref() == Some("1"))
}

/// Splits a forward into single ports, for one family.
fn singles(forward: Forward, v6: bool) -> impl Iterator<Item = hostport::PortForward> {
    let concerns = forward.host_address.is_none_or(|address| address.is_ipv6() == v6);
    let ports = concerns.then(|| forward.ports()).into_iter().flatten();
    ports.map(move |(host_port, container_port)| hostport::PortForward {
        protocol: forward.transport,
        host_ip: forward.host_address.filter(|address| !address.is_unspecified()),
        host_port,
        container_port,
    })
}

impl EffectKind for PortMappings {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let rules = self.rules(run.request.masquerade_key());
        let (handles, tables) = run.journal.numbers(self);
        match self.backend {
            Backend::Nftables => {
                run.system.unless_absent(|nft| rules.nft_remove(nft, &handles, tables.first().copied()))?;
            }
            Backend::Iptables => {
                let recorded = recorded(run, &self.clone().into(), self.variant, &handles);
                let known = RuleHandles { handles: &handles, tables: &tables, recorded };
                rules.iptables_remove(known, run.system.program_runner()).map_err(firewall_error)?;
            }
        }
        // The rules are gone, and only tracked connections are left. A second attempt follows an error, because the
        // next container may get this address. Two failures are only reported.
        let forget = || self.forget_connections(run.system, false);
        if let Err(error) = forget().or_else(|_| forget()) {
            crate::say!("postern: tracked connections to {} stay: {error}", self.address.addr());
        }
        Ok(())
    }

    fn words(&self) -> String {
        format!("forwards to {}", self.address.addr())
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        vec![self.address.addr()]
    }

    fn right(&self) -> Right<'_> {
        match self.backend {
            Backend::Nftables => Right::Network,
            Backend::Iptables => Right::HostPorts,
        }
    }

    fn reapply(&self, run: &mut Context) -> Result<Reapplied, OpError> {
        // The guard comes first: without the guard, containers reach the node's 127.0.0.0/8.
        let guard = self.restore_guard(run.system)?;
        if self.is_whole(run)? {
            return Ok(guard);
        }
        self.make(run, false)?;
        Ok(Reapplied::Restored)
    }
}

/// Returns the recorded forwards of this container's other attachments, in all networks. Containers with the same rule
/// comment are included.
fn of_others(view: View<'_>) -> Result<Vec<(AttachmentKey, PortMappings)>, OpError> {
    let own = &view.request.container_id;
    numbers::of_others(view, |key| hostport::nft::have_one_comment(&key.container_id, own))
}

/// Removes the forwards of an attachment without a record. These are the container's forwards in both packet filters,
/// except forwards that another record lists.
pub(crate) fn remove_unrecorded(view: View<'_>) -> Result<(), OpError> {
    let key = view.request.masquerade_key();
    let others = of_others(view)?;
    let spared: Vec<IpAddr> = others.iter().map(|(_, own)| own.address.addr()).collect();
    let own: Vec<IpAddr> = view.request.previous().ips.iter().map(|ip| ip.address.addr()).collect();
    if hostport::nft::is_cut(&key.container_id) {
        crate::say!(
            "postern: nftables rules name only the beginning of this container's ID: only its forwards to addresses of \
             prevResult are removed; `postern gc --native` finds the other forwards"
        );
    }
    view.system.unless_absent(|nft| hostport::nft::remove_all(nft, &key.container_id, &own, &spared))?;
    let is_same = |other: &AttachmentKey| (&other.network, &other.container_id) == (&key.network, &key.container_id);
    let shares = others.iter().any(|(other, own)| is_same(other) && own.backend == Backend::Iptables);
    // The kernel is asked first, because starting programs costs more.
    if !shares
        && (iptables::has_legacy_nat()
            || view.system.unless_absent(|nft| iptables::may_exist(nft, ChainKind::Forwards, &key))?)
    {
        iptables::hostport::remove_all(&key, view.system.program_runner()).map_err(firewall_error)?;
    }
    Ok(())
}
