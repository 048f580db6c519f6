//! A blocking rtnetlink socket: one request and its answer at a time.

use crate::error::{Result, Subject};
use crate::home::cookie;
use netlink_packet_core::{NLM_F_ACK, NLM_F_ECHO};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use postern_netlink::{Connection, DumpLimits, MOST_ATTEMPTS, NetlinkError, NetlinkRequest};
use std::time::{Duration, Instant};

/// The longest time for an answer. The kernel normally answers while the request is being sent, so a wait is rare. But
/// every wait and every request must end. The limit is for a whole request, or for a whole dump with all its
/// repetitions.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The most objects of one dump that are kept. Root in a container can make as many objects as the container's memory
/// allows. The limit keeps this process from using as much memory. If only a few links matter, `decode` keeps only
/// these links.
const MOST_OBJECTS: usize = 1024 * 1024;

/// An rtnetlink socket. The socket belongs to the namespace in which it was opened, and works in every thread.
#[derive(Debug)]
pub struct Netlink {
    connection: Connection,
    /// True for a socket in a container. If a list keeps changing, its last state is used, which can lack objects.
    may_change: bool,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// Filters of dumps are honoured (`NETLINK_GET_STRICT_CHK`), and errors are explained (`NETLINK_EXT_ACK`).
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` without rtnetlink; `ENOPROTOOPT` on kernels before 5.0.
    pub fn open() -> Result<Self> {
        Connection::open(NETLINK_ROUTE, |socket| {
            socket.set_netlink_get_strict_chk(true)?;
            socket.set_ext_ack(true)
        })
        .map(|connection| Self { connection, may_change: false })
        .map_err(|error| Subject { operation: "open", object: &"netlink socket" }.failed(error))
    }

    /// Works as [`Netlink::open`], in a container's namespace. Root in the container can change links, addresses,
    /// routes and rules all the time. Such changes must not prevent a run, so the last state of a list is used. This
    /// list can lack objects that nobody has changed. So the caller must not remove or assign anything because the list
    /// lacks an object. On the node a list that keeps changing is an error.
    ///
    /// # Errors
    /// The errors of [`Netlink::open`].
    pub fn open_in_container() -> Result<Self> {
        Self::open().map(|netlink| Self { may_change: true, ..netlink })
    }

    /// Returns a number that identifies the socket's network namespace, unique until the node reboots
    /// (`SO_NETNS_COOKIE`).
    ///
    /// # Errors
    /// `ENOPROTOOPT` on kernels before 5.14.
    pub fn cookie(&self) -> Result<u64> {
        cookie(self.connection.socket())
    }

    /// Sends a request and waits for its acknowledgement.
    pub(crate) fn acknowledged(&self, subject: Subject<'_>, message: &RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.batch(subject, &[NetlinkRequest::new(message, flags | NLM_F_ACK)])
    }

    /// Sends requests in one datagram; the kernel carries them out in order. The last request must ask for an
    /// acknowledgement. The kernel continues after a failed request. The error of the failed request is returned.
    pub(crate) fn batch(&self, subject: Subject<'_>, requests: &[NetlinkRequest]) -> Result<()> {
        self.connection.ask(requests, deadline(), |_| {}).map_err(|error| subject.unanswered(error))
    }

    /// Sends requests in one datagram, and returns the error number of each; 0 for success.
    pub(crate) fn answers(&self, subject: Subject<'_>, requests: &[NetlinkRequest]) -> Result<Vec<i32>> {
        self.connection.answers(requests, deadline()).map_err(|error| subject.unanswered(error))
    }

    /// Requests one object.
    pub(crate) fn get<T>(
        &self,
        subject: Subject<'_>,
        message: &RouteNetlinkMessage,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T> {
        let object = self.connection.get(NetlinkRequest::new(message, 0), deadline(), decode);
        object.and_then(|object| object.ok_or(NetlinkError::NotUnderstood)).map_err(|error| subject.unanswered(error))
    }

    /// Works as [`Netlink::get`], but the kernel may answer without an object. An acknowledgement then ends the answer.
    /// Some answers come only with `NLM_F_ECHO`: the kernel treats them as notifications.
    pub(crate) fn find<T>(
        &self,
        subject: Subject<'_>,
        message: &RouteNetlinkMessage,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        let request = NetlinkRequest::new(message, NLM_F_ACK | NLM_F_ECHO);
        let object = self.connection.get(request, deadline(), decode);
        object.map_err(|error| subject.unanswered(error))
    }

    /// Requests many objects, and keeps at most [`MOST_OBJECTS`]. `decode` returns the objects of one message. A
    /// message for which `decode` returns `None` is left out.
    pub(crate) fn dump<T, I: IntoIterator<Item = T>>(
        &self,
        subject: Subject<'_>,
        request: NetlinkRequest,
        decode: impl Fn(&[u8]) -> Option<I>,
    ) -> Result<Vec<T>> {
        let limits = DumpLimits { attempts: MOST_ATTEMPTS, most: MOST_OBJECTS, may_change: self.may_change };
        self.connection.dump(request, deadline(), limits, decode).map_err(|error| subject.unanswered(error))
    }
}

/// Returns the deadline of a request that begins now.
fn deadline() -> Instant {
    Instant::now() + ANSWER_WITHIN
}
