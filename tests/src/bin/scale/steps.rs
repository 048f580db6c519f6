//! The number of instructions that a program and its children execute outside the kernel. A virtual machine may lack a
//! counter of instructions, so this program traces each thread step by step.

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// The file with the count.
const FILE: &str = "/run/steps";

/// Counts the instructions of a command. Returns the count, and the command's output.
pub fn count(command: &Command, input: &str) -> Result<(u64, String)> {
    let mut traced = Command::new(std::env::current_exe()?);
    traced.arg("steps").arg(command.get_program()).args(command.get_args());
    traced.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let mut child = traced.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{command:?}: {stdout}");
    Ok((std::fs::read_to_string(FILE)?.trim().parse()?, stdout))
}

/// Runs `steps PROGRAM [ARGUMENT...]`: traces the program step by step. The exit status is the program's.
pub fn run(words: &[String]) -> Result<()> {
    // The shell waits for this tracer before it becomes the program.
    let script = "kill -STOP $$; exec \"$@\"";
    let child = Command::new("/bin/sh").args(["-c", script, "sh"]).args(words).spawn()?;
    let first = Pid::from_raw(i32::try_from(child.id())?);
    waitpid(first, Some(WaitPidFlag::WUNTRACED))?;
    let options = Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(first, options)?;
    kill(first, Signal::SIGCONT)?;
    let (mut steps, mut status) = (0_u64, 1);
    // The shell's own instructions don't count.
    let mut counted: HashSet<Pid> = HashSet::new();
    let mut has_begun = false;
    loop {
        let event = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(event) => event,
            Err(Errno::ECHILD) => break,
            Err(error) => return Err(error.into()),
        };
        let Some(pid) = event.pid() else { continue };
        let signal = match event {
            WaitStatus::Exited(_, code) => {
                if pid == first {
                    status = code;
                }
                continue;
            }
            WaitStatus::Signaled(..) => continue,
            WaitStatus::PtraceEvent(_, _, number) => {
                has_begun |= number == nix::libc::PTRACE_EVENT_EXEC;
                if has_begun {
                    counted.insert(pid);
                }
                None
            }
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                steps += u64::from(counted.contains(&pid));
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        // If the process was killed meanwhile, this request fails. The next wait reports the end of the process.
        let _ = if has_begun { ptrace::step(pid, signal) } else { ptrace::cont(pid, signal) };
    }
    std::fs::write(FILE, steps.to_string()).context(FILE)?;
    std::process::exit(status);
}
