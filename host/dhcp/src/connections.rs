//! The connections of gates, and of commands for people.

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, getsockopt, send};
use nix::unistd::geteuid;
use postern_dhcp_channel::{Answer, Ask, LONGEST_ASK, greeting};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, accept_with, recvmsg};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The time that a connection may be silent, in milliseconds. A gate connects before it knows whether it will send a
/// request.
const SILENT_MS: u64 = 10 * 60 * 1000;

/// The most bytes of answers that wait for a client to read them.
const UNREAD: usize = 32 << 20;

/// The number of a connection. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u64);

/// A connection.
#[derive(Debug)]
pub struct ClientConnection {
    pub id: Id,
    pub socket: OwnedFd,
    has_greeted: bool,
    incoming: Vec<u8>,
    /// The bytes that are still to be written.
    pub outgoing: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// True if a question waits for its answer. A connection has one question at a time.
    is_asked: bool,
    heard_at: u64,
    is_closing: bool,
}

/// Receives bytes, and the descriptors that come with them.
pub fn receive(socket: impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> nix::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags | RecvFlags::CMSG_CLOEXEC);
    let length = message.map_err(|error| Errno::from_raw(error.raw_os_error()))?.bytes;
    let descriptors = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((length, descriptors.flatten().collect()))
}

impl ClientConnection {
    /// Accepts a connection; `None` if no connection waits, or if the client's process belongs neither to root nor to
    /// this user.
    pub fn accept(listener: &OwnedFd, id: Id, now: u64) -> Option<Self> {
        let socket = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()?;
        let user = getsockopt(&socket, PeerCredentials).ok()?.uid();
        if user != geteuid().as_raw() && user != 0 {
            postern_gate::say!("postern dhcp: user {user} may not use the service, and was refused");
            return None;
        }
        Some(Self {
            id,
            socket,
            has_greeted: false,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            descriptors: VecDeque::new(),
            is_asked: false,
            heard_at: now,
            is_closing: false,
        })
    }

    /// The time at which a silent connection is closed; `None` while the service works on a question.
    pub fn closes_at(&self) -> Option<u64> {
        (!self.is_asked).then(|| self.heard_at.saturating_add(SILENT_MS))
    }

    /// Reads the bytes that have come. False if the client has gone, or sends invalid data.
    pub fn read(&mut self, now: u64) -> bool {
        let mut piece = vec![0; 16 << 10];
        for _ in 0..8 {
            let (length, descriptors) = match receive(&self.socket, &mut piece, RecvFlags::DONTWAIT) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return true,
                Err(Errno::EINTR) => continue,
                Err(_) => return false,
            };
            self.descriptors.extend(descriptors);
            // One descriptor for each question; more descriptors are a mistake, or a flood.
            if length == 0 || self.descriptors.len() > 4 {
                return false;
            }
            self.heard_at = now;
            self.incoming.extend(piece.iter().take(length));
            if self.incoming.len() > LONGEST_ASK {
                return false;
            }
        }
        true
    }

    /// Returns the next complete question, with its namespace if the client sent one. After an error the connection
    /// can't be used: the client sent invalid data.
    pub fn question(&mut self) -> Result<Option<(Ask, Option<OwnedFd>)>, ()> {
        if self.is_asked || self.is_closing {
            return Ok(None);
        }
        if !self.has_greeted && !self.greet()? {
            return Ok(None);
        }
        let Some(end) = self.incoming.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let rest = self.incoming.split_off(end + 1);
        let line = std::mem::replace(&mut self.incoming, rest);
        let namespace = self.descriptors.pop_front();
        let ask = serde_json::from_slice(&line).map_err(|_| ())?;
        self.is_asked = true;
        Ok(Some((ask, namespace)))
    }

    /// Reads the greeting. Returns true if the greeting is complete, and the client's protocol is Postern's.
    fn greet(&mut self) -> Result<bool, ()> {
        let Some(end) = greeting::end(&self.incoming) else {
            return if self.incoming.len() > greeting::LONGEST { Err(()) } else { Ok(false) };
        };
        let rest = self.incoming.split_off(end);
        let greeting = std::mem::replace(&mut self.incoming, rest);
        let answer = match greeting::path(&greeting) {
            Some(greeting::OWN) => greeting::ACCEPTED,
            Some(greeting::GO) => greeting::NATIVE,
            _ => greeting::UNKNOWN,
        };
        self.has_greeted = answer == greeting::ACCEPTED;
        self.is_closing = !self.has_greeted;
        self.outgoing.extend(answer.as_bytes());
        Ok(!self.is_closing)
    }

    /// Answers the question that is being worked on.
    pub fn answer(&mut self, answer: &Answer) {
        if !std::mem::take(&mut self.is_asked) {
            return;
        }
        self.outgoing.extend(serde_json::to_vec(answer).unwrap_or_default());
        self.outgoing.push(b'\n');
    }

    /// Writes the bytes that can be written. False if the client has gone, or does not read.
    pub fn write(&mut self) -> bool {
        while !self.outgoing.is_empty() {
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match send(self.socket.as_raw_fd(), &self.outgoing, flags) {
                Ok(sent) => drop(self.outgoing.drain(..sent.min(self.outgoing.len()))),
                Err(Errno::EAGAIN) => return self.outgoing.len() <= UNREAD,
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
        !self.is_closing
    }
}
