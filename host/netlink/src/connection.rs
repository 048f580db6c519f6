//! The blocking socket: one request and its answer.

mod dump;
mod receive;
#[cfg(test)]
mod tests;

pub use dump::{DumpLimits, MOST_ATTEMPTS};

use crate::error::NetlinkError;
use crate::message::Message;
use crate::request::{NetlinkRequest, RefusedRequest};
use netlink_packet_core::{NLM_F_ACK, NLM_F_MULTIPART};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use receive::{Answer, LONGEST};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::time::Instant;

/// A datagram above this length in bytes needs a larger send buffer than a socket has at first.
const LONG: usize = 128 * 1024;

/// A netlink socket. It always acts in the network namespace where it was opened, in every thread.
///
/// The socket is connected to the kernel, and accepts messages from no other sender. Otherwise a privileged process in
/// the same namespace could send false answers.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    sequence: Cell<u32>,
    buffer: RefCell<Vec<u8>>,
    /// The sequence number of a dump that was not read to its end. Until its end the kernel begins no other dump on
    /// this socket.
    unfinished: Cell<Option<u32>>,
}

impl Connection {
    /// Opens a socket of this protocol (`NETLINK_ROUTE`, …) in the calling thread's network namespace. `configure` sets
    /// the socket's options.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel has no such protocol, and the errors of `configure`.
    pub fn open(protocol: isize, configure: impl FnOnce(&Socket) -> io::Result<()>) -> io::Result<Self> {
        let socket = Socket::new(protocol)?;
        configure(&socket)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: Cell::new(1), buffer: RefCell::default(), unfinished: Cell::new(None) })
    }

    /// Returns the socket, for its options.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the most bytes of one datagram that the socket sends without a larger buffer.
    pub fn room(&self) -> usize {
        // The kernel keeps some bytes for itself.
        getsockopt(&self.socket, sockopt::SndBuf).map_or(LONG, |size| size.saturating_sub(64))
    }

    /// Sends requests in one datagram, and gives every object of the answer to `each`. The kernel carries out the
    /// requests in order. The kernel must answer the last request.
    ///
    /// If a request fails, the kernel still carries out the next requests, but the error is returned.
    ///
    /// # Errors
    /// The kernel refuses a request, its answer makes no sense, or the deadline passes.
    pub fn ask(
        &self,
        requests: &[NetlinkRequest],
        deadline: Instant,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), NetlinkError> {
        let first = self.send(requests, None)?;
        let last = first.wrapping_add(u32::try_from(requests.len()).unwrap_or(u32::MAX)).wrapping_sub(1);
        self.receive(first, last, deadline, |message, answer| {
            let ends = match answer {
                Answer::Object(object) => {
                    each(object);
                    message.flags & NLM_F_MULTIPART == 0
                }
                Answer::Refused(message) => return Err(refused(&message)),
                Answer::Done => true,
            };
            Ok(ends && message.sequence == last)
        })
    }

    /// Asks for one object; `None` if the kernel answers without an object.
    ///
    /// # Errors
    /// As [`Connection::ask`], and [`NetlinkError::NotUnderstood`] if `read` returns nothing.
    pub fn get<T>(
        &self,
        request: NetlinkRequest,
        deadline: Instant,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        let requests = [request];
        let (mut object, mut understood) = (None, true);
        loop {
            let asked = self.ask(&requests, deadline, |payload| {
                object = read(payload);
                understood = object.is_some();
            });
            match asked {
                // The buffer has room now.
                Err(NetlinkError::TooLong(length)) if length < LONGEST => {}
                Err(error) => return Err(error),
                Ok(()) if understood => return Ok(object),
                Ok(()) => return Err(NetlinkError::NotUnderstood),
            }
        }
    }

    /// Sends requests that each ask for an acknowledgement, and returns the error number of each request; 0 for
    /// success.
    ///
    /// # Errors
    /// As [`Connection::ask`], except the refusals, which are returned.
    pub fn answers(&self, requests: &[NetlinkRequest], deadline: Instant) -> Result<Vec<i32>, NetlinkError> {
        let first = self.send(requests, None)?;
        let last = first.wrapping_add(u32::try_from(requests.len()).unwrap_or(u32::MAX)).wrapping_sub(1);
        let mut answers = vec![0; requests.len()];
        self.receive(first, last, deadline, |message, answer| {
            let errno = match answer {
                Answer::Object(_) => return Ok(false),
                Answer::Refused(message) => message.errno(),
                Answer::Done => 0,
            };
            let at = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
            if let Some(answer) = answers.get_mut(at) {
                *answer = errno;
            }
            Ok(message.sequence == last)
        })?;
        Ok(answers)
    }

    /// Sends the requests of one transaction (a batch of nfnetlink), and gives every object in the kernel's answers to
    /// `each`. Only the request `acknowledged` asks for an acknowledgement.
    ///
    /// Errors come in the order of the requests; an error of the whole transaction comes first, or alone. So the first
    /// error is returned. Success is returned only after all answers: the last request's success means nothing if an
    /// earlier request failed.
    ///
    /// # Errors
    /// As [`Connection::ask`], except the refusals, which are returned.
    pub fn transact(
        &self,
        requests: &[NetlinkRequest],
        acknowledged: usize,
        deadline: Instant,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Option<RefusedRequest>, NetlinkError> {
        let first = self.send(requests, Some(acknowledged))?;
        let last = first.wrapping_add(u32::try_from(acknowledged).unwrap_or(u32::MAX));
        let mut refusal = None;
        self.receive(first, last, deadline, |message, answer| {
            let errno = match answer {
                Answer::Object(object) => {
                    each(object);
                    return Ok(false);
                }
                Answer::Refused(message) => message.errno(),
                Answer::Done => 0,
            };
            if errno != 0 && refusal.is_none() {
                let request = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                refusal = Some(RefusedRequest { request, errno });
            }
            Ok(message.sequence == last || message.sequence == first)
        })?;
        Ok(refusal)
    }

    /// Sends requests in one datagram, and returns the sequence number of the first. The kernel carries out the
    /// requests before this function returns, so no deadline can apply.
    fn send(&self, requests: &[NetlinkRequest], acknowledged: Option<usize>) -> Result<u32, NetlinkError> {
        self.forget_failure();
        let first = self.sequence.get();
        let mut datagram = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let sequence = self.sequence.get();
            let begin = datagram.len();
            request.append_to(&mut datagram, sequence);
            if acknowledged == Some(index)
                && let Some(flags) = datagram.get_mut(begin..).and_then(|message| message.get_mut(6..8))
            {
                flags.copy_from_slice(&(request.flags | NLM_F_ACK).to_ne_bytes());
            }
            self.sequence.set(sequence.wrapping_add(1));
        }
        // The kernel takes no datagram that is longer than the send buffer. A socket begins with some 200 KiB.
        if datagram.len() > LONG {
            let size = datagram.len().saturating_mul(2);
            setsockopt(&self.socket, sockopt::SndBufForce, &size)
                .or_else(|_| setsockopt(&self.socket, sockopt::SndBuf, &size))
                .map_err(io::Error::from)?;
        }
        loop {
            match self.socket.send(&datagram, 0) {
                Ok(sent) if sent == datagram.len() => return Ok(first),
                Ok(_) => return Err(NetlinkError::Partial),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Makes the error for a refusal.
fn refused(message: &Message<'_>) -> NetlinkError {
    NetlinkError::Refused { errno: message.errno(), explanation: message.explanation().map(str::to_owned) }
}
