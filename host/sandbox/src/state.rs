//! What belongs to one run of one guest.

use crate::capture::{Beyond, Capture};
use crate::limits::{Ceiling, Limits};
use postern_types::{OpError, Operation, Reply, Start};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{ResourceTable, WasiCtx, WasiCtxView, WasiView};

/// Whoever answers a guest's calls.
pub trait Gate: Send {
    /// Decides on one operation and carries it out.
    ///
    /// # Errors
    /// What the guest gets instead of a reply.
    fn call(&mut self, operation: Operation) -> Result<Reply, OpError>;

    /// Takes what the guest wrote to its standard error, before the next call and at its end.
    fn stderr(&mut self, text: String);
}

/// The data of the wasmtime store.
pub struct State {
    pub(crate) table: ResourceTable,
    pub(crate) ceiling: Ceiling,
    pub(crate) stdout: Capture,
    wasi: WasiCtx,
    stderr: Capture,
    gate: Box<dyn Gate>,
}

impl State {
    pub fn new(start: Start, gate: Box<dyn Gate>, limits: &Limits) -> Self {
        let stdout = Capture::new(limits.stdout, Beyond::Trap);
        let stderr = Capture::new(limits.stderr, Beyond::Drop);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.resources);
        let wasi = WasiCtx::builder()
            .envs(&start.env)
            .stdin(MemoryInputPipe::new(start.stdin))
            .stdout(stdout.clone())
            .stderr(stderr.clone())
            .build();
        Self { table, ceiling: Ceiling::new(limits), stdout, wasi, stderr, gate }
    }

    /// The one way out for every imported function.
    pub(crate) fn call(&mut self, operation: Operation) -> Result<Reply, OpError> {
        self.forward_stderr();
        self.gate.call(operation)
    }

    pub(crate) fn forward_stderr(&mut self) {
        let bytes = self.stderr.take();
        if !bytes.is_empty() {
            self.gate.stderr(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
