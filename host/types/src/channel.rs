//! The channel between gate and sandbox: [`crate::ToSandbox`] in one direction, [`crate::FromSandbox`] in the other.
//!
//! A message is its length (four bytes, little-endian), and then its bytes in the form of postcard. Numbers, texts and
//! lists follow each other, without keys. Both ends come from the same build. A guest's standard input may be longer
//! than a message. So the input follows the message that starts the guest, as a length and a text.
//!
//! The socket keeps the borders of packets (`SOCK_SEQPACKET`). Each message begins a new packet, and a long message has
//! several packets. With `SOCK_STREAM`, each read would wake the other side without need. Such wake-ups would be half
//! of all wake-ups of a run (docs/decisions/0005-packet-sockets.md).
//!
//! Neither side trusts the other. A length is checked before anything is allocated. A deadline covers the whole
//! message, so a peer that sends slowly can't block the channel.

use crate::ToSandbox;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send as transmit, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The greatest length of one message, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The greatest length of a guest's standard input, in bytes. This is enough for 16,384 port mappings as a runtime may
/// write them, and for GC's lists of a full node.
pub const MAX_INPUT: usize = 4 << 20;

/// The size of the length in front of a message, in bytes.
const HEADER: usize = 4;

/// The greatest length of one packet, in bytes. Nearly all messages fit into one packet.
pub const PACKET: usize = 8 << 10;

/// The reason why a message did not get through. The channel can be used again only after [`ChannelError::TooLarge`]
/// from [`send`], because nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer has closed the channel.
    #[error("the other process is gone")]
    Closed,
    /// The deadline has passed.
    #[error("the deadline has passed")]
    Timeout,
    /// The message is longer than [`MAX_MESSAGE`]: this many bytes.
    #[error("a message of {0} bytes is longer than {MAX_MESSAGE}")]
    TooLarge(usize),
    /// The bytes are no message of this type.
    #[error("malformed message: {0}")]
    Malformed(#[source] postcard::Error),
    /// The packets of a message don't have the length that the message announced.
    #[error("malformed message: a packet of {0} bytes does not fit into the announced length")]
    Misfit(usize),
    /// The socket failed for another reason.
    #[error("channel: {0}")]
    Io(#[source] io::Error),
}

impl From<Errno> for ChannelError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN => Self::Closed,
            // Linux reports a socket's timeout as EAGAIN.
            Errno::EAGAIN => Self::Timeout,
            other => Self::Io(other.into()),
        }
    }
}

/// Makes the two ends of a channel. Both ends close on exec.
///
/// # Errors
/// The kernel can't make sockets.
pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    Ok((one.into(), other.into()))
}

/// Sends one message. Blocks until the socket has taken the message or the deadline has passed. `None` sets no timeout,
/// and keeps the timeout of an earlier call with a deadline. So a side should use deadlines always or never.
///
/// # Errors
/// See [`ChannelError`].
pub fn send(stream: &UnixStream, message: &impl Serialize, deadline: Option<Instant>) -> Result<(), ChannelError> {
    let mut bytes = postcard::to_extend(message, vec![0; HEADER]).map_err(ChannelError::Malformed)?;
    let length = length(bytes.len() - HEADER, MAX_MESSAGE)?;
    bytes.iter_mut().zip(length).for_each(|(to, from)| *to = from);
    write(stream, &bytes, deadline)
}

/// Sends a message to a sandbox, with the standard input of the guest that the message starts.
///
/// # Errors
/// See [`ChannelError`].
pub fn send_to_sandbox(
    stream: &UnixStream,
    message: &ToSandbox,
    deadline: Option<Instant>,
) -> Result<(), ChannelError> {
    let (ToSandbox::Start(start) | ToSandbox::StartLast(start)) = message else {
        return send(stream, message, deadline);
    };
    // If the start were sent without its input, the sandbox would read the next answer as the input.
    if start.stdin.len() > MAX_INPUT {
        return Err(ChannelError::TooLarge(start.stdin.len()));
    }
    send(stream, message, deadline)?;
    send_text(stream, &start.stdin, deadline)
}

/// Sends a text of at most [`MAX_INPUT`] bytes, for [`receive_text`].
///
/// # Errors
/// See [`ChannelError`].
pub fn send_text(stream: &UnixStream, text: &str, deadline: Option<Instant>) -> Result<(), ChannelError> {
    let length = length(text.len(), MAX_INPUT)?;
    let (first, rest) = text.as_bytes().split_at(text.len().min(PACKET - HEADER));
    write(stream, &[&length, first].concat(), deadline)?;
    write(stream, rest, deadline)
}

/// Receives a text of [`send_text`].
///
/// # Errors
/// See [`ChannelError`].
pub fn receive_text(stream: &UnixStream, deadline: Option<Instant>) -> Result<String, ChannelError> {
    let invalid = |error| ChannelError::Io(io::Error::new(ErrorKind::InvalidData, error));
    String::from_utf8(read(stream, MAX_INPUT, deadline)?).map_err(invalid)
}

/// Encodes a length of at most `most`.
fn length(size: usize, most: usize) -> Result<[u8; HEADER], ChannelError> {
    let length = u32::try_from(size).ok().filter(|_| size <= most).ok_or(ChannelError::TooLarge(size))?;
    Ok(length.to_le_bytes())
}

/// Sends all these bytes.
fn write(stream: &UnixStream, bytes: &[u8], deadline: Option<Instant>) -> Result<(), ChannelError> {
    for packet in bytes.chunks(PACKET) {
        let mut flags = MsgFlags::MSG_NOSIGNAL;
        // The socket usually has room. Only a wait needs a timeout.
        flags.set(MsgFlags::MSG_DONTWAIT, deadline.is_some());
        loop {
            match transmit(stream.as_raw_fd(), packet, flags) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => flags.remove(MsgFlags::MSG_DONTWAIT),
                Err(errno) => return Err(errno.into()),
            }
            if let Some(deadline) = deadline {
                stream.set_write_timeout(Some(remaining(deadline)?)).map_err(ChannelError::Io)?;
            }
        }
    }
    Ok(())
}

/// Receives one message. Blocks until the message is complete or the deadline has passed. `None` is as in [`send`].
///
/// # Errors
/// See [`ChannelError`].
pub fn receive<T: DeserializeOwned>(stream: &UnixStream, deadline: Option<Instant>) -> Result<T, ChannelError> {
    decode(&read(stream, MAX_MESSAGE, deadline)?)
}

/// Reads a message from all of these bytes.
///
/// # Errors
/// [`ChannelError::Malformed`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ChannelError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(ChannelError::Malformed(postcard::Error::DeserializeBadEncoding)),
        Err(error) => Err(ChannelError::Malformed(error)),
    }
}

/// Receives a message of [`send_to_sandbox`].
///
/// # Errors
/// See [`ChannelError`].
pub fn receive_in_sandbox(stream: &UnixStream, deadline: Option<Instant>) -> Result<ToSandbox, ChannelError> {
    let mut message = receive(stream, deadline)?;
    if let ToSandbox::Start(start) | ToSandbox::StartLast(start) = &mut message {
        start.stdin = receive_text(stream, deadline)?.into();
    }
    Ok(message)
}

/// Receives a length of at most `most`, and then bytes of this length.
fn read(stream: &UnixStream, most: usize, deadline: Option<Instant>) -> Result<Vec<u8>, ChannelError> {
    let mut packet = [0; PACKET];
    let arrived = receive_packet(stream, &mut packet, deadline)?;
    let misfit = || ChannelError::Misfit(arrived);
    let (header, first) = packet.get(..arrived).and_then(|packet| packet.split_first_chunk()).ok_or_else(misfit)?;
    let size = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
    if size > most {
        return Err(ChannelError::TooLarge(size));
    }
    let mut body = vec![0; size];
    body.get_mut(..first.len()).ok_or_else(misfit)?.copy_from_slice(first);
    let mut filled = first.len();
    while let Some(rest) = body.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let room = rest.len();
        match receive_packet(stream, rest, deadline)? {
            arrived if arrived > room => return Err(ChannelError::Misfit(arrived)),
            arrived => filled += arrived,
        }
    }
    Ok(body)
}

/// Receives one packet, and returns its length. The length exceeds the buffer's length if the packet did not fit.
fn receive_packet(stream: &UnixStream, buffer: &mut [u8], deadline: Option<Instant>) -> Result<usize, ChannelError> {
    loop {
        if let Some(deadline) = deadline {
            stream.set_read_timeout(Some(remaining(deadline)?)).map_err(ChannelError::Io)?;
        }
        match recv(stream.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC) {
            // An empty packet also ends the channel.
            Ok(0) => return Err(ChannelError::Closed),
            Ok(length) => return Ok(length),
            // The peer ended without reading everything. The kernel reports this error once, before the peer's last
            // messages.
            Err(Errno::EINTR | Errno::ECONNRESET) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Returns the time until the deadline. The time is never zero, because zero means "no timeout" for a socket.
fn remaining(deadline: Instant) -> Result<Duration, ChannelError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ChannelError::Timeout) } else { Ok(left.max(Duration::from_micros(1))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorCode, FromSandbox, GuestLimits, OpError, Reply, Start};
    use std::io::Write;
    use std::thread;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(50))
    }

    fn later() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(20))
    }

    #[test]
    fn carries_messages_both_ways() {
        let (gate, sandbox) = pair().unwrap();
        let call = FromSandbox::Call(crate::ops::Bridge::Find { name: "cni0".into() }.into());
        send(&sandbox, &call, None).unwrap();
        send(&sandbox, &FromSandbox::Stderr("x".into()), None).unwrap();
        assert_eq!(receive::<FromSandbox>(&gate, soon()).unwrap(), call);
        assert_eq!(receive::<FromSandbox>(&gate, soon()).unwrap(), FromSandbox::Stderr("x".into()));
        for answer in [Reply::of(&()), Err(OpError::new(ErrorCode::Denied, "cni0", "no"))] {
            let answer = ToSandbox::Answer(answer);
            send_to_sandbox(&gate, &answer, soon()).unwrap();
            assert_eq!(receive_in_sandbox(&sandbox, None).unwrap(), answer);
        }
        let longest = "x".repeat(MAX_INPUT);
        for stdin in ["", "{\"name\": \"n\u{fc}\"}\n", longest.as_str()] {
            let start = Start { env: Vec::new(), stdin: stdin.to_owned().into(), limits: GuestLimits::default() };
            let start = ToSandbox::Start(start);
            // The socket has no room for the longest message, so the sandbox reads meanwhile.
            thread::scope(|scope| {
                let received = scope.spawn(|| receive_in_sandbox(&sandbox, later()).unwrap());
                send_to_sandbox(&gate, &start, later()).unwrap();
                assert!(received.join().unwrap() == start, "{} bytes", stdin.len());
            });
        }
        // Nothing is sent, so the sandbox does not read the answer as the input.
        let start = Start { env: Vec::new(), stdin: "x".repeat(MAX_INPUT + 1).into(), limits: GuestLimits::default() };
        let sent = send_to_sandbox(&gate, &ToSandbox::Start(start), soon());
        assert!(matches!(sent, Err(ChannelError::TooLarge(_))), "{sent:?}");
        let answer = ToSandbox::Answer(Reply::of(&()));
        send_to_sandbox(&gate, &answer, soon()).unwrap();
        assert_eq!(receive_in_sandbox(&sandbox, soon()).unwrap(), answer);
    }

    #[test]
    fn tells_how_a_message_failed() {
        let (gate, mut sandbox) = pair().unwrap();
        assert!(matches!(receive::<FromSandbox>(&gate, soon()), Err(ChannelError::Timeout)));

        sandbox.write_all(&5u32.to_le_bytes()).unwrap();
        sandbox.write_all(b"\"no\"}").unwrap();
        assert!(matches!(receive::<FromSandbox>(&gate, soon()), Err(ChannelError::Malformed(_))));

        sandbox.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(matches!(receive::<FromSandbox>(&gate, soon()), Err(ChannelError::TooLarge(_))));

        sandbox.write_all(&9u32.to_le_bytes()).unwrap();
        drop(sandbox);
        assert!(matches!(receive::<FromSandbox>(&gate, soon()), Err(ChannelError::Closed)));
        assert!(matches!(send(&gate, &1, soon()), Err(ChannelError::Closed)));
    }

    #[test]
    fn packets_that_fit_no_message_end_the_channel() {
        let malformed = |packets: &[&[u8]]| {
            let (gate, mut sandbox) = pair().unwrap();
            for packet in packets {
                assert_eq!(sandbox.write(packet).unwrap(), packet.len());
            }
            receive::<FromSandbox>(&gate, soon()).unwrap_err().to_string()
        };
        let header = 10_u32.to_le_bytes();
        let too_long = [&header[..], &[b' '; PACKET]].concat();
        for packets in [
            // Packets are shorter than a length, longer than the announced length (in the first packet and later), and
            // longer than a buffer.
            &[&header[..3]][..],
            &[&[&header[..], b"12345678901"].concat()],
            &[&header, b"12345678901"],
            &[&header, b"123456789", b"12"],
            &[&too_long],
            &[&header, &too_long],
        ] {
            let words = malformed(packets);
            assert!(words.starts_with("malformed message"), "{packets:?}: {words}");
        }
        // The message comes in several packets, as a long message does.
        assert!(malformed(&[&header, b"\"1234", b"567", b"\" "]).starts_with("malformed message"));
        // An empty packet ends the channel too.
        let (gate, sandbox) = pair().unwrap();
        assert_eq!(transmit(sandbox.as_raw_fd(), &[], MsgFlags::empty()).unwrap(), 0);
        assert!(matches!(receive::<FromSandbox>(&gate, later()), Err(ChannelError::Closed)));
    }

    /// A sandbox that could not load its code has not read the gate's messages.
    #[test]
    fn last_words_arrive_although_something_was_not_read() {
        let (gate, sandbox) = pair().unwrap();
        send(&gate, &1, soon()).unwrap();
        send(&sandbox, &FromSandbox::Failed("x".into()), None).unwrap();
        drop(sandbox);
        assert_eq!(receive::<FromSandbox>(&gate, soon()).unwrap(), FromSandbox::Failed("x".into()));
        assert!(matches!(receive::<FromSandbox>(&gate, soon()), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_message_too_large_is_not_sent_at_all() {
        let (gate, sandbox) = pair().unwrap();
        let flood = FromSandbox::Stderr("x".repeat(MAX_MESSAGE));
        assert!(matches!(send(&sandbox, &flood, None), Err(ChannelError::TooLarge(_))));
        send(&sandbox, &1_u8, None).unwrap();
        assert_eq!(receive::<u8>(&gate, soon()).unwrap(), 1);
    }

    #[test]
    fn a_peer_that_drips_or_never_reads_meets_the_deadline() {
        let (gate, mut sandbox) = pair().unwrap();
        let dripping = thread::spawn(move || {
            sandbox.write_all(&1000u32.to_le_bytes()).unwrap();
            while sandbox.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(matches!(receive::<u8>(&gate, soon()), Err(ChannelError::Timeout)));
        drop(gate);
        dripping.join().unwrap();

        let (gate, _sandbox) = pair().unwrap();
        let large = "x".repeat(MAX_MESSAGE / 2);
        let blocked = (0..100).find_map(|_| send(&gate, &large, soon()).err());
        assert!(matches!(blocked, Some(ChannelError::Timeout)), "{blocked:?}");
    }
}
