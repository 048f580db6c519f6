//! A process that removes empty directories for a client process that has no right to remove directories.
//!
//! The client makes directories, for leases or for native plugins' files, before its confinement. Directories that stay
//! empty are removed again. But the right to remove them would include all neighbouring directories. So the client does
//! not keep this right.
//!
//! Instead, a process is forked before the confinement. The process knows the directories, and the only message to it
//! is "now". The process ends with its client.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use crate::descriptors::close_all_but;
use crate::environment::forget_environment;
use crate::files::{Access, Files};
use crate::filter::{Argument, CallRule, DefaultAction, Filter};
use crate::{CapabilitySet, ConfineError, Confinement};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::ForkResult;
use std::fs::remove_dir;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The only message to the process.
const NOW: [u8; 1] = *b"t";

/// A running process. If this value is dropped, the process ends and all directories stay.
#[derive(Debug)]
pub struct DirectoryRemover {
    channel: UnixStream,
}

impl DirectoryRemover {
    /// Forks the process. The caller must have one thread, and must still have all its rights. In `directories` the
    /// innermost directory comes first.
    ///
    /// # Errors
    /// The kernel can't make a process or a channel.
    pub fn start(directories: &[PathBuf]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: the process has one thread, and the child never returns from `serve`.
        match unsafe { crate::fork() }? {
            ForkResult::Parent { .. } => Ok(Self { channel: ours }),
            ForkResult::Child => {
                drop(ours);
                serve(&theirs, directories)
            }
        }
    }

    /// Tells the process to remove the empty directories, and waits for its end.
    pub fn tidy(self) {
        // A process that has ended has closed its end of the channel, so the write does not wait.
        let _ = (&self.channel).write_all(&NOW);
        let _ = (&self.channel).read(&mut [0]);
    }
}

fn serve(channel: &UnixStream, directories: &[PathBuf]) -> ! {
    let mut word = [0];
    // The end of the client does not count as the message.
    if confine(channel, directories).is_ok() && { channel }.read_exact(&mut word).is_ok() && word == NOW {
        for directory in directories {
            // A directory that is no longer empty is in use.
            let _ = remove_dir(directory);
        }
    }
    crate::end_process(0)
}

fn confine(channel: &UnixStream, directories: &[PathBuf]) -> Result<(), ConfineError> {
    close_all_but(&[channel.as_raw_fd()])?;
    forget_environment();
    set_pdeathsig(Signal::SIGKILL).map_err(|e| ConfineError::new("PR_SET_PDEATHSIG", e))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|e| ConfineError::new("setrlimit", e))?;
    let parents = directories.iter().filter_map(|directory| directory.parent());
    let files = Files::new(parents.map(|parent: &Path| (parent, Access::RemoveEmpty)))?;
    Confinement { capabilities: CapabilitySet::empty(), files, filter: FILTER.ready().clone() }.apply()
}

#[cfg(target_arch = "x86_64")]
const REMOVE: libc::c_long = libc::SYS_rmdir;
#[cfg(not(target_arch = "x86_64"))]
const REMOVE: libc::c_long = libc::SYS_unlinkat;

static FILTER: Filter = Filter::new(&[CALLS], &[RULES], DefaultAction::Absent);

const CALLS: &[libc::c_long] = &[
    libc::SYS_read,       // the message
    libc::SYS_recvfrom,   // the message, with other standard libraries
    REMOVE,               // directories
    libc::SYS_brk,        // memory, if the C library has the heap
    libc::SYS_close,      // the descriptors of Landlock rules
    libc::SYS_exit_group, // the end
];

const RULES: &[CallRule] = &[
    // The heap makes memory writable when a path needs room.
    CallRule(libc::SYS_mprotect, &[Argument::Lacks(2, libc::PROT_EXEC as u32)]),
];
