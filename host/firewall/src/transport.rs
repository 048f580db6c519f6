//! Netlink messages to nfnetlink and back: blocking, with a deadline.

use std::os::fd::AsFd as _;
use std::time::Instant;

use netlink_packet_core::{
    NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;
use nix::libc::MSG_TRUNC;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Larger than any datagram that the kernel sends: dumps come in pieces of at most 32 KiB.
const RECEIVE_BUFFER: usize = 64 * 1024;

/// Bytes before a message's attributes (`struct nfgenmsg`).
const HEADER: usize = 4;

/// A message of a reply, or its end.
pub(crate) enum Reply<'a> {
    /// An object: its attributes.
    Message(&'a [u8]),
    /// An acknowledgement (0) or an error, for the request with this sequence number.
    Status {
        sequence: u32,
        errno: i32,
    },
    DumpEnd,
    /// A change overtook the dump: what it reported is no consistent whole.
    Interrupted,
}

/// A netlink socket of the network namespace that it was opened in.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
    sequence: u32,
    deadline: Instant,
}

impl Transport {
    pub(crate) fn open(deadline: Instant) -> std::io::Result<Self> {
        let socket = Socket::new(NETLINK_NETFILTER)?;
        // Connected to the kernel: nobody else's datagrams get in.
        socket.connect(&SocketAddr::new(0, 0))?;
        // Without this an error repeats the whole request.
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0, deadline })
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Appends a request to `buffer` and returns its sequence number.
    pub(crate) fn write(
        &mut self,
        buffer: &mut Vec<u8>,
        family: NetfilterProtoFamily,
        resource: u16,
        flags: u16,
        message: impl Into<NetfilterMessageInner>,
    ) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let message = NetfilterMessage::new(NetfilterHeader::new(family, 0, resource), message);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let start = buffer.len();
        buffer.resize(start + message.buffer_len().next_multiple_of(4), 0);
        if let Some(place) = buffer.get_mut(start..) {
            message.serialize(place);
        }
        self.sequence
    }

    /// Sends a datagram. The kernel works it off before this returns, so no deadline can apply.
    pub(crate) fn send(&self, datagram: &[u8]) -> Result<(), Errno> {
        loop {
            match self.socket.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno_of(&error)),
            }
        }
    }

    /// Receives messages that answer the sequence numbers `first..=last` and hands them to `take`, until that says that
    /// it has enough.
    ///
    /// # Errors
    /// Those of `take`, `ETIMEDOUT` once the deadline has passed, `EBADMSG` for what can't be
    /// understood, and the errors of recv(2).
    pub(crate) fn receive(
        &self,
        first: u32,
        last: u32,
        mut take: impl FnMut(Reply<'_>) -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let mut datagram = Vec::with_capacity(RECEIVE_BUFFER);
        loop {
            self.wait()?;
            datagram.clear();
            let received = match self.socket.recv(&mut datagram, MSG_TRUNC) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(errno_of(&error)),
            };
            if received > datagram.len() {
                return Err(Errno::EMSGSIZE);
            }
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let message = NetlinkBuffer::new_checked(rest).map_err(|_malformed| Errno::EBADMSG)?;
                let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
                let payload = message.payload();
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                let sequence = message.sequence_number();
                // What is left of an earlier request that failed half-way is skipped.
                if !(first..=last).contains(&sequence) {
                    continue;
                }
                if message.flags() & NLM_F_DUMP_INTR != 0 {
                    take(Reply::Interrupted)?;
                }
                let reply = match message.message_type() {
                    // Both begin with a negative errno, or 0.
                    NLMSG_ERROR | NLMSG_DONE => {
                        let status = payload.first_chunk().copied().map(i32::from_ne_bytes).ok_or(Errno::EBADMSG)?;
                        match (message.message_type(), status) {
                            (NLMSG_DONE, 0..) => Reply::DumpEnd,
                            _ => Reply::Status { sequence, errno: status.wrapping_neg() },
                        }
                    }
                    _ => Reply::Message(payload.get(HEADER..).unwrap_or_default()),
                };
                if take(reply)? {
                    return Ok(());
                }
            }
        }
    }

    fn wait(&self) -> Result<(), Errno> {
        loop {
            let remaining = self.deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(Errno::ETIMEDOUT);
            }
            // Rounded up: a remainder below a millisecond must not turn into a busy loop.
            let timeout = PollTimeout::try_from(remaining.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}
