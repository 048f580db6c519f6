//! The DHCP client of the sandbox.
//!
//! The client is one pure function: [`step`] gets an event and the state, and returns packets, the next timer and the
//! next state. It has no clock, no socket and no randomness, and no packet makes it panic. The protocols are RFC 2131 and,
//! for IPv6, RFC 8415. `dhcproto` reads and writes options.
//!
//! The service (`host/dhcp`) uses only the messages, without the feature `client`. So the host has no code that reads a
//! packet.
//!
//! The first step of a lease sends a DISCOVER, and sets a timer:
//!
//! ```
//! # #[cfg(feature = "client")] {
//! use postern_dhcp::{Client, Event, Hex, Input, Timeouts, To, client_id, step};
//!
//! let client = Client {
//!     family: 4,
//!     id: Hex(client_id("container", "net", "eth0")),
//!     mac: [2, 0, 0, 0, 0, 1],
//!     configuration: r#"{"name": "net", "ipam": {"type": "dhcp"}}"#.to_owned(),
//!     args: String::new(),
//!     broadcast: false,
//!     timeouts: Timeouts::default(),
//! };
//! let output = step(&Input { client, state: None, event: Event::Start { previous: None }, now_ms: 0, random: 7 });
//! assert!(output.send[0].to == To::Broadcast && output.wake_ms.is_some() && output.outcome.is_none());
//! # }
//! ```

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
