//! The client side of the channel.

use crate::message::{Answer, Ask};
use crate::{LONGEST_ANSWER, greeting, line};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt};
use nix::sys::stat::{SFlag, lstat};
use nix::sys::time::TimeVal;
use nix::unistd::geteuid;
use postern_state::{is_passing, kind, trust};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// The command that replaces a native daemon by Postern's service.
pub const SWITCH: &str = "systemctl disable --now cni-dhcp.socket cni-dhcp.service && systemctl enable --now \
                          postern-dhcp.socket postern-dhcp.service";

/// The default socket of the service, and of a native daemon, if `ipam.daemonSocketPath` is absent.
pub const DEFAULT_SOCKET: &str = "/run/cni/dhcp.sock";

/// The reason why the service gives no answer. The text follows the words "the DHCP service at PATH".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// No process serves at the socket.
    #[error("is not there: {0}")]
    Absent(String),
    /// Another user could have made the socket, or another user's process answers.
    #[error("is not to be trusted: {0}")]
    Untrusted(String),
    /// A native daemon serves at the socket. Its protocol is Go's net/rpc, which Postern does not speak.
    #[error("is a native daemon (cni-dhcp.service), which Postern does not ask")]
    Native,
    /// The deadline has passed.
    #[error("did not answer in time")]
    Deadline,
    /// The service has closed the connection.
    #[error("has closed the connection")]
    Closed,
    /// The service's answer can't be understood.
    #[error("has answered nonsense: {0}")]
    Malformed(String),
    /// This process lacks a descriptor or memory, the socket can't be looked at, or a signal came. The error says
    /// nothing about the service.
    #[error("can't be reached at the moment: {0}")]
    NotNow(String),
    /// The socket failed in another way.
    #[error("can't be reached: {0}")]
    Io(String),
}

impl From<Errno> for ServiceError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR => Self::Absent(errno.desc().to_owned()),
            _ if is_passing(errno) => Self::NotNow(errno.desc().to_owned()),
            Errno::EPIPE | Errno::ECONNRESET => Self::Closed,
            Errno::EAGAIN | Errno::ETIMEDOUT => Self::Deadline,
            other => Self::Io(other.desc().to_owned()),
        }
    }
}

/// A connection to the service.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    /// Bytes that were received and not used yet.
    buffer: Vec<u8>,
}

impl Channel {
    /// Connects to the service at `path`. Another user must not be able to change the path to the socket. The serving
    /// process must belong to root or to this user.
    ///
    /// # Errors
    /// [`ServiceError::Absent`] if no process serves at the socket, [`ServiceError::Native`] if a native daemon does,
    /// or another [`ServiceError`].
    pub fn connect(path: &Path, deadline: Instant) -> Result<Self, ServiceError> {
        look(path)?;
        let mut own = Self { stream: open(path, deadline)?, buffer: Vec::new() };
        if own.greet(greeting::OWN, deadline)? == 200 {
            return Ok(own);
        }
        // A native daemon closes the connection after Postern's greeting. A second connection with Go's greeting shows
        // whether the service is a native daemon.
        let mut other = Self { stream: open(path, deadline)?, buffer: Vec::new() };
        match other.greet(greeting::GO, deadline)? {
            200 => Err(ServiceError::Native),
            status => Err(ServiceError::Malformed(format!("its protocol is unknown (status {status})"))),
        }
    }

    /// Sends a request, and waits for the answer. `namespace` is the attachment's network namespace.
    ///
    /// # Errors
    /// See [`ServiceError`]. After an error, the channel can't be used again.
    pub fn ask(
        &mut self,
        ask: &Ask,
        namespace: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<Answer, ServiceError> {
        let mut text = serde_json::to_vec(ask).map_err(|error| ServiceError::Malformed(error.to_string()))?;
        text.push(b'\n');
        line::send(&self.stream, &text, namespace, deadline)?;
        let end = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let answer = line::receive(&self.stream, &mut self.buffer, LONGEST_ANSWER, deadline, end)?;
        serde_json::from_slice(&answer).map_err(|error| ServiceError::Malformed(error.to_string()))
    }

    /// Sends the greeting that names the protocol, and returns the status of the answer.
    fn greet(&mut self, path: &str, deadline: Instant) -> Result<u16, ServiceError> {
        line::send(&self.stream, greeting::call(path).as_bytes(), None, deadline)?;
        let answer = line::receive(&self.stream, &mut self.buffer, greeting::LONGEST, deadline, greeting::end)?;
        let nonsense = || ServiceError::Malformed("its greeting is not that of a DHCP service".to_owned());
        greeting::status(&answer).ok_or_else(nonsense)
    }
}

/// Checks which users could have made the socket.
fn look(path: &Path) -> Result<(), ServiceError> {
    let directory = path.parent().filter(|_| path.is_absolute());
    let directory = directory.ok_or_else(|| ServiceError::Io("its path is not absolute".to_owned()))?;
    // A missing socket is reported before an untrusted directory: the directory may be missing too.
    let found = lstat(path)?;
    trust(directory).map_err(|error| ServiceError::Untrusted(error.to_string()))?;
    if kind(&found) != SFlag::S_IFSOCK {
        return Err(ServiceError::Untrusted("its path is not a socket".to_owned()));
    }
    if found.st_uid != 0 && found.st_uid != geteuid().as_raw() {
        return Err(ServiceError::Untrusted(format!("the socket belongs to user {}", found.st_uid)));
    }
    Ok(())
}

/// Connects, and checks the user of the serving process.
fn open(path: &Path, deadline: Instant) -> Result<UnixStream, ServiceError> {
    let descriptor: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // The timeout also limits the wait for a full queue of connections.
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ServiceError::Deadline);
    }
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    let timeout = TimeVal::new(seconds, i64::from(left.subsec_micros().max(1)));
    setsockopt(&descriptor, sockopt::SendTimeout, &timeout)?;
    connect(descriptor.as_raw_fd(), &UnixAddr::new(path)?)?;
    let server = getsockopt(&descriptor, PeerCredentials)?.uid();
    if server != 0 && server != geteuid().as_raw() {
        return Err(ServiceError::Untrusted(format!("a process of user {server} serves at the socket")));
    }
    Ok(descriptor.into())
}
