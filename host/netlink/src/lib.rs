//! Netlink for the host: one blocking socket, one request and its answer at a time. `postern-kernel` (links, addresses,
//! routes) and `postern-firewall` (packet filter rules) use this crate.
//!
//! Messages are built with the netlink-packet crates, whose types know their lengths. Answers are read attribute by
//! attribute ([`Attributes`]), and only needed attributes are read. So a newer kernel can't make an answer unreadable.
//! Another reason is time: the decoder of netlink-packet-netfilter prepares an error text for each attribute, which
//! costs some 60 µs a rule.

mod connection;
mod error;
mod message;
mod request;

pub use connection::{Connection, DumpLimits, MOST_ATTEMPTS};
pub use error::NetlinkError;
pub use message::{Attribute, Attributes, attribute, ip, u8_at, u16_at, u32_at};
pub use request::{NetlinkRequest, RefusedRequest};
