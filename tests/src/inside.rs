//! Work in namespaces of a node, on a thread of this process. A program such as `nsenter` would be slower: in a virtual
//! machine, the start of a program takes longer than most calls.

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The time after which a program is killed, so that it does not outlive the test.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time from SIGTERM to SIGKILL.
const MERCY: Duration = Duration::from_secs(2);
/// The exit status of a program that was killed after [`PATIENCE`].
const LATE: i32 = 124;

/// The namespaces of a node, or of a container on it, as files.
#[derive(Debug)]
pub struct Namespaces<'p> {
    /// The mount namespace.
    pub mount: &'p Path,
    /// The network namespace.
    pub net: &'p Path,
}

impl Namespaces<'_> {
    /// Moves this thread into the namespaces.
    fn enter(&self) -> Result<()> {
        let open = |path: &Path| File::open(path).with_context(|| path.display().to_string());
        let (mount, net) = (open(self.mount)?, open(self.net)?);
        // Threads share root and working directory. setns(2) refuses a mount namespace to a thread that shares them.
        unshare(CloneFlags::CLONE_FS)?;
        setns(&net, CloneFlags::CLONE_NEWNET)?;
        Ok(setns(&mount, CloneFlags::CLONE_NEWNS)?)
    }

    /// Runs `work` on a thread in the namespaces.
    ///
    /// # Errors
    /// The namespaces can't be entered, or `work` fails.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Runs a program in the namespaces, with this standard input, and returns its output. The status is 124 if the
    /// program was killed for lateness.
    ///
    /// # Errors
    /// The namespaces can't be entered, or the program can't be started.
    pub fn run(&self, command: &mut Command, input: Option<&[u8]>) -> Result<Output> {
        let what = command.get_program().to_string_lossy().into_owned();
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        let (say, hear) = channel();
        std::thread::scope(|scope| {
            let worker = scope.spawn(move || -> Result<Output> {
                self.enter()?;
                let mut child = command.spawn().with_context(|| what)?;
                let _ = say.send(i32::try_from(child.id())?);
                if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
                    // A plugin may exit without reading its input (VERSION). The test does not fail then.
                    let _ = stdin.write_all(input);
                }
                let output = child.wait_with_output()?;
                drop(say);
                Ok(output)
            });
            let mut is_late = false;
            if let Ok(group) = hear.recv().map(Pid::from_raw)
                && hear.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout)
            {
                is_late = true;
                let _ = killpg(group, Signal::SIGTERM);
                if hear.recv_timeout(MERCY) == Err(RecvTimeoutError::Timeout) {
                    let _ = killpg(group, Signal::SIGKILL);
                }
            }
            let mut output = worker.join().map_err(|_| anyhow!("a thread panicked"))??;
            if is_late {
                output.status = ExitStatus::from_raw(LATE << 8);
            }
            Ok(output)
        })
    }
}

/// Runs `work` on a new thread, so that it may change the thread's namespaces.
///
/// # Errors
/// The errors of `work`.
pub fn on_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join().map_err(|_| anyhow!("a thread panicked"))?)
}
