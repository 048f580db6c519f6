//! The live network namespaces, with their links and addresses.
//!
//! A namespace lives while something keeps it:
//!
//! * a process or thread in it: `/proc/*/task/*/ns/net`;
//! * a mount (`ip netns add`, and every container runtime): the mounts of nsfs in every mount namespace of a process;
//! * an open file of a process: the namespace itself, a socket that was opened in it, an open `/dev/net/tun`.
//!
//! All these are searched. Other things that keep a namespace alive can't be seen. Examples are a descriptor in a
//! message of a socket, a detached tree of mounts, and a network file system that was mounted in the namespace.
//!
//! Places that can't be examined are reported as [`UnreadablePlace`]. If there are such places, a caller must not
//! conclude that something is *in no namespace*. Containers control their namespaces and paths. So every step is
//! bounded, only namespaces are opened, and the whole search has a deadline.
#![expect(clippy::disallowed_methods, reason = "the search reads `/proc` and the mounts of processes")]

mod descriptors;
mod mounts;
mod search;

use crate::search::{Search, reason};
use postern_kernel::{Link, LinkAddress};
use postern_types::Route;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// A network namespace that is alive.
#[derive(Clone, Debug, Default)]
pub struct LiveNamespace {
    /// Device and inode of nsfs.
    pub identity: (u64, u64),
    /// The namespace's number, unique until the node reboots; see [`postern_kernel::Netlink::cookie`].
    pub cookie: u64,
    /// A path that led to the namespace: a mount that this process sees, if there is one. Processes in the namespace
    /// can change a path below `/proc/PID/root`. So such a path must not be opened again.
    pub path: PathBuf,
    /// The number of processes with at least one thread in the namespace.
    pub processes: usize,
    /// A process in the namespace.
    pub process: Option<u32>,
    /// The namespace's links.
    pub links: Vec<Link>,
    /// Addresses of all links, each with the link's index.
    pub addresses: Vec<(u32, LinkAddress)>,
    /// The reason why links or addresses may be missing: for example, there are too many, or root in the container
    /// keeps changing them.
    pub unread: Option<String>,
    /// The namespace's unicast routes, each with its link's index; `None` if routes were not requested, or are too
    /// many.
    pub routes: Option<Vec<(u32, Route)>>,
}

/// A place that may lead to a namespace but could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadablePlace {
    /// The place.
    pub path: PathBuf,
    /// The kernel's error.
    pub reason: String,
}

/// The result of [`Namespaces::find`].
#[derive(Clone, Debug)]
pub struct Namespaces {
    /// Each namespace once.
    pub found: Vec<LiveNamespace>,
    /// The numbers of namespaces that only sockets keep alive, and that could not be entered. Each has the path of such
    /// a socket.
    pub held: BTreeMap<u64, PathBuf>,
    /// The places that could not be looked at, up to a maximum.
    pub unseen: Vec<UnreadablePlace>,
    /// The number of further such places above the maximum.
    pub more_unseen: usize,
    /// True if this process is in its own PID namespace. Then processes outside are not seen, and no error reports
    /// this.
    pub enclosed: bool,
}

impl Namespaces {
    /// Examines all namespaces that can be found, from a new thread; the calling thread stays in its namespace. Takes
    /// about 30 µs per process, 2 µs per open file and 200 µs per namespace, but at most about `within`. Places that
    /// were not reached in time are unseen. Routes are read only in the namespaces with the cookies `routes_of`.
    ///
    /// # Errors
    /// The errors of `clone(2)`, and of reading `/proc`.
    pub fn find(within: Duration, routes_of: BTreeSet<u64>) -> Result<Self, String> {
        let failed = |reason: String| format!("look for network namespaces: {reason}");
        let deadline = Instant::now() + within;
        let thread = thread::Builder::new()
            .name("namespaces".to_owned())
            .spawn(move || Search::new(deadline, Some(routes_of)).and_then(Search::run))
            .map_err(|error| failed(reason(&error)))?;
        let result = thread.join().map_err(|_| failed("the search thread failed".to_owned()))?;
        result.map_err(|error| failed(reason(&error)))
    }

    /// Finds the numbers of all namespaces, from the calling thread. The thread does not return to its namespace. So
    /// the process must have a single thread, and must end after the answer.
    ///
    /// # Errors
    /// As [`Namespaces::find`].
    pub fn numbers(deadline: Instant) -> Result<Self, String> {
        let found = Search::new(deadline, None).and_then(Search::run);
        found.map_err(|error| format!("look for network namespaces: {}", reason(&error)))
    }

    /// True if everything could be examined. Then a namespace that was not found does not exist.
    pub fn is_complete(&self) -> bool {
        self.gap().is_none()
    }

    /// Returns a sentence for messages about the missing places; `None` if everything could be examined.
    pub fn gap(&self) -> Option<String> {
        let unread = |found: &LiveNamespace| Some(format!("{}: {}", found.path.display(), found.unread.as_ref()?));
        self.gap_of_search().or_else(|| self.found.iter().find_map(unread))
    }

    /// As [`Namespaces::gap`], if only the numbers of namespaces matter, and not their links and addresses.
    pub fn gap_of_search(&self) -> Option<String> {
        let Some(first) = self.unseen.first() else {
            return self.enclosed.then(|| "processes outside of this PID namespace can't be seen from here".to_owned());
        };
        let mut gap = format!("{}: {}", first.path.display(), first.reason);
        let others = self.unseen.len().saturating_sub(1).saturating_add(self.more_unseen);
        if others > 0 {
            gap += &format!(" (and {others} more that could not be looked at)");
        }
        Some(gap)
    }

    /// Returns the namespace with this cookie.
    pub fn by_cookie(&self, cookie: u64) -> Option<&LiveNamespace> {
        self.found.iter().find(|found| found.cookie == cookie)
    }

    /// True if something keeps the namespace with this cookie alive.
    pub fn is_alive(&self, cookie: u64) -> bool {
        self.held.contains_key(&cookie) || self.by_cookie(cookie).is_some()
    }

    /// Returns a namespace that has this address.
    pub fn with_address(&self, address: IpAddr) -> Option<&LiveNamespace> {
        self.found.iter().find(|found| found.addresses.iter().any(|(_, have)| have.net.addr() == address))
    }
}
