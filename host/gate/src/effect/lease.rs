//! Leases of host-local's store.

use super::{Addresses, Leaves, Need, Noted};
use crate::capability::leases;
use crate::session::Session;
use postern_types::OpError;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Leases in a data directory, known by their owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// host-local's `dataDir`.
    pub directory: String,
}

impl Leaves for Lease {
    fn remove(&self, session: &Session, taken: Option<&[IpAddr]>) -> Result<(), OpError> {
        match taken {
            // Reserving failed, perhaps at a lock that somebody holds still.
            Some([]) => Ok(()),
            Some(taken) => leases::revert(session, &self.directory, taken, false),
            None => leases::revert(session, &self.directory, &[], true),
        }
    }

    fn words(&self) -> String {
        format!("leases in {}", self.directory)
    }

    fn addresses(&self) -> Addresses<'_> {
        Addresses::HeldIn(&self.directory)
    }

    fn noted(&self) -> Noted {
        Noted::EachTime
    }

    fn is_link(&self) -> bool {
        false
    }

    fn outlives_boot(&self) -> bool {
        true
    }

    fn needs(&self) -> Need<'_> {
        Need::Leases(&self.directory)
    }
}
