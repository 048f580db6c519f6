//! Imports that nearly every file here uses: a table's keys, the question to a policy, and policy lines.

pub(super) use super::Decide;
pub(super) use crate::grammar::{Count, Key, LOOK_ONLY, ValueKind, key, required};
pub(super) use crate::granted::{Grant, Granted};
pub(super) use crate::line::{self, Change};
pub(super) use crate::prelude::*;
pub(super) use crate::rules::RuleInput;
pub(super) use postern_types::{Capability, OpError, ops};
