//! Programs that are run to their end, with a deadline.
#![allow(unsafe_code, reason = "sets up a child between fork(2) and exec(3)")]

use crate::tree;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes that a program may print on each of its outputs; `iptables-save` of a large node prints megabytes.
const LIMIT: usize = 64 << 20;

/// The directories of administrators' programs. `$PATH` comes from the caller and decides nothing here.
pub const PROGRAMS: [&str; 5] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"];

/// The programs that were found. A run looks for the same program several times.
static FOUND: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Returns the path of one of the system's programs; `None` if no directory of [`PROGRAMS`] has the program. A found
/// path is kept for the life of the process.
pub fn locate(name: &str) -> Option<PathBuf> {
    debug_assert!(!name.contains('/'), "{name} is a path");
    let is_it = |path: &&PathBuf| path.file_name().is_some_and(|found| found == name);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = found.iter().find(is_it) {
        return Some(path.clone());
    }
    let path = PROGRAMS.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())?;
    found.push(path.clone());
    Some(path)
}

/// A program to run, with its arguments, environment and input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Absolute path.
    pub path: PathBuf,
    /// The arguments, without the program's own name.
    pub arguments: Vec<String>,
    /// Its environment.
    pub environment: Environment,
    /// Its standard input, of any length.
    pub input: String,
}

/// A program's environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Environment {
    /// An empty environment, and `/` as working directory.
    Empty,
    /// The environment of the process that runs the program, and these variables in addition.
    Inherited(Vec<(String, String)>),
}

/// The output of a program that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramOutput {
    /// Exit status; `None` if a signal ended the program.
    pub status: Option<i32>,
    /// The way the program ended, as text for messages.
    pub ended: String,
    /// Its standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Its standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

/// A runner of programs: this process, or a helper for a process that may not start any.
pub trait Run {
    /// Runs a program to its end.
    ///
    /// # Errors
    /// The program can't be started, prints too much, or exceeds the deadline (`ETIMEDOUT`). A running program is
    /// killed.
    fn run(&self, program: &Program, deadline: Instant) -> io::Result<ProgramOutput>;

    /// False if the runner starts no program at all.
    fn can_start(&self) -> bool {
        true
    }
}

/// A runner that starts programs as children of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Run for Direct {
    fn run(&self, program: &Program, deadline: Instant) -> io::Result<ProgramOutput> {
        self.run_while(program, deadline, None)
    }
}

impl Direct {
    /// As [`Run::run`]. If `client`'s other end closes, the result is not needed any more, and the program is killed as
    /// at the deadline.
    ///
    /// # Errors
    /// As [`Run::run`]; `ECONNRESET` if the client has gone.
    pub(crate) fn run_while(
        &self,
        program: &Program,
        deadline: Instant,
        client: Option<BorrowedFd<'_>>,
    ) -> io::Result<ProgramOutput> {
        let mut command = Command::new(&program.path);
        match &program.environment {
            Environment::Empty => command.env_clear().current_dir("/"),
            Environment::Inherited(changes) => command.envs(changes.iter().map(|(name, value)| (name, value))),
        };
        // The program gets its own process group, which can be killed as one.
        command.process_group(0);
        #[expect(clippy::disallowed_methods, reason = "nothing is allocated")]
        // SAFETY: between fork(2) and exec(3) only prctl(2) is called. Nothing is allocated, because another thread may
        // have held the heap's lock at this fork(2) of the standard library.
        unsafe {
            command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?))
        };
        let mut child = command
            .args(&program.arguments)
            .stdin(file_with(&program.input)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let finished = finish(&mut child, deadline, client);
        if finished.is_err() {
            tree::kill(&mut child);
        }
        let (status, stdout, stderr) = finished?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(ProgramOutput {
            status: status.code(),
            ended: status.to_string(),
            stdout: text(stdout),
            stderr: text(stderr),
        })
    }
}

/// A runner that refuses every program, for runs whose policy, configuration and record name no program.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrograms;

impl Run for NoPrograms {
    fn run(&self, program: &Program, _deadline: Instant) -> io::Result<ProgramOutput> {
        let text = format!(
            "{} is not started: neither policy nor configuration names a program for this run",
            program.path.display()
        );
        Err(io::Error::new(ErrorKind::PermissionDenied, text))
    }

    fn can_start(&self) -> bool {
        false
    }
}

/// Returns a file with this text, for standard input. A pipe would have to be written while the output is read.
fn file_with(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"input", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

type Finished = (ExitStatus, Vec<u8>, Vec<u8>);

/// Reads both outputs to their ends, then waits for the program's end. If a child of the program keeps an output open,
/// this function waits for the child too, until the deadline.
fn finish(child: &mut Child, deadline: Instant, client: Option<BorrowedFd<'_>>) -> io::Result<Finished> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::from(ErrorKind::BrokenPipe));
    };
    // The outputs that have not ended, and the bytes that were read.
    let mut open = [OwnedFd::from(stdout), OwnedFd::from(stderr)].map(|output| Some(File::from(output)));
    let mut texts = [Vec::new(), Vec::new()];
    let mut piece = [0; 16 * 1024];
    while open.iter().any(Option::is_some) {
        let remaining = remaining(deadline)?;
        // Only the end of the client matters here. The client's next message is read later.
        let end = client.map(|client| PollFd::new(client, PollFlags::empty()));
        // poll(2) would ignore a negative descriptor. Instead, an output at its end is left out.
        let outputs = open.iter().flatten().map(|output| PollFd::new(output.as_fd(), PollFlags::POLLIN));
        let mut wanted: Vec<PollFd<'_>> = end.into_iter().chain(outputs).collect();
        let timeout = PollTimeout::try_from(remaining.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut wanted, timeout) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = wanted.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut ready = ready.into_iter();
        if client.is_some() && ready.next() == Some(true) {
            return Err(Errno::ECONNRESET.into());
        }
        for (output, text) in open.iter_mut().zip(&mut texts) {
            let Some(file) = output.as_mut().filter(|_| ready.next() == Some(true)) else { continue };
            let length = file.read(&mut piece)?;
            text.extend(piece.iter().take(length));
            if length == 0 {
                *output = None;
            }
            if text.len() > LIMIT {
                return Err(io::Error::new(ErrorKind::FileTooLarge, "the program printed too much"));
            }
        }
    }
    // Both outputs are closed, so the program is exiting.
    loop {
        if let Some(status) = child.try_wait()? {
            let [output, complaints] = texts;
            return Ok((status, output, complaints));
        }
        remaining(deadline)?;
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() {
        return Err(Errno::ETIMEDOUT.into());
    }
    Ok(remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &str, arguments: &[&str], input: &str) -> Program {
        Program {
            path: path.into(),
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
            environment: Environment::Empty,
            input: input.to_owned(),
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn feeds_and_reads_without_a_deadlock() {
        let text = "x".repeat(1 << 20);
        assert_eq!(Direct.run(&program("/bin/cat", &[], &text), soon()).unwrap().stdout, text);
    }

    #[test]
    fn tells_status_and_complaints() {
        let output = Direct.run(&program("/bin/sh", &["-c", "echo no >&2; exit 3"], ""), soon()).unwrap();
        assert_eq!((output.status, output.stderr.as_str(), output.ended.as_str()), (Some(3), "no\n", "exit status: 3"));
    }

    #[test]
    fn the_environment_is_empty_or_ours_with_changes() {
        assert_eq!(Direct.run(&program("/usr/bin/env", &[], ""), soon()).unwrap().stdout, "");
        let environment = Environment::Inherited(vec![("CNI_COMMAND".to_owned(), "DEL".to_owned())]);
        let inherited = Program { environment, ..program("/usr/bin/env", &[], "") };
        let stdout = Direct.run(&inherited, soon()).unwrap().stdout;
        assert!(stdout.contains("CNI_COMMAND=DEL\n") && stdout.contains("PATH="), "{stdout}");
    }

    #[test]
    fn is_killed_at_the_deadline() {
        let start = Instant::now();
        for script in ["sleep 60", "sleep 60 & exit 0"] {
            let sleeping = program("/bin/sh", &["-c", script], "");
            let error = Direct.run(&sleeping, Instant::now() + Duration::from_millis(50)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::ETIMEDOUT as i32));
        }
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn what_it_started_is_killed_with_it() {
        let running = |mark: &str| {
            std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                line.split(|byte| *byte == 0).eq([b"sleep".as_slice(), mark.as_bytes(), b""])
            })
        };
        for (script, mark) in [
            ("sleep 61.5; true", "61.5"),
            ("sh -c 'sleep 62.5; true' & wait", "62.5"),
            // One program has left the process group; the parent of another program has ended.
            ("setsid sleep 63.5; true", "63.5"),
            ("sleep 64.5 & exit 0", "64.5"),
        ] {
            let program = program("/bin/sh", &["-c", script], "");
            let error = Direct.run(&program, Instant::now() + Duration::from_millis(300)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::ETIMEDOUT as i32));
            // A process that is no child of this process has got its signal, and may need a moment to end.
            let until = Instant::now() + Duration::from_secs(5);
            while running(mark) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!running(mark), "{script}");
        }
    }

    #[test]
    fn is_killed_when_the_client_is_gone() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(theirs);
        let start = Instant::now();
        let sleeping = program("/bin/sh", &["-c", "sleep 60"], "");
        let error = Direct.run_while(&sleeping, soon(), Some(ours.as_fd())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ECONNRESET as i32));
        assert!(start.elapsed() < Duration::from_secs(3));
    }
}
