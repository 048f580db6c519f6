//! `wasi:io`: streams in memory, which are always ready.

use super::wasi::io::streams::StreamError;
use super::wasi::io::{error, poll, streams};
use crate::state::State;
use std::mem;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};

/// The largest read, and the largest write that is offered, in bytes.
pub const BLOCK: usize = 64 << 10;

/// The input of a guest.
pub struct Input {
    bytes: Vec<u8>,
    at: usize,
}

impl Input {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the next bytes, at most `length`; an empty slice at the end.
    fn take(&mut self, length: u64) -> &[u8] {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(BLOCK);
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..length).unwrap_or(rest);
        self.at += taken.len();
        taken
    }

    fn at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

/// The output of a guest since the last `take`.
pub struct GuestOutput {
    bytes: Vec<u8>,
    room: usize,
    beyond: OverLimit,
}

/// The treatment of output beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverLimit {
    /// The output is dropped, and the guest doesn't notice.
    Drop,
    /// The guest ends.
    Trap,
}

/// A guest wrote more than its limit.
#[derive(Debug, thiserror::Error)]
#[error("wrote too much to standard output")]
pub struct Flood;

impl GuestOutput {
    /// Makes an output for `limit` bytes in total.
    pub fn new(limit: usize, beyond: OverLimit) -> Self {
        Self { bytes: Vec::new(), room: limit, beyond }
    }

    /// Returns the output since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        mem::take(&mut self.bytes)
    }

    /// Adds bytes to the output.
    ///
    /// # Errors
    /// The output exceeds its limit, and the guest must end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Flood> {
        let kept = bytes.get(..self.room).unwrap_or(bytes);
        if kept.len() < bytes.len() && self.beyond == OverLimit::Trap {
            return Err(Flood);
        }
        self.room -= kept.len();
        self.bytes.extend_from_slice(kept);
        Ok(())
    }
}

/// A guest's handle to its input.
pub struct InputStream;

/// A guest's handle to one of its outputs.
#[derive(Clone, Copy)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// An object that is always ready.
pub struct Pollable;

type Streamed<T> = Result<Result<T, StreamError>>;

impl State {
    fn output(&mut self, stream: &Resource<OutputStream>) -> Result<&mut GuestOutput> {
        Ok(match self.table.get(stream)? {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        })
    }
}

impl error::Host for State {}

impl error::HostError for State {
    fn to_debug_string(&mut self, _error: Resource<error::Error>) -> Result<String> {
        bail!("no stream ever returned an error")
    }

    fn drop(&mut self, _error: Resource<error::Error>) -> Result<()> {
        bail!("no stream ever returned an error")
    }
}

impl poll::Host for State {
    fn poll(&mut self, pollables: Vec<Resource<Pollable>>) -> Result<Vec<u32>> {
        if pollables.is_empty() {
            bail!("waits for nothing");
        }
        Ok((0..).zip(pollables).map(|(index, _)| index).collect())
    }
}

impl poll::HostPollable for State {
    fn ready(&mut self, _pollable: Resource<Pollable>) -> Result<bool> {
        Ok(true)
    }

    fn block(&mut self, _pollable: Resource<Pollable>) -> Result<()> {
        Ok(())
    }

    fn drop(&mut self, pollable: Resource<Pollable>) -> Result<()> {
        self.table.delete(pollable)?;
        Ok(())
    }
}

impl streams::Host for State {}

impl streams::HostInputStream for State {
    fn read(&mut self, _stream: Resource<InputStream>, length: u64) -> Streamed<Vec<u8>> {
        Ok(if self.stdin.at_end() { Err(StreamError::Closed) } else { Ok(self.stdin.take(length).to_vec()) })
    }

    fn blocking_read(&mut self, stream: Resource<InputStream>, length: u64) -> Streamed<Vec<u8>> {
        self.read(stream, length)
    }

    fn skip(&mut self, _stream: Resource<InputStream>, length: u64) -> Streamed<u64> {
        Ok(if self.stdin.at_end() { Err(StreamError::Closed) } else { Ok(self.stdin.take(length).len() as u64) })
    }

    fn blocking_skip(&mut self, stream: Resource<InputStream>, length: u64) -> Streamed<u64> {
        self.skip(stream, length)
    }

    fn subscribe(&mut self, _stream: Resource<InputStream>) -> Result<Resource<Pollable>> {
        Ok(self.table.push(Pollable)?)
    }

    fn drop(&mut self, stream: Resource<InputStream>) -> Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

impl streams::HostOutputStream for State {
    fn check_write(&mut self, _stream: Resource<OutputStream>) -> Streamed<u64> {
        Ok(Ok(BLOCK as u64))
    }

    fn write(&mut self, stream: Resource<OutputStream>, contents: Vec<u8>) -> Streamed<()> {
        Ok(Ok(self.output(&stream)?.write(&contents)?))
    }

    fn blocking_write_and_flush(&mut self, stream: Resource<OutputStream>, contents: Vec<u8>) -> Streamed<()> {
        self.write(stream, contents)
    }

    fn flush(&mut self, _stream: Resource<OutputStream>) -> Streamed<()> {
        Ok(Ok(()))
    }

    fn blocking_flush(&mut self, _stream: Resource<OutputStream>) -> Streamed<()> {
        Ok(Ok(()))
    }

    fn subscribe(&mut self, _stream: Resource<OutputStream>) -> Result<Resource<Pollable>> {
        Ok(self.table.push(Pollable)?)
    }

    fn write_zeroes(&mut self, stream: Resource<OutputStream>, length: u64) -> Streamed<()> {
        match usize::try_from(length) {
            Ok(length) if length <= BLOCK => self.write(stream, vec![0; length]),
            _ => bail!("writes more than was allowed"),
        }
    }

    fn blocking_write_zeroes_and_flush(&mut self, stream: Resource<OutputStream>, length: u64) -> Streamed<()> {
        self.write_zeroes(stream, length)
    }

    fn splice(&mut self, stream: Resource<OutputStream>, source: Resource<InputStream>, length: u64) -> Streamed<u64> {
        match streams::HostInputStream::read(self, source, length)? {
            Ok(bytes) => {
                self.output(&stream)?.write(&bytes)?;
                Ok(Ok(bytes.len() as u64))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    fn blocking_splice(
        &mut self,
        stream: Resource<OutputStream>,
        source: Resource<InputStream>,
        length: u64,
    ) -> Streamed<u64> {
        self.splice(stream, source, length)
    }

    fn drop(&mut self, stream: Resource<OutputStream>) -> Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_ends() {
        let mut input = Input::new(b"abc".to_vec());
        assert_eq!(input.take(2), b"ab");
        assert!(!input.at_end());
        assert_eq!(input.take(u64::MAX), b"c");
        assert!(input.at_end());
        assert_eq!(input.take(1), b"");
    }

    #[test]
    fn one_read_is_one_block_at_most() {
        assert_eq!(Input::new(vec![0; BLOCK + 1]).take(u64::MAX).len(), BLOCK);
    }

    #[test]
    fn the_limit_holds_over_several_takes() {
        let mut output = GuestOutput::new(4, OverLimit::Drop);
        output.write(b"abc").unwrap();
        assert_eq!(output.take(), b"abc");
        output.write(b"def").unwrap();
        assert_eq!(output.take(), b"d");
        output.write(b"g").unwrap();
        assert_eq!(output.take(), b"");
    }

    #[test]
    fn a_flood_of_output_is_an_error() {
        let mut output = GuestOutput::new(4, OverLimit::Trap);
        output.write(b"abcd").unwrap();
        assert!(output.write(b"e").is_err());
        assert!(output.write(b"").is_ok());
    }
}
