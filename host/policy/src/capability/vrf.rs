//! `vrf`: the VRFs that a plugin may put the attachment's link into, and the routing tables that it may name for them.

use super::Decide;
use crate::grammar::{Count, Key, ValueKind, key, required};
use crate::granted::Grant;
use crate::line::{self, Change};
use crate::prelude::*;
use crate::rules::RuleInput;
use postern_types::{OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] =
    &[required("names", ValueKind::Link, "${config.vrfname}"), key("tables", ValueKind::Number, Count::Some)];

impl Decide for ops::Vrf {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Join { name, table, .. } => {
                let rule = input.one_of(grant, "names", ValueKind::Link, name, "vrf.names")?;
                match table.map(|table| table.to_string()) {
                    Some(table) if !grant.texts("tables").any(|text| text == table) => {
                        Err(input.key(&format!("with table {table}"), Vec::from([line::text("tables", table)])))
                    }
                    _ => Ok(rule),
                }
            }
            Self::Check { name } => input.one_of(grant, "names", ValueKind::Link, name, "vrf.names"),
            Self::Leave => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Join { name, table, .. } => {
                let mut objects = line::object("names", name);
                objects.extend(table.map(|table| line::text("tables", table.to_string())));
                objects
            }
            Self::Check { name } => line::object("names", name),
            Self::Leave => Vec::new(),
        }
    }
}
