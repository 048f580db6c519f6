//! What gate and sandbox say to each other: JSON, each message behind its length as four little-endian bytes.

use crate::{OpError, Operation, Reply};
use serde::{Deserialize, Serialize};

/// What the guest gets to see of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The `CNI_*` variables, nothing else.
    pub env: Vec<(String, String)>,
    /// The network configuration, as the runtime sent it.
    pub stdin: String,
}

/// From the gate to the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToSandbox {
    /// Run the guest, once.
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
    /// The guest could not be started, or was stopped: what the runtime should read, naming no plugin.
    Failed(String),
}
