//! `lo`, set up.

use super::{Addresses, Leaves, Need, Noted};
use crate::capability::loopback;
use crate::session::Session;
use postern_types::OpError;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// `lo` was down before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopbackUp {}

impl Leaves for LoopbackUp {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        loopback::revert(session)
    }

    fn words(&self) -> String {
        "lo being up".to_owned()
    }

    fn addresses(&self) -> Addresses<'_> {
        Addresses::Unconcerned
    }

    fn noted(&self) -> Noted {
        Noted::Never
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
