//! Pairs of virtual Ethernet devices (veth(4)).

use super::check_name;
use crate::error::{Result, Subject};
use crate::netlink::Netlink;
use netlink_packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A veth pair to be made: one end in the namespace of the sending socket, the other in another namespace.
#[derive(Clone, Copy, Debug)]
pub struct VethSpec<'a> {
    /// Name of this end.
    pub name: &'a str,
    /// MTU of both ends in bytes; `None` leaves the kernel's default, 1500.
    pub mtu: Option<u32>,
    /// Link-layer address of this end; with `None` the kernel picks a random address.
    pub mac: Option<[u8; 6]>,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// Link-layer address of the other end.
    pub peer_mac: [u8; 6],
    /// Namespace of the other end.
    pub peer_ns: BorrowedFd<'a>,
}

impl Netlink {
    /// Creates a veth pair with one message. Each end begins in its final namespace, and is down. The caller must use
    /// the container's socket. Then no temporary link appears in the host's namespace.
    ///
    /// Both ends get one queue for each direction. By default the kernel makes a queue for each processor. More queues
    /// take a third of the creation time, and have no use behind a bridge or a route.
    ///
    /// # Errors
    /// `EEXIST` if one of the names is taken in its namespace, `EINVAL` for a bad name or MTU, `EADDRNOTAVAIL` for an
    /// address that is not unicast.
    pub fn create_veth(&self, spec: &VethSpec<'_>) -> Result<()> {
        let subject =
            Subject { operation: "create veth", object: &format_args!("{} and {}", spec.name, spec.peer_name) };
        check_name(subject, spec.peer_name)?;
        self.create(subject, spec.name, veth_message(spec))
    }
}

fn veth_message(spec: &VethSpec<'_>) -> LinkMessage {
    let peer =
        LinkUnspec::new_with_name(spec.peer_name).address(spec.peer_mac.to_vec()).setns_by_fd(spec.peer_ns.as_raw_fd());
    let peer = end(peer, spec.mtu).build();
    let mut own = end(LinkVeth::new(spec.name, spec.peer_name), spec.mtu);
    if let Some(mac) = spec.mac {
        own = own.address(mac.to_vec());
    }
    own.set_info_data(InfoData::Veth(InfoVeth::Peer(peer))).build()
}

/// Sets the attributes that both ends of a veth pair have in common.
fn end<T>(link: LinkMessageBuilder<T>, mtu: Option<u32>) -> LinkMessageBuilder<T> {
    let link = link
        .append_extra_attribute(LinkAttribute::NumTxQueues(1))
        .append_extra_attribute(LinkAttribute::NumRxQueues(1));
    match mtu {
        Some(mtu) => link.mtu(mtu),
        None => link,
    }
}
