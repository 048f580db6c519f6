//! Masquerading rules.

use super::numbers::{made_by_iptables, noted, recorded};
use super::{Effect, Leaves, Reapplied, Reapply};
use crate::errors::firewall_error;
use crate::need::Need;
use crate::session::Session;
use ipnet::IpNet;
use postern_firewall::iptables::{Numbers, Recorded};
use postern_firewall::{FirewallError, iptables, masquerade};
use postern_state::Header;
use postern_types::{Backend, IptablesVariant, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Masquerading rules. nftables identifies them by the attachment; iptables by its addresses, because attachments of
/// one container share a chain there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// The packet filter of the rules.
    pub backend: Backend,
    /// Where they are, for iptables, if that was known. Records of Postern 0.1 do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<IptablesVariant>,
    /// The addresses with masqueraded traffic.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
}

impl Masquerade {
    /// Returns the effect that the record has of these addresses; if it has none, the one that an ADD makes.
    pub(crate) fn of_session(session: &Session, backend: Backend, addresses: &[IpNet]) -> Self {
        let listed = session.record().map(|record| record.effects(None)).unwrap_or_default();
        let mut made = listed.iter().filter_map(|noted| Self::of(&noted.effect));
        let is_same = |made: &&Self| made.backend == backend && made.addresses == addresses;
        made.find(is_same).cloned().unwrap_or_else(|| Self {
            backend,
            variant: if backend == Backend::Iptables { iptables::of_new(addresses) } else { None },
            addresses: addresses.to_vec(),
        })
    }

    /// Returns the rule handles of this attachment that its record lists.
    pub(crate) fn handles(&self, session: &Session) -> Vec<u64> {
        self.numbers(session).0
    }

    /// Returns the handles of its rules that the record lists, and the numbers of their tables.
    fn numbers(&self, session: &Session) -> (Vec<u64>, Vec<u64>) {
        noted(session, |effect| Self::of(effect) == Some(self))
    }

    /// Makes the rules in iptables, and notes their numbers.
    ///
    /// # Errors
    /// A program is missing or fails, or the deadline passes.
    pub(crate) fn make_by_iptables(&self, session: &mut Session) -> Result<(), OpError> {
        let (key, addresses) = (session.masquerade_key(), self.addresses.as_slice());
        made_by_iptables(session, &self.clone().into(), addresses, |runner| {
            iptables::ensure_in(self.variant, &key, addresses, runner)
        })
    }

    /// True if all rules are there, where iptables has them.
    ///
    /// # Errors
    /// A program is missing or fails, or the deadline passes.
    pub(crate) fn is_in_iptables(&self, session: &Session) -> Result<bool, FirewallError> {
        let (handles, tables) = self.numbers(session);
        let known = Numbers { handles: &handles, tables: &tables, recorded: self.recorded(session, &handles) };
        iptables::check_known(&session.masquerade_key(), &self.addresses, known, session.program_runner())
    }

    fn recorded(&self, session: &Session, handles: &[u64]) -> Recorded {
        // The programs of one family can make rules elsewhere than those of the other. Only all handles tell of all rules.
        let handles = if handles.len() == self.addresses.len() { handles } else { &[] };
        recorded(session, &self.clone().into(), self.variant, handles)
    }

    /// Removes the rules of one backend.
    ///
    /// If no addresses are known, it removes the iptables rules of all attachments of the container to the network,
    /// except those that another record claims. A native attachment may lose its masquerading too; otherwise rules
    /// would stay for ever.
    pub(crate) fn revert(&self, session: &Session) -> Result<(), OpError> {
        let key = session.masquerade_key();
        match self.backend {
            Backend::Nftables => {
                let handles = self.handles(session);
                session.unless_absent(|nft| masquerade::nft_remove_known(nft, &key, &handles))?;
            }
            Backend::Iptables => {
                // To ask the kernel is cheaper than to start programs that find nothing.
                if iptables::has_legacy_nat() || session.unless_absent(|nft| iptables::may_exist(nft, &key))? {
                    let (handles, tables) = self.numbers(session);
                    let recorded = self.recorded(session, &handles);
                    match self.addresses.as_slice() {
                        [] => {
                            let others = addresses_of_others(session)?;
                            iptables::remove_all(&key, &others, recorded, session.program_runner())
                        }
                        some => {
                            let known = Numbers { handles: &handles, tables: &tables, recorded };
                            iptables::remove_known(&key, some, known, session.program_runner())
                        }
                    }
                    .map_err(firewall_error)?;
                }
            }
        }
        Ok(())
    }
}

impl Leaves for Masquerade {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        self.revert(session)
    }

    fn words(&self) -> String {
        "masquerading rules".to_owned()
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn needs(&self) -> Need<'_> {
        match self.backend {
            Backend::Nftables => Need::Network,
            Backend::Iptables => Need::Iptables,
        }
    }
}

impl Reapply for Masquerade {
    fn reapply(&self, session: &mut Session) -> Result<Reapplied, OpError> {
        // Earlier versions did not write the addresses down. Then only an ADD knows them.
        if self.addresses.is_empty() {
            return Ok(Reapplied::NoRules);
        }
        let (key, addresses) = (session.masquerade_key(), self.addresses.as_slice());
        match self.backend {
            Backend::Nftables => {
                let handles = self.handles(session);
                if masquerade::nft_check_known(&mut *session.nft()?, &key, addresses, &handles)
                    .map_err(firewall_error)?
                {
                    return Ok(Reapplied::Complete);
                }
                let handles = masquerade::nft_ensure(&mut *session.nft()?, &key, addresses).map_err(firewall_error)?;
                // The noted handles must be all of the attachment's. The next look searches otherwise.
                if handles.len() == addresses.len() {
                    session.known_by(&self.clone().into(), &handles);
                }
            }
            Backend::Iptables => {
                if self.is_in_iptables(session).map_err(firewall_error)? {
                    return Ok(Reapplied::Complete);
                }
                self.make_by_iptables(session)?;
            }
        }
        Ok(Reapplied::Restored)
    }
}

/// Returns the addresses of the container's other attachments to the network that iptables masquerades, by their
/// records.
fn addresses_of_others(session: &Session) -> Result<Vec<IpAddr>, OpError> {
    let (own, request) = (session.key()?, session.request);
    let mut addresses = Vec::new();
    for summary in session.records_here()? {
        let is_of_container = |header: &Header| {
            header.network == request.conf.name && header.container_id == request.container_id && header.key() != own
        };
        if summary.header.as_ref().is_some_and(is_of_container) {
            for noted in summary.effects {
                let effect = serde_json::from_value::<Effect>(noted.effect).ok();
                if let Some(Masquerade { backend: Backend::Iptables, addresses: claimed, .. }) =
                    effect.as_ref().and_then(Masquerade::of)
                {
                    addresses.extend(claimed.iter().map(IpNet::addr));
                }
            }
        }
    }
    Ok(addresses)
}
