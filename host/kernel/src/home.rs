//! The calling thread's network namespace, by a socket in it (`SO_NETNS_COOKIE`, `SIOCGSKNS` of linux/sockios.h). A
//! path in `/proc` would take five times as long.
#![allow(unsafe_code, reason = "the request of ioctl(2) has no safe form")]

use crate::error::{Result, Subject};
use crate::namespace::{Namespace, OWN};
use nix::libc;
use nix::sys::socket::{GetSockOpt, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

/// The socket option `SO_NETNS_COOKIE`, since Linux 5.14; `nix` lacks it.
#[derive(Clone, Copy, Debug)]
struct NetnsCookie;
nix::getsockopt_impl!(NetnsCookie, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, u64, sockopt::GetStruct<u64>);

/// A network namespace with its number.
#[derive(Debug)]
pub struct NumberedNamespace {
    /// The namespace.
    pub namespace: Namespace,
    /// The namespace's number, as [`crate::Netlink::cookie`] returns it.
    pub cookie: u64,
}

impl NumberedNamespace {
    /// Opens the calling thread's network namespace.
    ///
    /// # Errors
    /// Too many files are open. `ENOPROTOOPT` on kernels before 5.14. Without `CAP_NET_ADMIN` over the namespace also
    /// the errors of [`Namespace::current`].
    pub fn open() -> Result<Self> {
        let subject = Subject { operation: "open", object: &OWN };
        let socket = UnixDatagram::unbound().map_err(|error| subject.failed(error))?;
        let cookie = cookie(&socket)?;
        let namespace = match namespace_of(&socket) {
            Ok(made) => Namespace::own(made),
            // A process without the capability opens the path in `/proc`.
            Err(_) => Namespace::current().map_err(|error| subject.broken(error.to_string()))?,
        };
        Ok(Self { namespace, cookie })
    }
}

/// Works as [`cookie_of`], with an error that names the object.
pub(crate) fn cookie(socket: &impl AsFd) -> Result<u64> {
    let subject = Subject { operation: "read cookie of", object: &"network namespace" };
    cookie_of(socket).map_err(|error| subject.failed(error))
}

/// Returns the network namespace that a socket, or an open `/dev/net/tun`, keeps alive.
///
/// # Errors
/// The errors of ioctl(2): `EPERM` without `CAP_NET_ADMIN` over the namespace.
pub fn namespace_of(socket: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument, and touches no memory of this process.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCGSKNS as _) } {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just made this descriptor, so it has no other owner.
        made => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
    }
}

/// Returns the number of the network namespace that a socket keeps alive ([`crate::Netlink::cookie`]).
///
/// # Errors
/// The errors of getsockopt(2): `ENOTSOCK` if `socket` is no socket.
pub fn cookie_of(socket: impl AsFd) -> io::Result<u64> {
    NetnsCookie.get(&socket).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Netlink;
    use nix::sched::{CloneFlags, unshare};

    #[test]
    fn a_socket_shows_the_namespace_that_proc_shows() {
        let same = || {
            let home = NumberedNamespace::open().unwrap();
            assert!(home.namespace.same_as(&Namespace::current().unwrap()).unwrap());
            assert_eq!(home.cookie, Netlink::open().unwrap().cookie().unwrap());
            home
        };
        let first = same();
        let second = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            same()
        });
        let second = second.join().unwrap();
        assert!(!first.namespace.same_as(&second.namespace).unwrap());
        assert_ne!(first.cookie, second.cookie);
    }
}
