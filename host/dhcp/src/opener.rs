//! The process that opens namespaces by their paths. The service itself can open only its own files. The path of a
//! namespace may be anywhere, and a path below `/proc/PID` needs rights over that process.
//!
//! The process opens namespaces, and sends their descriptors. It has no system call that reads, changes or maps a file.

use crate::confine;
use crate::connections::receive;
use crate::namespace::{Identity, identity};
use crate::process::{Task, TaskProcess};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, recv, send, sendmsg};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use postern_kernel::{Namespace, OpenError};
use rustix::net::RecvFlags;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The longest path, in bytes, as in the kernel.
const LONGEST: usize = 4096;

/// The answer with a descriptor.
const OPENED: &[u8] = b"opened";
/// The answer for a path that leads nowhere.
const GONE: &[u8] = b"gone";

/// The reason why a namespace was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// The path leads nowhere.
    Gone,
    /// Another reason, in words.
    Refused(String),
}

const TASK: Task = Task { words: "the process that opens namespaces", name: c"dhcp namespaces", inherits: &[0, 1, 2] };

/// The service's handle of the process.
#[derive(Debug)]
pub struct Opener(pub TaskProcess);

impl Opener {
    /// Forks the process. The calling process must have a single thread.
    pub fn start() -> Result<Self, String> {
        TASK.start(confine::opener, run).map(Self)
    }

    /// Opens the namespace at `path`.
    pub fn open(&self, path: &str) -> Result<(OwnedFd, Identity), NotOpened> {
        if path.is_empty() || path.len() > LONGEST {
            return Err(NotOpened::Gone);
        }
        let failed = |errno: Errno| NotOpened::Refused(format!("the process that opens namespaces: {errno}"));
        send(self.0.line.as_raw_fd(), path.as_bytes(), MsgFlags::MSG_NOSIGNAL).map_err(failed)?;
        let mut words = vec![0; LONGEST];
        let (length, descriptors) = receive(&self.0.line, &mut words, RecvFlags::empty()).map_err(failed)?;
        match (words.get(..length).unwrap_or_default(), descriptors.into_iter().next()) {
            (OPENED, Some(descriptor)) => {
                let identity = identity(&descriptor).map_err(failed)?;
                Ok((descriptor, identity))
            }
            (GONE, _) => Err(NotOpened::Gone),
            (words, _) => Err(NotOpened::Refused(String::from_utf8_lossy(words).into_owned())),
        }
    }
}

fn run(socket: &UnixStream) {
    let mut path = vec![0; LONGEST];
    loop {
        match recv(socket.as_raw_fd(), &mut path, MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            Ok(0) | Err(_) => return,
            Ok(length) => {
                let path = String::from_utf8_lossy(path.get(..length).unwrap_or_default()).into_owned();
                if answer(socket, &path).is_err() {
                    return;
                }
            }
        }
    }
}

/// Opens a namespace, and sends the answer.
fn answer(socket: &UnixStream, path: &str) -> nix::Result<()> {
    let opened = Namespace::open(path).and_then(|namespace| {
        // A path below /proc may lead to any file; only a namespace is handed out.
        match fstatfs(namespace.fd()) {
            Ok(status) if status.filesystem_type() == NSFS_MAGIC => Ok(namespace),
            _ => Err(OpenError::NotNamespace(path.to_owned(), 0)),
        }
    });
    let to = socket.as_raw_fd();
    match opened {
        Ok(namespace) => {
            let descriptors = [namespace.fd().as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&descriptors)];
            sendmsg::<()>(to, &[IoSlice::new(OPENED)], &rights, MsgFlags::MSG_NOSIGNAL, None).map(drop)
        }
        Err(OpenError::NotExist { .. }) => send(to, GONE, MsgFlags::MSG_NOSIGNAL).map(drop),
        Err(error) => {
            let words: String = error.to_string().chars().take(1000).collect();
            send(to, words.as_bytes(), MsgFlags::MSG_NOSIGNAL).map(drop)
        }
    }
}
