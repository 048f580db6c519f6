//! The channel between gate and sandbox: [`crate::ToSandbox`] one way, [`crate::FromSandbox`] the other.
//!
//! A message is its length (four bytes, little-endian) and that many bytes of JSON. The standard input of a guest
//! follows the message that starts it, as a length and a text. As a string of JSON, its escaping and parsing would cost
//! more than all the rest.
//!
//! Neither side trusts the other. A length is checked before anything is allocated. A deadline covers the whole message
//! and not a single byte: a peer that sends slowly can't block the channel.

use crate::ToSandbox;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The greatest length of one message, in bytes of JSON.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The greatest length of a guest's standard input, in bytes: 16,384 port mappings as a runtime may write them, and GC's
/// lists of a full node.
pub const MAX_INPUT: usize = 4 << 20;

/// The size of the length in front of a message, in bytes.
const HEADER: usize = 4;

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
    /// The message is not the expected JSON.
    #[error("malformed message: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The socket failed for another reason.
    #[error("channel: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::WriteZero => {
                Self::Closed
            }
            // Linux reports a socket's timeout as EAGAIN.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Io(error),
        }
    }
}

/// Sends one message. Blocks until the socket has taken it or the deadline has passed. `None` means no deadline.
///
/// # Errors
/// See [`ChannelError`].
pub fn send(stream: &UnixStream, message: &impl Serialize, deadline: Option<Instant>) -> Result<(), ChannelError> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, message).map_err(ChannelError::Malformed)?;
    let length = length(bytes.len() - HEADER, MAX_MESSAGE)?;
    bytes.iter_mut().zip(length).for_each(|(to, from)| *to = from);
    write(stream, &bytes, deadline)
}

/// Sends a message to a sandbox, with the standard input of the guest that it starts.
///
/// # Errors
/// See [`ChannelError`].
pub fn send_to_sandbox(
    stream: &UnixStream,
    message: &ToSandbox,
    deadline: Option<Instant>,
) -> Result<(), ChannelError> {
    let ToSandbox::Start(start) = message else { return send(stream, message, deadline) };
    // After a start without its input, the next answer would be taken for it.
    if start.stdin.len() > MAX_INPUT {
        return Err(ChannelError::TooLarge(start.stdin.len()));
    }
    send(stream, message, deadline)?;
    // It may be long, and is not copied behind its length. One message of both needs a call that a sandbox has not.
    send_text(stream, &start.stdin, deadline)
}

/// Sends a text of at most [`MAX_INPUT`] bytes, for [`receive_text`].
///
/// # Errors
/// See [`ChannelError`].
pub fn send_text(stream: &UnixStream, text: &str, deadline: Option<Instant>) -> Result<(), ChannelError> {
    write(stream, &length(text.len(), MAX_INPUT)?, deadline)?;
    write(stream, text.as_bytes(), deadline)
}

/// Receives what [`send_text`] sends.
///
/// # Errors
/// See [`ChannelError`].
pub fn receive_text(stream: &UnixStream, deadline: Option<Instant>) -> Result<String, ChannelError> {
    let invalid = |error| ChannelError::Io(io::Error::new(ErrorKind::InvalidData, error));
    String::from_utf8(read(stream, MAX_INPUT, deadline)?).map_err(invalid)
}

/// Returns the bytes of a length of at most `most`.
fn length(size: usize, most: usize) -> Result<[u8; HEADER], ChannelError> {
    let length = u32::try_from(size).ok().filter(|_| size <= most).ok_or(ChannelError::TooLarge(size))?;
    Ok(length.to_le_bytes())
}

/// Sends all these bytes.
fn write(mut stream: &UnixStream, bytes: &[u8], deadline: Option<Instant>) -> Result<(), ChannelError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        if let Some(deadline) = deadline {
            stream.set_write_timeout(Some(remaining(deadline)?))?;
        }
        match stream.write(rest) {
            Ok(0) => return Err(ChannelError::Closed),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives one message. Blocks until it is complete or the deadline has passed. `None` means no deadline.
///
/// # Errors
/// See [`ChannelError`].
pub fn receive<T: DeserializeOwned>(stream: &UnixStream, deadline: Option<Instant>) -> Result<T, ChannelError> {
    serde_json::from_slice(&read(stream, MAX_MESSAGE, deadline)?).map_err(ChannelError::Malformed)
}

/// Receives what [`send_to_sandbox`] sends.
///
/// # Errors
/// See [`ChannelError`].
pub fn receive_in_sandbox(stream: &UnixStream, deadline: Option<Instant>) -> Result<ToSandbox, ChannelError> {
    let mut message = receive(stream, deadline)?;
    if let ToSandbox::Start(start) = &mut message {
        start.stdin = receive_text(stream, deadline)?.into();
    }
    Ok(message)
}

/// Receives a length of at most `most`, and as many bytes.
fn read(stream: &UnixStream, most: usize, deadline: Option<Instant>) -> Result<Vec<u8>, ChannelError> {
    let mut header = [0; HEADER];
    fill(stream, &mut header, deadline)?;
    let size = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if size > most {
        return Err(ChannelError::TooLarge(size));
    }
    let mut body = vec![0; size];
    fill(stream, &mut body, deadline)?;
    Ok(body)
}

/// Like `Read::read_exact`, with one deadline for all bytes.
fn fill(mut stream: &UnixStream, buffer: &mut [u8], deadline: Option<Instant>) -> Result<(), ChannelError> {
    let mut rest = buffer;
    while !rest.is_empty() {
        if let Some(deadline) = deadline {
            stream.set_read_timeout(Some(remaining(deadline)?))?;
        }
        match stream.read(rest) {
            Ok(0) => return Err(ChannelError::Closed),
            Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the time until the deadline. It is never zero: a socket would take zero for "no timeout".
fn remaining(deadline: Instant) -> Result<Duration, ChannelError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ChannelError::Timeout) } else { Ok(left.max(Duration::from_micros(1))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorCode, FromSandbox, Limits, OpError, Reply, Start};
    use std::thread;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(50))
    }

    fn later() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(20))
    }

    #[test]
    fn carries_messages_both_ways() {
        let (gate, sandbox) = UnixStream::pair().unwrap();
        let call = FromSandbox::Call(crate::ops::Bridge::Find { name: "cni0".into() }.into());
        send(&sandbox, &call, None).unwrap();
        send(&sandbox, &FromSandbox::Stderr("x".into()), None).unwrap();
        assert_eq!(receive::<FromSandbox>(&gate, soon()).unwrap(), call);
        assert_eq!(receive::<FromSandbox>(&gate, soon()).unwrap(), FromSandbox::Stderr("x".into()));
        for answer in [Ok(Reply::MaybeLink(None)), Err(OpError::new(ErrorCode::Denied, "cni0", "no"))] {
            let answer = ToSandbox::Answer(answer);
            send_to_sandbox(&gate, &answer, soon()).unwrap();
            assert_eq!(receive_in_sandbox(&sandbox, None).unwrap(), answer);
        }
        let longest = "x".repeat(MAX_INPUT);
        for stdin in ["", "{\"name\": \"n\u{fc}\"}\n", longest.as_str()] {
            let start = Start { env: Vec::new(), stdin: stdin.to_owned().into(), limits: Limits::default() };
            let start = ToSandbox::Start(start);
            // The socket has no room for the longest: the sandbox reads meanwhile.
            thread::scope(|scope| {
                let received = scope.spawn(|| receive_in_sandbox(&sandbox, later()).unwrap());
                send_to_sandbox(&gate, &start, later()).unwrap();
                assert!(received.join().unwrap() == start, "{} bytes", stdin.len());
            });
        }
        // Nothing of it is sent: the answer is not taken for the input.
        let start = Start { env: Vec::new(), stdin: "x".repeat(MAX_INPUT + 1).into(), limits: Limits::default() };
        let sent = send_to_sandbox(&gate, &ToSandbox::Start(start), soon());
        assert!(matches!(sent, Err(ChannelError::TooLarge(_))), "{sent:?}");
        let answer = ToSandbox::Answer(Ok(Reply::MaybeLink(None)));
        send_to_sandbox(&gate, &answer, soon()).unwrap();
        assert_eq!(receive_in_sandbox(&sandbox, soon()).unwrap(), answer);
    }

    #[test]
    fn tells_how_a_message_failed() {
        let (gate, mut sandbox) = UnixStream::pair().unwrap();
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
    fn a_message_too_large_is_not_sent_at_all() {
        let (gate, sandbox) = UnixStream::pair().unwrap();
        let flood = FromSandbox::Stderr("x".repeat(MAX_MESSAGE));
        assert!(matches!(send(&sandbox, &flood, None), Err(ChannelError::TooLarge(_))));
        send(&sandbox, &1, None).unwrap();
        assert_eq!(receive::<u8>(&gate, soon()).unwrap(), 1);
    }

    #[test]
    fn a_peer_that_drips_or_never_reads_meets_the_deadline() {
        let (gate, mut sandbox) = UnixStream::pair().unwrap();
        let dripping = thread::spawn(move || {
            sandbox.write_all(&1000u32.to_le_bytes()).unwrap();
            while sandbox.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(matches!(receive::<u8>(&gate, soon()), Err(ChannelError::Timeout)));
        drop(gate);
        dripping.join().unwrap();

        let (gate, _sandbox) = UnixStream::pair().unwrap();
        let large = "x".repeat(MAX_MESSAGE / 2);
        let blocked = (0..100).find_map(|_| send(&gate, &large, soon()).err());
        assert!(matches!(blocked, Some(ChannelError::Timeout)), "{blocked:?}");
    }
}
