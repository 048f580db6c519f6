//! `veth`: to look at the pair only, or also to make it, and the MTU.

use super::Decide;
use crate::grammar::{Count, Key, LOOK_ONLY, ValueKind, key};
use crate::granted::Grant;
use crate::line::Change;
use crate::prelude::*;
use crate::rules::RuleInput;
use postern_types::{OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[key("mtu", ValueKind::Mtu, Count::One), LOOK_ONLY];

impl Decide for ops::Veth {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create { mtu, .. } => {
                input.mtu(grant, *mtu, "")?;
                input.changes(grant)
            }
            Self::Find | Self::WaitRunning { .. } => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Create { .. } | Self::Find | Self::WaitRunning { .. } => Vec::new(),
        }
    }
}
