//! The sandbox process of a component that imports more of WASI than the plugins that come with Postern.
//!
//! `postern` starts it, with nothing in its environment, and with two descriptors: the channel to the gate and the compiled
//! code. Nobody else has a use for it. It gives up all privileges before it looks at either.
#![allow(unsafe_code, reason = "takes two descriptors that the gate has left open")]

use postern_sandbox::child;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A sealed sandbox can map no memory.
#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::new();

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().and_then(|number| number.parse::<RawFd>().ok()).and_then(open);
    if let (Some(channel), Some(code)) = (next(), next()) {
        // It was started by descriptor, and would have that number for a name.
        // SAFETY: the name is a C string.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"postern-wasi".as_ptr()) };
        child::run_whole(channel, code);
    }
    // Whoever types its name has a terminal.
    let words = b"usage: postern-wasi CHANNEL CODE\npostern starts it for a component that imports all of WASI; `postern help` \
                  shows the commands\n";
    // SAFETY: pointer and length are those of the text.
    unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    std::process::exit(2);
}

/// The descriptor of this number, if there is one. Standard streams are not meant.
fn open(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: asks the kernel, and changes nothing.
    let is_open = number > libc::STDERR_FILENO && unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    // SAFETY: it is open, and this program has opened none that another part of it could own.
    is_open.then(|| unsafe { OwnedFd::from_raw_fd(number) })
}
