//! A tap with an SELinux context. A tap has the context of the process that makes it (`TUNSETIFF`). So this program
//! starts itself again in the context, and the new process makes the tap.
//!
//! The kernel takes a new context at exec(2), from `attr/exec` of the starting thread. The runtime's domain needs
//! `setexec` and `transition`, as for the native plugin. A thread can't change its own context while its process has
//! other threads.

use crate::error::{Result, Subject};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

/// The name under which this program only makes a tap.
pub const NAME: &str = "postern-tap";

/// This file has the context for the next program that the thread starts.
pub const EXEC_CONTEXT: &str = "/proc/thread-self/attr/exec";

/// The length of a `struct ifreq`.
pub(crate) const REQUEST: usize = size_of::<nix::libc::ifreq>();

/// The process that makes one tap.
#[derive(Debug)]
pub(crate) struct TapMaker {
    process: Child,
    requests: ChildStdin,
    answers: ChildStdout,
}

/// Sets the context of the next program that this thread starts. `EINVAL` if the node has no SELinux, or if its SELinux
/// policy lacks the context. `EACCES` without `setexec`.
fn set_context(context: &str) -> Result<()> {
    let subject = Subject { operation: "set context", object: &context };
    fs::write(EXEC_CONTEXT, context).map_err(|error| subject.failed(error))
}

/// Checks if programs can be started in a context, and starts no program. A new thread does the check, so that no later
/// program gets the context.
pub(crate) fn try_context(context: &str) -> Result<()> {
    let failed = || Subject { operation: "set context", object: &context }.broken("the thread of this check has ended");
    thread::scope(|scope| scope.spawn(|| set_context(context)).join().unwrap_or_else(|_| Err(failed())))
}

impl TapMaker {
    /// Starts the process, with the file of the tap as its standard error. The process ends after its answer, or when
    /// this value is dropped. `EACCES` if the SELinux policy doesn't allow the transition.
    pub(crate) fn start(tun: &File, context: &str) -> Result<Self> {
        set_context(context)?;
        let subject = Subject { operation: "start in context", object: &context };
        let mut process = tun
            .try_clone()
            .and_then(|tun| {
                Command::new("/proc/self/exe")
                    .arg0(NAME)
                    .env_clear()
                    .current_dir("/")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(tun)
                    .spawn()
            })
            .map_err(|error| subject.failed(error))?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(Self { process, requests, answers }),
            _ => Err(subject.broken("the new process has no pipe")),
        }
    }

    /// Lets the process make the tap, with the file that it has as standard error.
    pub(crate) fn make(mut self, subject: Subject<'_>, request: &[u8; REQUEST]) -> Result<()> {
        let mut errno = [0; 4];
        let asked = self.requests.write_all(request).and_then(|()| self.answers.read_exact(&mut errno));
        drop((self.requests, self.answers));
        // This process must reap its child.
        let _ = self.process.wait();
        match asked.map(|()| i32::from_ne_bytes(errno)) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(subject.refused(errno, None)),
            Err(_) => Err(subject.broken("the process in the SELinux context has ended")),
        }
    }
}

/// Reads one request from standard input, and answers with the kernel's error number, or 0. Does nothing if no request
/// comes.
pub(crate) fn serve(make: impl FnOnce([u8; REQUEST]) -> nix::Result<()>) {
    let mut request = [0; REQUEST];
    if io::stdin().lock().read_exact(&mut request).is_ok() {
        let errno = make(request).err().map_or(0, |errno| errno as i32);
        // An error is ignored, because it means that the parent process has ended.
        let mut answers = io::stdout().lock();
        let _ = answers.write_all(&errno.to_ne_bytes()).and_then(|()| answers.flush());
    }
}
