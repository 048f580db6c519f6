//! The start of the program, in place of the standard library's start. The standard library also prepares a stack and
//! two signal handlers, which print a message when a stack overflows. This takes 13 to 25 µs of a run (docs/decisions,
//! number 12). Without these handlers, an overflow ends the process by `SIGSEGV` instead of `SIGABRT`.
#![allow(unsafe_code, reason = "the C library calls main(), and gives pointers")]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// The function that the C library calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    fill_standard_descriptors();
    // A runtime that has closed a pipe must not end the run.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the C library gives `count` texts (execve(2)), and they stay for the life of the process.
    let arguments = (0..count).map(|at| unsafe { CStr::from_ptr(*arguments.add(at)) });
    crate::run(arguments.map(|argument| OsString::from(OsStr::from_bytes(argument.to_bytes()))).collect());
    std::process::exit(0)
}

/// Opens `/dev/null` for each standard descriptor that the runtime has left closed. Otherwise the next file that is
/// opened would get such a number, and could be written to as standard output.
fn fill_standard_descriptors() {
    let mut standard = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the array is valid, and has this length.
    let asked = loop {
        match unsafe { libc::poll(standard.as_mut_ptr(), 3, 0) } {
            -1 if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            asked => break asked,
        }
    };
    for one in standard {
        // With a limit of open files below 3, the kernel refuses poll(2). Then each descriptor is checked alone.
        // SAFETY: both calls use no memory except the constant path.
        unsafe {
            let is_closed =
                if asked < 0 { libc::fcntl(one.fd, libc::F_GETFD) < 0 } else { one.revents & libc::POLLNVAL != 0 };
            if is_closed && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) < 0 {
                libc::abort();
            }
        }
    }
}
