//! Kernel settings of the attachment's own link. Each key has its own function, so the imports show which keys are
//! used.

use crate::error::Error;
use crate::link::Link;
use crate::sys;

/// Sets `net.ipv6.conf.<link>.accept_dad`: duplicate address detection.
pub fn set_accept_dad(link: &Link, on: bool) -> Result<(), Error> {
    sys::link_sysctl::set_accept_dad(&link.0, on)
}

/// Sets `net.ipv6.conf.<link>.enhanced_dad` (RFC 7527).
pub fn set_enhanced_dad(link: &Link, on: bool) -> Result<(), Error> {
    sys::link_sysctl::set_enhanced_dad(&link.0, on)
}

/// Sets `net.ipv4.conf.<link>.arp_notify`: a gratuitous ARP when the link comes up.
pub fn set_arp_notify(link: &Link, on: bool) -> Result<(), Error> {
    sys::link_sysctl::set_arp_notify(&link.0, on)
}

/// Sets `net.ipv6.conf.<link>.ndisc_notify`: unsolicited neighbour advertisements when the link comes up.
pub fn set_ndisc_notify(link: &Link, on: bool) -> Result<(), Error> {
    sys::link_sysctl::set_ndisc_notify(&link.0, on)
}

/// Sets `net.ipv6.conf.<link>.keep_addr_on_down`.
pub fn set_keep_addr_on_down(link: &Link, on: bool) -> Result<(), Error> {
    sys::link_sysctl::set_keep_addr_on_down(&link.0, on)
}

/// Sets `net.ipv6.conf.<link>.disable_ipv6`. `false` also switches the key off for the container's `lo`.
pub fn set_disable_ipv6(link: &Link, on: bool) -> Result<(), Error> {
    sys::link_sysctl::set_disable_ipv6(&link.0, on)
}
