//! A blocking rtnetlink socket: one request, its answer, nothing in flight.

use crate::error::{Result, Subject};
use crate::message::{HEADER, Message, Messages};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
    NLMSG_OVERRUN,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use nix::sys::socket::{GetSockOpt, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// The kernel answers while the request is being sent, so a wait is the exception. Nothing may wait for ever, though, nor
/// go on for ever: a request has this long in all, a dump with everything that has to be read again.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Objects of one dump. In a container's namespace its root can make as many as it likes. In the host's, links are the
/// most that is listed (`gc --node`): a node with 1000 pods has some 2000. Addresses and VLANs are asked for link by link.
const MOST_OBJECTS: usize = 16 * 1024;

/// The kernel never makes a dump's datagram larger than 32 KiB, nor larger than the buffer that it was last read with.
const BUFFER: usize = 32 * 1024;

/// A dump that others keep changing is read once, and again three times at most.
const DUMP_ATTEMPTS: usize = 4;

/// `SO_NETNS_COOKIE` (`asm-generic/socket.h`), since Linux 5.14; the libc crate lacks it.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The socket option of that name; `nix` lacks it.
#[derive(Clone, Copy, Debug)]
struct NetnsCookie;
nix::getsockopt_impl!(NetnsCookie, libc::SOL_SOCKET, SO_NETNS_COOKIE, u64, sockopt::GetStruct<u64>);

/// An rtnetlink socket. It keeps acting in the namespace that it was opened in, whichever thread uses it.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: Cell<u32>,
    buffer: RefCell<Vec<u8>>,
}

/// A message ready to be sent but for its sequence number.
pub(crate) struct Request {
    kind: u16,
    flags: u16,
    payload: Vec<u8>,
}

impl Request {
    /// A message of rtnetlink's builders. `NLM_F_REQUEST` is added to the flags.
    pub fn new(message: &RouteNetlinkMessage, flags: u16) -> Self {
        use netlink_packet_core::Emitable;
        let mut payload = vec![0; message.buffer_len()];
        message.emit(&mut payload);
        Self::raw(message.message_type(), flags, payload)
    }

    /// A message that netlink-packet-route has no type for.
    pub fn raw(kind: u16, flags: u16, payload: Vec<u8>) -> Self {
        Self { kind, flags: flags | NLM_F_REQUEST, payload }
    }

    fn append_to(&self, bytes: &mut Vec<u8>, sequence: u32) {
        let length = HEADER.saturating_add(self.payload.len());
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }

    #[cfg(test)]
    pub fn parts(&self) -> (u16, u16, &[u8]) {
        (self.kind, self.flags, &self.payload)
    }
}

/// How an exchange went that the kernel did not refuse.
#[derive(Default)]
struct Outcome {
    /// The objects changed while they were being listed.
    interrupted: bool,
    /// At least one answer could not be understood.
    malformed: bool,
}

impl Netlink {
    /// A socket in the calling thread's network namespace.
    ///
    /// Filters of dumps are honoured (`NETLINK_GET_STRICT_CHK`) and errors explained (`NETLINK_EXT_ACK`). Being
    /// connected to the kernel, the socket takes messages from nobody else: a privileged process in the same namespace
    /// could otherwise send it answers.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` without rtnetlink; `ENOPROTOOPT` on kernels before 5.0.
    pub fn open() -> Result<Self> {
        Self::configured().map_err(|error| Subject { operation: "open", object: &"netlink socket" }.failed(&error))
    }

    fn configured() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_netlink_get_strict_chk(true)?;
        socket.set_ext_ack(true)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: Cell::new(1), buffer: RefCell::default() })
    }

    /// A number that names the socket's network namespace, unique until the machine reboots (`SO_NETNS_COOKIE`).
    ///
    /// # Errors
    /// `ENOPROTOOPT` on kernels before 5.14.
    pub fn cookie(&self) -> Result<u64> {
        NetnsCookie.get(&self.socket).map_err(|errno| {
            Subject { operation: "read cookie of", object: &"network namespace" }.refused(errno as i32, None)
        })
    }

    /// Sends a request and waits for its acknowledgement.
    pub(crate) fn acknowledged(&self, subject: Subject<'_>, message: &RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.batch(subject, &[Request::new(message, flags | NLM_F_ACK)])
    }

    /// Sends requests in one datagram, to be carried out in order; the last one must ask for an acknowledgement. One
    /// that fails does not keep the kernel from the next, but its error is the one reported.
    pub(crate) fn batch(&self, subject: Subject<'_>, requests: &[Request]) -> Result<()> {
        self.exchange(subject, requests, deadline(), |_| Some(())).map(drop)
    }

    /// Asks for one object.
    pub(crate) fn get<T>(
        &self,
        subject: Subject<'_>,
        message: &RouteNetlinkMessage,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T> {
        let mut object = None;
        self.exchange(subject, &[Request::new(message, 0)], deadline(), |payload| {
            object = decode(payload);
            object.as_ref().map(drop)
        })?;
        object.ok_or_else(|| subject.broken("the kernel's answer can't be understood"))
    }

    /// Asks for many objects; `decode` appends those of one message, and returns `None` if it can't understand it.
    ///
    /// There may be [`MOST_OBJECTS`]. Of more none is kept, but they are read.
    pub(crate) fn dump<T>(
        &self,
        subject: Subject<'_>,
        mut request: Request,
        decode: impl Fn(&[u8], &mut Vec<T>) -> Option<()>,
    ) -> Result<Vec<T>> {
        request.flags |= NLM_F_DUMP;
        let requests = [request];
        let deadline = deadline();
        for _ in 0..DUMP_ATTEMPTS {
            let mut objects = Vec::new();
            let outcome = self.exchange(subject, &requests, deadline, |payload| {
                if objects.len() > MOST_OBJECTS { Some(()) } else { decode(payload, &mut objects) }
            })?;
            if objects.len() > MOST_OBJECTS {
                return Err(subject.broken(format!("there are more than {MOST_OBJECTS}")));
            }
            if outcome.malformed {
                return Err(subject.broken("the kernel's answer can't be understood"));
            }
            if !outcome.interrupted {
                return Ok(objects);
            }
        }
        Err(subject.refused(nix::errno::Errno::EAGAIN as i32, Some("the list keeps changing while it is read")))
    }

    /// Sends `requests` and hands every answer's payload to `each`, until the kernel says that it is done. A message
    /// that `each` refuses is noted only: a dump must be read to its end, or the socket stays busy. At `deadline` that is
    /// the lesser evil.
    fn exchange(
        &self,
        subject: Subject<'_>,
        requests: &[Request],
        deadline: Instant,
        mut each: impl FnMut(&[u8]) -> Option<()>,
    ) -> Result<Outcome> {
        let first = self.sequence.get();
        let mut last = first;
        let mut bytes = Vec::new();
        for request in requests {
            last = self.sequence.get();
            request.append_to(&mut bytes, last);
            self.sequence.set(last.wrapping_add(1));
        }
        let sent = loop {
            match self.socket.send(&bytes, 0) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result.map_err(|error| subject.failed(&error))?,
            }
        };
        if sent != bytes.len() {
            return Err(subject.broken("the kernel took only a part of the request"));
        }

        let mut outcome = Outcome::default();
        let mut buffer = self.buffer.borrow_mut();
        loop {
            self.receive(subject, &mut buffer, deadline)?;
            for message in Messages(&buffer) {
                let message = message.map_err(|_| subject.broken("the kernel's answer is malformed"))?;
                // Left over from an exchange that ended early, by an error or a timeout.
                if message.sequence.wrapping_sub(first) > last.wrapping_sub(first) {
                    continue;
                }
                if self.digest(subject, &message, &mut outcome, &mut each)? && message.sequence == last {
                    return Ok(outcome);
                }
            }
        }
    }

    /// Takes in one message; true if it was the last of its request's answer.
    fn digest(
        &self,
        subject: Subject<'_>,
        message: &Message<'_>,
        outcome: &mut Outcome,
        each: &mut impl FnMut(&[u8]) -> Option<()>,
    ) -> Result<bool> {
        outcome.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
        match message.kind {
            NLMSG_NOOP => Ok(false),
            NLMSG_ERROR | NLMSG_DONE if message.errno() != 0 => {
                Err(subject.refused(message.errno(), message.explanation()))
            }
            NLMSG_ERROR | NLMSG_DONE => Ok(true),
            NLMSG_OVERRUN => Err(subject.broken("the kernel's answer was lost")),
            _ => {
                outcome.malformed |= each(message.payload).is_none();
                Ok(message.flags & NLM_F_MULTIPART == 0)
            }
        }
    }

    /// Reads one datagram into `buffer`.
    fn receive(&self, subject: Subject<'_>, buffer: &mut Vec<u8>, deadline: Instant) -> Result<()> {
        buffer.clear();
        buffer.reserve(BUFFER);
        // With MSG_TRUNC the datagram's true length is returned even if the buffer was too small for it.
        let mut flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(
                    subject.broken(format!("the kernel's answer took more than {} seconds", ANSWER_WITHIN.as_secs()))
                );
            }
            match self.socket.recv(buffer, flags) {
                Ok(length) if length == buffer.len() => return Ok(()),
                Ok(length) => {
                    return Err(subject.broken(format!("the kernel's answer of {length} bytes is too long")));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // No timeout at all would be that of nought.
                    let microseconds = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
                    setsockopt(&self.socket, sockopt::ReceiveTimeout, &TimeVal::microseconds(microseconds))
                        .map_err(|errno| subject.refused(errno as i32, None))?;
                    flags = libc::MSG_TRUNC;
                }
                Err(error) => return Err(subject.failed(&error)),
            }
        }
    }
}

/// That of a request that is made now.
fn deadline() -> Instant {
    Instant::now() + ANSWER_WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::LinkMessage;

    fn links() -> Request {
        Request::new(&RouteNetlinkMessage::GetLink(LinkMessage::default()), 0)
    }

    const LIST: Subject<'static> = Subject { operation: "list", object: &"links" };

    #[test]
    fn only_the_kernel_can_send_answers() {
        let netlink = Netlink::open().unwrap();
        let mut own = SocketAddr::new(0, 0);
        netlink.socket.get_address(&mut own).unwrap();
        assert_ne!(own.port_number(), 0);
        // This process may send to any netlink socket of its namespace, as a container's may to those opened there.
        let stranger = Socket::new(NETLINK_ROUTE).unwrap();
        let open = Socket::new(NETLINK_ROUTE).map(|mut socket| (socket.bind_auto().unwrap(), socket)).unwrap();
        stranger.send_to(&[0; 20], &open.0, 0).unwrap();
        let error = stranger.send_to(&[0; 20], &own, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_dump_that_is_not_understood_is_read_to_its_end() {
        let netlink = Netlink::open().unwrap();
        let error = netlink.dump(LIST, links(), |_, _: &mut Vec<()>| None).unwrap_err();
        assert_eq!((error.errno, error.message.as_str()), (None, "the kernel's answer can't be understood"));
        // An unfinished dump would make this one EBUSY.
        assert!(
            !netlink
                .dump(LIST, links(), |_, all| {
                    all.push(());
                    Some(())
                })
                .unwrap()
                .is_empty()
        );
    }

    /// A list that is longer than what is wanted is read to its end, and not kept.
    #[test]
    fn long_dumps_are_refused() {
        let netlink = Netlink::open().unwrap();
        // Each message has as many as there may be, and one of them is enough.
        let many = |more: usize| {
            move |_: &[u8], all: &mut Vec<u8>| {
                all.resize(MOST_OBJECTS + more, 0);
                Some(())
            }
        };
        assert_eq!(netlink.dump(LIST, links(), many(0)).unwrap().len(), MOST_OBJECTS);
        let error = netlink.dump(LIST, links(), many(1)).unwrap_err();
        assert_eq!(error.to_string(), "list links: there are more than 16384");
        // An unfinished dump would make this one EBUSY.
        assert_eq!(netlink.dump(LIST, links(), many(0)).unwrap().len(), MOST_OBJECTS);
    }

    /// However many messages come, each within the time for a single one.
    #[test]
    fn an_exchange_has_a_deadline() {
        let netlink = Netlink::open().unwrap();
        let mut request = links();
        request.flags |= NLM_F_DUMP;
        let before = Instant::now();
        let soon = before + Duration::from_millis(50);
        let error = netlink
            .exchange(LIST, &[request], soon, |_| {
                std::thread::sleep(Duration::from_millis(60));
                Some(())
            })
            .err()
            .unwrap();
        assert_eq!(error.to_string(), "list links: the kernel's answer took more than 5 seconds");
        // An acknowledgement that nobody asked for never comes.
        let silent = Request::new(&RouteNetlinkMessage::SetLink(up()), 0);
        let before = Instant::now();
        let error = netlink.exchange(LIST, &[silent], before + Duration::from_millis(50), |_| Some(())).err().unwrap();
        assert_eq!(error.to_string(), "list links: the kernel's answer took more than 5 seconds");
        assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    }

    fn up() -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = 1;
        message
    }

    #[test]
    fn stale_answers_are_skipped() {
        let netlink = Netlink::open().unwrap();
        let mut bytes = Vec::new();
        Request::new(&RouteNetlinkMessage::SetLink(LinkMessage::default()), NLM_F_ACK).append_to(&mut bytes, 0);
        netlink.socket.send(&bytes, 0).unwrap();
        assert!(
            !netlink
                .dump(LIST, links(), |_, all| {
                    all.push(());
                    Some(())
                })
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn sequence_numbers_may_wrap_within_a_batch() {
        let netlink = Netlink::open().unwrap();
        netlink.sequence.set(u32::MAX);
        let up = || Request::new(&RouteNetlinkMessage::SetLink(up()), NLM_F_ACK);
        netlink.batch(LIST, &[up(), up(), up()]).unwrap();
        assert_eq!(netlink.sequence.get(), 2);
    }
}
