//! The common parts of tests that run real plugins. A [`Node`] is a host with its own network and mount namespaces. A
//! [`Call`] is a call of a plugin. A [`snapshot`](Node::snapshot) has everything that a plugin may change.
//! [`compare`] finds the differences between two snapshots.
//!
//! A node can be made only inside the namespaces of `tests/in-namespaces`.

mod call;
mod case;
pub mod dhcp;
mod difference;
pub mod floor;
mod inside;
pub mod kernel;
pub mod measure;
mod names;
mod netlink;
mod network;
mod node;
mod paths;
pub mod proof;
mod random;
pub mod report;
mod skip;
mod snapshot;
pub mod tour;
mod tree;
mod vocabulary;

pub use call::{Answer, Call};
pub use case::{Case, Flag, Side, Step, merge};
pub use difference::{Difference, Differences};
pub use names::Names;
pub use network::{Attachment, Network};
pub use node::Node;
pub use paths::{copy_bin, native_bin, plugin_bin, shipped};
pub use random::Random;
pub use skip::{skip, skip_part};
pub use tree::{Mismatch, compare, has_key};
pub use vocabulary::{Vocabulary, damage};

/// Joins the lines of a text for people, so that tests don't depend on line breaks.
pub fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
