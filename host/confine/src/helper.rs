//! The helper: a process that runs programs for a client process, which may not start programs.
//!
//! It is forked before the client confines itself, and only if policy, configuration or a record names a program
//! (iptables, a native IPAM plugin). It keeps the runtime's environment and privileges, and runs only the programs of
//! its list. It ends with its client, because the client's end closes the channel.
//!
//! A program that still runs when the client ends, or at the program's deadline, is killed with all processes that it
//! has started. Otherwise these processes would hold the attachment's lock.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use crate::bus::Bus;
use crate::descriptors::close_all_but;
use crate::program::{Direct, Environment, Program, ProgramOutput, Run};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::ForkResult;
use postern_types::channel::{ChannelError, pair, receive, send};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time that the answer may take after the program's own deadline.
const GRACE: Duration = Duration::from_secs(1);

/// The characters in a piece of text. Even if all characters are escaped, a piece fits into a message.
const PIECE: usize = 64 << 10;

/// A program of a helper's list, and the limits for starting it. An attacker who controls the client can start only
/// these programs.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// Absolute path.
    pub path: PathBuf,
    /// True if the program may be started with these arguments.
    pub arguments: fn(&[String]) -> bool,
    /// True if the program may get this text as standard input.
    pub input: fn(&str) -> bool,
    /// True if the program may get this variable in addition to the inherited environment. `None`: the program's
    /// environment is empty.
    pub variable: Option<fn(&str) -> bool>,
}

impl Allowed {
    fn allows(&self, arguments: &[String], environment: &Environment, input: &str) -> bool {
        (self.arguments)(arguments)
            && (self.input)(input)
            && match (environment, self.variable) {
                (Environment::Empty, None) => true,
                (Environment::Inherited(variables), Some(rule)) => variables.iter().all(|(name, _)| rule(name)),
                (Environment::Empty, Some(_)) | (Environment::Inherited(_), None) => false,
            }
    }
}

/// A running helper. The helper ends when this value is dropped.
#[derive(Debug)]
pub struct Helper {
    channel: UnixStream,
    programs: Vec<Allowed>,
    bus: Option<Bus>,
    /// True if an answer did not come in time. The answer may come later, and must not be read as the answer to another
    /// request.
    unanswered: Cell<bool>,
}

/// One request; the input follows in pieces.
#[derive(Serialize, Deserialize)]
struct Request {
    /// The program's index in the list; the number after the last program stands for the message bus.
    number: usize,
    arguments: Vec<String>,
    environment: Environment,
    milliseconds: u64,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    /// The two outputs follow in pieces.
    Ended {
        status: Option<i32>,
        ended: String,
    },
    Failed {
        errno: Option<i32>,
        text: String,
    },
}

impl Helper {
    /// Forks the helper. `bus` has calls on the message bus that the helper may also make. The caller must have one
    /// thread, and must still have all its rights.
    ///
    /// `lock` stays open in the helper and in its programs. If this process is killed, the next run waits until the
    /// helper and its programs have ended too.
    ///
    /// # Errors
    /// The kernel can't make a process or a channel.
    pub fn start(programs: Vec<Allowed>, bus: Option<Bus>, lock: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let (ours, theirs) = pair()?;
        // SAFETY: the process has one thread, and the child never returns from `serve`.
        match unsafe { crate::fork() }? {
            ForkResult::Parent { .. } => Ok(Self { channel: ours, programs, bus, unanswered: Cell::new(false) }),
            ForkResult::Child => {
                drop(ours);
                serve(&theirs, &programs, bus.as_ref(), lock)
            }
        }
    }
}

impl Run for Helper {
    fn can_start(&self) -> bool {
        !self.programs.is_empty()
    }

    fn run(&self, program: &Program, deadline: Instant) -> io::Result<ProgramOutput> {
        let listed = self.programs.iter().position(|allowed| allowed.path == program.path);
        let is_call = self.bus.as_ref().is_some_and(|bus| bus.path == program.path);
        let number = listed.or(is_call.then_some(self.programs.len())).ok_or_else(|| {
            let text = format!("{} is not among the programs of this run", program.path.display());
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        })?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::ETIMEDOUT.into());
        }
        if self.unanswered.get() {
            return Err(io::Error::other("the helper that runs programs does not answer any more"));
        }
        let request = Request {
            number,
            arguments: program.arguments.clone(),
            environment: program.environment.clone(),
            milliseconds: u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1),
        };
        self.ask(&request, &program.input, deadline + GRACE).unwrap_or_else(|error| {
            self.unanswered.set(true);
            Err(match error {
                ChannelError::Timeout => Errno::ETIMEDOUT.into(),
                error => io::Error::other(format!("the helper that runs programs: {error}")),
            })
        })
    }
}

impl Helper {
    /// Returns the result of a program. Fails if the helper does not answer.
    fn ask(&self, request: &Request, input: &str, until: Instant) -> Result<io::Result<ProgramOutput>, ChannelError> {
        let until = Some(until);
        send(&self.channel, request, until)?;
        send_text(&self.channel, input, until)?;
        match receive(&self.channel, until)? {
            Answer::Ended { status, ended } => {
                let stdout = receive_text(&self.channel, until)?;
                let stderr = receive_text(&self.channel, until)?;
                Ok(Ok(ProgramOutput { status, ended, stdout, stderr }))
            }
            Answer::Failed { errno: Some(errno), .. } => Ok(Err(io::Error::from_raw_os_error(errno))),
            Answer::Failed { errno: None, text } => Ok(Err(io::Error::other(text))),
        }
    }
}

/// Sends a text in pieces; `None` marks the end.
fn send_text(channel: &UnixStream, text: &str, until: Option<Instant>) -> Result<(), ChannelError> {
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.char_indices().nth(PIECE).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(at);
        send(channel, &Some(piece), until)?;
        rest = after;
    }
    send(channel, &None::<&str>, until)
}

fn receive_text(channel: &UnixStream, until: Option<Instant>) -> Result<String, ChannelError> {
    let mut text = String::new();
    while let Some(piece) = receive::<Option<String>>(channel, until)? {
        text.push_str(&piece);
    }
    Ok(text)
}

/// Serves the client until the client ends.
fn serve(channel: &UnixStream, programs: &[Allowed], bus: Option<&Bus>, lock: Option<BorrowedFd<'_>>) -> ! {
    // Standard error stays open for messages of the C library. All other descriptors belong to the parent.
    let mut kept = vec![2, channel.as_raw_fd()];
    kept.extend(lock.map(|lock| lock.as_raw_fd()));
    let inherited = lock.is_none_or(|lock| fcntl(lock, FcntlArg::F_SETFD(FdFlag::empty())).is_ok());
    // Orphans of the helper's programs become its own children, so that the helper can find and kill them.
    let confined = inherited && close_all_but(&kept).is_ok() && set_child_subreaper(true).is_ok();
    while confined && answer(channel, programs, bus).is_ok() {}
    crate::end_process(0)
}

fn answer(channel: &UnixStream, programs: &[Allowed], bus: Option<&Bus>) -> Result<(), ChannelError> {
    let request: Request = receive(channel, None)?;
    let input = receive_text(channel, None)?;
    let (path, is_allowed) = match (programs.get(request.number), bus) {
        (Some(program), _) => (&program.path, program.allows(&request.arguments, &request.environment, &input)),
        (None, Some(bus)) if request.number == programs.len() => {
            (&bus.path, bus.allows(&request.arguments, &request.environment, &input))
        }
        (None, _) => return Err(ChannelError::Closed),
    };
    if !is_allowed {
        let text = format!("{} may not be started with these arguments, variables or input", path.display());
        return send(channel, &Answer::Failed { errno: None, text }, None);
    }
    let path = path.clone();
    let program = Program { path, arguments: request.arguments, environment: request.environment, input };
    let deadline = Instant::now() + Duration::from_millis(request.milliseconds);
    match Direct.run_while(&program, deadline, Some(channel.as_fd())) {
        Ok(output) => {
            send(channel, &Answer::Ended { status: output.status, ended: output.ended }, None)?;
            send_text(channel, &output.stdout, None)?;
            send_text(channel, &output.stderr, None)
        }
        Err(error) => send(channel, &Answer::Failed { errno: error.raw_os_error(), text: error.to_string() }, None),
    }
}
