//! The DHCP client of the sandbox.
//!
//! The client is one pure function: [`step`] gets an event and the state, and returns packets, the next timer and the
//! next state. It has no clock, no socket and no randomness, and no packet makes it panic. RFC 2131 is the protocol, and
//! `dhcproto` reads and writes the options.
//!
//! The service (`host/dhcp`) uses only the messages, without the feature `client`. So the host has no code that reads a
//! packet.

pub mod config;
#[cfg(feature = "client")]
mod dispatch;
mod id;
mod step;
#[cfg(feature = "client")]
mod v4;

#[cfg(feature = "client")]
pub use dispatch::{answer, step};
pub use id::{client_id, provided_id};
pub use step::*;
