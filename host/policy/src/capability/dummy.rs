//! `dummy`: the keys of its table. Its operations have a row in the list.

use crate::grammar::{Key, LOOK_ONLY};

/// The keys of its table.
pub const KEYS: &[Key] = &[LOOK_ONLY];
