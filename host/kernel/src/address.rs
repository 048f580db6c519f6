//! Addresses on links (`rtnetlink(7)`, `RTM_*ADDR`; attributes of `linux/if_addr.h`).

use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use nix::libc::{self, IFA_ADDRESS, IFA_F_DADFAILED, IFA_F_PERMANENT, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LOCAL};
use postern_netlink::NetlinkRequest;
use postern_netlink::{Attributes, ip, u8_at, u32_at};
use rtnetlink::AddressMessageBuilder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of `struct ifaddrmsg`.
const HEADER: usize = 8;

/// An address on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The link's own address with prefix length; host bits are kept.
    pub net: IpNet,
    /// `rt_scope_t` of `linux/rtnetlink.h`: 0 global, 253 link, 254 host.
    pub scope: u8,
    /// Duplicate address detection is still running (IPv6).
    pub tentative: bool,
    /// The address was set by hand, and does not expire.
    pub permanent: bool,
    /// Duplicate address detection found another owner (IPv6).
    pub dad_failed: bool,
}

impl Netlink {
    /// Returns the addresses of a link, IPv4 first. The kernel filters, so the cost does not grow with the number of
    /// links.
    pub fn addresses(&self, index: u32) -> Result<Vec<LinkAddress>> {
        let subject = Subject { operation: "list addresses of", object: &format_args!("link {index}") };
        let mut message = AddressMessage::default();
        message.header.index = index;
        self.dump(subject, NetlinkRequest::new(&RouteNetlinkMessage::GetAddress(message), 0), |payload| {
            Some(decode(payload)?.filter(|(link, _)| *link == index).map(|(_, address)| address))
        })
    }

    /// Returns the addresses of all links of the namespace, each with its link's index, IPv4 first.
    pub fn all_addresses(&self) -> Result<Vec<(u32, LinkAddress)>> {
        self.addresses_of(AddressFamily::Unspec)
    }

    /// True if a link of the namespace, up or down and in any VRF, has this address. A dump is made only if the kernel
    /// can't tell in another way, because the cost of a dump grows with the number of links.
    pub fn has_address(&self, address: IpAddr) -> Result<bool> {
        if let IpAddr::V4(address) = address {
            return match self.is_source(address)? {
                Some(is_source) => Ok(is_source),
                None => Ok(self.addresses_of(AddressFamily::Inet)?.iter().any(|(_, have)| have.net.addr() == address)),
            };
        }
        let subject = Subject { operation: "look for", object: &address };
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.attributes.push(AddressAttribute::Address(address));
        let found = self.get(subject, &RouteNetlinkMessage::GetAddress(message), decode);
        let found = unless(&[Errno::EADDRNOTAVAIL], found)?.flatten();
        Ok(found.is_some_and(|(_, have)| have.net.addr() == address))
    }

    fn addresses_of(&self, family: AddressFamily) -> Result<Vec<(u32, LinkAddress)>> {
        let subject = Subject { operation: "list", object: &"addresses" };
        let mut message = AddressMessage::default();
        message.header.family = family;
        self.dump(subject, NetlinkRequest::new(&RouteNetlinkMessage::GetAddress(message), 0), decode)
    }

    /// Puts an address on a link. IPv4 prefixes shorter than /31 get the matching broadcast address.
    ///
    /// # Errors
    /// `EEXIST` if the link has the address already (IPv4: with that prefix). `EPERM` or `EACCES` for IPv6 if IPv6 is
    /// disabled. `ENODEV` if the link is missing.
    pub fn add_address(&self, index: u32, net: IpNet) -> Result<()> {
        self.new_address(index, net, AddressHeaderFlags::empty())
    }

    /// Puts an address on a link. No other host can have this address: it was the link's own, or is a gateway on a link
    /// of the node. The kernel makes no duplicate address detection for the address (IPv6).
    ///
    /// # Errors
    /// The errors of [`Netlink::add_address`].
    pub fn add_known_address(&self, index: u32, net: IpNet) -> Result<()> {
        self.new_address(index, net, AddressHeaderFlags::Nodad)
    }

    fn new_address(&self, index: u32, net: IpNet, flags: AddressHeaderFlags) -> Result<()> {
        let subject = Subject { operation: "add address", object: &format_args!("{net} to link {index}") };
        let mut message = message(index, net);
        message.header.flags |= flags;
        self.acknowledged(subject, &RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Takes an address off a link.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if the link does not have the address, `ENODEV` if the link is missing.
    pub fn delete_address(&self, index: u32, net: IpNet) -> Result<()> {
        let subject = Subject { operation: "delete address", object: &format_args!("{net} of link {index}") };
        self.acknowledged(subject, &RouteNetlinkMessage::DelAddress(message(index, net)), 0)
    }
}

fn message(index: u32, net: IpNet) -> AddressMessage {
    let length = net.prefix_len();
    match net.addr() {
        IpAddr::V4(address) => AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(address, length).build(),
        IpAddr::V6(address) => AddressMessageBuilder::<Ipv6Addr>::new().index(index).address(address, length).build(),
    }
}

/// Reads an `RTM_NEWADDR`, with the link's index. `Some(None)` for an address of a family that is not IP.
fn decode(payload: &[u8]) -> Option<Option<(u32, LinkAddress)>> {
    let family = libc::c_int::from(u8_at(payload, 0)?);
    let index = u32_at(payload, 4)?;
    if !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return Some(None);
    }
    let mut flags = u32::from(u8_at(payload, 2)?);
    let (mut address, mut local) = (None, None);
    for attribute in Attributes(payload.get(HEADER..)?).iter() {
        match attribute.kind {
            IFA_ADDRESS => address = ip(attribute.value),
            IFA_LOCAL => local = ip(attribute.value),
            // The header has room for the lower eight flags only.
            IFA_FLAGS => flags = attribute.u32()?,
            _ => {}
        }
    }
    // On a point-to-point link `IFA_ADDRESS` is the peer's address.
    let own = local.or(address)?;
    let address = LinkAddress {
        net: IpNet::new(own, u8_at(payload, 1)?).ok()?,
        scope: u8_at(payload, 3)?,
        tentative: flags & IFA_F_TENTATIVE != 0,
        permanent: flags & IFA_F_PERMANENT != 0,
        dad_failed: flags & IFA_F_DADFAILED != 0,
    };
    Some(Some((index, address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_netlink::attribute;

    #[test]
    fn decodes_flags_and_refuses_nonsense() {
        let header = |family: u8, prefix: u8| [vec![family, prefix, 0x80, 253], 3u32.to_ne_bytes().to_vec()].concat();
        let v6 = "2001:db8::5".parse::<Ipv6Addr>().unwrap().octets();
        let flags = attribute(IFA_FLAGS, &(IFA_F_TENTATIVE | IFA_F_DADFAILED | 0x100).to_ne_bytes());
        let message = [header(10, 64), attribute(IFA_ADDRESS, &v6), flags].concat();
        let (link, address) = decode(&message).unwrap().unwrap();
        assert_eq!(link, 3);
        assert_eq!(address.net.to_string(), "2001:db8::5/64");
        assert!(address.tentative && address.dad_failed && address.scope == 253);
        for end in 0..message.len() {
            let _ = decode(&message[..end]);
        }
        let too_long = [header(2, 33), attribute(IFA_LOCAL, &[192, 0, 2, 1])].concat();
        assert_eq!(decode(&too_long), None);
        assert_eq!(decode(&header(2, 24)), None, "no address");
        assert_eq!(decode(&header(17, 24)), Some(None), "another family");
    }
}
