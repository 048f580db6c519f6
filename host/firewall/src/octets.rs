//! Addresses as packets and the kernel have them: 4 or 16 bytes.

use std::net::IpAddr;

pub(crate) fn of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn address(octets: &[u8]) -> Option<IpAddr> {
    match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(octets), _) => Some(IpAddr::from(octets)),
        (_, Ok(octets)) => Some(IpAddr::from(octets)),
        _ => None,
    }
}
