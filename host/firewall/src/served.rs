//! The addresses that the rules of a node lead traffic to, whatever program made the rules.
//!
//! No other container may get such an address. Native portmap's DNAT rules stay if a container ends without a DEL.

use std::collections::HashMap;
use std::net::IpAddr;

use netlink_packet_netfilter::nftables::{NfTablesMessage, RuleMessage};
use nix::errno::Errno;
use postern_netlink::Attributes;

use crate::iptables::forward::CHAIN as FORWARDED;
use crate::iptables::text::SavedTable;
use crate::iptables::{self, ProgramRunner};
use crate::key::is_masquerading;
use crate::nft::batch::FAMILIES;
use crate::nft::read::{RULE_CHAIN, RULE_EXPRESSIONS, RULE_TABLE};
use crate::nft::rule::{Expression, NftRule, destination_of};
use crate::{AttachmentKey, FirewallError, Nft, hostport, octets};

/// `NFT_NAT_DNAT`.
const DNAT: u32 = 1;

/// A rule that leads traffic to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingRule {
    /// Family, table and chain: `ip nat CNI-DN-…`.
    pub place: String,
    /// True if the rule is in a chain or a table of the native portmap.
    pub of_plugin: bool,
    /// The name of the owner of a forward: the comment in nftables, the chain in iptables.
    owner: Option<Vec<u8>>,
}

/// The addresses that rules lead traffic to, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Served(HashMap<IpAddr, Vec<ServingRule>>);

impl Served {
    /// Reads nftables, which also has the rules of newer iptables. If the kernel has tables of legacy iptables and the
    /// node has the programs of legacy iptables, these tables are read too.
    ///
    /// # Errors
    /// The kernel refuses to show its rules, a program fails, or the deadline passes.
    pub fn look(nft: &mut Nft, runner: ProgramRunner<'_>) -> Result<Self, FirewallError> {
        let mut served = Self::default();
        for (family, name) in FAMILIES {
            let request = NfTablesMessage::GetRule(RuleMessage { attributes: Vec::new() });
            let rules = nft.dump(family, request, |rule| Some(read(rule, name)));
            let rules = match rules {
                Err(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::ENOENT) => continue,
                rules => rules.map_err(|errno| FirewallError::errno("list rules of", name, errno))?,
            };
            rules.into_iter().flatten().for_each(|(address, serving)| served.add(address, serving));
        }
        if iptables::has_legacy_nat() {
            for (name, table) in iptables::Tables::legacy_nat(runner)?.by_family() {
                of_saved(table, name).into_iter().for_each(|(address, serving)| served.add(address, serving));
            }
        }
        Ok(served)
    }

    /// Returns a rule that leads traffic to this address. Forwards with the names of the attachment `except` don't
    /// count.
    #[must_use]
    pub fn by(&self, address: IpAddr, except: Option<&AttachmentKey>) -> Option<&ServingRule> {
        let own = except.map(hostport::owner_names).unwrap_or_default();
        let is_own = |rule: &&ServingRule| rule.owner.as_ref().is_some_and(|owner| own.contains(owner));
        self.0.get(&address)?.iter().find(|rule| !is_own(rule))
    }

    /// Returns all addresses that rules of the native plugins lead traffic to, in order.
    #[must_use]
    pub fn of_plugins(&self) -> Vec<(IpAddr, &ServingRule)> {
        let mut all: Vec<_> = self
            .0
            .iter()
            .filter_map(|(address, serving)| Some((*address, serving.iter().find(|serving| serving.of_plugin)?)))
            .collect();
        all.sort_by_key(|(address, _)| *address);
        all
    }

    fn add(&mut self, address: IpAddr, serving: ServingRule) {
        let known = self.0.entry(address).or_default();
        if !known.contains(&serving) {
            known.push(serving);
        }
    }
}

impl ServingRule {
    /// Returns `None` for rules of `ipMasq` and of the firewall plugin, because they lead no traffic to an address.
    /// `ipMasq` concerns traffic that leaves a container, and the firewall plugin only accepts traffic.
    fn of(family: &str, table: &str, chain: &str, comment: Option<&[u8]>) -> Option<Self> {
        if chain == FORWARDED || is_masquerading(chain) {
            return None;
        }
        // A chain with any other name may be an administrator's.
        let of_plugin = hostport::is_of_plugin(table, chain);
        let owner = match comment {
            Some(comment) if table == hostport::nft::NAME => Some(comment.to_vec()),
            _ => chain.starts_with(hostport::CHAIN_PREFIX).then(|| chain.as_bytes().to_vec()),
        };
        Some(Self { place: format!("{family} {table} {chain}"), of_plugin, owner })
    }
}

/// Returns the addresses that a rule compares as destination, or sends packets to.
fn read(rule: Attributes<'_>, family: &str) -> Vec<(IpAddr, ServingRule)> {
    let name = |kind| rule.first(kind).map(|name| name.text_lossy().into_owned()).unwrap_or_default();
    let mut found = Vec::new();
    let mut registers: HashMap<u32, &[u8]> = HashMap::new();
    for expression in rule.first(RULE_EXPRESSIONS).into_iter().flat_map(|expressions| expressions.nested().iter()) {
        let data = expression.nested().first(2).map_or(Attributes(&[]), |data| data.nested());
        let number = |kind| data.first(kind).and_then(|part| part.be32());
        match expression.nested().first(1).map(|name| name.value) {
            // NFTA_IMMEDIATE_DREG, _DATA with NFTA_DATA_VALUE.
            Some(b"immediate\0") => {
                let value = data.first(2).and_then(|data| data.nested().first(1)).map(|data| data.value);
                registers.extend(number(1).zip(value));
            }
            // NFTA_NAT_TYPE, _REG_ADDR_MIN.
            Some(b"nat\0") if number(1) == Some(DNAT) => {
                let value = number(3).and_then(|register| registers.get(&register));
                found.extend(value.and_then(|value| octets::address(value)));
            }
            // NFTA_TARGET_NAME, _REV, _INFO: the form that iptables uses.
            Some(b"target\0") if data.first(1).map(|name| name.value) == Some(b"DNAT\0") => {
                let info = data.first(3).map(|info| info.value).unwrap_or_default();
                let (at, length) = match (family, number(2)) {
                    // The oldest revision has a counter before the flags.
                    ("ip", Some(0) | None) => (8, 4),
                    ("ip", _) => (4, 4),
                    _ => (4, 16),
                };
                found.extend(info.get(at..at + length).and_then(octets::address));
            }
            _ => {}
        }
    }
    let whole = NftRule::read(rule);
    let parts: Vec<Expression> = whole.expressions();
    found.extend(destination_of(&parts));
    if found.is_empty() {
        return Vec::new();
    }
    let serving = ServingRule::of(family, &name(RULE_TABLE), &name(RULE_CHAIN), whole.comment.as_deref());
    found.into_iter().filter_map(|address| Some((address, serving.clone()?))).collect()
}

/// As [`read`], for a table as `iptables-save` prints it.
fn of_saved(table: &SavedTable, family: &str) -> Vec<(IpAddr, ServingRule)> {
    let mut found = Vec::new();
    for saved in &table.rules {
        let Some(serving) = ServingRule::of(family, "nat", &saved.rule.chain, None) else { continue };
        let destination = saved.rule.destination.filter(|(is, net)| *is && net.prefix_len() == net.max_prefix_len());
        let addresses = destination.map(|(_, net)| net.addr()).into_iter().chain(saved.rule.dnat_address());
        found.extend(addresses.map(|address| (address, serving.clone())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_saved_rules() {
        let table = SavedTable::parse(
            "*nat\n-A CNI-DN-1 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.9.0.2:80\n\
             -A X -d 10.9.0.3/32 -j ACCEPT\n-A X -d 10.9.0.0/24 -j ACCEPT\n-A X ! -d 10.9.0.4/32 -j ACCEPT\n\
             -A CNI-0123456789abcdef01234567 -d 10.9.0.5/32 -j ACCEPT\n\
             -A CNI-FORWARD -d 10.9.0.6/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
             -A CNI-ADMIN -d 10.9.0.7/32 -j DROP\n-A CNI-DN-2 -p tcp -j DNAT --to-destination [fd00::2]:80\nCOMMIT\n",
        );
        let found = of_saved(&table, "ip");
        let places: Vec<String> = found
            .iter()
            .map(|(address, serving)| format!("{address} {} {}", serving.place, serving.of_plugin))
            .collect();
        let key = AttachmentKey { network: "mynet".into(), container_id: "cid1".into(), ifname: "eth0".into() };
        let own = key.iptables_chains(crate::key::ChainKind::Forwards);
        let of = |comment: &[u8]| ServingRule::of("ip", "cni_hostport", "hostports", Some(comment)).unwrap();
        let mut served = Served::default();
        let address = "10.9.0.2".parse().unwrap();
        for rule in [of(b"cid1"), ServingRule::of("ip", "nat", &own[0], None).unwrap()] {
            served.add(address, rule);
        }
        assert!(served.by(address, None).is_some() && served.by(address, Some(&key)).is_none());
        served.add(address, of(b"cid2"));
        assert_eq!(served.by(address, Some(&key)), Some(&of(b"cid2")));
        assert_eq!(
            places,
            [
                "10.9.0.2 ip nat CNI-DN-1 true",
                "10.9.0.3 ip nat X false",
                "10.9.0.7 ip nat CNI-ADMIN false",
                "fd00::2 ip nat CNI-DN-2 true"
            ]
        );
    }
}
