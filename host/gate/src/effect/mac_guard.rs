//! Spoofing protection.

use super::{Addresses, Leaves, Need, Noted};
use crate::capability::mac_guard;
use crate::session::Session;
use postern_types::{Mac, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Spoofing protection. One of an earlier version has no fields: it has the native name, for the record's pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacGuard {
    /// What its rules and chains are named after; `None` for the native plugins' name of the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The host end that it guards.
    #[serde(default, rename = "port", skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The one address that may send there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

impl Leaves for MacGuard {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        mac_guard::revert(session, self.id.as_deref(), self.host.as_deref())
    }

    fn words(&self) -> String {
        "spoofing protection".to_owned()
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
        Need::Network
    }
}
