//! `device`: the links of the node that may be moved into a container, and exceptions for links that the node uses.

use super::prelude::*;
use postern_types::DeviceKey;

/// The key that allows taking the link of a default route.
pub const DEFAULT_LINK: &str = "default-link";
/// The key that allows taking a port of a bridge.
pub const PORTS: &str = "ports";

/// The keys of `[grant.device]`. A network names its device by one of the first four keys.
pub const KEYS: &[Key] = &[
    key("names", ValueKind::Link, Count::Some),
    key("addresses", ValueKind::LinkAddress, Count::Some),
    key("paths", ValueKind::Directory, Count::Some),
    key("ids", ValueKind::Device, Count::Some),
    key(DEFAULT_LINK, ValueKind::Flag, Count::One),
    key(PORTS, ValueKind::Flag, Count::One),
];

/// Returns the key of the policy table for this way to name a device, and the rule.
pub fn key_of(by: DeviceKey) -> (&'static str, &'static str) {
    match by {
        DeviceKey::Name => ("names", "device.names"),
        DeviceKey::Address => ("addresses", "device.addresses"),
        DeviceKey::Path => ("paths", "device.paths"),
        DeviceKey::Pci | DeviceKey::Id => ("ids", "device.ids"),
    }
}

impl Decide for ops::Device {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Find { by, value } | Self::Take { by, value } => input.one_of(grant, key_of(*by).1, value),
            Self::GiveBack => Ok(grant.name),
        }
    }
}

impl Granted {
    /// True if a device may be taken although the node itself uses the device as `used_as`: [`DEFAULT_LINK`] or
    /// [`PORTS`].
    pub fn may_take(&self, used_as: &str) -> bool {
        self.grant(Capability::Device).is_some_and(|grant| grant.on(used_as))
    }

    /// Returns the policy line that would allow the device.
    pub fn take_hint(&self, used_as: &'static str) -> String {
        self.hint(Capability::Device, vec![line::text(used_as, "true")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_place() {
        let all = [DeviceKey::Name, DeviceKey::Address, DeviceKey::Path, DeviceKey::Pci, DeviceKey::Id];
        for by in all {
            let (key, rule) = key_of(by);
            assert!(KEYS.iter().any(|known| known.name == key));
            assert_eq!(rule, format!("device.{key}"));
        }
    }
}
