//! `source-routes`: the routing tables that a plugin may name. If the plugin names no table, the gate chooses one. The
//! gate refuses the kernel's own tables under any policy.

use super::prelude::*;

/// The keys of `[grant.source-routes]`.
pub const KEYS: &[Key] = &[key("tables", ValueKind::Number, Count::Some)];

impl Decide for ops::SourceRoutes {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Apply { table: Some(table), .. } => {
                input.says(grant, "tables", &table.to_string(), &format!("with table {table}"))?;
                Ok("source-routes.tables")
            }
            // The network names a table, so the gate must not choose another table.
            Self::Apply { table: None, .. } => match input.question.conf.fields().int("table") {
                Ok(Some(table)) => {
                    let what = format!(" without table {table}, which the network names");
                    Err(input.refuse("", &what, "the plugin has to pass the table on".to_string()))
                }
                Ok(None) | Err(_) => Ok(grant.name),
            },
            Self::Check | Self::Remove => Ok(grant.name),
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Apply { table: Some(table), .. } => Vec::from([line::text("tables", table.to_string())]),
            Self::Apply { table: None, .. } | Self::Check | Self::Remove => Vec::new(),
        }
    }
}
