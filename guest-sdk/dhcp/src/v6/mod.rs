//! DHCPv6 (RFC 8415): one address, and the router from router advertisements (RFC 4861).
//!
//! The client works as the client of DHCP for IPv4 (`v4`), with these differences:
//!
//! * All packets go to the multicast address of servers, even packets for one server. The server's identifier says
//!   which server is meant.
//! * A packet event is a message of a server, or an ICMPv6 message "router advertisement". The first byte shows the
//!   kind. The host has checked hop limit (255) and checksum of an advertisement. The host asks for an advertisement
//!   when a lease begins.
//! * The search for a lease begins after a router advertisement, or after a short wait.

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

/// The identifier of a client's only identity association. Each attachment is its own client.
const IAID: u32 = 1;

/// True for an address that a host can use beyond its link.
fn is_usable(address: Ipv6Addr) -> bool {
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !is_special && !address.is_unicast_link_local() && address.to_ipv4_mapped().is_none()
}
