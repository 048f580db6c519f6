//! The DHCP client of the sandbox.
//!
//! The client is one pure function: [`step`] gets an event and the state, and returns packets, the next timer and the
//! next state. It has no clock, no socket and no randomness, and no packet makes it panic. The protocols are RFC 2131 and,
//! for IPv6, RFC 8415. `dhcproto` reads and writes options.
//!
//! The service (`host/dhcp`) uses only the messages, without the feature `client`. So the host has no code that reads a
//! packet.

pub mod config;
#[cfg(feature = "client")]
mod dispatch;
#[cfg(feature = "client")]
mod exchange;
mod family;
mod id;
mod step;
#[cfg(feature = "client")]
mod timing;
#[cfg(feature = "client")]
mod v4;
#[cfg(feature = "client")]
mod v6;

#[cfg(feature = "client")]
pub use dispatch::{answer, step};
pub use family::{Family, families};
pub use id::{client_id, duid, provided_id};
pub use step::*;
