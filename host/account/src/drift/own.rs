//! The effects of an attachment besides its pair: a link of another kind, masquerading, spoofing protection, leases.

use super::path;
use crate::attachment::{AGAIN, Account, REAPPLY};
use crate::namespaces::LiveNamespace;
use crate::node_state::NodeState;
use postern_firewall::account::Tables;
use postern_firewall::iptables::in_reach;
use postern_firewall::{FirewallError, firewalld};
use postern_gate::capability::leaves::EffectKind;
use postern_gate::capability::port_mappings::effect::localnet_is_on;
use postern_gate::effect::{
    Bandwidth, Effect, Firewall, InnerKind, InnerLink, Isolation, LinkChange, MacGuard, Masquerade, Port, PortMappings,
    SourceRoutes, Veth, Vrf,
};
use postern_gate::places::is_directory;
use postern_gate::shell::quoted;
use postern_kernel::Link;
use postern_state::{Header, HeldAddress, LeaseOwner};
use postern_types::{Backend, IpvlanMode, LinkSettings, Mac, MacvlanMode};
use std::path::Path;

/// The largest number of forwards that are shown for an attachment.
const MOST_FORWARDS: usize = 8;

/// Returns true if the rules were seen, and false if the rules are missing. The error says why unseen rules may exist.
fn there_or_in_reach(there: bool, reach: impl Fn() -> Result<(), FirewallError>) -> Result<bool, String> {
    if there { Ok(true) } else { reach().map(|()| false).map_err(|error| error.to_string()) }
}

/// True if an effect is the attachment's link, and the links of host and container show that the link is gone. Root in
/// the container may give the link another address, so the link is known by its kind.
pub(super) fn is_lost_link(effect: &Effect, host: &[Link], container: Option<&[Link]>) -> bool {
    let lacks = |is_it: &dyn Fn(&Link) -> bool| container.is_some_and(|links| !links.iter().any(is_it));
    let lacks_kind = |kind: InnerKind| lacks(&|link| link.kind == kind.in_kernel());
    match effect {
        Effect::Veth(pair) => !host.iter().any(|link| link.name == pair.host),
        Effect::Macvlan(_) => lacks_kind(InnerKind::Macvlan),
        Effect::InnerLink(made) => lacks_kind(made.kind),
        Effect::Device(device) => lacks(&|link| device.is_same(link)),
        Effect::Masquerade(_)
        | Effect::MacGuard(_)
        | Effect::Firewall(_)
        | Effect::Isolation(_)
        | Effect::Bandwidth(_)
        | Effect::Lease(_)
        | Effect::Native(_)
        | Effect::LoopbackUp(_)
        | Effect::Port(_)
        | Effect::PortMappings(_)
        | Effect::LinkChange(_)
        | Effect::LinkState(_)
        | Effect::NamespaceSetting(_)
        | Effect::Delegated(_)
        | Effect::SourceRoutes(_)
        | Effect::Vrf(_)
        | Effect::Dhcp(_) => false,
    }
}

impl NodeState {
    pub(super) fn masquerading(&self, account: &mut Account, plugin: &str, made: &Masquerade) {
        let Some(key) = account.masquerade_key() else { return };
        for address in &made.addresses {
            let (name, present) = match made.backend {
                Backend::Nftables => (
                    "nftables",
                    self.rules().and_then(|rules| rules.masquerade(&key, &[*address]).map_err(|e| e.to_string())),
                ),
                Backend::Iptables => (
                    "iptables",
                    self.iptables()
                        .and_then(|tables| tables.has(&key, &[*address]).map_err(|e| e.to_string()))
                        .and_then(|there| {
                            there_or_in_reach(there, || in_reach(made.variant, &[*address], false, Self::means()))
                        }),
                ),
            };
            present.iter().for_each(|there| account.count(*there));
            let found = match present {
                Ok(true) => format!("{} by {name}", address.addr()),
                Ok(false) => {
                    let what = format!("{} is not masqueraded: the rules in {name} are gone", address.addr());
                    account.differs(what, REAPPLY, true);
                    format!("{} by {name}: the rules are gone", address.addr())
                }
                Err(reason) => account.unseen(format!("{} by {name}: can't be looked at: {reason}", address.addr())),
            };
            account.fact(plugin, "masquerading", found);
        }
    }

    pub(super) fn port_mappings(&self, account: &mut Account, plugin: &str, forwards: &PortMappings) {
        let Some(key) = account.masquerade_key() else { return };
        let rules = forwards.rules(key);
        let (name, address) = (forwards.backend.name(), forwards.address.addr());
        let present = match forwards.backend {
            Backend::Nftables => self.rules().and_then(|seen| seen.forwards(&rules).map_err(|e| e.to_string())),
            Backend::Iptables => {
                let has = |seen: &Tables| seen.has_forwards(&rules).map_err(|e| e.to_string());
                let reach = || in_reach(forwards.variant, &[forwards.address], false, Self::means());
                self.iptables().and_then(has).and_then(|there| there_or_in_reach(there, reach))
            }
        };
        let mut ports: Vec<String> = forwards.forwards.iter().take(MOST_FORWARDS).map(ToString::to_string).collect();
        if let Some(more) = forwards.forwards.len().checked_sub(MOST_FORWARDS).filter(|more| *more > 0) {
            ports.push(format!("{more} more"));
        }
        let ports = ports.join(", ");
        present.iter().for_each(|there| account.count(*there));
        let found = match present {
            Ok(true) => format!("{ports} to {address} by {name}"),
            Ok(false) => {
                let what = format!("ports of the node don't lead to {address}: the rules in {name} are gone");
                account.differs(what, REAPPLY, true);
                format!("{ports} to {address} by {name}: the rules are gone")
            }
            Err(reason) => account.unseen(format!("{ports} to {address} by {name}: can't be looked at: {reason}")),
        };
        account.fact(plugin, "forwards", found);
        self.localhost(account, forwards);
    }

    /// Compares the rule that protects the node's 127.0.0.0/8, if the container's link on the host delivers packets for
    /// that network.
    fn localhost(&self, account: &mut Account, forwards: &PortMappings) {
        let link = forwards.localnet_link(&self.host).ok().flatten();
        let Some(link) = link.filter(|link| localnet_is_on(&link.name.to_string()).unwrap_or(false)) else { return };
        if self.rules().is_ok_and(|rules| !rules.guards_localhost) {
            let what = format!("containers behind {} reach the node's 127.0.0.0/8: the guard rule is gone", link.name);
            account.differs(what, REAPPLY, true);
        }
    }

    /// Compares the attributes that a plugin has changed. A later plugin may have changed these attributes again. The
    /// address is left out, because the comparison of the container's end includes the address.
    pub(super) fn changed(
        &self,
        account: &mut Account,
        plugin: &str,
        change: &LinkChange,
        container: Option<&LiveNamespace>,
    ) {
        account.fact(plugin, "link settings", format!("{} instead of {}", change.after, change.before));
        let own = container.and_then(|found| found.links.iter().find(|link| link.index == change.index));
        let Some(own) = own else { return };
        let all: Vec<LinkChange> = account.effects.iter().filter_map(LinkChange::of).cloned().collect();
        let at = all.iter().rposition(|other| other == change).map_or(all.len(), |at| at + 1);
        let later = all.get(at..).unwrap_or_default();
        let LinkSettings { mtu, promisc, allmulti, tx_queue_length, .. } = &change.after;
        let is_last = |of: fn(&LinkSettings) -> bool| !later.iter().any(|other| of(&other.after));
        let mut differing = LinkSettings::default();
        if is_last(|after| after.mtu.is_some()) {
            differing.mtu = mtu.filter(|mtu| own.mtu != *mtu).map(|_| own.mtu);
        }
        if is_last(|after| after.promisc.is_some()) {
            differing.promisc = promisc.filter(|on| own.promisc != *on).map(|on| !on);
        }
        if is_last(|after| after.allmulti.is_some()) {
            differing.allmulti = allmulti.filter(|on| own.allmulti != *on).map(|on| !on);
        }
        if is_last(|after| after.tx_queue_length.is_some()) {
            let length = tx_queue_length.filter(|length| own.tx_queue_length != *length);
            differing.tx_queue_length = length.map(|_| own.tx_queue_length);
        }
        if !differing.is_empty() {
            let what = format!("{} in the container has {differing}, and was given {}", own.name, change.after);
            account.differs(what, AGAIN, false);
        }
    }

    /// Compares the VRF of the attachment's link.
    pub(super) fn in_vrf(&self, account: &mut Account, plugin: &str, vrf: &Vrf, container: Option<&LiveNamespace>) {
        account.fact(plugin, "VRF", format!("{}, table {}", vrf.name, vrf.table));
        let Some(found) = container else { return };
        let Some(own) = found.links.iter().find(|link| link.index == vrf.index) else { return };
        let master = own.master.and_then(|master| found.links.iter().find(|link| link.index == master));
        if master.is_none_or(|master| master.vrf_table != Some(vrf.table)) {
            let what = format!("{} in the container is no longer in VRF {}", own.name, vrf.name);
            account.differs(what, AGAIN, false);
        }
    }

    /// Compares the tables of source routing. CHECK compares the container's rules.
    pub(super) fn routed_by_source(
        &self,
        account: &mut Account,
        plugin: &str,
        routing: &SourceRoutes,
        container: Option<&LiveNamespace>,
    ) {
        for rule in &routing.rules {
            account.fact(plugin, "source routing", format!("from {} by table {}", rule.source, rule.table));
        }
        let Some(found) = container else { return };
        let (Some(routes), true) = (&found.routes, found.links.iter().any(|link| link.index == routing.index)) else {
            return;
        };
        if let Some(what) = routing.missing_route(routes.iter().map(|(link, route)| (*link, route))) {
            account.differs(what, AGAIN, false);
        }
    }

    /// Compares the isolation of the attachment's bridge.
    pub(super) fn isolated(&self, account: &mut Account, plugin: &str, isolation: &Isolation) {
        let Isolation { bridge, ingress, .. } = isolation;
        let families: Vec<bool> =
            [(isolation.v4, false), (isolation.v6, true)].into_iter().filter(|of| of.0).map(|of| of.1).collect();
        let found = match self.forwards().map(|tables| tables.isolates(bridge, *ingress, &families)) {
            Ok(true) => format!("bridge {bridge}, {}", ingress.name()),
            Ok(false) => {
                let what =
                    format!("bridge {bridge} is not isolated ({}): the rules in iptables are gone", ingress.name());
                account.differs(what, REAPPLY, true);
                format!("bridge {bridge}, {}: the rules are gone", ingress.name())
            }
            Err(reason) => account.unseen(format!("bridge {bridge}: can't be looked at: {reason}")),
        };
        account.fact(plugin, "isolation", found);
    }

    /// Compares the limits of the attachment's traffic.
    pub(super) fn limited(&self, account: &mut Account, plugin: &str, limits: &Bandwidth) {
        let words = limits.words();
        let ifb = limits.egress.as_ref().map(|(_, ifb)| ifb);
        ifb.iter().for_each(|ifb| account.count(self.link(ifb).is_some()));
        let found = match (limits.is_whole(&self.host), ifb.filter(|ifb| self.link(ifb).is_none())) {
            (Ok(true), _) => words,
            (Ok(false), Some(ifb)) => {
                account.differs(format!("{ifb}, which limits the container's sent traffic, is gone"), AGAIN, false);
                format!("{words}: {ifb} is gone")
            }
            (Ok(false), None) => {
                account.differs(format!("the traffic on {} is not limited as recorded", limits.host), REAPPLY, true);
                format!("{words}: not as recorded")
            }
            (Err(error), _) => account.unseen(format!("{words}: can't be looked at: {}", error.message)),
        };
        account.fact(plugin, "limits", found);
    }

    /// Compares the rules that forward packets of the addresses.
    pub(super) fn forwarded(&self, account: &mut Account, plugin: &str, made: &Firewall) {
        for net in &made.addresses {
            let address = net.addr();
            let (name, present) = match &made.zone {
                Some(zone) => (
                    format!("zone {zone} of firewalld"),
                    firewalld::query(zone, address, Self::means()).map_err(|e| e.to_string()),
                ),
                None => {
                    let reach = || in_reach(made.variant, &[*net], true, Self::means());
                    let there = self.forwards().map(|tables| tables.forwards(address)).map_err(str::to_owned);
                    ("iptables".to_owned(), there.and_then(|there| there_or_in_reach(there, reach)))
                }
            };
            present.iter().for_each(|there| account.count(*there));
            let found = match present {
                Ok(true) => format!("{address} by {name}"),
                Ok(false) => {
                    account.differs(format!("{address} is not forwarded: {name} no longer has it"), REAPPLY, true);
                    format!("{address} by {name}: no longer there")
                }
                Err(reason) => account.unseen(format!("{address} by {name}: can't be looked at: {reason}")),
            };
            account.fact(plugin, "forwarding", found);
        }
    }

    /// Compares a link without a host end, and the link below it.
    pub(super) fn inner(
        &self,
        account: &mut Account,
        header: &Header,
        plugin: &str,
        made: &InnerLink,
        container: Option<&LiveNamespace>,
    ) {
        let Some(found) = container else { return };
        // A missing link is reported with the container.
        let Some(own) = found.links.iter().find(|link| link.name == header.ifname) else { return };
        let kind = made.kind.name();
        if own.kind != made.kind.in_kernel() {
            let what = format!("{} in the container is no {kind}, and does not belong to this attachment", own.name);
            return account.differs(what, AGAIN, false);
        }
        let as_what = match made.kind {
            InnerKind::Macvlan => format!(", mode {}", own.macvlan_mode.map_or("unknown", MacvlanMode::name)),
            InnerKind::Ipvlan => format!(", mode {}", own.ipvlan_mode.map_or("unknown", IpvlanMode::name)),
            InnerKind::Vlan => format!(", VLAN {}", own.vlan_id.unwrap_or_default()),
            InnerKind::Dummy => return account.fact(plugin, kind, &own.name),
            InnerKind::Tap => {
                let bridge = found.links.iter().find(|link| Some(link.index) == own.master);
                let port = bridge.map(|bridge| format!(", a port of {} in the container", bridge.name));
                return account.fact(plugin, kind, format!("{}{}", own.name, port.unwrap_or_default()));
            }
        };
        if let (Some((_, wanted)), Some(mode)) = (made.shares, own.ipvlan_mode)
            && wanted != mode
        {
            let what = format!("{} is in mode {}, and was made in mode {}", own.name, mode.name(), wanted.name());
            account.differs(what, AGAIN, false);
        }
        // If the kernel shows no namespace number, the lower link is in the container's own namespace.
        if own.peer_netnsid.is_none() {
            let parent = found.links.iter().find(|link| Some(link.index) == own.peer_index);
            let name = parent.map_or_else(|| "a link".to_owned(), |parent| parent.name.to_string());
            return account.fact(plugin, kind, format!("{} on {name} in the container{as_what}", own.name));
        }
        let Some(parent) = own.peer_index.and_then(|index| self.link_at(index)) else {
            return account.fact(plugin, kind, format!("{}{as_what}", own.name));
        };
        let up = if parent.up { "up" } else { "down" };
        account.fact(plugin, kind, format!("{} on {}, {up}{as_what}", own.name, parent.name));
        if !parent.up {
            let what = format!("{}, the lower link of {}, is down", parent.name, own.name);
            account.differs(what, format!("ip link set dev {} up", quoted(&parent.name)), true);
        }
    }

    pub(super) fn guard(
        &self,
        account: &mut Account,
        header: &Header,
        plugin: &str,
        guard: &MacGuard,
        container: Option<&LiveNamespace>,
    ) {
        // If an earlier plugin's link joined the bridge, the guard has the address that the link had then. The program
        // behind this link may be in no namespace.
        let is_port = |port: &Port| guard.host.as_ref() == Some(&port.name);
        let joined = account.effects.iter().filter_map(Port::of).any(is_port);
        let pair = account.effects.iter().find_map(Veth::of).map(|pair| pair.host.clone());
        let host = if joined { guard.host.clone() } else { pair };
        let own = container.and_then(|found| found.links.iter().find(|link| link.name == header.ifname));
        let id = guard.id.clone().or_else(|| account.guard_ids().into_iter().next());
        // If the container's end has another address, that address is reported, and not the spoofing protection.
        let own = own.and_then(|own| self.expected_mac(header, &path::of_pair(account), own.mac));
        let mac = if joined { guard.mac } else { own }.map(|mac| mac.0);
        let (Some(host), Some(mac), Some(id)) = (host, mac, id) else {
            return account.fact(plugin, "spoofing protection", "can't be compared without the pair");
        };
        let found = match self.rules().and_then(|rules| rules.guard(&id, &host, mac).map_err(|e| e.to_string())) {
            Ok(true) => format!("{host} may send as {} only", Mac(mac)),
            Ok(false) => {
                let what = format!(
                    "the spoofing protection of {host} is incomplete, or for another address than {}",
                    Mac(mac)
                );
                // Records of earlier versions lack the port and the address.
                match guard.host.is_some() && guard.mac.is_some() {
                    true => account.differs(what, REAPPLY, true),
                    false => account.differs(what, AGAIN, false),
                }
                format!("incomplete for {}", Mac(mac))
            }
            Err(reason) => account.unseen(format!("can't be looked at: {reason}")),
        };
        account.fact(plugin, "spoofing protection", found);
    }

    pub(super) fn lease(&self, account: &mut Account, header: &Header, plugin: &str, directory: &Path) {
        let leases = self.leases(directory, &header.network);
        let leases = match leases.as_ref() {
            Ok(leases) => leases,
            Err(reason) => {
                account.count(true);
                return account.fact(plugin, "leases", format!("can't be looked at: {reason}"));
            }
        };
        let own = LeaseOwner::new(&header.container_id, &header.ifname);
        // A program that writes no records may have given the container another address by now.
        let own_address = |held: &HeldAddress| {
            account.addresses.is_empty() || account.addresses.iter().any(|address| address.addr() == held.address)
        };
        let is_held = leases.iter().any(|held| held.owner.as_ref() == Some(&own) && own_address(held));
        account.count(is_held);
        for held in leases.iter().filter(|held| held.owner.as_ref() == Some(&own)) {
            account.fact(plugin, "lease", format!("{} in {}", held.address, held.path.display()));
        }
        for address in account.addresses.clone() {
            let held = leases.iter().find(|held| held.address == address.addr());
            match held.map(|held| held.owner.as_ref()) {
                Some(Some(owner)) if *owner == own => {}
                Some(owner) => {
                    let by = owner.map_or_else(
                        || "an unknown owner".to_owned(),
                        |owner| format!("{} {}", owner.container_id, owner.ifname),
                    );
                    account.differs(format!("address {} is leased to {by} too", address.addr()), AGAIN, false);
                }
                None => {
                    let own = directory.join(&header.network);
                    let file = own.join(address.addr().to_string());
                    let make = match is_directory(&own) {
                        true => String::new(),
                        false => format!("install -d -m 755 {} && ", quoted(&own.display().to_string())),
                    };
                    // The command must not replace a lease that another owner has taken meanwhile.
                    let remedy = format!(
                        "{make}(umask 077; set -C; printf '%s\\r\\n%s' {} {} > {})",
                        quoted(&header.container_id),
                        quoted(&header.ifname),
                        quoted(&file.display().to_string())
                    );
                    let what =
                        format!("the lease of {} is gone, and another container may get the address", address.addr());
                    account.differs(what, remedy, true);
                }
            }
        }
    }
}
