//! Confinement: giving up privileges. Both processes of a run use this crate. The sandbox gives up everything; the gate
//! keeps only the rights that this run's granted operations need.
//!
//! A [`Confinement`] is built while everything is still allowed. It is applied to each thread, because the kernel keeps
//! capabilities, filters and Landlock domains per thread. The gate's `confinement.rs` and the sandbox's `confine.rs`
//! and `seal.rs` decide which privileges are needed.

mod bpf;
pub mod bus;
mod capabilities;
mod descriptors;
mod directory_remover;
mod environment;
mod files;
mod filter;
mod fork;
mod helper;
pub mod processor;
pub mod program;
mod tree;

pub use bus::Bus;
pub use capabilities::{empty_bounding_set, keep_capabilities};
pub use descriptors::close_all_but;
pub use directory_remover::DirectoryRemover;
pub use environment::{forget_backtraces, forget_environment};
pub use files::{Access, Files};
pub use filter::{Argument, COMMON, CallRule, DESCRIPTOR_FLAGS, DefaultAction, Filter, NO_NEW_CODE, ReadyFilter};
pub use fork::{AroundFork, end_process, fork, keep_around_forks};
pub use helper::{Allowed, Helper};
pub use program::{Direct, Environment, NoPrograms, PROGRAMS, Program, ProgramOutput, Run, locate};
pub use rustix::thread::CapabilitySet;

use std::fmt;

/// A step of confinement that failed. The thread must not continue: it may still have a privilege that it should have
/// lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {reason}")]
pub struct ConfineError {
    /// The step, in the kernel's terms.
    pub step: &'static str,
    /// The kernel's reason.
    pub reason: String,
}

impl ConfineError {
    /// Makes an error of `step`.
    pub fn new(step: &'static str, reason: impl fmt::Display) -> Self {
        Self { step, reason: reason.to_string() }
    }
}

/// The privileges that a thread keeps.
#[derive(Debug)]
pub struct Confinement {
    /// The Linux capabilities that stay. All sets lose every other capability.
    pub capabilities: CapabilitySet,
    /// The files that stay in reach, if the kernel has Landlock.
    pub files: Files,
    /// The system calls that stay allowed.
    pub filter: ReadyFilter,
}

impl Confinement {
    /// Confines the calling thread, and every thread and process that it starts from now on. The thread can't undo the
    /// confinement.
    pub fn apply(&self) -> Result<(), ConfineError> {
        nix::sys::prctl::set_no_new_privs().map_err(|e| ConfineError::new("PR_SET_NO_NEW_PRIVS", e))?;
        self.files.restrict()?;
        keep_capabilities(self.capabilities)?;
        // This step is the last: the filter refuses calls that the other steps need.
        self.filter.install()
    }
}
