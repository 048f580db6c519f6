//! `vrf`: the VRFs that a plugin may put the attachment's link into, and the routing tables that the plugin may name
//! for the VRFs.

use super::prelude::*;

/// The keys of `[grant.vrf]`.
pub const KEYS: &[Key] =
    &[required("names", ValueKind::Link, "${config.vrfname}"), key("tables", ValueKind::Number, Count::Some)];

impl Decide for ops::Vrf {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Join { name, table, .. } => {
                let rule = input.one_of(grant, "vrf.names", name)?;
                if let Some(table) = table {
                    input.says(grant, "tables", &table.to_string(), &format!("with table {table}"))?;
                }
                Ok(rule)
            }
            Self::Check { name } => input.one_of(grant, "vrf.names", name),
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
