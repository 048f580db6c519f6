//! Standard output and error of a guest: kept in memory, up to a limit.

use bytes::Bytes;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWrite;
use wasmtime::format_err;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// What happens to what a guest writes beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// It is dropped: the guest doesn't notice.
    Drop,
    /// The guest ends.
    Trap,
}

/// A stream that keeps what was written to it. Clones share their contents.
#[derive(Clone)]
pub struct Capture {
    written: Arc<Mutex<Written>>,
    limit: usize,
    beyond: Beyond,
}

#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    /// Taken out of `bytes` earlier; counts against the limit too.
    taken: usize,
}

impl Capture {
    pub fn new(limit: usize, beyond: Beyond) -> Self {
        Self { written: Arc::default(), limit, beyond }
    }

    /// What was written since the last time.
    pub fn take(&self) -> Vec<u8> {
        let mut written = self.lock();
        let bytes = mem::take(&mut written.bytes);
        written.taken += bytes.len();
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    /// For WASI 0.3, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut written = self.lock();
        let room = self.limit.saturating_sub(written.bytes.len() + written.taken);
        if bytes.len() > room && self.beyond == Beyond::Trap {
            return Err(StreamError::Trap(format_err!("wrote more than {} bytes to standard output", self.limit)));
        }
        written.bytes.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    /// How much the next write may carry. Never zero, which would mean "wait".
    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(1 << 16)
    }
}

#[async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_was_written_once() {
        let mut capture = Capture::new(100, Beyond::Trap);
        capture.clone().write("ab".into()).unwrap();
        capture.write("c".into()).unwrap();
        assert_eq!(capture.take(), b"abc");
        assert_eq!(capture.take(), b"");
    }

    #[test]
    fn the_limit_holds_over_several_takes() {
        let mut capture = Capture::new(4, Beyond::Drop);
        capture.write("abc".into()).unwrap();
        assert_eq!(capture.take(), b"abc");
        capture.write("def".into()).unwrap();
        assert_eq!(capture.take(), b"d");
        capture.write("g".into()).unwrap();
        assert_eq!(capture.take(), b"");
    }

    #[test]
    fn a_flood_of_output_is_a_trap() {
        let mut capture = Capture::new(4, Beyond::Trap);
        capture.write("abcd".into()).unwrap();
        assert!(matches!(capture.write("e".into()), Err(StreamError::Trap(_))));
    }
}
