//! `dummy`: the keys of `[grant.dummy]`. `mod.rs` of this directory decides on the operations.

use super::prelude::*;

/// The keys of `[grant.dummy]`.
pub const KEYS: &[Key] = &[LOOK_ONLY];
