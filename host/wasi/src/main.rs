//! The sandbox process of a component that imports more of WASI than Postern's own plugins.
//!
//! `postern` starts it, with an empty environment, and with two descriptors: the channel to the gate and the compiled
//! code. No other program can use it. It gives up all privileges before it reads from either descriptor.
#![allow(unsafe_code, reason = "takes two descriptors that the gate has left open")]

use postern_sandbox::child;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A sandbox needs this heap, because a sealed sandbox can map no memory.
#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::new();

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().and_then(|number| number.parse::<RawFd>().ok()).and_then(open);
    if let (Some(channel), Some(code)) = (next(), next()) {
        // The process gets its name here: it was executed by descriptor, and its name would be the descriptor's number.
        // SAFETY: the name is a C string.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"postern-wasi".as_ptr()) };
        child::run_whole(channel, code);
    }
    // Without the two arguments, a person has typed the program's name.
    let words = b"usage: postern-wasi CHANNEL CODE\npostern starts it for a component that imports all of WASI; `postern help` \
                  shows the commands\n";
    // SAFETY: pointer and length are those of the text.
    unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    std::process::exit(2);
}

/// Returns the descriptor of this number, if it is open. Standard streams are refused.
fn open(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: this call only asks the kernel, and changes nothing.
    let is_open = number > libc::STDERR_FILENO && unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    // SAFETY: the descriptor is open, and this program has opened none itself, so no other part of it owns the
    // descriptor.
    is_open.then(|| unsafe { OwnedFd::from_raw_fd(number) })
}
