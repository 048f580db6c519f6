//! The helper: a process that runs programs for one that may not any more.
//!
//! It is forked before confinement, and only where policy and configuration name a program (iptables, a native IPAM
//! plugin). It keeps the environment and the privileges that the runtime gave, runs the programs of its list and nothing
//! else, and ends with the process that it serves, whose end closes the channel. A program that runs then, or that goes on
//! past its deadline, is killed with all that it has started: it would hold the attachment's lock.
#![allow(unsafe_code, reason = "fork(2) has no safe form; _exit(2)")]

use crate::descriptors::close_all_but;
use crate::program::{Direct, Environment, Output, Program, Run};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::{ForkResult, Pid, fork};
use postern_types::channel::{ChannelError, receive, send};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the answer may take beyond the program's own deadline.
const GRACE: Duration = Duration::from_secs(1);

/// Characters of a piece of text: a message has room for them however they are escaped.
const PIECE: usize = 64 << 10;

/// A program that a helper runs, and how. Whoever has taken over the process that it serves can ask for nothing else.
#[derive(Clone, Copy)]
pub struct Rules {
    /// Whether it may be started with these arguments.
    pub arguments: fn(&[String]) -> bool,
    /// Whether it may be given this to read.
    pub input: fn(&str) -> bool,
    /// Whether it may be given this variable on top of the inherited environment; `None`: it gets an empty one.
    pub variable: Option<fn(&str) -> bool>,
}

/// A program of a helper's list.
#[derive(Clone)]
pub struct Allowed {
    /// Absolute path.
    pub path: PathBuf,
    /// How it may be started.
    pub rules: Rules,
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Allowed {
    fn allows(&self, arguments: &[String], environment: &Environment, input: &str) -> bool {
        (self.rules.arguments)(arguments)
            && (self.rules.input)(input)
            && match (environment, self.rules.variable) {
                (Environment::Empty, None) => true,
                (Environment::Inherited(variables), Some(rule)) => variables.iter().all(|(name, _)| rule(name)),
                (Environment::Empty, Some(_)) | (Environment::Inherited(_), None) => false,
            }
    }
}

/// A running helper. It ends when this is dropped.
#[derive(Debug)]
pub struct Helper {
    pid: Pid,
    channel: UnixStream,
    programs: Vec<Allowed>,
    /// An answer did not come. It may come yet, and must not be taken for that to another question.
    silent: Cell<bool>,
}

/// One request; the input follows in pieces.
#[derive(Serialize, Deserialize)]
struct Request {
    /// Which program of the list.
    number: usize,
    arguments: Vec<String>,
    environment: Environment,
    milliseconds: u64,
}

#[derive(Serialize, Deserialize)]
enum Text {
    Piece(String),
    End,
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
    /// Forks. For a process with one thread that has given up nothing yet. `lock` stays open in the helper and in its
    /// programs: whoever waits for it waits for them too, should this process be killed.
    ///
    /// # Errors
    /// The kernel gives no process or no channel.
    pub fn start(programs: Vec<Allowed>, lock: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: the process has one thread, and the child never returns from `serve`.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self { pid: child, channel: ours, programs, silent: Cell::new(false) }),
            ForkResult::Child => {
                drop(ours);
                serve(&theirs, &programs, lock)
            }
        }
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

impl Run for Helper {
    fn run(&self, program: &Program, deadline: Instant) -> io::Result<Output> {
        let number = self.programs.iter().position(|allowed| allowed.path == program.path).ok_or_else(|| {
            let text = format!("{} is not among the programs of this run", program.path.display());
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        })?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::ETIMEDOUT.into());
        }
        if self.silent.get() {
            return Err(io::Error::other("the helper that runs programs does not answer any more"));
        }
        let request = Request {
            number,
            arguments: program.arguments.clone(),
            environment: program.environment.clone(),
            milliseconds: u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1),
        };
        match self.ask(&request, &program.input, deadline + GRACE) {
            Ok(Ok(output)) => Ok(output),
            Ok(Err((Some(errno), _))) => Err(io::Error::from_raw_os_error(errno)),
            Ok(Err((None, text))) => Err(io::Error::other(text)),
            Err(error) => {
                self.silent.set(true);
                Err(broken(error))
            }
        }
    }
}

/// What became of a program: its output, or why there is none, as an error number where there is one and in words.
type Ended = Result<Output, (Option<i32>, String)>;

impl Helper {
    fn ask(&self, request: &Request, input: &str, until: Instant) -> Result<Ended, ChannelError> {
        let until = Some(until);
        send(&self.channel, request, until)?;
        send_text(&self.channel, input, until)?;
        match receive(&self.channel, until)? {
            Answer::Ended { status, ended } => {
                let stdout = receive_text(&self.channel, until)?;
                let stderr = receive_text(&self.channel, until)?;
                Ok(Ok(Output { status, ended, stdout, stderr }))
            }
            Answer::Failed { errno, text } => Ok(Err((errno, text))),
        }
    }
}

fn broken(error: ChannelError) -> io::Error {
    match error {
        ChannelError::Timeout => Errno::ETIMEDOUT.into(),
        error => io::Error::other(format!("the helper that runs programs: {error}")),
    }
}

fn send_text(channel: &UnixStream, text: &str, until: Option<Instant>) -> Result<(), ChannelError> {
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.char_indices().nth(PIECE).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(at);
        send(channel, &Text::Piece(piece.to_owned()), until)?;
        rest = after;
    }
    send(channel, &Text::End, until)
}

fn receive_text(channel: &UnixStream, until: Option<Instant>) -> Result<String, ChannelError> {
    let mut text = String::new();
    while let Text::Piece(piece) = receive(channel, until)? {
        text.push_str(&piece);
    }
    Ok(text)
}

/// The helper's life.
fn serve(channel: &UnixStream, programs: &[Allowed], lock: Option<BorrowedFd<'_>>) -> ! {
    // Standard error stays open for what the C library has to say; everything else is the parent's.
    let mut kept = vec![2, channel.as_raw_fd()];
    kept.extend(lock.map(|lock| lock.as_raw_fd()));
    let inherited = lock.is_none_or(|lock| fcntl(lock, FcntlArg::F_SETFD(FdFlag::empty())).is_ok());
    // Orphans of its programs become its own children, to be found when they have to be killed.
    let confined = inherited && close_all_but(&kept).is_ok() && set_child_subreaper(true).is_ok();
    while confined && answer(channel, programs).is_ok() {}
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(0) }
}

fn answer(channel: &UnixStream, programs: &[Allowed]) -> Result<(), ChannelError> {
    let request: Request = receive(channel, None)?;
    let input = receive_text(channel, None)?;
    let Some(allowed) = programs.get(request.number) else { return Err(ChannelError::Closed) };
    if !allowed.allows(&request.arguments, &request.environment, &input) {
        let text = format!("{} may not be started like this", allowed.path.display());
        return send(channel, &Answer::Failed { errno: None, text }, None);
    }
    let path = allowed.path.clone();
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
