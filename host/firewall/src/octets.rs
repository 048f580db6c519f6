//! Addresses in the form of packets and of the kernel: 4 or 16 bytes.

use std::net::IpAddr;

pub(crate) use postern_netlink::ip as address;

pub(crate) fn of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
