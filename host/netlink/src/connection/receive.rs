//! Answers: datagrams, and the messages in them.

use super::Connection;
use crate::error::NetlinkError;
use crate::message::{Message, Messages, u32_at};
use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, ErrorKind};
use std::time::Instant;

/// The size of the buffer at first. The kernel makes a dump's datagram at most 32 KiB long, unless one object is
/// longer. The data of a link with many alternative names can be twice as long. Then the buffer grows.
pub(super) const BUFFER: usize = 32 * 1024;

/// The longest datagram that is read. An object has a few lists, and each list's length has 16 bits.
pub(super) const LONGEST: usize = 16 * 1024 * 1024;

/// The offset of the sequence number in a message (`nlmsg_seq`).
const SEQUENCE: usize = 8;

/// The content of one message of an answer.
pub(super) enum Answer<'a> {
    Object(&'a [u8]),
    Refused(Message<'a>),
    /// An acknowledgement, or the end of a dump.
    Done,
}

impl Connection {
    /// Calls `take` with every message that answers a sequence number from `first` to `last`. Stops when `take` returns
    /// true, for the last message. Fails at `deadline`; messages that arrive later stay unread.
    pub(super) fn receive(
        &self,
        first: u32,
        last: u32,
        deadline: Instant,
        mut take: impl FnMut(&Message<'_>, Answer<'_>) -> Result<bool, NetlinkError>,
    ) -> Result<(), NetlinkError> {
        while !self.receive_some(first, last, Some(deadline), &mut take)? {}
        Ok(())
    }

    /// As [`Connection::receive`], for one datagram. Returns true if `take` returned true for the last message. Without
    /// a deadline, the call does not wait.
    pub(super) fn receive_some(
        &self,
        first: u32,
        last: u32,
        deadline: Option<Instant>,
        take: &mut impl FnMut(&Message<'_>, Answer<'_>) -> Result<bool, NetlinkError>,
    ) -> Result<bool, NetlinkError> {
        // Messages of an earlier exchange, which ended by an error or a timeout, have another number.
        let is_awaited = |sequence: u32| sequence.wrapping_sub(first) <= last.wrapping_sub(first);
        let mut buffer = self.buffer.borrow_mut();
        let length = self.receive_datagram(&mut buffer, deadline)?;
        if length != buffer.len() {
            let is_ours = u32_at(&buffer, SEQUENCE).is_none_or(is_awaited);
            buffer.clear();
            buffer.reserve(length.min(LONGEST));
            return if is_ours { Err(NetlinkError::TooLong(length)) } else { Ok(false) };
        }
        for message in Messages(&buffer) {
            let message = message?;
            // If the kernel had no memory for a dump, the dump continues later.
            let ends = match message.kind {
                NLMSG_DONE => true,
                NLMSG_ERROR => message.errno() != libc::ENOBUFS,
                _ => false,
            };
            if ends && self.unfinished.get() == Some(message.sequence) {
                self.unfinished.set(None);
            }
            if !is_awaited(message.sequence) {
                continue;
            }
            let answer = match message.kind {
                NLMSG_NOOP => continue,
                NLMSG_OVERRUN => return Err(NetlinkError::Lost),
                NLMSG_ERROR | NLMSG_DONE if message.errno() != 0 => Answer::Refused(message),
                NLMSG_ERROR | NLMSG_DONE => Answer::Done,
                _ => Answer::Object(message.payload),
            };
            if take(&message, answer)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads one datagram into `buffer`, and returns its length, which can exceed the buffer. The kernel usually
    /// answers while the request is being sent, so a wait is rare.
    fn receive_datagram(&self, buffer: &mut Vec<u8>, deadline: Option<Instant>) -> Result<usize, NetlinkError> {
        buffer.clear();
        buffer.reserve(BUFFER);
        // With MSG_TRUNC the datagram's full length is returned, even if the buffer was too small for it.
        let mut flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(NetlinkError::Late);
            }
            match self.socket.recv(buffer, flags) {
                Ok(length) => return Ok(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let Some(left) = left else { return Err(NetlinkError::Late) };
                    // A timeout of 0 would mean no timeout.
                    let microseconds = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
                    setsockopt(&self.socket, sockopt::ReceiveTimeout, &TimeVal::microseconds(microseconds))
                        .map_err(io::Error::from)?;
                    flags = libc::MSG_TRUNC;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
