//! One process for the plugins of a list (`postern net`): its start, the questions to it, and its work.
//!
//! The runtime's side forks it, and keeps all its own rights. It names the plugins in the order in which it will call
//! them. The process starts their sandboxes at once, confines itself at the first call to what all of them need, and runs
//! one after the other. It ends when the runtime's side has closed the channel.
#![allow(unsafe_code, reason = "fork(2) has no safe form; dup2(2) in the new process")]

use crate::begin::Call;
use crate::company::{Company, Planned};
use crate::inherited;
use crate::launcher::Launcher;
use crate::process::{self, Engine};
use crate::protocol::{Performed, STDIN_LIMIT, perform};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, pipe2, read};
use postern_cni::{Env, Error, code, read_conf};
use postern_confine::{close_all_but, fork};
use postern_types::channel::{ChannelError, pair, receive, receive_text, send, send_text};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The time that the runtime's side has to read an error.
const ERROR_WITHIN: Duration = Duration::from_secs(5);

/// A question: run this plugin. Its standard input follows as a text.
#[derive(Serialize, Deserialize)]
struct Ask {
    /// Its number in the plan.
    at: usize,
}

/// A part of the answer.
#[derive(Serialize, Deserialize)]
enum Part {
    /// The plugin needs a process of its own. Nothing was done.
    Elsewhere,
    /// The run's standard output follows as a text.
    Output,
    /// The run has ended with this exit status.
    Ended(u8),
}

/// The process, as the runtime's side sees it. It ends when this is dropped.
#[derive(Debug)]
pub struct ListProcess {
    pid: Pid,
    /// `None` after the process has gone.
    channel: Option<UnixStream>,
    stderr: OwnedFd,
}

/// The end of a plugin's run.
#[derive(Debug)]
pub enum Answer {
    /// It needs a process of its own. Nothing was done.
    Elsewhere,
    /// It ended, or its process was killed.
    Ended {
        /// Its exit status, or that of the process.
        status: ExitStatus,
        /// Its standard output.
        stdout: Vec<u8>,
        /// What was written to standard error meanwhile.
        stderr: Vec<u8>,
    },
}

impl ListProcess {
    /// Starts the process. For a process with one thread. `env` has the variables that all runs have.
    ///
    /// # Errors
    /// The kernel gives no process, no channel or no pipe.
    pub fn start(plan: Vec<Planned>, env: Env, network: &str, engine: Engine) -> io::Result<Self> {
        let (ours, theirs) = pair()?;
        let (stderr, writer) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&stderr, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // SAFETY: the process has one thread, and the child never returns from `serve`.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self { pid: child, channel: Some(ours), stderr }),
            ForkResult::Child => {
                drop((ours, stderr));
                serve(theirs, &writer, plan, &env, network, engine)
            }
        }
    }

    /// Runs the plugin of this number in the plan.
    ///
    /// # Errors
    /// The kernel can't be asked about the process.
    pub fn run(&mut self, at: usize, input: &str) -> io::Result<Answer> {
        let Some(channel) = &self.channel else { return Ok(Answer::Elsewhere) };
        if input.len() > STDIN_LIMIT {
            return Ok(Answer::Elsewhere);
        }
        if send(channel, &Ask { at }, None).is_err() {
            // It had ended before it was asked.
            self.channel = None;
            ended(self.pid)?;
            return Ok(Answer::Elsewhere);
        }
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let asked = send_text(channel, input, None);
        let mut status = None;
        while asked.is_ok() && status.is_none() {
            self.wait(channel)?;
            self.read_errors(&mut stderr)?;
            if !is_ready(channel)? {
                continue;
            }
            match receive(channel, None) {
                Ok(Part::Elsewhere) => return Ok(Answer::Elsewhere),
                Ok(Part::Output) => match receive_text(channel, None) {
                    Ok(text) => stdout = text.into_bytes(),
                    Err(_) => break,
                },
                Ok(Part::Ended(code)) => status = Some(ExitStatus::from_raw(i32::from(code) << 8)),
                Err(_) => break,
            }
        }
        let status = match status {
            Some(status) => status,
            None => {
                // The end of this channel is the end of the process, if that was not the beginning.
                self.channel = None;
                ended(self.pid)?
            }
        };
        self.read_errors(&mut stderr)?;
        Ok(Answer::Ended { status, stdout, stderr })
    }

    /// Waits for an answer, or for words to standard error.
    fn wait(&self, channel: &UnixStream) -> io::Result<()> {
        let mut wanted =
            [PollFd::new(channel.as_fd(), PollFlags::POLLIN), PollFd::new(self.stderr.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wanted, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn read_errors(&self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut piece = [0; 4096];
        loop {
            match read(&self.stderr, &mut piece) {
                Ok(0) | Err(Errno::EAGAIN) => return Ok(()),
                Ok(length) => into.extend(piece.get(..length).unwrap_or_default()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for ListProcess {
    fn drop(&mut self) {
        if self.channel.take().is_some() {
            // As after a plugin of its own process, nothing of it is left.
            let _ = waitpid(self.pid, None);
        }
    }
}

/// True if there is a message, or the end of the channel.
fn is_ready(channel: &UnixStream) -> io::Result<bool> {
    let mut wanted = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    match poll(&mut wanted, PollTimeout::ZERO) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits for the end of a process.
fn ended(pid: Pid) -> io::Result<ExitStatus> {
    loop {
        match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(ExitStatus::from_raw(code << 8)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(ExitStatus::from_raw(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Serves the runtime's side until it closes the channel.
fn serve(channel: UnixStream, stderr: &OwnedFd, plan: Vec<Planned>, env: &Env, network: &str, engine: Engine) -> ! {
    if let Err(errno) = leave_streams(stderr) {
        crate::say!("postern: the streams of a list's process: {errno}");
        process::end(1);
    }
    let _ = close_all_but(&[0, 1, 2, channel.as_raw_fd()]);
    report_panics(&channel);
    inherited::put_right();
    // The process of a plugin of its own reports a limit that is too low. This one needs more.
    let has_room = inherited::limits().is_ok() && has_files(plan.len());
    process::introduce(&env.command, network);
    let mut launcher = Launcher::new(engine);
    if let Ok(verb) = env.verb() {
        launcher.save_sandboxes(verb);
    }
    let mut company = has_room.then(|| Company::new(plan, &launcher));
    while let Ok(Ask { at }) = receive(&channel, None) {
        let Ok(input) = receive_text(&channel, None) else { break };
        let answered = match company.as_mut().and_then(|company| answer(company, &channel, env, at, &input)) {
            Some(code) => send(&channel, &Part::Ended(code), Some(Instant::now() + ERROR_WITHIN)),
            None => send(&channel, &Part::Elsewhere, Some(Instant::now() + ERROR_WITHIN)),
        };
        if answered.is_err() {
            break;
        }
    }
    if let Some(company) = company {
        company.end();
    }
    process::reap();
    process::end(0)
}

/// True if the process may open enough files for so many plugins: code, channels, and what one run opens.
fn has_files(plugins: usize) -> bool {
    let wanted = u64::try_from(plugins).unwrap_or(u64::MAX).saturating_mul(8).saturating_add(64);
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(soft, _)| soft >= wanted)
}

/// Runs one plugin, and returns its exit status. `None` if it needs a process of its own.
fn answer(company: &mut Company, channel: &UnixStream, env: &Env, at: usize, input: &str) -> Option<u8> {
    let (name, mut launcher) = company.take(at)?;
    let mut printed = |output: &[u8], deadline: Instant| print(channel, output, deadline);
    let stdin = input.as_bytes();
    let raw = read_conf(stdin, STDIN_LIMIT);
    let verb = env.verb();
    let performed = raw.and_then(|raw| {
        let call = Call { name: &name, verb: verb?, env, stdin, started: Instant::now() };
        perform(&call, raw, &mut launcher, Some(company), &mut printed)
    });
    let (output, status) = match performed {
        Ok(Performed::Elsewhere) => return None,
        Ok(Performed::Done(output)) => (output, 0),
        Err(error) => (error.to_json(), 1),
    };
    match output.is_empty() || print(channel, output.as_bytes(), Instant::now() + ERROR_WITHIN).is_ok() {
        true => Some(status),
        false => Some(1),
    }
}

/// Gives a run's output to the runtime's side.
fn print(channel: &UnixStream, output: &[u8], deadline: Instant) -> Result<(), Error> {
    let unread = |error: ChannelError| {
        crate::say!("postern: the output cannot be given to the runtime: {error}");
        Error::new(code::IO_FAILURE, format!("error writing to stdout: {error}"))
    };
    send(channel, &Part::Output, Some(deadline))
        .and_then(|()| send_text(channel, &String::from_utf8_lossy(output), Some(deadline)))
        .map_err(unread)
}

/// Makes the pipe the standard error of this process, and its other standard streams: nothing is read, and the output has
/// its own way.
fn leave_streams(stderr: &OwnedFd) -> nix::Result<()> {
    for stream in [0, 1, 2] {
        // SAFETY: the standard streams of this new process have no other owner.
        Errno::result(unsafe { libc::dup2(stderr.as_raw_fd(), stream) })?;
    }
    Ok(())
}

/// Tells of a panic as a plugin's own process does.
fn report_panics(channel: &UnixStream) {
    let Ok(channel) = channel.try_clone() else { return };
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let error = Error::internal(format!("postern itself failed at {place}: this is a bug")).to_json();
        let _ = print(&channel, error.as_bytes(), Instant::now() + Duration::from_secs(1));
        crate::say!("{panic}");
        process::end(1);
    }));
}
