//! `mac-guard`: the capability is granted or not. With `required`, an ADD without spoofing protection is refused.

use super::prelude::*;

/// The keys of `[grant.mac-guard]`.
pub const KEYS: &[Key] = &[key("required", ValueKind::Flag, Count::One)];

impl Granted {
    /// True if an ADD without spoofing protection is to be refused.
    pub fn requires_mac_guard(&self) -> bool {
        self.written(Capability::MacGuard).is_some_and(|grant| grant.on("required"))
    }
}
