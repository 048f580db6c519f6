//! Netlink as the host speaks it: one blocking socket, one request and its answer, nothing in flight. Links, addresses and
//! routes (`postern-kernel`) and packet filter rules (`postern-firewall`) go through it.
//!
//! Messages are built with the netlink-packet crates, whose types know how long they are. Answers are read attribute by
//! attribute ([`Attributes`]), and only those that are needed. A kernel that has learned something new then can't make an
//! answer unreadable. The decoder of netlink-packet-netfilter also prepares an error text for each attribute, whether it is
//! needed or not: some 60 µs a rule.

mod connection;
mod message;

pub use connection::{Connection, Error, MOST_ATTEMPTS, Refusal, Request};
pub use message::{Attribute, Attributes, u8_at, u16_at, u32_at};
