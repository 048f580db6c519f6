//! DHCPv6 (RFC 8415): one address, and the router from router advertisements (RFC 4861).
//!
//! The shape is that of DHCP. What differs:
//!
//! * All packets go to the multicast address of servers, those for one server too. Its identifier says which it is.
//! * A packet event is a message of a server, or an ICMPv6 message "router advertisement". The first byte tells which.
//!   The host has checked the hop limit 255 and the checksum of the latter, and asks for one when a lease begins.
//! * A lease begins when a router has advertised itself, or after a moment without one.

mod lease;
mod packet;
mod request;
mod router;
mod state;
mod step;
#[cfg(test)]
mod tests;

pub use step::step;

use std::net::Ipv6Addr;

/// The identifier of the one identity association of a client. Each attachment is a client of its own.
const IAID: u32 = 1;

/// True for an address that one host can have beyond its link.
fn is_usable(address: Ipv6Addr) -> bool {
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !is_special && !address.is_unicast_link_local() && address.to_ipv4_mapped().is_none()
}
