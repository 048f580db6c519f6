//! `macvlan`: the modes and the MTU that a plugin may use.

use super::prelude::*;

/// The keys of `[grant.macvlan]`.
pub const KEYS: &[Key] = &[
    // In mode "passthru" the container gets the parent's frames, and can change the parent's address. So a policy must
    // name this mode.
    required("modes", ValueKind::Mode, "${config.mode | bridge}"),
    key("mtu", ValueKind::Mtu, Count::One),
    LOOK_ONLY,
];

impl Decide for ops::Macvlan {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create { mode, mtu, .. } => {
                let rule = input.one_of(grant, "macvlan.modes", mode.name())?;
                input.mtu(grant, *mtu, "")?;
                input.changes(grant).map(|_| rule)
            }
            Self::Find => Ok(grant.name),
        }
    }
}
