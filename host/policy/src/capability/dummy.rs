//! `dummy`: the keys of `[grant.dummy]`. The operations have a row in the list of all capabilities.

use super::prelude::*;

/// The keys of `[grant.dummy]`.
pub const KEYS: &[Key] = &[LOOK_ONLY];
