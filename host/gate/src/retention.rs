//! Addresses that a collection must not give back. A rule still leads traffic to such an address, or later plugins of
//! the chain may have such a rule. If the collection gave the address back, the next container with the address would
//! get the traffic of the earlier container.
//!
//! A DEL needs no such check: the runtime calls it for each plugin of the chain, from the last to the first.

use postern_firewall::{FirewallError, Served};
use std::cell::OnceCell;
use std::rc::Rc;

/// The rules of the node, read at the first request, or the reason why they can't be read.
pub type LazyServed = Rc<OnceCell<Result<Served, FirewallError>>>;

/// The facts that a collection needs in addition to the record.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    pub served: LazyServed,
    /// The plugin that the runtime has called. Native IPAM programs read only this plugin's configuration.
    pub called: Option<String>,
    /// The reason to believe that plugins of the chain left objects that Postern can't remove.
    pub chain: Option<String>,
    /// True if the record had port mappings when its collection began: the rules that were read may still include them.
    /// [`crate::context::Journal::set_retention`] sets this field.
    pub had_forwards: bool,
}
