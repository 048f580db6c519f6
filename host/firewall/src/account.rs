//! Reads the rules that have an attachment's mark, whatever program made them. This module changes no rule.

use std::collections::HashMap;

use ipnet::IpNet;

use crate::hostport::{self, HostPorts};
use crate::masquerade::{CHECKS, TABLE};
use crate::nft::batch::FAMILIES;
use crate::nft::rule::{self, NftRule};

pub use crate::iptables::Tables;
pub use crate::marked::Marked;
use crate::marked::gather;
use crate::{AttachmentKey, FirewallError, Nft, macguard, masquerade};

/// Returns the nftables masquerading rules of all attachments except `known`.
///
/// # Errors
/// The kernel refuses to show the rules, or the deadline passes.
pub fn unrecorded_masquerades(nft: &mut Nft, known: &[AttachmentKey]) -> Result<Vec<Marked>, FirewallError> {
    let known: Vec<String> = known.iter().map(AttachmentKey::instance).collect();
    let mut unrecorded = Vec::new();
    for rule in nft.rules(TABLE, CHECKS)? {
        if !known.iter().any(|instance| rule.commented(instance.as_bytes())) {
            let mark = String::from_utf8_lossy(rule.comment.as_deref().unwrap_or_default()).into_owned();
            let commands = vec![format!("nft delete rule {TABLE} {CHECKS} handle {}", rule.handle)];
            let addresses = rule::source_of(&rule.expressions()).map(|(source, _)| source).into_iter().collect();
            gather(&mut unrecorded, Marked { place: format!("{TABLE} {CHECKS}"), mark, addresses, commands });
        }
    }
    Ok(unrecorded)
}

/// Returns the rules against MAC spoofing of all attachments except `known`. `known` has IDs: container ID, hyphen,
/// interface.
///
/// # Errors
/// As [`unrecorded_masquerades`].
pub fn unrecorded_guards(nft: &mut Nft, known: &[String]) -> Result<Vec<Marked>, FirewallError> {
    let mut unrecorded = Vec::new();
    for id in macguard::ids(nft)?.into_iter().filter(|id| !known.contains(id)) {
        let (place, commands) = (macguard::TABLE.to_string(), macguard::removal(nft, &id)?);
        unrecorded.push(Marked { place, mark: id, addresses: Vec::new(), commands });
    }
    Ok(unrecorded)
}

/// The nftables rules of all attachments, read once. A request for each attachment would make the kernel show all rules
/// each time.
pub struct NftRules {
    masquerades: HashMap<String, Vec<NftRule>>,
    guards: HashMap<String, Vec<NftRule>>,
    forwards: [HashMap<String, Vec<NftRule>>; 2],
    /// True if the node's 127.0.0.0/8 is guarded.
    pub guards_localhost: bool,
}

impl NftRules {
    /// Reads the rules.
    ///
    /// # Errors
    /// As [`unrecorded_masquerades`].
    pub fn look(nft: &mut Nft) -> Result<Self, FirewallError> {
        let forwards = |nft: &mut Nft, v6| nft.rules_by_chain(hostport::nft::shared_of(v6).table);
        Ok(Self {
            masquerades: nft.rules_by_chain(masquerade::TABLE)?,
            guards: nft.rules_by_chain(macguard::TABLE)?,
            forwards: [forwards(nft, false)?, forwards(nft, true)?],
            guards_localhost: hostport::localnet::check(nft)?,
        })
    }

    /// True if the attachment's masquerading is complete, as in [`masquerade::nft_check_known`].
    ///
    /// # Errors
    /// None: the rules are known.
    pub fn masquerade(&self, key: &AttachmentKey, addresses: &[IpNet]) -> Result<bool, FirewallError> {
        masquerade::rules(key, addresses).is_complete(|chain| Ok(of(&self.masquerades, chain)))
    }

    /// True if the forwards are complete, as in [`HostPorts::nft_check`] or in [`HostPorts::nft_check_native`].
    ///
    /// # Errors
    /// None: the rules are known.
    pub fn forwards(&self, forwards: &HostPorts) -> Result<bool, FirewallError> {
        let [v4, v6] = &self.forwards;
        let chains = if forwards.address.addr().is_ipv6() { v6 } else { v4 };
        let own = forwards.rules().is_complete(|chain| Ok(of(chains, chain)))?;
        Ok(own || forwards.is_native(|chain| Ok(of(chains, chain).to_vec()))?)
    }

    /// True if the guard is complete, as in [`macguard::check_known`].
    ///
    /// # Errors
    /// A name is too long.
    pub fn guard(&self, id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<bool, FirewallError> {
        Ok(macguard::validate(id).is_ok()
            && macguard::rules(id, host_ifname, mac)?.is_complete(|chain| Ok(of(&self.guards, chain)))?)
    }
}

/// Returns the rules of a chain. A missing chain has no rules.
fn of<'a>(chains: &'a HashMap<String, Vec<NftRule>>, chain: &str) -> &'a [NftRule] {
    chains.get(chain).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the chains that forwarded packets go through (`ip filter FORWARD`). The flag is true if the chain's policy
/// is to drop.
///
/// # Errors
/// As [`unrecorded_masquerades`].
pub fn forward_chains(nft: &mut Nft) -> Result<Vec<(String, bool)>, FirewallError> {
    let mut chains = Vec::new();
    for (family, name) in FAMILIES {
        let found = nft.forward_chains(family)?;
        chains.extend(found.into_iter().map(|(table, chain, drops)| (format!("{name} {table} {chain}"), drops)));
    }
    Ok(chains)
}
