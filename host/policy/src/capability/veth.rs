//! `veth`: a plugin may only look at the pair, or also make the pair, with a granted MTU.

use super::prelude::*;

/// The keys of `[grant.veth]`.
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
}
