//! Rules that let the attachment's addresses be forwarded.

use super::{Addresses, AttachmentLink, Effect, Leaves, Noted};
use crate::errors::firewall;
use crate::need::Need;
use crate::session::Session;
use ipnet::IpNet;
use postern_firewall::{firewalld, iptables};
use postern_types::{FirewallBackend, OpError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;

/// Rules that let the attachment's addresses be forwarded. The native form names no owner, so the record is the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firewall {
    /// The packet filter of the rules.
    pub backend: FirewallBackend,
    /// The zone of firewalld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The addresses.
    pub addresses: Vec<IpNet>,
}

impl Firewall {
    /// Makes the rules.
    pub(crate) fn make(&self, session: &Session, admin_chain: &str) -> Result<(), OpError> {
        match (self.backend, &self.zone) {
            (FirewallBackend::Iptables, _) => {
                iptables::forward::admit(&self.addresses, admin_chain, session.means()).map_err(firewall)
            }
            (FirewallBackend::Firewalld, zone) => self.addresses.iter().try_for_each(|address| {
                let zone = zone.as_deref().unwrap_or_default();
                firewalld::add(zone, address.addr(), session.means()).map_err(firewall)
            }),
        }
    }

    /// Removes the rules. An address that the record of another attachment admits in the same way keeps them.
    pub(crate) fn revert(&self, session: &Session) -> Result<(), OpError> {
        let mut own = Vec::new();
        for address in &self.addresses {
            let admits = |other: &Self| {
                (other.backend, &other.zone) == (self.backend, &self.zone)
                    && other.addresses.iter().any(|of_other| of_other.addr() == address.addr())
            };
            if !session.is_claimed_by(|summary| effects(summary).any(|effect| Self::of(&effect).is_some_and(admits)))? {
                own.push(*address);
            }
        }
        match self.backend {
            // To ask the kernel is cheaper than to start programs that find nothing.
            FirewallBackend::Iptables if !session.unless_absent(iptables::forward::may_be_admitted)? => Ok(()),
            FirewallBackend::Iptables => iptables::forward::withdraw(&own, session.means()).map(drop).map_err(firewall),
            // What firewalld had of it has ended with firewalld.
            FirewallBackend::Firewalld if !firewalld::runs(session.means()).map_err(firewall)? => Ok(()),
            FirewallBackend::Firewalld => own.iter().try_for_each(|address| {
                let zone = self.zone.as_deref().unwrap_or_default();
                firewalld::remove(zone, address.addr(), session.means()).map_err(firewall)
            }),
        }
    }
}

/// Returns the effects of a record that can be read.
fn effects(summary: &postern_state::Summary) -> impl Iterator<Item = Effect> {
    summary.effects.iter().filter_map(|noted| serde_json::from_value(noted.effect.clone()).ok())
}

impl Leaves for Firewall {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        self.revert(session)
    }

    fn words(&self) -> String {
        match &self.zone {
            Some(zone) => format!("sources in zone {zone} of firewalld"),
            None => "rules that let its addresses be forwarded".to_owned(),
        }
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
        match (self.backend, &self.zone) {
            (FirewallBackend::Firewalld, Some(zone)) => Need::Zone(Cow::Borrowed(zone)),
            (FirewallBackend::Firewalld | FirewallBackend::Iptables, _) => Need::Iptables,
        }
    }
}
