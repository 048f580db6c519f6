//! The processes that are forked from the service. Each process has one task, and is confined for this task.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use postern_confine::{ConfineError, close_all_but, end_process, fork};
use postern_types::channel::pair;
use std::ffi::CStr;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// The task of a process.
#[derive(Debug)]
pub struct Task {
    /// The process's name in messages.
    pub words: &'static str,
    /// The process's name in lists of processes.
    pub name: &'static CStr,
    /// The descriptors that the process keeps besides its end of the socket pair.
    pub inherits: &'static [RawFd],
}

/// The service's handle of a process.
#[derive(Debug)]
pub struct TaskProcess {
    /// The service's end of the socket pair. The process at the other end notices the end of the service.
    pub line: UnixStream,
    pid: Pid,
}

impl TaskProcess {
    /// Ends the process, and waits until it has ended.
    pub fn end(self) {
        let _ = self.line.shutdown(Shutdown::Both);
        let _ = waitpid(self.pid, None);
    }
}

impl Task {
    /// Forks the process. The process confines itself, does its work with its end of a socket pair, and ends. The
    /// calling process must have a single thread.
    pub fn start(
        &self,
        confine: impl FnOnce() -> Result<(), ConfineError>,
        work: impl FnOnce(&UnixStream),
    ) -> Result<TaskProcess, String> {
        let (line, theirs) = pair().map_err(|error| error.to_string())?;
        // SAFETY: the process has one thread, and the child never returns.
        match unsafe { fork() }.map_err(|errno| errno.desc().to_owned())? {
            ForkResult::Parent { child } => return Ok(TaskProcess { line, pid: child }),
            ForkResult::Child => drop(line),
        }
        let closed = close_all_but(&[self.inherits, &[theirs.as_raw_fd()]].concat());
        let confined = closed.and_then(|()| {
            // Only the service handles a stop signal. The service ends these processes when it ends.
            let _ = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]).thread_block();
            let _ = prctl::set_name(self.name);
            confine()
        });
        match confined {
            Ok(()) => work(&theirs),
            Err(error) => postern_gate::say!("postern dhcp: {} cannot be confined: {error}", self.words),
        }
        end_process(0)
    }
}
