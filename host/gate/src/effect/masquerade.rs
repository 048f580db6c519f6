//! Masquerading rules.

use super::{Addresses, AttachmentLink, Effect, Leaves, Noted};
use crate::errors::{firewall, state};
use crate::need::Need;
use crate::session::Session;
use ipnet::IpNet;
use postern_firewall::{iptables, masquerade};
use postern_state::Header;
use postern_types::{Backend, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Masquerading rules, known by the attachment; in iptables by its addresses, as attachments of one container share a chain
/// there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// Which packet filter has them.
    pub backend: Backend,
    /// Whose traffic they masquerade.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
}

impl Masquerade {
    /// The handles of this attachment's rules, as far as its record tells them.
    pub(crate) fn handles(&self, session: &Session) -> Vec<u64> {
        let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
        effects
            .into_iter()
            .filter(|noted| Self::of(&noted.effect) == Some(self))
            .flat_map(|noted| noted.handles)
            .collect()
    }

    /// Removes the rules of one backend. Where no addresses are known, iptables rules of all attachments of the container to
    /// the network go, but for those that another's record claims: rather a native one that loses its masquerading too than
    /// rules that stay for good.
    pub(crate) fn revert(&self, session: &Session) -> Result<(), OpError> {
        let key = session.masquerade_key();
        match self.backend {
            Backend::Nftables => {
                let handles = self.handles(session);
                session.unless_absent(|nft| masquerade::nft_remove_known(nft, &key, &handles))?;
            }
            Backend::Iptables => {
                // Asking the kernel is cheaper than starting programs that find nothing.
                if iptables::has_legacy_nat() || session.unless_absent(|nft| iptables::may_exist(nft, &key))? {
                    match self.addresses.as_slice() {
                        [] => iptables::remove_all(&key, &addresses_of_others(session)?, session.means()),
                        some => iptables::remove(&key, some, session.means()),
                    }
                    .map_err(firewall)?;
                    // Where only one family's programs are installed, the other's rules are passed over: they must not be there.
                    if let Some(v6) = iptables::installed().iter().position(|installed| !installed)
                        && session.unless_absent(|nft| iptables::chains(nft, &key))?.get(v6) == Some(&true)
                    {
                        return Err(firewall(iptables::missing(v6 == 1)));
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

    fn words(&self) -> String {
        "masquerading rules".to_owned()
    }

    fn addresses(&self) -> Addresses<'_> {
        Addresses::Used
    }

    fn noted(&self) -> Noted {
        Noted::Once
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

/// The addresses that iptables masquerades for the container's other attachments to the network, by their records.
fn addresses_of_others(session: &Session) -> Result<Vec<IpAddr>, OpError> {
    let (own, request) = (session.key()?, &session.request);
    let mut addresses = Vec::new();
    for summary in postern_state::list(&session.state).map_err(state)? {
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
