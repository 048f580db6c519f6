//! `mac-guard`: granted or not. `required` refuses an ADD without it.

use super::Decide;
use crate::grammar::{Count, Key, Kind, key};
use crate::granted::{Grant, Granted};
use crate::line::{self, Change};
use crate::rules::RuleInput;
use alloc::string::String;
use alloc::vec::Vec;
use postern_types::{Capability, OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[key("required", Kind::Flag, Count::One)];

impl Decide for ops::MacGuard {
    fn rule(&self, _: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Ensure { .. } | Self::Check { .. } | Self::Remove => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Ensure { .. } | Self::Check { .. } | Self::Remove => Vec::new(),
        }
    }

    fn gives_up(&self, _: &RuleInput<'_>) -> bool {
        match self {
            Self::Remove => true,
            Self::Ensure { .. } | Self::Check { .. } => false,
        }
    }
}

impl Granted {
    /// True if an ADD without spoofing protection is to be refused.
    pub fn requires_mac_guard(&self) -> bool {
        self.written(Capability::MacGuard).is_some_and(|grant| grant.on("required"))
    }

    /// The way out of a refused ADD that lacks the spoofing protection required by policy.
    pub fn unguarded_hint(&self) -> String {
        self.way_out(Some(Capability::MacGuard), self.changed(Capability::MacGuard, &[line::text("required", "false")]))
    }
}
