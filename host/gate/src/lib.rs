//! The privileged process: protocol, catalog, policy, and the gate that every privileged operation passes.
//!
//! Data goes one way:
//!
//! - [`protocol`] reads the request.
//! - [`launcher`] finds the plugin in a [`catalog`] and forks its sandbox. [`begin`] prepares the plugin
//!   ([`prepared`]), and does all other steps before a guest starts.
//! - [`plugin`] answers the guest's calls through [`gate`], and runs the delegates that a call wants.
//! - [`gate`] asks [policy](postern_policy) and writes the intent into the attachment's record ([`journal`],
//!   [`effect`]). One file of [`capability`] carries out the operation with the parts of the run ([`context`]), and
//!   [`audit`] logs the operation.
//! - [`outcome`] checks the guest's output, and [`attached`] checks the objects that the guest made.
//! - [`collect`] removes the effects of a failed ADD, a DEL or a garbage collection.
//!
//! This crate does not link wasmtime.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open files without postern_state::Dir"))]
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic if nobody reads: use `say!` and `streams`")]

mod attached;
pub mod audit;
mod begin;
mod budget;
mod call;
pub mod capability;
pub mod catalog;
pub mod catalogs;
mod cause;
mod claims;
mod clock;
mod collect;
mod collectable;
mod collector;
mod confinement;
mod context;
mod deadline;
pub mod delegation;
mod disk;
pub mod effect;
mod errors;
mod fixed;
mod gate;
mod guest_state;
mod holders;
mod host_check;
mod host_ports;
mod in_container;
mod inherited;
mod journal;
mod kept;
mod known;
mod launcher;
#[cfg(test)]
#[path = "../../confine/tests/machine/mod.rs"]
mod machine;
mod manifest;
mod named;
mod native;
pub mod node;
mod others;
mod outcome;
mod own;
pub mod packet_filter;
pub mod places;
mod plugin;
mod plugin_error;
pub mod plugin_file;
pub mod policies;
mod prepared;
mod process;
mod program;
pub mod protocol;
pub mod rehearsal;
mod request;
mod retention;
mod right;
mod search;
mod settings;
pub mod shell;
mod status;
pub mod streams;
pub mod sysfs;
mod system;
pub mod tap;
mod unrecorded;
pub mod upkeep;
mod versions;
mod view;

pub use audit::LOG;
pub use effect::Effect;
pub use inherited::put_right;
pub use plugin_error::PluginError;
pub use postern_state::Header;
pub use postern_types::DENIED;
pub use process::{ChildMain, Engine, end};
pub use program::PROGRAM;
