//! The socket of the service: from systemd, or made by the service.

use crate::leaving::OwnFile;
use crate::options::Options;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockname, getsockopt, listen, socket,
    sockopt,
};
use nix::sys::stat::{Mode, SFlag, fstat, lstat, umask};
use nix::unistd::unlink;
use postern_state::{Dir, kind};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The first descriptor that systemd gives (sd_listen_fds(3)).
const FIRST: i32 = 3;

/// The number of connections that may wait.
const WAITING: i32 = 128;

/// Takes systemd's socket, or makes one, and writes the file with the process ID. Returns the socket, and the files to
/// remove at the end. A socket from systemd is not among these files.
pub fn open(options: &Options) -> Result<(OwnedFd, Vec<OwnFile>), String> {
    let mut own = Vec::new();
    let socket = match given()? {
        Some(socket) => socket,
        None => {
            let socket = make(&options.socket)?;
            own.extend(OwnFile::new(options.socket.clone()));
            socket
        }
    };
    if let Some(path) = &options.pidfile {
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{}", std::process::id()));
        written.map_err(|error| format!("cannot write the process ID to {}: {error}", path.display()))?;
        own.extend(OwnFile::new(path.clone()));
    }
    Ok((socket, own))
}

/// Returns the socket that systemd gives to this process.
fn given() -> Result<Option<OwnedFd>, String> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    if count != 1 {
        return Err(format!("systemd gives {count} sockets instead of one: see postern-dhcp.socket"));
    }
    // SAFETY: by the protocol of sd_listen_fds(3) this process owns the descriptor, and nothing else uses it.
    #[expect(unsafe_code, reason = "a descriptor that systemd hands over by its number")]
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    let is_socket = fstat(&socket).is_ok_and(|stat| kind(&stat) == SFlag::S_IFSOCK);
    if !is_socket || getsockopt(&socket, sockopt::AcceptConn) != Ok(true) {
        return Err("systemd's descriptor is no listening socket: see postern-dhcp.socket".to_owned());
    }
    // The service identifies a client only by the credentials of a UNIX socket.
    let is_local = getsockname::<UnixAddr>(socket.as_raw_fd()).is_ok();
    if !is_local || getsockopt(&socket, sockopt::SockType) != Ok(SockType::Stream) {
        return Err("systemd's descriptor is no UNIX stream socket: see postern-dhcp.socket".to_owned());
    }
    // systemd gives a blocking socket. A wait for a client that has gone meanwhile would stop all leases.
    let listener = UnixListener::from(socket);
    let set = listener.set_nonblocking(true);
    set.map_err(|error| format!("the socket that systemd gives can't be used: {error}"))?;
    Ok(Some(listener.into()))
}

/// Makes the socket. Only the service's user can connect.
fn make(path: &Path) -> Result<OwnedFd, String> {
    let words = |what: &str, errno: Errno| format!("cannot {what} {}: {}", path.display(), errno.desc());
    let directory = path.parent().unwrap_or(Path::new("/"));
    Dir::make(directory, 0o700).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    postern_state::trust(directory).map_err(|error| error.to_string())?;
    let address = UnixAddr::new(path).map_err(|errno| words("name the socket", errno))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let new = || socket(AddressFamily::Unix, SockType::Stream, flags, None);
    if let Ok(found) = lstat(path) {
        if kind(&found) != SFlag::S_IFSOCK {
            return Err(format!("{} is no socket; remove it, or name another path (--socketpath)", path.display()));
        }
        let probe = new().map_err(|errno| words("look at", errno))?;
        if connect(probe.as_raw_fd(), &address) != Err(Errno::ECONNREFUSED) {
            return Err(format!("another DHCP service is at {} already; stop it first", path.display()));
        }
        unlink(path).map_err(|errno| words("replace", errno))?;
    }
    let socket = new().map_err(|errno| words("make", errno))?;
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = bind(socket.as_raw_fd(), &address);
    umask(before);
    bound.map_err(|errno| words("make", errno))?;
    let waiting = Backlog::new(WAITING).map_err(|errno| words("listen at", errno))?;
    listen(&socket, waiting).map_err(|errno| words("listen at", errno))?;
    Ok(socket)
}
