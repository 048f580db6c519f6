//! The three streams from the runtime, which may be slow, closed, or never read.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use postern_cni::terminal::one_line;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of bytes that a writable pipe takes without a wait (`PIPE_BUF`, pipe(7)).
const PIECE: usize = 4096;

/// The longest wait until a message for people is read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes one line for people to standard error, and escapes control characters ([`postern_cni::terminal`]). The macro
/// never fails: a closed stream must not prevent the host from undoing its effects.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::streams::say(format_args!($($words)*)) };
}

/// True if messages for people were not read in time. Then the host does not wait again: otherwise a run could take a
/// second for each line.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// See [`say!`].
pub fn say(words: fmt::Arguments<'_>) {
    let line = one_line(&words.to_string()) + "\n";
    let patience = if UNREAD.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
    if write(io::stderr(), line.as_bytes(), Instant::now() + patience) == Err(Errno::ETIMEDOUT) {
        UNREAD.store(true, Ordering::Relaxed);
    }
}

/// Writes all bytes, and waits for the reader until the deadline.
///
/// # Errors
/// The reader has closed the stream, or has not read until the deadline (`ETIMEDOUT`).
pub fn write(to: impl AsFd, bytes: &[u8], deadline: Instant) -> nix::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        ready(&to, PollFlags::POLLOUT, deadline)?;
        let piece = rest.get(..PIECE).unwrap_or(rest);
        match nix::unistd::write(&to, piece) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Like [`write()`], with a duration. If the reader takes all bytes at once, the clock is not read: the first read of
/// the clock takes a process 4 µs.
pub fn write_within(to: impl AsFd, bytes: &[u8], within: Duration) -> nix::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    if bytes.len() <= PIECE && is_ready(&to, PollFlags::POLLOUT) {
        match nix::unistd::write(&to, bytes) {
            Ok(written) if written == bytes.len() => return Ok(()),
            Ok(written) => return write(to, bytes.get(written..).unwrap_or_default(), Instant::now() + within),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
    write(to, bytes, Instant::now() + within)
}

fn is_ready(stream: &impl AsFd, what: PollFlags) -> bool {
    poll(&mut [PollFd::new(stream.as_fd(), what)], PollTimeout::ZERO) == Ok(1)
}

/// Reads standard input to its end, but at most one byte more than `limit`.
///
/// # Errors
/// The input can't be read, or does not end before the deadline.
pub fn read_input(limit: usize, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() <= limit {
        ready(io::stdin(), PollFlags::POLLIN, deadline)?;
        // Standard input is not read through `Stdin`, because poll(2) can't see its buffer. The size of a read grows
        // with the bytes that were read before.
        let before = bytes.len();
        bytes.resize(before + before.max(PIECE).min(limit + 1 - before), 0);
        let read = nix::unistd::read(io::stdin(), bytes.get_mut(before..).unwrap_or_default());
        bytes.truncate(before + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => break,
            Ok(_) | Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

/// Waits until the stream is ready, or has failed permanently. The next read or write then returns the error.
fn ready(stream: impl AsFd, what: PollFlags, deadline: Instant) -> nix::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        let mut wanted = [PollFd::new(stream.as_fd(), what)];
        match poll(&mut wanted, timeout) {
            Ok(0) if left.is_zero() => return Err(Errno::ETIMEDOUT),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}
