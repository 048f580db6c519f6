//! `dummy`: the keys of `[grant.dummy]`. Its operations have a row in the list.

use super::prelude::*;

/// The keys of `[grant.dummy]`.
pub const KEYS: &[Key] = &[LOOK_ONLY];
