//! What gate and sandbox say to each other: JSON, each message behind its length as four little-endian bytes.

use crate::{OpError, Operation, Reply};
use serde::{Deserialize, Serialize};

/// What the guest gets to see of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The `CNI_*` variables, nothing else.
    pub env: Vec<(String, String)>,
    /// The network configuration, as the runtime sent it. It is no part of the JSON: see [`crate::channel`].
    #[serde(skip)]
    pub stdin: String,
    /// What the guest may use up.
    pub limits: Limits,
}

/// What one guest may use up, as policy says (`[limits]`). Time is not among it: the gate kills the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Linear memory, all of a component's memories together, in bytes. A confined process has 384 MiB for this and
    /// everything else.
    pub memory: usize,
    /// Entries of all tables together. A function table has one for each function whose address is taken.
    pub tables: usize,
    /// Resources that the guest may hold at a time: links, options, streams.
    pub resources: usize,
    /// Bytes that one call may carry out of the guest.
    pub call: usize,
    /// Standard output, in bytes. More than this ends the guest.
    pub stdout: usize,
    /// Standard error, in bytes. More than this is dropped, and said.
    pub stderr: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 64 << 20, tables: 1 << 17, resources: 4096, call: 1 << 20, stdout: 1 << 20, stderr: 64 << 10 }
    }
}

/// From the gate to the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToSandbox {
    /// Run the guest: with a memory of its own, whatever ran before.
    Start(Start),
    /// The answer to the one outstanding call.
    Answer(Result<Reply, OpError>),
}

/// From the sandbox to the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromSandbox {
    /// The guest calls.
    Call(Operation),
    /// The guest wrote to its standard error.
    Stderr(String),
    /// The guest ended by itself.
    Finished {
        /// What it wrote to its standard output.
        stdout: String,
        /// Exit status: 0, or 1 for failure.
        status: u8,
    },
    /// The guest was stopped: what the runtime should read, naming no plugin.
    Failed(String),
    /// The compiled code is not fit for this engine: what is wrong with it.
    Unloadable(String),
}
