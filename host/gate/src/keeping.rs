//! What a collection must not give back: an address that a rule still leads traffic to, or that plugins behind ours in the
//! chain may have rules for. The next container that got the address would be reached in the place of the one that is gone.
//! A DEL need not ask: the runtime calls it for each plugin of the chain, from the last to the first.

use postern_firewall::{FirewallError, Served};
use std::cell::OnceCell;
use std::rc::Rc;

/// The rules of the node, looked at when they are first asked for, or why they can't be.
pub type Look = Rc<OnceCell<Result<Served, FirewallError>>>;

/// What a collection knows beside the record.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The rules.
    pub served: Look,
    /// The plugin that a runtime has called: what native IPAM programs read is its configuration, and no other's.
    pub called: Option<String>,
    /// Why plugins of the chain may have left something that Postern can't undo.
    pub chain: Option<String>,
}

impl Keeping {
    /// For a collection by a runtime, which calls one plugin after the other.
    pub fn of_runtime(served: Look, called: &str) -> Self {
        Self { served, called: Some(called.to_owned()), chain: None }
    }

    /// For a collection by people. `chain` is why plugins of the attachment's chain may have left something.
    pub fn of_people(served: Look, chain: Option<String>) -> Self {
        Self { served, called: None, chain }
    }
}
