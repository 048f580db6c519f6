//! Giving up privileges. Both processes of a run use it: the sandbox gives up everything, the gate all that the
//! operations granted in this run do not need.
//!
//! A [`Confinement`] is built while everything is still allowed and applied thread by thread, since the kernel keeps
//! capabilities, filters and Landlock domains per thread. Nothing here decides what is needed: the gate's
//! `confinement.rs` and the sandbox's `confine.rs` and `seal.rs` do.

mod capabilities;
mod descriptors;
mod environment;
mod files;
mod filter;
mod helper;
pub mod program;
mod tidier;
mod tree;

pub use capabilities::{empty_bounding_set, has_capability, keep_capabilities};
pub use caps::Capability;
pub use descriptors::close_all_but;
pub use environment::forget_environment;
pub use files::{Access, Files};
pub use filter::{Condition, Filter, Refusal, Rule};
pub use helper::{Allowed, Helper, Rules};
pub use program::{Direct, Environment, Nobody, Output, PROGRAMS, Program, Run, locate};
pub use tidier::Tidier;

use std::fmt;

/// A step of confinement that failed. The thread may have kept what it should not have: it must not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {reason}")]
pub struct ConfineError {
    /// The step, in the kernel's terms.
    pub step: &'static str,
    /// What the kernel said.
    pub reason: String,
}

impl ConfineError {
    /// An error of `step`.
    pub fn new(step: &'static str, reason: impl fmt::Display) -> Self {
        Self { step, reason: reason.to_string() }
    }
}

/// What a thread keeps.
#[derive(Debug)]
pub struct Confinement {
    /// Capabilities; every other one is gone from all sets.
    pub capabilities: Vec<Capability>,
    /// Files, where the kernel has Landlock.
    pub files: Files,
    /// System calls.
    pub filter: Filter,
}

impl Confinement {
    /// Confines the calling thread, and every thread and process that it starts from now on. There is no way back.
    ///
    /// # Errors
    /// The step that failed.
    pub fn apply(&self) -> Result<(), ConfineError> {
        nix::sys::prctl::set_no_new_privs().map_err(|e| ConfineError::new("PR_SET_NO_NEW_PRIVS", e))?;
        self.files.restrict()?;
        keep_capabilities(&self.capabilities)?;
        // Last: the steps before need calls that it refuses.
        self.filter.install()
    }
}
