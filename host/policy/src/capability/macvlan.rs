//! `macvlan`: in which modes, and with which MTU.

use super::Decide;
use crate::grammar::{Count, Key, LOOK_ONLY, ValueKind, key, required};
use crate::granted::Grant;
use crate::line::{self, Change};
use crate::prelude::*;
use crate::rules::RuleInput;
use postern_types::{OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[
    // In "passthru" the container has its parent's frames, and can change the parent's address: it has to be named.
    required("modes", ValueKind::Mode, "${config.mode | bridge}"),
    key("mtu", ValueKind::Mtu, Count::One),
    LOOK_ONLY,
];

impl Decide for ops::Macvlan {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create { mode, mtu, .. } => {
                let rule = input.one_of(grant, "modes", ValueKind::Mode, mode.name(), "macvlan.modes")?;
                input.mtu(grant, *mtu, "")?;
                input.changes(grant).map(|_| rule)
            }
            Self::Find => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Create { mode, .. } => line::object("modes", mode.name()),
            Self::Find => Vec::new(),
        }
    }
}
