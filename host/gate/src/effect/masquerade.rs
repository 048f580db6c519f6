//! Masquerading rules.

use super::numbers::{made_by_iptables, noted};
use super::{Addresses, AttachmentLink, Effect, Leaves, Reapplied, RecordTiming};
use crate::errors::{firewall_error, state_error};
use crate::need::Need;
use crate::session::Session;
use ipnet::IpNet;
use postern_firewall::{iptables, masquerade};
use postern_state::Header;
use postern_types::{Backend, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Masquerading rules. nftables identifies them by the attachment; iptables by its addresses, because attachments of
/// one container share a chain there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// The packet filter of the rules.
    pub backend: Backend,
    /// The addresses with masqueraded traffic.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
}

impl Masquerade {
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
        made_by_iptables(session, &self.clone().into(), addresses, |runner| iptables::ensure(&key, addresses, runner))
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
                    match self.addresses.as_slice() {
                        [] => iptables::remove_all(&key, &addresses_of_others(session)?, session.program_runner()),
                        some => {
                            let (handles, tables) = self.numbers(session);
                            let known = iptables::Numbers { handles: &handles, tables: &tables };
                            iptables::remove_known(&key, some, known, session.program_runner())
                        }
                    }
                    .map_err(firewall_error)?;
                    // If only one family's programs are installed, the other family is skipped: it can't have rules.
                    if let Some(v6) = iptables::installed().iter().position(|installed| !installed)
                        && session.unless_absent(|nft| iptables::chains(nft, &key))?.get(v6) == Some(&true)
                    {
                        return Err(firewall_error(iptables::missing(v6 == 1)));
                    }
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
                if iptables::check(&key, addresses, session.program_runner()).map_err(firewall_error)? {
                    return Ok(Reapplied::Complete);
                }
                self.make_by_iptables(session)?;
            }
        }
        Ok(Reapplied::Restored)
    }

    fn words(&self) -> String {
        "masquerading rules".to_owned()
    }

    fn addresses(&self) -> Addresses<'_> {
        Addresses::Used
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn record_timing(&self) -> RecordTiming {
        RecordTiming::Once
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        None
    }

    fn outlives_boot(&self) -> bool {
        false
    }

    fn needs(&self) -> Need<'_> {
        match self.backend {
            Backend::Nftables => Need::Network,
            Backend::Iptables => Need::Iptables,
        }
    }
}

/// Returns the addresses of the container's other attachments to the network that iptables masquerades, by their
/// records.
fn addresses_of_others(session: &Session) -> Result<Vec<IpAddr>, OpError> {
    let (own, request) = (session.key()?, &session.request);
    let mut addresses = Vec::new();
    for summary in postern_state::list_known(&session.state).map_err(state_error)? {
        let is_of_container = |header: &Header| {
            header.network == request.conf.name && header.container_id == request.container_id && header.key() != own
        };
        if summary.header.as_ref().is_some_and(is_of_container) {
            for noted in summary.effects {
                let effect = serde_json::from_value::<Effect>(noted.effect).ok();
                if let Some(Masquerade { backend: Backend::Iptables, addresses: claimed }) =
                    effect.as_ref().and_then(Masquerade::of)
                {
                    addresses.extend(claimed.iter().map(IpNet::addr));
                }
            }
        }
    }
    Ok(addresses)
}
