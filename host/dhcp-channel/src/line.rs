//! Sends and receives bytes over the socket, with one deadline for all bytes.

use crate::connect::ServiceError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The longest ask in bytes: the longest configuration that the gate accepts, as JSON.
pub const LONGEST_ASK: usize = 8 << 20;

/// The longest answer in bytes: some ten thousand leases.
pub const LONGEST_ANSWER: usize = 16 << 20;

/// Sends all bytes. A descriptor goes with the first bytes.
pub fn send(
    stream: &UnixStream,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> Result<(), ServiceError> {
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let (mut rest, mut is_first) = (bytes, true);
    while !rest.is_empty() {
        ready(stream, PollFlags::POLLOUT, deadline)?;
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control = if is_first && !descriptors.is_empty() { &rights[..] } else { &[] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(rest)], control, flags, None) {
            Ok(sent) => (rest, is_first) = (rest.get(sent..).unwrap_or_default(), false),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Receives until `complete` returns the length of a complete message. Later bytes stay in `buffer`.
pub fn receive(
    stream: &UnixStream,
    buffer: &mut Vec<u8>,
    most: usize,
    deadline: Instant,
    complete: impl Fn(&[u8]) -> Option<usize>,
) -> Result<Vec<u8>, ServiceError> {
    loop {
        if let Some(length) = complete(buffer) {
            let rest = buffer.split_off(length.min(buffer.len()));
            return Ok(std::mem::replace(buffer, rest));
        }
        if buffer.len() > most {
            return Err(ServiceError::Malformed("its answer is too long".to_owned()));
        }
        ready(stream, PollFlags::POLLIN, deadline)?;
        let mut piece = [0; 4096];
        let mut stream = stream;
        match stream.read(&mut piece) {
            Ok(0) => return Err(ServiceError::Closed),
            Ok(read) => buffer.extend(piece.iter().take(read)),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw).into()),
        }
    }
}

fn ready(stream: &UnixStream, what: PollFlags, deadline: Instant) -> Result<(), ServiceError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ServiceError::Deadline);
        }
        // The timeout is rounded up. Otherwise poll would return at once, again and again, in the last millisecond.
        let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(stream.as_fd(), what)], timeout) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
