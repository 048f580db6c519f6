//! `dummy`: the keys of its table. Its operations have a row in the list.

use super::prelude::*;

/// The keys of its table.
pub const KEYS: &[Key] = &[LOOK_ONLY];
