//! `ipam`: the plugins that may be delegates, and those of them that may be native programs.

use super::Decide;
use crate::grammar::{Count, Key, ValueKind, key, required};
use crate::granted::{Grant, Granted};
use crate::line::{self, Change};
use crate::prelude::*;
use crate::rules::RuleInput;
use postern_types::{Capability, OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] =
    &[required("types", ValueKind::Plugin, "${config.ipam.type}"), key("native", ValueKind::Plugin, Count::Any)];

impl Decide for ops::Ipam {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Add | Self::Del | Self::Check | Self::Status | Self::Gc => {
                match input.question.conf.ipam_type.as_str() {
                    // Without a type there is nothing to decide on: the operation itself says that it is missing.
                    "" => Ok(grant.name),
                    name => input.one_of(grant, "types", ValueKind::Plugin, name, "ipam.types"),
                }
            }
        }
    }

    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Add | Self::Del | Self::Check | Self::Status | Self::Gc => {
                line::object("types", &input.question.conf.ipam_type)
            }
        }
    }
}

impl Granted {
    /// True if policy lets this delegate be a native program.
    pub fn allows_native(&self, plugin: &str) -> bool {
        self.grant(Capability::Ipam).is_some_and(|grant| grant.matches("native", plugin))
    }

    /// The way out of a refused delegate that is a native program.
    pub fn native_hint(&self, plugin: &str) -> String {
        let types = self.grant(Capability::Ipam).is_none_or(|grant| !grant.matches("types", plugin));
        let mut changes = vec![line::text("native", plugin)];
        changes.extend(types.then(|| line::text("types", plugin)));
        self.way_out(Some(Capability::Ipam), self.changed(Capability::Ipam, &changes))
    }

    /// The way out of a refused type of delegate.
    pub fn delegate_hint(&self, plugin: &str) -> String {
        self.hint(Capability::Ipam, vec![line::text("types", plugin)])
    }
}
