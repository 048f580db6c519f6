//! `link`: whether a plugin may only look at the link, or also change and delete it.

use super::prelude::*;
use postern_types::HandleKind;

/// The keys of `[grant.link]`.
pub const KEYS: &[Key] = &[LOOK_ONLY];

impl Decide for ops::Link {
    fn granted_by(&self, input: &RuleInput<'_>) -> Capability {
        match self {
            // If a plugin has the capability that gave out the handle, it can look at the link. The link's kind does
            // not matter.
            Self::Attributes { link } => (input.question.kind)(*link).map_or(Capability::Link, HandleKind::giver),
            Self::Own | Self::Up { .. } | Self::Delete { .. } => Capability::Link,
        }
    }

    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Own | Self::Attributes { .. } => Ok(grant.name),
            Self::Up { .. } | Self::Delete { .. } => input.changes(grant),
        }
    }
}
