//! Policy as people look at it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use postern_types::Capability;

/// Which file a rule stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file that came with the plugin.
    Shipped,
    /// The operator's, in `/etc/postern/policy`.
    Operator,
    /// None: the host lets every plugin do it.
    Host,
}

impl Origin {
    /// As logs and people write it.
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

/// A granted capability, with what it is granted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantView {
    /// Which.
    pub capability: Capability,
    /// Which file grants it.
    pub from: Origin,
    /// The keys of its table that are set, each with its values.
    pub objects: Vec<(&'static str, Vec<String>)>,
}
