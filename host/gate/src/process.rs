//! The process of a guest, seen from the gate.
//!
//! The child is forked first. So it maps and links the plugin's code while the gate reads and checks the request. A
//! fork of this small process takes a tenth of the time of an exec. An exec takes about 1 ms on the measured machines
//! (docs/decisions, number 1). `postern-sandbox` confines the child before the child reads a byte of the guest.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use crate::plugin_error::PluginError;
use crate::{inherited, program};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use postern_confine::{end_process, fork};
use postern_types::channel::{self, ChannelError};
use postern_types::{FromSandbox, ToSandbox};
use std::ffi::CString;
use std::fmt::Display;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The child's main function. The function gets the child's end of the channel and the plugin's compiled code, and
/// never returns.
pub type ChildMain = fn(channel: OwnedFd, code: OwnedFd) -> !;

/// The facts about the engine of the guests. The gate itself links no engine.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// The main function of the sandbox process.
    pub main: ChildMain,
    /// Returns the name of the engine for which compiled code must have been made.
    pub fingerprint: fn() -> String,
}

/// A running sandbox. Dropping it kills the process.
#[derive(Debug)]
pub struct Sandbox {
    pid: Pid,
    channel: UnixStream,
}

impl Sandbox {
    /// Forks the sandbox. The child continues with `main`, or executes another program: see [`program`].
    ///
    /// # Errors
    /// The kernel refuses a process or a channel, or a limit is too low.
    pub fn start(code: OwnedFd, main: ChildMain, program: Option<File>) -> Result<Self, PluginError> {
        let no_process = |why: &dyn Display| PluginError(format!("cannot start the sandbox process: {why}"));
        inherited::engine_limits().map_err(|why| no_process(&why))?;
        know_the_processor();
        let (ours, theirs) =
            channel::pair().map_err(|e| PluginError(format!("cannot open a channel to the sandbox: {e}")))?;
        // SAFETY: the child never returns here. The child may allocate, although this process may already have a second
        // thread: the heap of the executable (`postern_sandbox::Heap`) keeps its lock usable in a child.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { child }) => Ok(Self { pid: child, channel: ours }),
            Ok(ForkResult::Child) => {
                drop(ours);
                match program {
                    None => main(theirs.into(), code),
                    Some(program) => exec_or_report(&program, theirs, &code),
                }
            }
            Err(errno) => Err(no_process(&errno)),
        }
    }

    /// Returns the sandbox's process ID.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn send(&mut self, message: &ToSandbox, deadline: Instant) -> Result<(), ChannelError> {
        channel::send_to_sandbox(&self.channel, message, Some(deadline))
    }

    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<FromSandbox, ChannelError> {
        channel::receive(&self.channel, Some(deadline))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The sandbox is killed even if it has reported its end, because the report may be false.
        let _ = kill(self.pid, Signal::SIGKILL);
    }
}

/// Executes another program. After a failure, the child reports the reason to the gate and ends.
fn exec_or_report(program: &File, channel: UnixStream, code: &OwnedFd) -> ! {
    let channel = OwnedFd::from(channel);
    let Err(errno) = program::exec(program, &channel, code);
    let words = format!("cannot be started: {}: {}", program::PROGRAM, errno.desc());
    // If the report fails too, the gate sees the end of the process.
    let _ = channel::send(&UnixStream::from(channel), &FromSandbox::Failed(words), None);
    end(1)
}

/// Waits until all sandboxes have ended, so that no other process has to reap them. The kernel needs time to free a
/// guest's memory, so this function is called after the answer was given.
///
/// No sandbox is reaped earlier. So a process that has ended keeps its ID, and a later kill can't hit another process.
pub fn reap() {
    while waitpid(None, None).is_ok() {}
}

/// Reads the processor's features, and keeps them for all children. Otherwise each child would read them. In a virtual
/// machine each read goes to the hypervisor: 80 µs for all reads.
fn know_the_processor() {
    #[cfg(target_arch = "x86_64")]
    std::hint::black_box(std::arch::is_x86_feature_detected!("avx2"));
}

/// Ends this process at once. No output is lost, because output is written by [`crate::streams::write`], which has no
/// buffer.
pub fn end(status: u8) -> ! {
    end_process(status.into())
}

/// Names this process after its run, for lists of processes. The verb comes first, because the kernel keeps 15 bytes.
pub fn introduce(verb: &str, plugin: &str) {
    // An impossible name is ignored, because the run does not depend on the name.
    if let Ok(name) = CString::new(format!("{verb} {plugin}")) {
        let _ = nix::sys::prctl::set_name(&name);
    }
}
