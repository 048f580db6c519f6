//! The messages between gate and sandbox.

use crate::{OpError, Operation, Reply};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The data of the run that the guest can see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Only the `CNI_*` variables.
    pub env: Vec<(String, String)>,
    /// The network configuration, as the runtime sent it. This text follows the message: see [`crate::channel`]. The
    /// configuration may be long, so the guests of a run share it.
    #[serde(skip)]
    pub stdin: Arc<String>,
    /// The limits of the guest.
    pub limits: GuestLimits,
}

/// The limits of one guest, from the policy's `[limits]`. There is no limit of time: at the deadline the gate kills the
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestLimits {
    /// Linear memory of all the component's memories together, in bytes. A confined process has 384 MiB for
    /// these memories and all its other data.
    pub memory: usize,
    /// Entries of all tables together. A function table has an entry for each function that a pointer can refer to.
    pub tables: usize,
    /// Resources that the guest may hold at one time: links, options, streams.
    pub resources: usize,
    /// Bytes that one call may pass out of the guest.
    pub call: usize,
    /// Standard output, in bytes. A guest that writes more is ended.
    pub stdout: usize,
    /// Standard error, in bytes. More is dropped, and a message says so.
    pub stderr: usize,
}

impl Default for GuestLimits {
    fn default() -> Self {
        Self { memory: 64 << 20, tables: 1 << 17, resources: 4096, call: 1 << 20, stdout: 1 << 20, stderr: 64 << 10 }
    }
}

/// A message from the gate to the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToSandbox {
    /// Run the guest with fresh memory, also after an earlier run.
    Start(Start),
    /// Run the guest, then end the process: no message follows.
    StartLast(Start),
    /// The answer to the guest's current call.
    Answer(Result<Reply, OpError>),
}

/// The beginning of the text in [`FromSandbox::Unloadable`] if the kernel does not let the process execute code of a
/// file.
pub const NO_CODE_ALLOWED: &str = "cannot make the code executable";

/// A message from the sandbox to the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromSandbox {
    /// The guest requests an operation.
    Call(Operation),
    /// The guest wrote to its standard error.
    Stderr(String),
    /// The guest exited.
    Finished {
        /// The guest's standard output.
        stdout: String,
        /// Exit status: 0, or 1 for failure.
        status: u8,
    },
    /// The guest was stopped. The text is for the runtime and names no plugin.
    Failed(String),
    /// The compiled code can't be used by this engine; the text has the reason.
    Unloadable(String),
}
