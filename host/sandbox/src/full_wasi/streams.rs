//! Standard output and error, kept in memory. `crate::wasi` has the limits, and decides what happens to output beyond a
//! limit.

use crate::wasi::{BLOCK, GuestOutput, OverLimit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncWrite, sink};
use wasmtime::component::{HasData, ResourceTable};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi_io::bytes::Bytes;
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{OutputStream, StreamError, StreamResult};

/// The type parameter of the functions for `wasi:io`.
pub struct StreamTable;

impl HasData for StreamTable {
    type Data<'a> = &'a mut ResourceTable;
}

/// One output, which all of the guest's handles to this output share.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<GuestOutput>>);

impl Default for Shared {
    /// Makes an output that keeps no bytes.
    fn default() -> Self {
        Self::new(GuestOutput::new(0, OverLimit::Drop))
    }
}

impl Shared {
    pub fn new(output: GuestOutput) -> Self {
        Self(Arc::new(Mutex::new(output)))
    }

    pub fn take(&self) -> Vec<u8> {
        self.output().take()
    }

    fn output(&self) -> MutexGuard<'_, GuestOutput> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IsTerminal for Shared {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Shared {
    // This function is for WASI 0.3, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Shared {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.output().write(&bytes).map_err(|flood| StreamError::Trap(flood.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(BLOCK)
    }
}

#[wasmtime_wasi_io::async_trait]
impl Pollable for Shared {
    async fn ready(&mut self) {}
}
