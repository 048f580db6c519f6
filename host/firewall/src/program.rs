//! The system's programs: found in fixed places, run with nothing of our environment, and never for longer than allowed.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::FirewallError;

/// Where administrators' programs live. `$PATH` belongs to the runtime that called us, and decides nothing here.
const DIRECTORIES: [&str; 5] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"];

/// The program's path.
///
/// # Errors
/// It is in none of the fixed directories ([`FirewallError::is_program_missing`]).
pub(crate) fn locate(name: &str) -> Result<PathBuf, FirewallError> {
    DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| FirewallError::program_missing(name, &DIRECTORIES.join(", ")))
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// It can't be started, it fails (the hint is what it wrote to standard error), or the deadline passes: then it is
/// killed.
pub(crate) fn run(program: &Path, arguments: &[&str], input: &str, deadline: Instant) -> Result<String, FirewallError> {
    let object = || format!("{} {}", program.display(), arguments.join(" "));
    let io = |error: &std::io::Error| FirewallError::io("run", object(), error);
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(file_with(input).map_err(|error| io(&error))?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io(&error))?;
    let finished = finish(&mut child, deadline);
    if finished.is_err() {
        // An error here means that it has ended meanwhile, which is what is wanted.
        let _ = child.kill();
        let _ = child.wait();
    }
    let (status, output, complaints) = finished.map_err(|error| io(&error))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&output).into_owned());
    }
    let complaints = String::from_utf8_lossy(&complaints);
    Err(FirewallError::new("run", object(), format!("{status}: {}", complaints.trim().replace('\n', "; "))))
}

/// Input of any length that nobody has to feed while output is read.
fn file_with(text: &str) -> std::io::Result<File> {
    let mut file = File::from(memfd_create(c"input", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

type Finished = (std::process::ExitStatus, Vec<u8>, Vec<u8>);

/// Reads both outputs to their ends, then waits for the program's own.
fn finish(child: &mut Child, deadline: Instant) -> std::io::Result<Finished> {
    let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(std::io::Error::from(ErrorKind::BrokenPipe));
    };
    let (mut output, mut complaints) = (Vec::new(), Vec::new());
    let (mut output_open, mut complaints_open) = (true, true);
    let mut piece = [0; 16 * 1024];
    while output_open || complaints_open {
        let remaining = remaining(deadline)?;
        // A negative descriptor would be ignored by poll(2); one that is at its end is left out instead.
        let mut wanted = Vec::with_capacity(2);
        if output_open {
            wanted.push(PollFd::new(stdout.as_fd(), PollFlags::POLLIN));
        }
        if complaints_open {
            wanted.push(PollFd::new(stderr.as_fd(), PollFlags::POLLIN));
        }
        let timeout = PollTimeout::try_from(remaining.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut wanted, timeout) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = wanted.iter().map(|fd| fd.any().unwrap_or(true));
        let output_ready = output_open && ready.next().unwrap_or(false);
        let complaints_ready = complaints_open && ready.next().unwrap_or(false);
        drop(ready);
        if output_ready {
            let length = stdout.read(&mut piece)?;
            output.extend(piece.iter().take(length));
            output_open = length > 0;
        }
        if complaints_ready {
            let length = stderr.read(&mut piece)?;
            complaints.extend(piece.iter().take(length));
            complaints_open = length > 0;
        }
    }
    // Both ends closed: it is exiting.
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, output, complaints));
        }
        remaining(deadline)?;
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn remaining(deadline: Instant) -> std::io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() {
        return Err(Errno::ETIMEDOUT.into());
    }
    Ok(remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn feeds_and_reads_without_a_deadlock() {
        let text = "x".repeat(1 << 20);
        assert_eq!(run(&locate("cat").unwrap(), &[], &text, soon()).unwrap(), text);
    }

    #[test]
    fn complaints_are_in_the_error() {
        let error = run(&locate("sh").unwrap(), &["-c", "echo no >&2; exit 3"], "", soon()).unwrap_err();
        assert_eq!(error.hint, "exit status: 3: no");
    }

    #[test]
    fn the_environment_is_empty() {
        assert_eq!(run(&locate("env").unwrap(), &[], "", soon()).unwrap(), "");
    }

    #[test]
    fn is_killed_at_the_deadline() {
        let start = Instant::now();
        let error = run(&locate("sleep").unwrap(), &["60"], "", start + Duration::from_millis(50)).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_missing_program_is_told_apart() {
        assert!(locate("no-such-program").unwrap_err().is_program_missing());
    }
}
