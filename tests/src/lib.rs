//! What the tests that run real plugin binaries share: a [`Node`] (a host with its own network and mount namespaces),
//! calls of a plugin ([`Call`]), a [`snapshot`](Node::snapshot) of everything a plugin may change, and readable
//! differences between two of them.
//!
//! Everything here runs inside the namespaces of `tests/in-namespaces` and refuses to run elsewhere.

mod call;
mod case;
mod difference;
mod names;
mod node;
mod paths;
mod random;
mod snapshot;
mod tree;

pub use call::{Answer, Call};
pub use case::{Case, Flag, Side, Step, merge};
pub use difference::{Difference, Differences};
pub use names::Names;
pub use node::Node;
pub use paths::{copy_bin, native_bin, plugin_bin, shipped};
pub use random::Random;
pub use tree::{Mismatch, compare};

/// A text for people with its lines joined: where they were broken does not matter.
pub fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
