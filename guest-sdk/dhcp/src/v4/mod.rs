//! DHCP (RFC 2131).

mod acquire;
mod keep;
mod lease;
mod packet;
mod request;
mod state;
mod step;
#[cfg(test)]
mod tests;

pub use step::step;

use std::net::Ipv4Addr;

/// True for an address that one host can have. The gate checks more; this check keeps invalid addresses out of packets
/// and state.
fn is_usable(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0
        && !address.is_loopback()
        && !address.is_multicast()
        && !address.is_broadcast()
        && !address.is_link_local()
}
