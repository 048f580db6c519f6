//! A blocking rtnetlink socket: one request and its answer at a time.

use crate::error::{Result, Subject};
use crate::home::cookie;
use netlink_packet_core::{NLM_F_ACK, NLM_F_ECHO};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use postern_netlink::{Connection, DumpLimits, MOST_ATTEMPTS, NetlinkError, NetlinkRequest};
use std::time::{Duration, Instant};

/// The longest time for an answer. The kernel normally answers while the request is being sent, so a wait is rare. But
/// no wait and no request may be endless. This is the limit for a whole request, and for a whole dump with all its
/// repetitions.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The largest number of objects of one dump that are kept. In a container's namespace its root user can make any number,
/// as far as the container's memory goes: the limit only keeps this process from taking as much. Where one link or a few
/// matter, `decode` keeps those alone.
const MOST_OBJECTS: usize = 1024 * 1024;

/// An rtnetlink socket. It works in the namespace in which it was opened, in every thread.
#[derive(Debug)]
pub struct Netlink {
    connection: Connection,
    /// True for a socket in a container: a list that changes without end is taken as it was seen last, and can lack objects.
    may_change: bool,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// Filters of dumps are honoured (`NETLINK_GET_STRICT_CHK`) and errors explained (`NETLINK_EXT_ACK`).
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

    /// As [`Netlink::open`], in a container's namespace. Its root can change links, addresses, routes and rules without end.
    /// That must not prevent any run, so a list is taken as it was seen last. It can lack objects that nobody has changed. So
    /// what is not in it may still be there: nothing may be given to others, or be removed, for that reason. On the node such
    /// a list is an error.
    ///
    /// # Errors
    /// As [`Netlink::open`].
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

    /// Sends requests in one datagram; the kernel carries them out in order. The last one must ask for an
    /// acknowledgement. The kernel continues after a failed request, but that request's error is returned.
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

    /// As [`Netlink::get`], where the kernel may answer without an object. An acknowledgement then ends the answer.
    /// Some answers come only with `NLM_F_ECHO`: the kernel treats them as news for all who listen.
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

    /// Requests many objects, and keeps at most [`MOST_OBJECTS`]. `decode` returns those of one message. It returns `None` if
    /// it can't understand it, and the message is left out.
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
