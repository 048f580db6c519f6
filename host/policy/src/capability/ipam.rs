//! `ipam`: the plugins that may be delegates, and the delegates that may be native programs.

use super::prelude::*;

/// The keys of `[grant.ipam]`.
pub const KEYS: &[Key] =
    &[required("types", ValueKind::Plugin, "${config.ipam.type}"), key("native", ValueKind::Plugin, Count::Any)];

impl Decide for ops::Ipam {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Add | Self::Del | Self::Check | Self::Status | Self::Gc => {
                match input.question.conf.ipam_type.as_str() {
                    // If the type is missing, policy decides nothing. The operation itself reports the error.
                    "" => Ok(grant.name),
                    name => input.one_of(grant, "ipam.types", name),
                }
            }
        }
    }
}

impl Granted {
    /// The hint after the refusal of a delegate that is a native program.
    pub fn native_hint(&self, plugin: &str) -> String {
        let types = self.grant(Capability::Ipam).is_none_or(|grant| !grant.matches("types", plugin));
        let mut changes = vec![line::text("native", plugin)];
        changes.extend(types.then(|| line::text("types", plugin)));
        self.hint(Capability::Ipam, changes)
    }
}
