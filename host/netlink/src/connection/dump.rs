//! Lists: many objects, in many datagrams.
//!
//! The kernel continues a dump when a datagram is read. Before the dump ends, the kernel begins no second dump on
//! the same socket (`EBUSY`).

use super::receive::{Answer, LONGEST};
use super::{Connection, refused};
use crate::error::NetlinkError;
use crate::message::Message;
use crate::request::NetlinkRequest;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_NOOP};
use nix::sys::socket::{getsockopt, sockopt};
use std::time::Instant;

/// The largest number of readings of a dump. The dump is read again if other processes changed the list meanwhile, or
/// if the kernel had no room for an object or an answer.
pub const MOST_ATTEMPTS: usize = 4;

/// The limits of a dump, and the conditions on its result.
#[derive(Clone, Copy, Debug)]
pub struct DumpLimits {
    /// The largest number of readings of the dump.
    pub attempts: usize,
    /// The largest number of objects that are kept.
    pub most: usize,
    /// True if the last reading counts even if other processes changed the list meanwhile. Then any object can be
    /// missing or be there twice, even an unchanged object. Lists of a container need this: otherwise root in the
    /// container could make every reading fail.
    pub may_change: bool,
}

impl DumpLimits {
    /// Only the deadline limits the dump, because a node can have any number of rules.
    pub const NONE: Self = Self { attempts: usize::MAX, most: usize::MAX, may_change: false };
}

impl Connection {
    /// Requests many objects. `read` returns the objects of one message. A message that `read` can't understand is left
    /// out.
    ///
    /// If other processes change the objects meanwhile, the list is read again. If there are more objects than
    /// `limits.most`, none is kept.
    ///
    /// # Errors
    /// The errors of [`Connection::ask`]; also [`NetlinkError::TooMany`] and [`NetlinkError::Changing`].
    pub fn dump<T, I: IntoIterator<Item = T>>(
        &self,
        mut request: NetlinkRequest,
        deadline: Instant,
        limits: DumpLimits,
        read: impl Fn(&[u8]) -> Option<I>,
    ) -> Result<Vec<T>, NetlinkError> {
        request.flags |= NLM_F_DUMP;
        let mut left = limits.attempts;
        loop {
            let mut objects = Vec::new();
            let asked = self.dump_once(&request, deadline, |payload| {
                if objects.len() <= limits.most {
                    objects.extend(read(payload).into_iter().flatten());
                }
            });
            left = left.saturating_sub(1);
            match asked {
                Ok(_) if objects.len() > limits.most => return Err(NetlinkError::TooMany(limits.most)),
                Ok(false) => return Ok(objects),
                // The buffer has room now.
                Err(NetlinkError::TooLong(length)) if length < LONGEST => left = left.saturating_add(1),
                Ok(true) if left == 0 && limits.may_change => return Ok(objects),
                Ok(true) if left == 0 => return Err(NetlinkError::Changing),
                Ok(true) => {}
                Err(error) if left > 0 && error.is_short_of_room() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn dump_once(
        &self,
        request: &NetlinkRequest,
        deadline: Instant,
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool, NetlinkError> {
        let sequence = self.begin_dump(request, deadline)?;
        let mut interrupted = false;
        self.receive(sequence, sequence, deadline, |message, answer| {
            interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match answer {
                Answer::Object(object) => each(object),
                Answer::Refused(message) => return Err(refused(&message)),
                Answer::Done => return Ok(true),
            }
            Ok(false)
        })?;
        Ok(interrupted)
    }

    /// As [`Connection::dump`], without a limit, until `enough` is true for the objects that were read so far. The
    /// returned flag is true if all objects were read. If the flag is false, the kernel keeps the other objects, and
    /// the next dump on this socket has to read them first.
    ///
    /// # Errors
    /// As [`Connection::dump`].
    pub fn dump_until<T>(
        &self,
        mut request: NetlinkRequest,
        deadline: Instant,
        read: impl Fn(&[u8]) -> Option<T>,
        mut enough: impl FnMut(&[T]) -> bool,
    ) -> Result<(Vec<T>, bool), NetlinkError> {
        request.flags |= NLM_F_DUMP;
        loop {
            let sequence = self.begin_dump(&request, deadline)?;
            let (mut objects, mut interrupted, mut ended) = (Vec::new(), false, false);
            while !ended {
                let mut take = |message: &Message<'_>, answer: Answer<'_>| {
                    interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                    match answer {
                        Answer::Object(object) => objects.extend(read(object)),
                        Answer::Refused(message) => return Err(refused(&message)),
                        Answer::Done => ended = true,
                    }
                    Ok(ended)
                };
                match self.receive_some(sequence, sequence, Some(deadline), &mut take) {
                    Err(NetlinkError::TooLong(length)) if length < LONGEST => {
                        interrupted = true;
                        break;
                    }
                    done => drop(done?),
                }
                // If objects changed meanwhile, some may have been left out.
                if !ended && !interrupted && enough(&objects) {
                    return Ok((objects, false));
                }
            }
            if !interrupted {
                return Ok((objects, true));
            }
        }
    }

    /// Sends the request of a dump, and returns its sequence number.
    pub(super) fn begin_dump(&self, request: &NetlinkRequest, deadline: Instant) -> Result<u32, NetlinkError> {
        while self.unfinished.get().is_some() {
            self.read_unfinished(deadline)?;
        }
        let sequence = self.send(std::slice::from_ref(request), None)?;
        self.unfinished.set(Some(sequence));
        Ok(sequence)
    }

    /// Reads the rest of an earlier dump. A kernel that lacks memory pauses a dump without an end message, and
    /// continues the dump when a datagram is read. So this function sends a message that does nothing, and reads the
    /// acknowledgement. If nothing follows the acknowledgement, the dump is over.
    fn read_unfinished(&self, deadline: Instant) -> Result<(), NetlinkError> {
        let asked = self.send(&[NetlinkRequest::raw(NLMSG_NOOP, NLM_F_ACK, Vec::new())], None)?;
        let mut answered = false;
        while self.unfinished.get().is_some() {
            if Instant::now() >= deadline {
                return Err(NetlinkError::Late);
            }
            let mut take = |_: &Message<'_>, _: Answer<'_>| {
                answered = true;
                Ok(false)
            };
            match self.receive_some(asked, asked, None, &mut take) {
                Ok(_) | Err(NetlinkError::TooLong(_) | NetlinkError::Malformed) => {}
                // Nothing is left to read.
                Err(NetlinkError::Late) => {
                    if answered {
                        self.unfinished.set(None);
                    }
                    break;
                }
                Err(error) if error.is_short_of_room() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Clears the error of an unfinished dump, which the kernel would report to the next request.
    pub(super) fn forget_failure(&self) {
        if self.unfinished.get().is_some() {
            let _ = getsockopt(&self.socket, sockopt::SocketError);
        }
    }
}
