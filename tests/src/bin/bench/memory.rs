//! Measures the greatest resident memory of all processes of a run together.
//!
//! A process uses most memory at its end. So this program traces the run: before each end of a process, it adds up the
//! sizes of all existing processes. A page that several processes share counts once (`Pss`).

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::libc::{PTRACE_EVENT_EXEC, PTRACE_EVENT_EXIT, PTRACE_EVENT_FORK};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// The file with the figure.
const FILE: &str = "/run/memory";

/// Measures a command. Returns the bytes of memory, and the command's output.
pub fn measure(command: &Command, input: &str) -> Result<(u64, String)> {
    let mut traced = Command::new("/proc/self/exe");
    traced.arg("memory").arg(command.get_program()).args(command.get_args());
    traced.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let mut child = traced.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{command:?}: {stdout}");
    let bytes = std::fs::read_to_string(FILE)?.trim().parse()?;
    ensure!(bytes > 0, "{command:?}: the trace shows no end of a process");
    Ok((bytes, stdout))
}

/// Runs `memory PROGRAM [ARGUMENT...]`: traces the program. The exit status is the program's.
pub fn run(words: &[String]) -> Result<()> {
    // The shell waits for this tracer before it becomes the program.
    let child = Command::new("/bin/sh").args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]).args(words).spawn()?;
    let first = Pid::from_raw(i32::try_from(child.id())?);
    waitpid(first, Some(WaitPidFlag::WUNTRACED))?;
    let options = Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXIT
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(first, options)?;
    kill(first, Signal::SIGCONT)?;
    // A vfork child shares its parent's memory until its exec, so only forks and execs add a process.
    let mut processes = BTreeSet::from([first]);
    let (mut most, mut status, mut has_begun) = (0, 1, false);
    loop {
        let event = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(event) => event,
            Err(Errno::ECHILD) => break,
            Err(error) => return Err(error.into()),
        };
        let Some(pid) = event.pid() else { continue };
        let signal = match event {
            WaitStatus::Exited(_, code) => {
                processes.remove(&pid);
                if pid == first {
                    status = code;
                }
                continue;
            }
            WaitStatus::Signaled(..) => {
                processes.remove(&pid);
                continue;
            }
            WaitStatus::PtraceEvent(_, _, number) => {
                match number {
                    PTRACE_EVENT_EXEC => {
                        has_begun = true;
                        processes.insert(pid);
                    }
                    PTRACE_EVENT_FORK => {
                        if let Ok(child) = ptrace::getevent(pid) {
                            processes.insert(Pid::from_raw(i32::try_from(child)?));
                        }
                    }
                    PTRACE_EVENT_EXIT if has_begun => {
                        most = most.max(processes.iter().filter_map(|pid| resident(*pid)).sum());
                    }
                    _ => {}
                }
                None
            }
            WaitStatus::Stopped(_, Signal::SIGTRAP) => None,
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        let _ = ptrace::cont(pid, signal);
    }
    std::fs::write(FILE, most.to_string()).context(FILE)?;
    std::process::exit(status);
}

/// Returns the bytes of a process, with its part of shared pages.
fn resident(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}
