//! The connections of gates, of native clients, and of people's commands.

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, getsockopt, send};
use nix::unistd::geteuid;
use postern_dhcp_channel::gob::split;
use postern_dhcp_channel::rpc::{self, Header, Server};
use postern_dhcp_channel::{Answer, Ask, Attachment, LONGEST_ASK, greeting};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, accept_with, recvmsg};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The time that a connection may be silent, in milliseconds. A gate connects before it knows whether it will ask.
const SILENT_MS: u64 = 10 * 60 * 1000;

/// The most bytes of answers that wait for a client to read them.
const UNREAD: usize = 32 << 20;

/// Which connection: the number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u64);

/// The protocol of a connection.
#[derive(Debug)]
enum Speech {
    /// It has not said yet.
    Unknown,
    Own,
    Go(Box<Server>),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its number.
    pub id: Id,
    socket: OwnedFd,
    speech: Speech,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// The call that has to be answered next. One at a time.
    pending: Option<Option<Header>>,
    heard_at: u64,
    is_closing: bool,
}

/// Something that a client asks for.
#[derive(Debug)]
pub struct Question {
    /// What.
    pub ask: Ask,
    /// The namespace, if it came with it.
    pub namespace: Option<OwnedFd>,
}

impl Connection {
    /// Accepts a connection; `None` if there is none, or its process is another user's.
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
            speech: Speech::Unknown,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            descriptors: VecDeque::new(),
            pending: None,
            heard_at: now,
            is_closing: false,
        })
    }

    /// Returns the descriptor to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True if something has to be written.
    pub fn wants_to_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// True if a question is being worked on.
    pub fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// The time at which a silent connection is closed; none while a question is being worked on.
    pub fn closes_at(&self) -> Option<u64> {
        (!self.is_busy()).then(|| self.heard_at.saturating_add(SILENT_MS))
    }

    /// Reads what is there. False if the client has gone, or says what makes no sense.
    pub fn read(&mut self, now: u64) -> bool {
        let mut piece = vec![0; 16 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        for _ in 0..8 {
            let mut pieces = [IoSliceMut::new(&mut piece)];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let length = match recvmsg(&self.socket, &mut pieces, &mut control, flags) {
                Ok(message) => {
                    for part in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                            self.descriptors.extend(descriptors);
                        }
                    }
                    message.bytes
                }
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return false,
            };
            // One descriptor for each question; more are a mistake, or a flood.
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

    /// Returns the next question that is complete.
    ///
    /// # Errors
    /// The client says what makes no sense; the connection is no longer of use.
    pub fn question(&mut self) -> Result<Option<Question>, ()> {
        if self.pending.is_some() || self.is_closing {
            return Ok(None);
        }
        if matches!(self.speech, Speech::Unknown) && !self.greet()? {
            return Ok(None);
        }
        match &mut self.speech {
            Speech::Unknown => Ok(None),
            Speech::Own => {
                let Some(end) = self.incoming.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
                let rest = self.incoming.split_off(end + 1);
                let line = std::mem::replace(&mut self.incoming, rest);
                let namespace = self.descriptors.pop_front();
                let ask = serde_json::from_slice(&line).map_err(|_| ())?;
                self.pending = Some(None);
                Ok(Some(Question { ask, namespace }))
            }
            Speech::Go(server) => loop {
                let Some((message, rest)) = split(&self.incoming).map_err(|_| ())? else { return Ok(None) };
                let used = self.incoming.len() - rest.len();
                let call = server.message(message).map_err(|_| ())?;
                self.incoming.drain(..used);
                let Some(call) = call else { continue };
                let attachment = with_network(call.attachment);
                let ask = match call.header.method.as_str() {
                    rpc::ALLOCATE => Ask::Acquire(attachment),
                    rpc::RELEASE => Ask::Release(attachment),
                    other => {
                        let words = format!("rpc: can't find method {other}");
                        let bytes = server.answer(&call.header, Err(&words)).map_err(|_| ())?;
                        self.outgoing.extend(bytes);
                        continue;
                    }
                };
                self.pending = Some(Some(call.header));
                return Ok(Some(Question { ask, namespace: None }));
            },
        }
    }

    /// Reads the greeting. True if it is complete, and a protocol was chosen.
    fn greet(&mut self) -> Result<bool, ()> {
        let Some(end) = greeting::end(&self.incoming) else {
            return if self.incoming.len() > greeting::LONGEST { Err(()) } else { Ok(false) };
        };
        let rest = self.incoming.split_off(end);
        let greeting = std::mem::replace(&mut self.incoming, rest);
        let answer = match greeting::path(&greeting) {
            Some(greeting::OWN) => {
                self.speech = Speech::Own;
                greeting::ACCEPTED
            }
            Some(greeting::GO) => {
                self.speech = Speech::Go(Box::default());
                greeting::ACCEPTED_GO
            }
            _ => {
                self.is_closing = true;
                greeting::UNKNOWN
            }
        };
        self.outgoing.extend(answer.as_bytes());
        Ok(!self.is_closing)
    }

    /// Answers the question that is being worked on.
    pub fn answer(&mut self, answer: &Answer) {
        let Some(pending) = self.pending.take() else { return };
        let bytes = match (&mut self.speech, pending) {
            (Speech::Go(server), Some(header)) => {
                let answer = match answer {
                    Answer::Lease(lease) => Ok(Some(lease)),
                    Answer::Done | Answer::Leases(_) => Ok(None),
                    Answer::Refused { words, .. } => Err(words.as_str()),
                };
                server.answer(&header, answer).unwrap_or_default()
            }
            _ => {
                let mut line = serde_json::to_vec(answer).unwrap_or_default();
                line.push(b'\n');
                line
            }
        };
        self.outgoing.extend(bytes);
    }

    /// Writes what can be written. False if the client has gone, or does not read.
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

/// A native client names the network only in its configuration.
fn with_network(mut attachment: Attachment) -> Attachment {
    let configuration: serde_json::Value = serde_json::from_str(&attachment.configuration).unwrap_or_default();
    attachment.network = configuration.get("name").and_then(|name| name.as_str()).unwrap_or_default().to_owned();
    attachment
}
