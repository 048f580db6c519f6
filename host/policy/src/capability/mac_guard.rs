//! `mac-guard`: granted or not. `required` refuses an ADD without it.

use super::prelude::*;

/// The keys of its table.
pub const KEYS: &[Key] = &[key("required", ValueKind::Flag, Count::One)];

impl Granted {
    /// True if an ADD without spoofing protection is to be refused.
    pub fn requires_mac_guard(&self) -> bool {
        self.written(Capability::MacGuard).is_some_and(|grant| grant.on("required"))
    }
}
