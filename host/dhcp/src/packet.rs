//! Packet sockets on one link (packet(7)): one for DHCP or DHCPv6, one for ARP or neighbours. A filter in the kernel
//! lets in only frames that can be an answer to this client.
#![allow(unsafe_code, reason = "bind(2) and setsockopt(2) with structures that nix lacks")]

use crate::frame::MacBytes;
use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET, BPF_W,
    PACKET_BROADCAST, PACKET_HOST, PACKET_MULTICAST, SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_VLAN_TAG_PRESENT, c_int,
    sock_filter, sock_fprog,
};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, send, socket,
};
use std::io::IoSliceMut;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

/// The room for a frame: the longest headers, and the longest payload that is read.
const ROOM: usize = 14 + 60 + 8 + crate::frame::LONGEST_RECEIVED;

/// The size of the receive buffer, in bytes. A flood of frames can't use more memory.
const WAITING: c_int = 64 << 10;

/// A socket on one link.
#[derive(Debug)]
pub struct PacketSocket(pub OwnedFd);

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub bytes: Vec<u8>,
    /// False if the sender is on this machine and left the checksum to the hardware.
    pub is_summed: bool,
}

impl PacketSocket {
    /// Opens a socket for answers to the client of that hardware address, on the link of that index in the calling
    /// thread's namespace.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link; `ENETDOWN` if it is down; the errors of socket(2).
    pub fn dhcp(index: u32, mac: MacBytes) -> nix::Result<Self> {
        let [a, b, c, d, e, f] = mac;
        let (high, low) = (u32::from_be_bytes([a, b, c, d]), u32::from(u16::from_be_bytes([e, f])));
        // The jumps have distances to the last instruction, which drops the frame.
        let program = [
            load(BPF_H | BPF_ABS, 12),
            unless_equal(0x0800, 14),
            load(BPF_B | BPF_ABS, 23),
            unless_equal(17, 12),
            load(BPF_H | BPF_ABS, 20),
            // Fragments are dropped.
            filter(BPF_JMP | BPF_JSET | BPF_K, 10, 0, 0x3fff),
            // The length of the IP header.
            filter(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 14),
            load(BPF_H | BPF_IND, 16),
            unless_equal(68, 7),
            // The frame must be an answer for this hardware address.
            load(BPF_B | BPF_IND, 22),
            unless_equal(2, 5),
            load(BPF_W | BPF_IND, 50),
            unless_equal(high, 3),
            load(BPF_H | BPF_IND, 54),
            unless_equal(low, 1),
            filter(BPF_RET | BPF_K, 0, 0, ROOM as u32),
            filter(BPF_RET | BPF_K, 0, 0, 0),
        ];
        Self::open(index, libc::ETH_P_IP, PACKET_BROADCAST, &program)
    }

    /// Opens a socket for ARP on the link of that index.
    pub fn arp(index: u32) -> nix::Result<Self> {
        Self::open(index, libc::ETH_P_ARP, PACKET_BROADCAST, &[filter(BPF_RET | BPF_K, 0, 0, 64)])
    }

    /// Opens a socket for answers of DHCPv6 servers, and for router advertisements, on the link of that index. `frame6`
    /// checks more.
    pub fn dhcpv6(index: u32) -> nix::Result<Self> {
        // The jumps have distances to the last instruction, which drops the frame.
        let program = [
            load(BPF_H | BPF_ABS, 12),
            unless_equal(0x86dd, 13),
            // Neither DHCPv6 answers nor router advertisements have extension headers.
            load(BPF_B | BPF_ABS, 20),
            unless_equal(17, 5),
            // DHCPv6 answers are UDP for the client's port: ADVERTISE or REPLY.
            load(BPF_H | BPF_ABS, 56),
            unless_equal(546, 9),
            load(BPF_B | BPF_ABS, 62),
            filter(BPF_JMP | BPF_JEQ | BPF_K, 6, 0, 2),
            filter(BPF_JMP | BPF_JEQ | BPF_K, 5, 6, 7),
            // Router advertisements are ICMPv6 that has passed no router.
            unless_equal(58, 5),
            load(BPF_B | BPF_ABS, 21),
            unless_equal(255, 3),
            load(BPF_B | BPF_ABS, 54),
            unless_equal(134, 1),
            filter(BPF_RET | BPF_K, 0, 0, ROOM as u32),
            filter(BPF_RET | BPF_K, 0, 0, 0),
        ];
        Self::open(index, libc::ETH_P_IPV6, PACKET_MULTICAST, &program)
    }

    /// Opens a socket for neighbour discovery on the link of that index. Questions about an address come to `group`.
    pub fn neighbours(index: u32, group: MacBytes) -> nix::Result<Self> {
        let program = [
            load(BPF_H | BPF_ABS, 12),
            unless_equal(0x86dd, 8),
            load(BPF_B | BPF_ABS, 20),
            unless_equal(58, 6),
            load(BPF_B | BPF_ABS, 21),
            unless_equal(255, 4),
            load(BPF_B | BPF_ABS, 54),
            filter(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 135),
            unless_equal(136, 1),
            filter(BPF_RET | BPF_K, 0, 0, ROOM as u32),
            filter(BPF_RET | BPF_K, 0, 0, 0),
        ];
        let socket = Self::open(index, libc::ETH_P_IPV6, PACKET_MULTICAST, &program)?;
        let mut member = libc::packet_mreq {
            mr_ifindex: i32::try_from(index).map_err(|_| Errno::ENODEV)?,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: [0; 8],
        };
        member.mr_address.iter_mut().zip(group).for_each(|(to, from)| *to = from);
        set(&socket.0, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)?;
        Ok(socket)
    }

    /// Opens a socket with this filter. Frames must be for this link, or have the kernel's packet type `all` (broadcast
    /// or multicast).
    fn open(index: u32, protocol: c_int, all: u8, program: &[sock_filter]) -> nix::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without a protocol the socket receives no frames before the filter is set.
        let descriptor = socket(AddressFamily::Packet, SockType::Raw, flags, None::<SockProtocol>)?;
        let mut program = [&for_us(all)[..], program].concat();
        let filter = sock_fprog { len: u16::try_from(program.len()).unwrap_or(0), filter: program.as_mut_ptr() };
        set(&descriptor, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        set(&descriptor, libc::SOL_SOCKET, libc::SO_RCVBUF, &WAITING)?;
        set(&descriptor, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (protocol as u16).to_be(),
            sll_ifindex: i32::try_from(index).map_err(|_| Errno::ENODEV)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is alive, and `length` is its size.
        let bound = unsafe { libc::bind(descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        Errno::result(bound)?;
        Ok(Self(descriptor))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// `ENETDOWN` if the link is down; `ENXIO` if it is gone; `EAGAIN` if its queue is full.
    pub fn send(&self, frame: &[u8]) -> nix::Result<()> {
        send(self.0.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).map(drop)
    }

    /// Returns the next waiting frame; `None` if no frame waits.
    ///
    /// # Errors
    /// `ENETDOWN` if the link was set down or is gone.
    pub fn receive(&self) -> nix::Result<Option<Frame>> {
        let (mut bytes, mut control) = (vec![0; ROOM], nix::cmsg_space!(libc::tpacket_auxdata));
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg::<()>(self.0.as_raw_fd(), &mut pieces, Some(&mut control), MsgFlags::MSG_DONTWAIT);
        let message = match received {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            received => received?,
        };
        let status = message.cmsgs()?.find_map(|control| status(&control)).unwrap_or(0);
        let length = message.bytes;
        bytes.truncate(length);
        Ok(Some(Frame { bytes, is_summed: status & libc::TP_STATUS_CSUMNOTREADY == 0 }))
    }
}

/// Returns the status of a frame: the first number of `struct tpacket_auxdata` (packet(7), `PACKET_AUXDATA`).
fn status(control: &ControlMessageOwned) -> Option<u32> {
    let ControlMessageOwned::Unknown(message) = control else { return None };
    let kind = (message.cmsg_header.cmsg_level, message.cmsg_header.cmsg_type);
    let status = message.data_bytes.first_chunk().filter(|_| kind == (libc::SOL_PACKET, libc::PACKET_AUXDATA));
    status.map(|bytes| u32::from_ne_bytes(*bytes))
}

fn set<T>(descriptor: &OwnedFd, level: c_int, option: c_int, value: &T) -> nix::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is alive and has the given size. The instructions of a filter are alive too.
    let result =
        unsafe { libc::setsockopt(descriptor.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    Errno::result(result).map(drop)
}

/// Drops frames that are not for this link. The kernel has removed an 802.1Q tag, so the bytes do not show the tag. If
/// no link has the VLAN of a frame, the kernel marks the frame as for another host.
fn for_us(all: u8) -> [sock_filter; 6] {
    let about = |what: c_int| load(BPF_W | BPF_ABS, (SKF_AD_OFF + what) as u32);
    [
        about(SKF_AD_VLAN_TAG_PRESENT),
        unless_equal(0, 3),
        about(SKF_AD_PKTTYPE),
        filter(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, PACKET_HOST.into()),
        filter(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, all.into()),
        filter(BPF_RET | BPF_K, 0, 0, 0),
    ]
}

fn load(how: u32, at: u32) -> sock_filter {
    filter(BPF_LD | how, 0, 0, at)
}

/// Skips `skipped` instructions if the loaded value differs from `value`.
fn unless_equal(value: u32, skipped: u8) -> sock_filter {
    filter(BPF_JMP | BPF_JEQ | BPF_K, 0, skipped, value)
}

fn filter(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests;
