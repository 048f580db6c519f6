//! The state of one run of one guest.

use crate::bindings::Failure;
use crate::limits::Ceiling;
use crate::wasi::{GuestOutput, Input, OverLimit};
use postern_types::{OpError, Operation, Reply, Start};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use wasmtime::component::ResourceTable;

/// The receiver of a guest's calls.
pub trait CallReceiver: Send {
    /// Decides on one operation and carries it out.
    ///
    /// # Errors
    /// The error that the guest gets in place of a reply.
    fn call(&mut self, operation: Operation) -> Result<Reply, OpError>;

    /// Takes the guest's new standard error output, before the next call and at the guest's end.
    fn stderr(&mut self, text: String);
}

/// The data of the wasmtime store.
pub struct State {
    pub(crate) table: ResourceTable,
    pub(crate) ceiling: Ceiling,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stdin: Input,
    pub(crate) stdout: GuestOutput,
    pub(crate) stderr: GuestOutput,
    /// The replacement of the three streams if all of WASI is linked.
    #[cfg(feature = "wasi")]
    pub(crate) whole: crate::full_wasi::FullWasi,
    gate: Box<dyn CallReceiver>,
}

impl State {
    pub fn new(start: Start, gate: Box<dyn CallReceiver>) -> Self {
        let limits = start.limits;
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.resources);
        Self {
            table,
            ceiling: Ceiling::new(&limits),
            env: start.env,
            stdin: Input::new(Arc::unwrap_or_clone(start.stdin).into_bytes()),
            stdout: GuestOutput::new(limits.stdout, OverLimit::Trap),
            stderr: GuestOutput::new(limits.stderr, OverLimit::Drop),
            #[cfg(feature = "wasi")]
            whole: crate::full_wasi::FullWasi::default(),
            gate,
        }
    }

    /// Returns the guest's standard output since the last call.
    pub(crate) fn take_stdout(&mut self) -> Vec<u8> {
        let bytes = self.stdout.take();
        #[cfg(feature = "wasi")]
        let bytes = [bytes, self.whole.take_stdout()].concat();
        bytes
    }

    /// Sends an operation to the gate, and returns the answer. Imported functions have no other way to the gate. `T` is
    /// the type of the answer.
    pub(crate) fn call<T: DeserializeOwned>(&mut self, operation: impl Into<Operation>) -> Result<T, Failure> {
        self.forward_stderr();
        Ok(self.gate.call(operation.into())?.read()?)
    }

    pub(crate) fn forward_stderr(&mut self) {
        let bytes = self.stderr.take();
        #[cfg(feature = "wasi")]
        let bytes = [bytes, self.whole.take_stderr()].concat();
        if !bytes.is_empty() {
            self.gate.stderr(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
