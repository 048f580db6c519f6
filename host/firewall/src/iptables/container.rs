//! The chain that a container has in each network: the common code of masquerading and forwards.

use super::prelude::*;
use super::presence::only_programs;
use super::{has_legacy_nat, hostport, masquerade};

impl ChainKind {
    /// Returns the chain with the rules that lead to the containers' chains.
    fn home(self) -> &'static str {
        match self {
            Self::Masquerading => masquerade::POSTROUTING,
            Self::Forwards => hostport::DNAT,
        }
    }

    /// Returns the two possible owners of the rules of a key. Fails if a comment can't have the key's names.
    pub(super) fn owners(self, key: &AttachmentKey) -> Result<[IptablesOwner; 2], FirewallError> {
        let comment = Some(key.iptables_comment(self)?);
        let owner = |chain| IptablesOwner { comment: comment.clone(), chain: Some(chain), home: self.home() };
        Ok(key.iptables_chains(self).map(owner))
    }

    /// Returns the container and network of the chain that a rule leads to. The rule's comment names them.
    pub(super) fn key_of(self, rule: &IptablesRule) -> Option<AttachmentKey> {
        let key = || AttachmentKey::of_iptables(self, rule.target_chain()?, rule.comment()?);
        (rule.chain == self.home()).then(key).flatten()
    }
}

/// Checks that rules can be named after `key`. Call this function before a record announces the rules.
///
/// # Errors
/// The names of network and container are together too long for a comment, or have a forbidden character.
pub fn validate(kind: ChainKind, key: &AttachmentKey) -> Result<(), FirewallError> {
    key.iptables_comment(kind).map(drop)
}

/// True if there may be rules of this container and network. This question takes microseconds. If the answer is false,
/// no iptables program needs to run. An iptables program takes milliseconds.
///
/// Always true if the kernel has a `nat` table of legacy iptables, because only the iptables programs can read this
/// table.
///
/// # Errors
/// The kernel refuses to show its nftables, or the deadline passes.
pub fn may_exist(nft: &mut Nft, kind: ChainKind, key: &AttachmentKey) -> Result<bool, FirewallError> {
    Ok(has_legacy_nat() || has_chain(nft, NAT, &key.iptables_chains(kind))?)
}

/// True if only the iptables programs can read or change the rules of this container and network. Without a key, the
/// question is about rules of all plugins. False if the iptables programs are not installed.
#[must_use]
pub fn needs_program(runner: ProgramRunner<'_>, kind: ChainKind, key: Option<&AttachmentKey>) -> bool {
    let Some(key) = key else {
        return only_programs(NAT, runner, |nft, v6| netlink::look(nft, v6, &Scope::whole(NAT), false).map(|_| true));
    };
    let mut chains: Vec<String> = key.iptables_chains(kind).into();
    if kind == ChainKind::Forwards {
        chains.extend(hostport::MARKING.map(str::to_owned));
    }
    only_programs(NAT, runner, |nft, v6| netlink::can_read(nft, table(v6, NAT), &chains))
}

/// Removes the rules of the containers in `network` that have neither a valid nor a busy container ID, in both
/// families. Returns the removed container IDs. `busy` is called only if there is something to remove, and after the
/// rules were read, as in [`crate::masquerade::nft_retain`].
///
/// # Errors
/// A program is missing or fails, or the deadline passes.
pub fn retain(
    kind: ChainKind,
    network: &str,
    valid: &[(String, String)],
    busy: impl Fn() -> Result<Vec<(String, String)>, FirewallError>,
    runner: ProgramRunner<'_>,
) -> Result<Vec<String>, FirewallError> {
    let stale = Tables::look(NAT, runner)?.stale(network, valid, busy, |rule| kind.key_of(rule))?;
    for key in &stale {
        match kind {
            ChainKind::Masquerading => masquerade::remove_all(key, &[], Recorded::No, runner)?,
            ChainKind::Forwards => hostport::remove_all(key, runner)?,
        };
    }
    Ok(stale.into_iter().map(|key| key.container_id).collect())
}
