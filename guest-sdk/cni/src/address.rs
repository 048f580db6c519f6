//! IP addresses in configurations and results.

use crate::error::Error;
use ipnet::{IpNet, Ipv4Net};
use std::net::IpAddr;

/// Parses an IP address. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) becomes the IPv4 address, as in native
/// plugins. Otherwise one address would have two spellings that compare as different.
///
/// # Errors
/// Code 999.
pub fn parse_ip(text: &str) -> Result<IpAddr, Error> {
    match text.parse::<IpAddr>() {
        Ok(ip) => Ok(ip.to_canonical()),
        Err(_) => Err(Error::internal(format!("invalid IP address: {text}"))),
    }
}

/// Parses an address with its prefix length; host bits are kept.
///
/// # Errors
/// Code 999. An IPv4-mapped address with a prefix below 96 is also an error: it names no IPv4 network.
pub fn parse_cidr(text: &str) -> Result<IpNet, Error> {
    read_cidr(text).ok_or_else(|| Error::internal(format!("invalid CIDR address: {text}")))
}

fn read_cidr(text: &str) -> Option<IpNet> {
    let (ip, prefix) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    if !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let prefix: u8 = prefix.parse().ok()?;
    match (ip, ip.to_canonical()) {
        (IpAddr::V6(_), IpAddr::V4(mapped)) => Ipv4Net::new(mapped, prefix.checked_sub(96)?).ok().map(IpNet::V4),
        _ => IpNet::new(ip, prefix).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidr() {
        for (text, printed) in [
            ("10.1.2.3/16", "10.1.2.3/16"),
            ("10.1.2.3/016", "10.1.2.3/16"),
            ("2001:DB8:0:0::1/64", "2001:db8::1/64"),
            ("::ffff:10.1.2.3/120", "10.1.2.3/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(parse_cidr(text).unwrap().to_string(), printed);
        }
        for wrong in [
            "",
            "/",
            "10.1.0.0",
            "10.1.0.0/",
            "10.1.0.0/33",
            "10.1.0.0/+8",
            "10.1.0.0/-1",
            "010.1.0.0/8",
            "10.1/16",
            "10.1.0.0/255.255.0.0",
            "::/129",
            "fe80::1%eth0/64",
            " 10.1.0.0/8",
            "10.1.0.0/8 ",
            "::ffff:1.2.3.4/95",
            "10.0.0.0/8/8",
            "10.0.0.0/99999999999999999999",
            "<nil>",
        ] {
            assert_eq!(parse_cidr(wrong).unwrap_err().msg, format!("invalid CIDR address: {wrong}"));
        }
    }

    #[test]
    fn ip() {
        assert_eq!(parse_ip("::ffff:10.0.0.1").unwrap(), parse_ip("10.0.0.1").unwrap());
        for wrong in ["", "foo", "1.2.3", "1.2.3.04", "1.2.3.4/24", "fe80::1%lo", "1.2.3.4\n"] {
            assert_eq!(parse_ip(wrong).unwrap_err().msg, format!("invalid IP address: {wrong}"));
        }
    }
}
