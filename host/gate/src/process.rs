//! The process that a guest runs in, seen from the gate.
//!
//! It is forked before anything else is done, so that it maps and links the plugin's code while the gate reads and checks
//! the request. Fork instead of a new program: an exec costs about a millisecond on the machines that this was measured
//! on (docs/design.md), a fork of a process this small a tenth of that. What the child may do is decided by
//! `postern-sandbox`, before it looks at a byte of the guest.
#![allow(unsafe_code, reason = "fork(2) has no safe form; _exit(2)")]

use crate::inherited;
use crate::plugin_error::PluginError;
use crate::program;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use postern_types::channel::{self, ChannelError};
use postern_types::{FromSandbox, ToSandbox};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// What the child runs: it gets its end of the channel and the plugin's compiled code, and never returns.
pub type ChildMain = fn(channel: OwnedFd, code: OwnedFd) -> !;

/// What the gate, which links no engine, has to know of the one that runs its guests.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// What the sandbox process runs.
    pub main: ChildMain,
    /// Names the engine that compiled code must have been made for.
    pub fingerprint: fn() -> String,
}

/// A running sandbox. Dropping it kills the process.
#[derive(Debug)]
pub struct Sandbox {
    pid: Pid,
    channel: UnixStream,
}

/// Why nothing (more) comes from the sandbox.
#[derive(Debug)]
pub enum Silence {
    /// What was to be said is longer than a message may be; nothing was sent.
    TooLarge,
    /// The deadline has passed.
    Deadline,
    /// The process has ended, or says what makes no sense.
    Broken(String),
}

impl From<ChannelError> for Silence {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Timeout => Self::Deadline,
            ChannelError::TooLarge(_) => Self::TooLarge,
            other => Self::Broken(other.to_string()),
        }
    }
}

impl Sandbox {
    /// Forks. The child goes on with `main`, or becomes another program: see [`program`].
    ///
    /// # Errors
    /// The kernel gives no process or no channel, or a limit is too low.
    pub fn start(code: OwnedFd, main: ChildMain, program: Option<File>) -> Result<Self, PluginError> {
        inherited::engine_limits()?;
        // Those of earlier delegates that have ended by now.
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status.pid().is_some()) {}
        let (ours, theirs) = UnixStream::pair().map_err(|e| PluginError::NoChannel(e.to_string()))?;
        // SAFETY: the child never returns here. It may allocate: this process starts its one helper
        // thread after the first fork, and glibc keeps its allocator usable in the child of a threaded process.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { child }) => Ok(Self { pid: child, channel: ours }),
            Ok(ForkResult::Child) => {
                drop(ours);
                match program {
                    None => main(theirs.into(), code),
                    Some(program) => become_or_tell(&program, theirs, &code),
                }
            }
            Err(errno) => Err(PluginError::NoProcess(errno.to_string())),
        }
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Silence`].
    pub fn send(&mut self, message: &ToSandbox, deadline: Instant) -> Result<(), Silence> {
        channel::send_to_sandbox(&self.channel, message, Some(deadline)).map_err(Silence::from)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`Silence`].
    pub fn receive(&mut self, deadline: Instant) -> Result<FromSandbox, Silence> {
        channel::receive(&self.channel, Some(deadline)).map_err(Silence::from)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Also one that has said its last word: it may be lying.
        let _ = kill(self.pid, Signal::SIGKILL);
    }
}

/// What can't become another program says so and ends.
fn become_or_tell(program: &File, channel: UnixStream, code: &OwnedFd) -> ! {
    let channel = OwnedFd::from(channel);
    let Err(errno) = program::become_it(program, &channel, code);
    let words = format!("cannot be started: {}: {}", program::PROGRAM, errno.desc());
    // If this fails too, the end of the process tells.
    let _ = channel::send(&UnixStream::from(channel), &FromSandbox::Failed(words), None);
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(1) }
}

/// Waits for all sandboxes to be gone, so that none is left for others to bury. Taking a guest's memory apart takes the
/// kernel a while: this is for when the answer has been given.
pub fn reap() {
    while waitpid(None, None).is_ok() {}
}

/// Names this process after its run, for whoever lists processes: the verb first, since the kernel keeps 15 bytes.
pub fn introduce(verb: &str, plugin: &str) {
    // A name that can't be is none of the run's business.
    if let Ok(name) = CString::new(format!("{verb} {plugin}")) {
        let _ = nix::sys::prctl::set_name(&name);
    }
}
