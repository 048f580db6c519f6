//! Addresses that a collection must not give back. A rule still leads traffic to the address, or later plugins of the
//! chain may have such rules. Otherwise the next container with the address would get the traffic of the one that is
//! gone.
//!
//! A DEL needs no such check: the runtime calls it for each plugin of the chain, from the last to the first.

use postern_firewall::{FirewallError, Served};
use std::cell::OnceCell;
use std::rc::Rc;

/// The rules of the node, read at the first request, or the reason why they can't be read.
pub type LazyServed = Rc<OnceCell<Result<Served, FirewallError>>>;

/// The facts of a collection beside the record.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    pub served: LazyServed,
    /// The plugin that a runtime has called. Native IPAM programs read its configuration, and no other plugin's.
    pub called: Option<String>,
    /// The reason why plugins of the chain may have left objects that Postern can't remove.
    pub chain: Option<String>,
    /// True if the record had port mappings when the collection came to it: the rules as they were read may still have
    /// them. [`crate::context::Journal::set_retention`] sets it.
    pub had_forwards: bool,
}
