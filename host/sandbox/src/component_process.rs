//! Reads and compiles a component in a separate process without any other rights.
//!
//! The component is untrusted: nothing has read it before. The process is forked for this purpose, and first gives up
//! everything: Linux capabilities, user, descriptors, environment, and every system call that is not about its own
//! memory. It has limits of memory and time, and can only answer. The caller limits the bytes of the answer. The list
//! of imports is trusted, because its process runs no compiler that a component could attack.
//!
//! The compiler is a program of its own, `postern-compiler`: most of its size is needed nowhere else. A node without the
//! program runs code that was compiled elsewhere.
#![allow(unsafe_code, reason = "fork(2)")]

#[cfg(feature = "compiler")]
use crate::compile::precompile_for;
use crate::confine::{Bounds, confine_to};
pub use crate::read::Contents;
use crate::read::read as read_whole;
use crate::seal::seal_to_memory;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};
use postern_confine::{end_process, fork};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The factor from the process's processor time to its real time: on a busy node the process waits most of the time.
const WAITING: u32 = 6;

/// An answer is its length in eight bytes, then `DONE` or `REFUSED`, then the text. Without the length, a part from a
/// killed process could look like a whole answer.
const DONE: u8 = 0;
const REFUSED: u8 = 1;
/// The number of bytes in an answer besides the text.
const HEAD: u64 = 9;

/// The time for a process to exit after its whole answer.
const EXITING: Duration = Duration::from_secs(5);

/// The largest list of imports, and the longest refusal, in bytes. A component that exceeds this limit is hostile.
const WORDS: u64 = 4 * MIB;

/// Returns the imports of a component and its version.
///
/// # Errors
/// A text for messages: the reason for the refusal, or for the end of the reading process.
pub fn read(wasm: &[u8]) -> Result<Contents, String> {
    let bounds = reading(wasm.len() as u64);
    // The first line is the version. Names of imports have no newline, and a version is cut at a newline.
    let answer = work("reading", wasm, bounds, WORDS, |wasm| match read_whole(wasm) {
        Ok(Contents { imports, version }) => {
            let version = version.as_deref().and_then(|version| version.lines().next()).unwrap_or_default();
            Ok(std::iter::once(version)
                .chain(imports.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join("\n")
                .into_bytes())
        }
        Err(error) => Err(error.to_string()),
    })?;
    let text = String::from_utf8(answer).map_err(|_| "reading the component gave no text".to_owned())?;
    let (version, imports) = text.split_once('\n').unwrap_or((&text, ""));
    Ok(Contents {
        imports: imports.lines().map(str::to_owned).collect(),
        version: Some(version.to_owned()).filter(|version| !version.is_empty()),
    })
}

/// Returns the machine code of a component, for any CPU of an architecture (`x86_64`, `aarch64`) and for
/// [`crate::engine::fingerprint_for`]. `program` is the path of `postern-compiler`.
///
/// # Errors
/// As [`read`], or the program can't be started.
pub fn compile(program: &Path, architecture: &str, wasm: &[u8]) -> Result<Vec<u8>, String> {
    let bounds = compiling(wasm.len() as u64);
    let start = |theirs: UnixStream| {
        let component = in_memory(wasm).map_err(|e| format!("memfd_create: {e}"))?;
        let started = Command::new(program)
            .arg(architecture)
            .env_clear()
            .stdin(component)
            .stdout(OwnedFd::from(theirs))
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        i32::try_from(started.id()).map(Pid::from_raw).map_err(|e| e.to_string())
    };
    answer_of(start, "compiling", wasm.len() as u64, bounds, bounds.memory)
}

/// Returns a file in memory with this content.
fn in_memory(content: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create(c"component", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// The main function of `postern-compiler`, which [`compile`] starts: it reads a component from standard input, and
/// answers through the socket that is its standard output.
#[cfg(feature = "compiler")]
pub fn compile_for_parent(architecture: &str) -> ! {
    let mut wasm = Vec::new();
    let line =
        std::io::stdin().lock().read_to_end(&mut wasm).and_then(|_| std::io::stdout().as_fd().try_clone_to_owned());
    let Ok(line) = line else { end_process(1) };
    let bounds = compiling(wasm.len() as u64);
    child(line.into(), &wasm, bounds, |wasm| match precompile_for(architecture, wasm) {
        Ok(compiled) => Ok(compiled.cwasm),
        Err(error) => Err(error.to_string()),
    })
}

/// A component of 20 MiB is read in 0.3 s (docs/design/install.md).
fn reading(size: u64) -> Bounds {
    Bounds { seconds: 20 + size / MIB, memory: 512 * MIB + 16 * size }
}

/// A component of 20 MiB is compiled in 35 s, in 450 MB. The limits, ten times the time and four times the memory,
/// leave room for other machines and other code.
fn compiling(size: u64) -> Bounds {
    Bounds { seconds: 60 + 15 * (size / MIB), memory: 512 * MIB + 64 * size }
}

/// Does the work in a forked process.
fn work(
    doing: &str,
    wasm: &[u8],
    bounds: Bounds,
    most: u64,
    act: fn(&[u8]) -> Result<Vec<u8>, String>,
) -> Result<Vec<u8>, String> {
    // SAFETY: the child runs `child`, which never returns. It may allocate: the heap keeps its lock usable in the child
    // of a process with threads.
    let start = |theirs: UnixStream| match unsafe { fork() } {
        Ok(ForkResult::Child) => child(theirs, wasm, bounds, act),
        Ok(ForkResult::Parent { child }) => Ok(child),
        Err(errno) => Err(format!("cannot start a process: {errno}")),
    };
    answer_of(start, doing, wasm.len() as u64, bounds, most)
}

/// Starts a process, and returns its answer. `size` is the size of the component in bytes, and `most` the longest answer.
fn answer_of(
    start: impl FnOnce(UnixStream) -> Result<Pid, String>,
    doing: &str,
    size: u64,
    bounds: Bounds,
    most: u64,
) -> Result<Vec<u8>, String> {
    let (ours, theirs) = UnixStream::pair().map_err(|e| format!("{doing} the component: socketpair: {e}"))?;
    let child = start(theirs).map_err(|reason| format!("{doing} the component: {reason}"))?;
    let until = Instant::now() + Duration::from_secs(bounds.seconds) * WAITING;
    let answer = receive(ours, most.saturating_add(HEAD), until);
    let ended = end(child, matches!(answer, Ok(Some(_))));
    let size = size.div_ceil(MIB);
    let way_out = "a smaller component takes less: build it with opt-level = \"s\" and strip = true, or leave out what it \
                   does not use";
    match (answer, ended) {
        (Ok(Some(answer)), _) => match whole(&answer, ended) {
            Some((DONE, answer)) => Ok(answer.to_vec()),
            Some((_, words)) => Err(String::from_utf8_lossy(words).into_owned()),
            None if matches!(ended, Some(WaitStatus::Signaled(_, Signal::SIGXCPU, _))) => Err(format!(
                "{doing} the component takes more than the {} s of processor time that a component of {size} MiB may \
                 take; {way_out}",
                bounds.seconds
            )),
            None => Err(format!(
                "{doing} the component ended without an answer ({}): it needs more than {} MiB, the limit for {size} MiB \
                 of component, or it meets a fault of the compiler; {way_out}",
                words_of(ended),
                bounds.memory / MIB
            )),
        },
        (Ok(None), _) => Err(format!(
            "{doing} the component was not done after {} s, which a component of {size} MiB may take on a busy machine; \
             {way_out}",
            bounds.seconds * u64::from(WAITING)
        )),
        (Err(reason), _) => Err(format!("{doing} the component: {reason}")),
    }
}

/// Returns the two parts of an answer if it is complete and its process ended well.
fn whole(answer: &[u8], ended: Option<WaitStatus>) -> Option<(u8, &[u8])> {
    let (length, rest) = answer.split_first_chunk()?;
    let is_whole = u64::from_le_bytes(*length) == rest.len() as u64;
    let (first, rest) = rest.split_first().filter(|(first, _)| [DONE, REFUSED].contains(first))?;
    (is_whole && matches!(ended, Some(WaitStatus::Exited(_, 0)))).then_some((*first, rest))
}

fn words_of(ended: Option<WaitStatus>) -> String {
    match ended {
        Some(WaitStatus::Signaled(_, signal, _)) => signal.to_string(),
        Some(WaitStatus::Exited(_, status)) => format!("status {status}"),
        _ => "gone".to_owned(),
    }
}

/// Returns everything that the process sends until it closes its end; `None` at the deadline.
fn receive(mut from: UnixStream, most: u64, until: Instant) -> Result<Option<Vec<u8>>, String> {
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if left.is_zero() => return Ok(None),
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(format!("poll: {errno}")),
        }
        match from.read(&mut piece) {
            Ok(0) => return Ok(Some(answer)),
            Ok(length) => answer.extend(piece.iter().take(length)),
            // The process ended with unread input. Its answer is complete.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(Some(answer)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
        if answer.len() as u64 > most {
            return Err(format!("the answer is longer than {most} bytes"));
        }
    }
}

/// Ends the process in any state, because its answer may be false. With `has_said`, the process has sent everything and
/// closed its end, and will exit. Then its exit status decides if the answer is used.
fn end(child: Pid, has_said: bool) -> Option<WaitStatus> {
    let until = Instant::now() + EXITING;
    while has_said && Instant::now() < until {
        match waitpid(child, Some(nix::sys::wait::WaitPidFlag::WNOHANG)) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(1)),
            other => return other.ok(),
        }
    }
    let _ = kill(child, Signal::SIGKILL);
    waitpid(child, None).ok()
}

fn child(line: UnixStream, wasm: &[u8], bounds: Bounds, act: impl FnOnce(&[u8]) -> Result<Vec<u8>, String>) -> ! {
    let line = Arc::new(line);
    let last = Arc::clone(&line);
    panic::set_hook(Box::new(move |panic| answer(&last, Err(format!("a fault of the tools: {panic}")))));
    let confined = confine_to(line.as_fd(), bounds).map_err(|error| error.to_string()).and_then(|()| {
        // The engine is made before the seal, because it installs signal handlers.
        let _ = crate::engine::engine();
        seal_to_memory().map_err(|error| error.to_string())
    });
    answer(&line, confined.map_err(|error| format!("cannot confine the process: {error}")).and_then(|()| act(wasm)))
}

fn answer(mut line: &UnixStream, answer: Result<Vec<u8>, String>) -> ! {
    let (first, rest) = match answer {
        Ok(bytes) => (DONE, bytes),
        Err(words) => (REFUSED, words.into_bytes()),
    };
    let length = (rest.len() as u64).saturating_add(1).to_le_bytes();
    let written = line.write_all(&length).and_then(|()| line.write_all(&[first])).and_then(|()| line.write_all(&rest));
    end_process(i32::from(written.is_err()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Bounds = Bounds { seconds: 1, memory: 64 * MIB };

    #[test]
    fn an_answer_comes_back() {
        assert_eq!(work("x", b"abc", SMALL, 100, |wasm| Ok(wasm.to_vec())), Ok(b"abc".to_vec()));
        assert_eq!(work("x", b"", SMALL, 100, |_| Err("no".to_owned())), Err("no".to_owned()));
        let long = work("x", b"", SMALL, 100, |_| Ok(vec![0; 1000])).unwrap_err();
        assert!(long.contains("longer than"), "{long}");
    }

    /// Writes these bytes to the open descriptor, and ends with this status.
    fn say_and_exit(words: &[u8], status: i32) -> ! {
        for descriptor in 0..64 {
            unsafe { libc::write(descriptor, words.as_ptr().cast(), words.len()) };
        }
        unsafe { libc::_exit(status) }
    }

    #[test]
    fn half_an_answer_is_none() {
        // The earlier format has no length.
        let short = work("x", b"", SMALL, 100, |_| say_and_exit(&[DONE, b'a', b'b'], 0));
        assert!(short.unwrap_err().contains("ended without an answer (status 0)"));
        // The answer is too short.
        let cut = work("x", b"", SMALL, 100, |_| say_and_exit(&[4, 0, 0, 0, 0, 0, 0, 0, DONE, b'a'], 0));
        assert!(cut.unwrap_err().contains("ended without an answer"));
        // The answer is complete, but the process failed.
        let failed = work("x", b"", SMALL, 100, |_| say_and_exit(&[2, 0, 0, 0, 0, 0, 0, 0, DONE, b'a'], 3));
        assert!(failed.unwrap_err().contains("ended without an answer (status 3)"));
        let whole = work("x", b"", SMALL, 100, |_| say_and_exit(&[2, 0, 0, 0, 0, 0, 0, 0, DONE, b'a'], 0));
        assert_eq!(whole, Ok(b"a".to_vec()));
    }

    #[test]
    fn time_and_memory_are_bounded() {
        let endless = work("x", b"", SMALL, 100, |_| {
            loop {
                std::hint::spin_loop();
            }
        });
        let words = endless.unwrap_err();
        assert!(words.contains("the 1 s of processor time that a component of 0 MiB may take"), "{words}");
        let idle = work("x", b"", SMALL, 100, |_| {
            // No system call that waits is allowed: a futex without a waker.
            let never = std::sync::atomic::AtomicU32::new(0);
            loop {
                unsafe { libc::syscall(libc::SYS_futex, never.as_ptr(), libc::FUTEX_WAIT, 0, std::ptr::null::<u8>()) };
            }
        });
        assert!(idle.unwrap_err().contains("not done after 6 s"));
        let hungry = work("x", b"", SMALL, 100, |_| Ok([vec![1_u8; 256 << 20]].concat()));
        let words = hungry.unwrap_err();
        assert!(words.contains("64 MiB") && words.contains("opt-level"), "{words}");
    }

    /// The kernel does not count shared memory as data, and the heap has reserved space before. One limit counts both.
    #[test]
    fn the_limit_of_memory_is_one_for_all_kinds() {
        let taken = work("x", b"", SMALL, 100, |_| {
            let mut taken = 0_usize;
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            while unsafe { libc::mmap(std::ptr::null_mut(), 1 << 20, writable, flags, -1, 0) } != libc::MAP_FAILED {
                taken += 1;
            }
            let mut blocks = Vec::new();
            loop {
                let mut block: Vec<u8> = Vec::new();
                if blocks.len() == 1000 || block.try_reserve_exact(1 << 20).is_err() {
                    break;
                }
                blocks.push(block);
            }
            Ok(format!("{taken} {}", blocks.len()).into_bytes())
        });
        let text = String::from_utf8(taken.unwrap()).unwrap();
        let pieces: Vec<usize> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        // Some blocks come from memory that the parent has used and freed.
        assert!((48..80).contains(&pieces.iter().sum::<usize>()), "shared and private MiB: {text}");
    }

    #[test]
    fn it_can_do_nothing_else() {
        let open = work("x", b"", SMALL, 100, |_| std::fs::read("/proc/self/status").map_err(|e| e.to_string()));
        assert!(open.unwrap_err().contains("not implemented"));
        let mapped = work("x", b"", SMALL, 100, |_| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let executable = libc::PROT_READ | libc::PROT_EXEC;
            let start = unsafe { libc::mmap(std::ptr::null_mut(), 4096, executable, flags, -1, 0) };
            if start == libc::MAP_FAILED { Err("refused".to_owned()) } else { Ok(Vec::new()) }
        });
        assert_eq!(mapped, Err("refused".to_owned()));
        let forked = work("x", b"", SMALL, 100, |_| match unsafe { fork() } {
            Err(errno) => Err(errno.to_string()),
            Ok(_) => Ok(Vec::new()),
        });
        assert!(forked.unwrap_err().contains("ENOSYS"));
    }
}
