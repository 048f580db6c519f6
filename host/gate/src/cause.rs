//! Adds the cause and a hint to a refusal by the kernel, because an error number alone does not explain the refusal.

use nix::errno::Errno;
use postern_types::{Mac, OpError};
use std::net::IpAddr;

/// The smallest MTU of an Ethernet link: each IPv4 packet of 68 bytes must fit (RFC 791).
pub const SMALLEST_MTU: u32 = 68;

/// The largest MTU of veth, bridge and dummy.
pub const LARGEST_MTU: u32 = 65535;

/// The largest MTU of a tap: its frames have at most 65535 bytes, with a header of 14 bytes.
pub const LARGEST_MTU_OF_TAP: u32 = 65521;

/// The least MTU with which a link has IPv6 (RFC 8200).
const LEAST_MTU_FOR_IPV6: u32 = 1280;

/// The properties of a link that the kernel refused to make.
#[derive(Clone, Copy)]
pub struct Asked {
    /// The link-layer address.
    pub mac: Option<Mac>,
    /// The MTU in bytes.
    pub mtu: Option<u32>,
    /// The largest MTU for this kind of link.
    pub largest: u32,
}

impl Asked {
    /// Adds the cause to the kernel's refusal to make this link.
    pub fn explain(&self, error: OpError) -> OpError {
        let cause = match error.errno.map(Errno::from_raw) {
            Some(Errno::EADDRNOTAVAIL) => self.mac.and_then(no_address),
            Some(Errno::EINVAL | Errno::ERANGE) => self.mtu.and_then(|mtu| no_mtu(mtu, self.largest)),
            _ => None,
        };
        match cause {
            Some((what, way_out)) => because(error, &what).hint(way_out),
            None => error,
        }
    }
}

/// Returns the reason why no link can have the link-layer address `mac`, and a hint. `None` for a unicast address.
pub fn no_address(mac: Mac) -> Option<(String, String)> {
    let what = match mac.is_unicast() {
        true => return None,
        false if mac.0 == [0; 6] => "is all zeros",
        false if mac.0 == [0xff; 6] => "is the broadcast address",
        false => "is the address of a group",
    };
    let way_out = "name a unicast address as `mac` or MAC: the first byte is even, and not all bytes are zero";
    Some((format!("{mac} {what}"), way_out.to_owned()))
}

/// Returns the reason why the MTU is out of range for a kind of link, and a hint. `largest` is the kind's largest MTU.
/// `None` if the MTU is in range.
pub fn no_mtu(mtu: u32, largest: u32) -> Option<(String, String)> {
    if (SMALLEST_MTU..=largest).contains(&mtu) {
        return None;
    }
    Some((
        format!("MTU {mtu} is out of range"),
        format!("the kernel takes an MTU from {SMALLEST_MTU} to {largest} here"),
    ))
}

/// Adds the cause to the kernel's refusal of an address or a route: the node or the link has no IPv6. `mtu` is the
/// link's MTU, if it is known.
pub fn of_ip(error: OpError, ip: IpAddr, link: &str, mtu: Option<u32>) -> OpError {
    let errno = error.errno.map(Errno::from_raw);
    if ip.is_ipv4() {
        return error;
    }
    match (errno, mtu.filter(|mtu| *mtu < LEAST_MTU_FOR_IPV6)) {
        (Some(Errno::EINVAL | Errno::EACCES | Errno::ENODEV | Errno::ENOBUFS), Some(mtu)) => {
            because(error, &format!("\"{link}\" has MTU {mtu}, and IPv6 needs {LEAST_MTU_FOR_IPV6}"))
                .hint("name an `mtu` of at least 1280, or leave the IPv6 ranges out of `ipam`")
        }
        (Some(Errno::EACCES), None) => because(error, &format!("IPv6 is switched off for \"{link}\"")).hint(format!(
            "switch it on (net.ipv6.conf.{link}.disable_ipv6 = 0, and net.ipv6.conf.default.disable_ipv6 = 0 for new links), or \
             leave the IPv6 ranges and routes out of `ipam`"
        )),
        (Some(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT), _) => because(error, "the kernel has no IPv6").hint(
            "load it (`modprobe ipv6`, without ipv6.disable=1 on the kernel's command line), or leave the IPv6 ranges and routes \
             out of `ipam`",
        ),
        _ => error,
    }
}

/// Returns the error with a cause after the kernel's words.
pub fn because(error: OpError, cause: &str) -> OpError {
    OpError { message: format!("{}: {cause}", error.message), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_types::ErrorCode;

    fn refusal(errno: Errno) -> OpError {
        OpError::new(ErrorCode::Kernel, "eth0", "failed: words of the kernel").errno(errno as i32)
    }

    #[test]
    fn a_kernel_without_ipv6_is_named_for_addresses_of_ipv6_alone() {
        let (v4, v6) = ("10.1.2.3".parse().unwrap(), "fd00::1".parse().unwrap());
        for errno in [Errno::EOPNOTSUPP, Errno::EAFNOSUPPORT] {
            let said = of_ip(refusal(errno), v6, "br9", None).to_string();
            assert!(said.contains("words of the kernel: the kernel has no IPv6 (load it"), "{said}");
            assert_eq!(of_ip(refusal(errno), v4, "br9", None), refusal(errno));
        }
        let said = of_ip(refusal(Errno::EACCES), v6, "br9", Some(1500)).to_string();
        assert!(said.contains("switched off for \"br9\" (switch it on (net.ipv6.conf.br9.disable_ipv6 = 0"), "{said}");
        let said = of_ip(refusal(Errno::EACCES), v6, "br9", Some(1279)).to_string();
        assert!(said.contains("\"br9\" has MTU 1279, and IPv6 needs 1280"), "{said}");
        assert_eq!(of_ip(refusal(Errno::ENODEV), v6, "br9", Some(1500)), refusal(Errno::ENODEV));
    }

    #[test]
    fn only_what_no_link_can_have_is_called_the_cause() {
        let asked = |mac: [u8; 6], mtu| Asked { mac: Some(Mac(mac)), mtu: Some(mtu), largest: LARGEST_MTU };
        let good = asked([2, 0, 0, 0, 0, 1], 1500);
        for errno in [Errno::EADDRNOTAVAIL, Errno::EINVAL] {
            assert_eq!(good.explain(refusal(errno)), refusal(errno));
        }
        let said = asked([1, 0, 0x5e, 0, 0, 1], 1500).explain(refusal(Errno::EADDRNOTAVAIL)).to_string();
        assert!(said.contains("01:00:5e:00:00:01 is the address of a group (name"), "{said}");
        for mtu in [67, 65536] {
            let said = asked([2, 0, 0, 0, 0, 1], mtu).explain(refusal(Errno::EINVAL)).to_string();
            assert!(
                said.contains(&format!("MTU {mtu} is out of range (the kernel takes an MTU from 68 to 65535")),
                "{said}"
            );
        }
    }
}
