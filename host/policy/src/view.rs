//! The policy as it is shown to people.

use crate::prelude::*;
use core::fmt;

/// The source of a policy rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file that came with the plugin.
    Shipped,
    /// The operator's file, in `/etc/postern/policy`.
    Operator,
    /// No file: the host lets every plugin do it.
    Host,
}

impl Origin {
    /// The name in logs and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shipped => "shipped",
            Self::Operator => "operator",
            Self::Host => "host",
        }
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
    /// The keys that its table sets, each with its values.
    pub objects: Vec<(&'static str, Vec<String>)>,
}
