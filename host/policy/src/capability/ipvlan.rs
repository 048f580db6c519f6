//! `ipvlan`: the modes and the MTU that a plugin may use.

use super::prelude::*;

/// The keys of `[grant.ipvlan]`.
pub const KEYS: &[Key] = &[
    required("modes", ValueKind::IpvlanMode, "${config.mode | l2}"),
    key("mtu", ValueKind::Mtu, Count::One),
    LOOK_ONLY,
];

impl Decide for ops::Ipvlan {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create { mode, mtu, .. } => {
                let rule = input.one_of(grant, "ipvlan.modes", mode.name())?;
                input.mtu(grant, *mtu, "")?;
                input.changes(grant).map(|_| rule)
            }
            Self::Find => Ok(grant.name),
        }
    }
}
