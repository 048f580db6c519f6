//! Answers about a node for people, not for runtimes. The answers are about attachments ([`node_state`], [`drift`], [`attachment`]),
//! running processes ([`busy`]), garbage ([`garbage`], [`node`], [`adopt`]), and wiped rules ([`reapply`]).
//!
//! The executable that runtimes start does not link this crate (`tests/no-compiler`). This crate removes objects
//! through [`postern_gate::upkeep`], as a DEL does, or through the functions of each mechanism's own crate.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open files without postern_state::Dir"))]

pub mod adopt;
mod alive;
pub mod attachment;
pub mod busy;
pub mod dhcp;
pub mod drift;
pub mod garbage;
pub mod held;
pub mod lease_snapshot;
mod locked;
pub mod node;
pub mod node_state;
pub mod places;
pub mod reapply;
pub mod results;
mod utc;
pub mod writable;

pub use alive::all_namespaces;
pub use locked::locked;
pub use namespaces::Namespaces;
pub use postern_namespaces as namespaces;
pub use utc::utc;
