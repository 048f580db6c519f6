//! `vlan`: the VLANs and the MTU that a plugin may use.

use super::prelude::*;

/// The keys of `[grant.vlan]`. VLAN 0 stands for frames with a priority and no VLAN.
pub const KEYS: &[Key] =
    &[required("ids", ValueKind::Vlan, "${config.vlanId | 0}"), key("mtu", ValueKind::Mtu, Count::One), LOOK_ONLY];

impl Decide for ops::Vlan {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create { id, mtu, .. } => {
                let rule = input.one_of(grant, "vlan.ids", &id.to_string())?;
                input.mtu(grant, *mtu, "")?;
                input.changes(grant).map(|_| rule)
            }
            Self::Find => Ok(grant.name),
        }
    }
}
