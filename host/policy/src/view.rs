//! The policy as it is shown to people.

use crate::prelude::*;
use core::fmt;

postern_cni::named! {
    name, parse:
    /// The source of a policy rule, with its name in logs and messages.
    pub enum Origin {
        /// The file that came with the plugin.
        Shipped = "shipped",
        /// The operator's file, in `/etc/postern/policy`.
        Operator = "operator",
        /// No file: the host allows the operation to every plugin.
        Host = "host",
    }

    /// The part of Postern that does the work of the verb GC.
    pub enum Collector {
        /// The guest, by its operations.
        Guest = "guest",
        /// The host, by the same operations. No guest is started.
        Host = "host",
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A table of a policy, with its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantView {
    /// The capability; `result` for `[result]`, `previous` for `[previous]`.
    pub name: &'static str,
    /// The file with the table.
    pub from: Origin,
    /// The keys that the table sets, each with its values.
    pub objects: Vec<(&'static str, Vec<String>)>,
}
