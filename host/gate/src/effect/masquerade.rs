//! Masquerading rules.

use super::{Addresses, Leaves, Need, Noted};
use crate::capability::masquerade;
use crate::session::Session;
use ipnet::IpNet;
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

impl Leaves for Masquerade {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        masquerade::revert(session, self.backend, &self.addresses)
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

    fn is_link(&self) -> bool {
        false
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
