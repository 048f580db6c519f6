//! A simulated node with one attachment. It answers one [`Operation`](postern_types::Operation) at a time, and plugins
//! see no difference from a real node. The simulation doesn't know the guest that asks.
//!
//! Guests' tests run against the simulation (`postern_guest::fake`), with a node that the test makes. `postern plan`
//! runs the installed guests against the simulation, with the state of the real node: see [`Kernel::seed_link`],
//! [`Kernel::attachment`] and [`Kernel::host_end_name`]. Nothing in this crate reads or changes anything outside of
//! [`Kernel`].
//!
//! ```
//! use postern_sim::{Kernel, Place};
//! use postern_types::{VethPair, ops};
//!
//! let mut node = Kernel::default();
//! let pair: VethPair = node.call(&ops::Veth::Create { mtu: None, mac: None }.into()).unwrap().read().unwrap();
//! assert!(node.find(Place::Host, &pair.host.name).is_some());
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::result_large_err, reason = "the host's own error type, in code that only tests and plans run")]

mod capability;
mod kernel;
mod links;
mod services;

pub use capability::dhcp::example as dhcp_example;
pub use kernel::{Kernel, Link, Place};
pub use services::{Ipam, Lease};
