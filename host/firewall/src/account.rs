//! What there is, for an account of the node: rules that bear the marks of attachments, whoever made them. Reading only.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use ipnet::IpNet;
use netlink_packet_netfilter::NetfilterProtoFamily;

use crate::iptables::{self, Means};
use crate::masquerade::{CHECKS, TABLE};
use crate::nft::rule::{self, Rule};
use crate::{AttachmentKey, FirewallError, Nft, macguard, masquerade};

/// Rules that bear the mark of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Where: `inet cni_plugins_masquerade masq_checks`, `iptables nat CNI-…`, …
    pub place: String,
    /// Their comment, or what else names the attachment. Whoever made the rules chose it.
    pub mark: String,
    /// Whose traffic they masquerade.
    pub addresses: Vec<IpAddr>,
    /// What removes them, in this order; none where a shell could take more from the text than a rule.
    pub commands: Vec<String>,
}

/// Adds a rule to those of its attachment.
pub(crate) fn gather(all: &mut Vec<Marked>, rule: Marked) {
    match all.iter_mut().find(|marked| marked.place == rule.place && marked.mark == rule.mark) {
        Some(marked) => {
            marked.addresses.extend(rule.addresses);
            marked.commands.extend(rule.commands);
        }
        None => all.push(rule),
    }
}

/// Masquerading rules by nftables of attachments other than these.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub fn strange_masquerades(nft: &mut Nft, known: &[AttachmentKey]) -> Result<Vec<Marked>, FirewallError> {
    let known: Vec<String> = known.iter().map(AttachmentKey::instance).collect();
    let mut strange = Vec::new();
    for rule in nft.rules(TABLE, CHECKS)? {
        if !known.iter().any(|instance| rule.commented(instance.as_bytes())) {
            let mark = String::from_utf8_lossy(rule.comment.as_deref().unwrap_or_default()).into_owned();
            let commands = vec![format!("nft delete rule {TABLE} {CHECKS} handle {}", rule.handle)];
            let addresses = rule::source_of(&rule.expressions()).map(|(source, _)| source).into_iter().collect();
            gather(&mut strange, Marked { place: format!("{TABLE} {CHECKS}"), mark, addresses, commands });
        }
    }
    Ok(strange)
}

/// Spoofing protection of attachments other than these, given by their IDs (container ID, hyphen, interface).
///
/// # Errors
/// As [`strange_masquerades`].
pub fn strange_guards(nft: &mut Nft, known: &[String]) -> Result<Vec<Marked>, FirewallError> {
    let mut strange = Vec::new();
    for id in macguard::ids(nft)?.into_iter().filter(|id| !known.contains(id)) {
        let (place, commands) = (macguard::TABLE.to_string(), macguard::removal(nft, &id)?);
        strange.push(Marked { place, mark: id, addresses: Vec::new(), commands });
    }
    Ok(strange)
}

/// The rules of all attachments by nftables, looked at once: asked for each attachment, the kernel would show all of them
/// as often as there are attachments.
pub struct Rules {
    masquerades: HashMap<String, Vec<Rule>>,
    guards: HashMap<String, Vec<Rule>>,
}

impl Rules {
    /// Looks at them.
    ///
    /// # Errors
    /// As [`strange_masquerades`].
    pub fn look(nft: &mut Nft) -> Result<Self, FirewallError> {
        Ok(Self { masquerades: masquerade::GROUND.look(nft)?, guards: macguard::GROUND.look(nft)? })
    }

    /// As [`masquerade::nft_check`].
    ///
    /// # Errors
    /// None: the rules are known.
    pub fn masquerade(&self, key: &AttachmentKey, addresses: &[IpNet]) -> Result<bool, FirewallError> {
        masquerade::is_complete(key, addresses, |chain| Ok(of(&self.masquerades, chain)))
    }

    /// As [`macguard::check`].
    ///
    /// # Errors
    /// A name is too long.
    pub fn guard(&self, id: &str, host_ifname: &str, mac: [u8; 6]) -> Result<bool, FirewallError> {
        macguard::is_complete(id, host_ifname, mac, |chain| Ok(of(&self.guards, chain)))
    }
}

/// The rules of a chain: none if there is no such chain.
fn of<'a>(chains: &'a HashMap<String, Vec<Rule>>, chain: &str) -> &'a [Rule] {
    chains.get(chain).map(Vec::as_slice).unwrap_or_default()
}

/// The nat tables of iptables, looked at once.
pub struct Iptables(Option<iptables::Tables>);

impl Iptables {
    /// Looks at them, provided that there can be something of an attachment in them: reading legacy tables makes the
    /// kernel load them.
    ///
    /// # Errors
    /// The kernel refuses to show it, a program is missing or fails, or the deadline passes.
    pub fn look(nft: &mut Nft, means: Means<'_>) -> Result<Self, FirewallError> {
        let wanted = iptables::any_may_exist(nft)?;
        Ok(Self(if wanted { Some(iptables::Tables::nat(means)?) } else { None }))
    }

    /// Whether all masquerading of these addresses is there.
    ///
    /// # Errors
    /// A name doesn't fit.
    pub fn has(&self, key: &AttachmentKey, addresses: &[IpNet]) -> Result<bool, FirewallError> {
        match &self.0 {
            Some(tables) => tables.has(key, addresses),
            None => Ok(addresses.is_empty()),
        }
    }

    /// Chains of the native plugins' names that belong to none of these attachments.
    #[must_use]
    pub fn strangers(&self, known: &[AttachmentKey]) -> Vec<Marked> {
        self.0.as_ref().map(|tables| tables.strangers(known)).unwrap_or_default()
    }
}

/// The chains through which forwarded packets go (`ip filter FORWARD`), and whether they drop what no rule of theirs
/// accepts.
///
/// # Errors
/// As [`strange_masquerades`].
pub fn forward_chains(nft: &mut Nft) -> Result<Vec<(String, bool)>, FirewallError> {
    let mut chains = Vec::new();
    for (family, name) in
        [(NetfilterProtoFamily::IPv4, "ip"), (NetfilterProtoFamily::IPv6, "ip6"), (NetfilterProtoFamily::Inet, "inet")]
    {
        let found = nft.forward_chains(family)?;
        chains.extend(found.into_iter().map(|(table, chain, drops)| (format!("{name} {table} {chain}"), drops)));
    }
    Ok(chains)
}

/// Opens nftables for a look that takes no longer than until `deadline`; `None` if the kernel does not let us.
#[must_use]
pub fn nft(deadline: Instant) -> Option<Nft> {
    let mut nft = Nft::open(deadline).ok()?;
    nft.generation().ok()?;
    Some(nft)
}
