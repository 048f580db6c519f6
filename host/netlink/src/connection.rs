//! The blocking socket: one request and its answer.

use crate::message::{HEADER, Message, Messages};
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_NOOP, NLMSG_OVERRUN, NetlinkHeader, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use nix::libc;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::time::Instant;

/// The size of the buffer at first. The kernel makes a dump's datagram at most 32 KiB long, unless one object is longer: a
/// link with many alternative names can be twice as long. Then the buffer grows.
const BUFFER: usize = 32 * 1024;

/// The longest datagram that is read. An object's lists have lengths of 16 bits, and it has a few of them.
const LONGEST: usize = 16 * 1024 * 1024;

/// The length in bytes from which on a datagram needs a larger send buffer than a socket has.
const LONG: usize = 128 * 1024;

/// The most times that a dump is read: once, and three times more if other processes change it meanwhile, or if the kernel
/// had no room for an object or for an answer.
pub const MOST_ATTEMPTS: usize = 4;

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused, and may have explained it.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Refused {
        /// errno(3).
        errno: i32,
        /// The kernel's own text (extended acknowledgement, `NLMSGERR_ATTR_MSG`).
        explanation: Option<String>,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The deadline passed.
    #[error("the kernel's answer took too long")]
    Late,
    /// The kernel took only a part of the request.
    #[error("the kernel took only a part of the request")]
    Partial,
    /// The answer does not consist of whole messages.
    #[error("the kernel's answer is malformed")]
    Malformed,
    /// The caller could not read an object.
    #[error("the kernel's answer can't be understood")]
    NotUnderstood,
    /// The socket's buffer ran over.
    #[error("the kernel's answer was lost")]
    Lost,
    /// A datagram is longer than the buffer, and lost. The next one can be as long.
    #[error("the kernel's answer of {0} bytes is too long")]
    TooLong(usize),
    /// There are more objects than the caller allows.
    #[error("there are more than {0}")]
    TooMany(usize),
    /// Other processes kept changing the list.
    #[error("the list keeps changing while it is read")]
    Changing,
}

/// A message that is ready to be sent; only its sequence number is missing.
#[derive(Clone, Debug)]
pub struct Request {
    kind: u16,
    flags: u16,
    payload: Vec<u8>,
}

impl Request {
    /// Makes a request of a message from the netlink-packet crates. `NLM_F_REQUEST` is added to the flags.
    pub fn new(message: &impl NetlinkSerializable, flags: u16) -> Self {
        let mut payload = vec![0; message.buffer_len()];
        message.serialize(&mut payload);
        Self::raw(message.message_type(), flags, payload)
    }

    /// Makes a request of a message for which they have no type.
    #[must_use]
    pub fn raw(kind: u16, flags: u16, payload: Vec<u8>) -> Self {
        Self { kind, flags: flags | NLM_F_REQUEST, payload }
    }

    /// Returns type, flags and payload.
    #[must_use]
    pub fn parts(&self) -> (u16, u16, &[u8]) {
        (self.kind, self.flags, &self.payload)
    }

    fn append_to(&self, datagram: &mut Vec<u8>, sequence: u32) {
        let mut header = NetlinkHeader::default();
        header.length = u32::try_from(HEADER.saturating_add(self.payload.len())).unwrap_or(u32::MAX);
        header.message_type = self.kind;
        header.flags = self.flags;
        header.sequence_number = sequence;
        let mut bytes = [0; HEADER];
        header.emit(&mut bytes);
        datagram.extend(bytes);
        datagram.extend(&self.payload);
        datagram.resize(datagram.len().next_multiple_of(4), 0);
    }
}

/// A refusal of one of several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The index of the request.
    pub request: usize,
    /// errno(3).
    pub errno: i32,
}

/// The content of one message of an answer.
enum Answer<'a> {
    Object(&'a [u8]),
    Refused(Message<'a>),
    /// An acknowledgement, or the end of a dump.
    Done,
}

/// A netlink socket. It always acts in the network namespace where it was opened, in every thread.
///
/// It is connected to the kernel and takes messages from no other sender. Otherwise a privileged process in the same
/// namespace could send it answers.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    sequence: Cell<u32>,
    buffer: RefCell<Vec<u8>>,
    /// The sequence number of a dump that was not read to its end. Until then the kernel begins no other one here.
    unfinished: Cell<Option<u32>>,
}

impl Connection {
    /// Opens a socket of this protocol (`NETLINK_ROUTE`, …) in the calling thread's network namespace. `configure` sets
    /// its options.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel has no such protocol, and the errors of `configure`.
    pub fn open(protocol: isize, configure: impl FnOnce(&Socket) -> io::Result<()>) -> io::Result<Self> {
        let socket = Socket::new(protocol)?;
        configure(&socket)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: Cell::new(1), buffer: RefCell::default(), unfinished: Cell::new(None) })
    }

    /// Returns the socket, for its options.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the most bytes of one datagram that the socket sends as it is.
    pub fn room(&self) -> usize {
        // The kernel keeps some bytes for itself.
        getsockopt(&self.socket, sockopt::SndBuf).map_or(LONG, |size| size.saturating_sub(64))
    }

    /// Sends requests in one datagram, and gives every object of the answer to `each`. The kernel carries them out in
    /// order. The last request must be one that is answered.
    ///
    /// If one fails, the kernel still carries out the next, but the error is returned. The result is true if objects
    /// changed while they were listed.
    ///
    /// # Errors
    /// The kernel refuses one, its answer makes no sense, or the deadline passes.
    pub fn ask(&self, requests: &[Request], deadline: Instant, mut each: impl FnMut(&[u8])) -> Result<bool, Error> {
        let first = self.send(requests, None)?;
        let last = first.wrapping_add(u32::try_from(requests.len()).unwrap_or(u32::MAX)).wrapping_sub(1);
        let mut interrupted = false;
        self.receive(first, last, deadline, |message, answer| {
            interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            let ends = match answer {
                Answer::Object(object) => {
                    each(object);
                    message.flags & NLM_F_MULTIPART == 0
                }
                Answer::Refused(message) => return Err(refused(&message)),
                Answer::Done => true,
            };
            Ok(ends && message.sequence == last)
        })?;
        Ok(interrupted)
    }

    /// Asks for one object; `None` if the kernel answers without one.
    ///
    /// # Errors
    /// As [`Connection::ask`], and [`Error::NotUnderstood`] if `read` returns nothing.
    pub fn get<T>(
        &self,
        request: Request,
        deadline: Instant,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let requests = [request];
        let (mut object, mut understood) = (None, true);
        loop {
            let asked = self.ask(&requests, deadline, |payload| {
                object = read(payload);
                understood = object.is_some();
            });
            match asked {
                // There is room now.
                Err(Error::TooLong(length)) if length < LONGEST => {}
                Err(error) => return Err(error),
                Ok(_) if understood => return Ok(object),
                Ok(_) => return Err(Error::NotUnderstood),
            }
        }
    }

    /// Asks for many objects. `read` appends those of one message. An object that it can't understand is left out, and the
    /// others are kept.
    ///
    /// If other processes change them meanwhile, they are read again, `attempts` times in all. If `read` gives more than
    /// `most`, none is kept.
    ///
    /// # Errors
    /// As [`Connection::ask`]; also [`Error::TooMany`] and [`Error::Changing`].
    pub fn dump<T>(
        &self,
        mut request: Request,
        deadline: Instant,
        (attempts, most): (usize, usize),
        read: impl Fn(&[u8], &mut Vec<T>) -> Option<()>,
    ) -> Result<Vec<T>, Error> {
        request.flags |= NLM_F_DUMP;
        let mut left = attempts;
        loop {
            let mut objects = Vec::new();
            let asked = self.dump_once(&request, deadline, |payload| {
                if objects.len() <= most {
                    let whole = objects.len();
                    if read(payload, &mut objects).is_none() {
                        objects.truncate(whole);
                    }
                }
            });
            left = left.saturating_sub(1);
            match asked {
                Ok(_) if objects.len() > most => return Err(Error::TooMany(most)),
                Ok(false) => return Ok(objects),
                // There is room now.
                Err(Error::TooLong(length)) if length < LONGEST => left = left.saturating_add(1),
                Ok(true) if left == 0 => return Err(Error::Changing),
                Ok(true) => {}
                Err(error) if left > 0 && is_short_of_room(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn dump_once(&self, request: &Request, deadline: Instant, mut each: impl FnMut(&[u8])) -> Result<bool, Error> {
        let sequence = self.begin_dump(request, deadline)?;
        let mut interrupted = false;
        self.receive(sequence, sequence, deadline, |message, answer| {
            interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match answer {
                Answer::Object(object) => each(object),
                Answer::Refused(message) => return Err(refused(&message)),
                Answer::Done => return Ok(true),
            }
            Ok(false)
        })?;
        Ok(interrupted)
    }

    /// As [`Connection::dump`], without a limit, until `enough` holds for the objects that were read so far. The flag is
    /// true if all were read. If it is false, the kernel waits with the rest, which the next dump on this socket has to
    /// read first.
    ///
    /// # Errors
    /// As [`Connection::dump`].
    pub fn dump_until<T>(
        &self,
        mut request: Request,
        deadline: Instant,
        read: impl Fn(&[u8]) -> Option<T>,
        mut enough: impl FnMut(&[T]) -> bool,
    ) -> Result<(Vec<T>, bool), Error> {
        request.flags |= NLM_F_DUMP;
        loop {
            let sequence = self.begin_dump(&request, deadline)?;
            let (mut objects, mut interrupted, mut ended) = (Vec::new(), false, false);
            while !ended {
                let mut take = |message: &Message<'_>, answer: Answer<'_>| {
                    interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                    match answer {
                        Answer::Object(object) => objects.extend(read(object)),
                        Answer::Refused(message) => return Err(refused(&message)),
                        Answer::Done => ended = true,
                    }
                    Ok(ended)
                };
                match self.receive_some(sequence, sequence, deadline, &mut take) {
                    Err(Error::TooLong(length)) if length < LONGEST => {
                        interrupted = true;
                        break;
                    }
                    done => drop(done?),
                }
                // Of objects that changed meanwhile, some may have been left out.
                if !ended && !interrupted && enough(&objects) {
                    return Ok((objects, false));
                }
            }
            if !interrupted {
                return Ok((objects, true));
            }
        }
    }

    /// Sends requests that each ask for an acknowledgement, and returns the error number of each one; 0 for success.
    ///
    /// # Errors
    /// As [`Connection::ask`], except the refusals, which are returned.
    pub fn answers(&self, requests: &[Request], deadline: Instant) -> Result<Vec<i32>, Error> {
        let first = self.send(requests, None)?;
        let last = first.wrapping_add(u32::try_from(requests.len()).unwrap_or(u32::MAX)).wrapping_sub(1);
        let mut answers = vec![0; requests.len()];
        self.receive(first, last, deadline, |message, answer| {
            let errno = match answer {
                Answer::Object(_) => return Ok(false),
                Answer::Refused(message) => message.errno(),
                Answer::Done => 0,
            };
            let at = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
            if let Some(answer) = answers.get_mut(at) {
                *answer = errno;
            }
            Ok(message.sequence == last)
        })?;
        Ok(answers)
    }

    /// Sends the requests of one transaction (a batch of nfnetlink), and gives every object that the kernel shows
    /// meanwhile to `each`. Only the request `acknowledged` asks for an acknowledgement.
    ///
    /// Errors come in the order of the requests; an error of the whole transaction comes first, or alone. So the first
    /// error is returned. Success is returned only after all answers: the last request's success means nothing if an
    /// earlier one failed.
    ///
    /// # Errors
    /// As [`Connection::ask`], except the refusals, which are returned.
    pub fn transact(
        &self,
        requests: &[Request],
        acknowledged: usize,
        deadline: Instant,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Option<Refusal>, Error> {
        let first = self.send(requests, Some(acknowledged))?;
        let last = first.wrapping_add(u32::try_from(acknowledged).unwrap_or(u32::MAX));
        let mut refusal = None;
        self.receive(first, last, deadline, |message, answer| {
            let errno = match answer {
                Answer::Object(object) => {
                    each(object);
                    return Ok(false);
                }
                Answer::Refused(message) => message.errno(),
                Answer::Done => 0,
            };
            if errno != 0 && refusal.is_none() {
                let request = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                refusal = Some(Refusal { request, errno });
            }
            Ok(message.sequence == last || message.sequence == first)
        })?;
        Ok(refusal)
    }

    /// Sends requests in one datagram, and returns the first one's sequence number. The kernel carries them out before
    /// this returns, so no deadline can apply.
    fn send(&self, requests: &[Request], acknowledged: Option<usize>) -> Result<u32, Error> {
        let first = self.sequence.get();
        let mut datagram = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let sequence = self.sequence.get();
            let begin = datagram.len();
            request.append_to(&mut datagram, sequence);
            if acknowledged == Some(index)
                && let Some(flags) = datagram.get_mut(begin..).and_then(|message| message.get_mut(6..8))
            {
                flags.copy_from_slice(&(request.flags | NLM_F_ACK).to_ne_bytes());
            }
            self.sequence.set(sequence.wrapping_add(1));
        }
        // The kernel takes no datagram that is longer than the send buffer. A socket begins with some 200 KiB.
        if datagram.len() > LONG {
            let size = datagram.len().saturating_mul(2);
            setsockopt(&self.socket, sockopt::SndBufForce, &size)
                .or_else(|_| setsockopt(&self.socket, sockopt::SndBuf, &size))
                .map_err(io::Error::from)?;
        }
        loop {
            match self.socket.send(&datagram, 0) {
                Ok(sent) if sent == datagram.len() => return Ok(first),
                Ok(_) => return Err(Error::Partial),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives every message that answers a sequence number from `first` to `last` to `take`. It stops when `take` says
    /// that it was the last. At `deadline` it leaves the others unread.
    fn receive(
        &self,
        first: u32,
        last: u32,
        deadline: Instant,
        mut take: impl FnMut(&Message<'_>, Answer<'_>) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        while !self.receive_some(first, last, deadline, &mut take)? {}
        Ok(())
    }

    /// As [`Connection::receive`], for one datagram. Returns true if `take` said that it was the last.
    fn receive_some(
        &self,
        first: u32,
        last: u32,
        deadline: Instant,
        take: &mut impl FnMut(&Message<'_>, Answer<'_>) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let mut buffer = self.buffer.borrow_mut();
        self.receive_datagram(&mut buffer, deadline)?;
        for message in Messages(&buffer) {
            let message = message.map_err(|_| Error::Malformed)?;
            if matches!(message.kind, NLMSG_ERROR | NLMSG_DONE) && self.unfinished.get() == Some(message.sequence) {
                self.unfinished.set(None);
            }
            // The rest of an exchange that ended early, by an error or a timeout.
            if message.sequence.wrapping_sub(first) > last.wrapping_sub(first) {
                continue;
            }
            let answer = match message.kind {
                NLMSG_NOOP => continue,
                NLMSG_OVERRUN => return Err(Error::Lost),
                NLMSG_ERROR | NLMSG_DONE if message.errno() != 0 => Answer::Refused(message),
                NLMSG_ERROR | NLMSG_DONE => Answer::Done,
                _ => Answer::Object(message.payload),
            };
            if take(&message, answer)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends the request of a dump, and returns its sequence number. What is left of an earlier dump is read first: until
    /// then the kernel answers `EBUSY`.
    fn begin_dump(&self, request: &Request, deadline: Instant) -> Result<u32, Error> {
        while let Some(sequence) = self.unfinished.get() {
            match self.receive_some(sequence, sequence, deadline, &mut |_, _| Ok(false)) {
                Ok(_) | Err(Error::TooLong(_) | Error::Malformed | Error::Lost) => {}
                Err(error) => return Err(error),
            }
        }
        let sequence = self.send(std::slice::from_ref(request), None)?;
        self.unfinished.set(Some(sequence));
        Ok(sequence)
    }

    /// Reads one datagram into `buffer`. The kernel answers while the request is being sent, so waiting is the
    /// exception.
    fn receive_datagram(&self, buffer: &mut Vec<u8>, deadline: Instant) -> Result<(), Error> {
        buffer.clear();
        buffer.reserve(BUFFER);
        // With MSG_TRUNC the datagram's full length is returned, even if the buffer was too small for it.
        let mut flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Late);
            }
            match self.socket.recv(buffer, flags) {
                Ok(length) if length == buffer.len() => return Ok(()),
                Ok(length) => {
                    buffer.clear();
                    buffer.reserve(length.min(LONGEST));
                    return Err(Error::TooLong(length));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // A timeout of 0 would mean no timeout.
                    let microseconds = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
                    setsockopt(&self.socket, sockopt::ReceiveTimeout, &TimeVal::microseconds(microseconds))
                        .map_err(io::Error::from)?;
                    flags = libc::MSG_TRUNC;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Makes the error for a refusal.
fn refused(message: &Message<'_>) -> Error {
    Error::Refused { errno: message.errno(), explanation: message.explanation().map(str::to_owned) }
}

/// True if the kernel had no room for an object, or for an answer: an object can have grown while the list was read.
fn is_short_of_room(error: &Error) -> bool {
    match error {
        Error::Refused { errno, .. } => matches!(*errno, libc::EMSGSIZE | libc::ENOBUFS),
        Error::System(error) => error.raw_os_error() == Some(libc::ENOBUFS),
        Error::Lost => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
    use netlink_packet_route::address::{AddressAttribute, AddressMessage};
    use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage, Prop};
    use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
    use netlink_sys::protocols::NETLINK_ROUTE;
    use std::net::IpAddr;
    use std::time::Duration;

    fn open() -> Connection {
        Connection::open(NETLINK_ROUTE, |socket| socket.set_ext_ack(true)).unwrap()
    }

    /// Without a mask of extensions the kernel has no room for a long link in a dump. It ends the dump there, and says
    /// nothing.
    fn links() -> Request {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        Request::new(&RouteNetlinkMessage::GetLink(message), 0)
    }

    fn up(flags: u16) -> Request {
        let mut message = LinkMessage::default();
        message.header.index = 1;
        Request::new(&RouteNetlinkMessage::SetLink(message), flags)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn count(connection: &Connection) -> usize {
        let one = |_: &[u8], all: &mut Vec<()>| {
            all.push(());
            Some(())
        };
        connection.dump(links(), soon(), (MOST_ATTEMPTS, 1000), one).unwrap().len()
    }

    #[test]
    fn only_the_kernel_can_send_answers() {
        let connection = open();
        let mut own = SocketAddr::new(0, 0);
        connection.socket.get_address(&mut own).unwrap();
        assert_ne!(own.port_number(), 0);
        // This process may send to any netlink socket of its namespace, as a container's process may.
        let foreign = Socket::new(NETLINK_ROUTE).unwrap();
        let open = Socket::new(NETLINK_ROUTE).map(|mut socket| (socket.bind_auto().unwrap(), socket)).unwrap();
        foreign.send_to(&[0; 20], &open.0, 0).unwrap();
        let error = foreign.send_to(&[0; 20], &own, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    /// What `read` appended of an object that it can't understand goes too.
    #[test]
    fn an_object_that_is_not_understood_is_left_out() {
        let connection = open();
        let nothing = |_: &[u8], all: &mut Vec<()>| {
            all.push(());
            None
        };
        assert_eq!(connection.dump(links(), soon(), (MOST_ATTEMPTS, 1000), nothing).unwrap(), []);
        assert!(count(&connection) > 0);
    }

    /// The kernel refuses a second dump on a socket with an unfinished one (`EBUSY`).
    #[test]
    fn a_dump_that_was_left_is_read_before_the_next_one() {
        let connection = open();
        // More than one datagram holds.
        for number in 0..=250_u8 {
            for net in [8, 9] {
                let mut message = AddressMessage::default();
                message.header.family = AddressFamily::Inet;
                message.header.prefix_len = 32;
                message.header.index = 1;
                message.attributes.push(AddressAttribute::Local(IpAddr::from([127, net, 0, number])));
                let request = Request::new(&RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | NLM_F_CREATE);
                connection.ask(&[request], soon(), |_| {}).unwrap();
            }
        }
        let addresses = || Request::new(&RouteNetlinkMessage::GetAddress(AddressMessage::default()), 0);
        let (some, whole) = connection.dump_until(addresses(), soon(), |_| Some(()), |_| true).unwrap();
        assert!(!whole && some.len() < 502, "{whole} {}", some.len());
        assert!(connection.unfinished.get().is_some());
        assert!(count(&connection) > 0);
        assert!(connection.unfinished.get().is_none());
        let mut request = links();
        request.flags |= NLM_F_DUMP;
        connection.begin_dump(&request, soon()).unwrap();
        assert!(count(&connection) > 0);
    }

    /// The kernel answers with one object in one datagram, however long. A link can have some 490 alternative names of 127
    /// bytes.
    #[test]
    fn an_answer_of_more_than_32_kib_is_read() {
        for round in ["a", "b"] {
            let mut link = LinkMessage::default();
            link.header.index = 1;
            let names = (0..125).map(|number| Prop::AltIfName(format!("{round}{number:0126}")));
            link.attributes.push(LinkAttribute::PropList(names.collect()));
            let add = Request::new(&RouteNetlinkMessage::NewLinkProp(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
            open().ask(&[add], soon(), |_| {}).unwrap();
        }
        let mut lo = LinkMessage::default();
        lo.header.index = 1;
        lo.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let lo = || Request::new(&RouteNetlinkMessage::GetLink(lo.clone()), 0);
        let length = open().get(lo(), soon(), |link| Some(link.len())).unwrap().unwrap();
        assert!(length > BUFFER, "{length}");
        // In a dump it is one of several.
        let lengths = |link: &[u8], all: &mut Vec<usize>| {
            all.push(link.len());
            Some(())
        };
        let all = open().dump(links(), soon(), (MOST_ATTEMPTS, 1000), lengths).unwrap();
        assert_eq!(all.iter().max(), Some(&length));
        let (all, whole) = open().dump_until(links(), soon(), |link| Some(link.len()), |_| false).unwrap();
        assert!(whole && all.contains(&length));
    }

    /// A list that is longer than allowed is read to its end, and not kept.
    #[test]
    fn long_dumps_are_refused() {
        let connection = open();
        // Each message has as many as allowed, and one of them is enough.
        let many = |more: usize| {
            move |_: &[u8], all: &mut Vec<u8>| {
                all.resize(1000 + more, 0);
                Some(())
            }
        };
        let dump = |more| connection.dump(links(), soon(), (MOST_ATTEMPTS, 1000), many(more));
        assert_eq!(dump(0).unwrap().len(), 1000);
        assert_eq!(dump(1).unwrap_err().to_string(), "there are more than 1000");
        assert_eq!(dump(0).unwrap().len(), 1000);
    }

    /// A list that is read until something holds, which never does, is the whole list.
    #[test]
    fn a_dump_that_has_never_enough_is_whole() {
        let connection = open();
        let (all, whole) = connection.dump_until(links(), soon(), |_| Some(()), |_| false).unwrap();
        assert!(whole && all.len() == count(&connection));
    }

    /// The deadline holds for all messages together, however many come.
    #[test]
    fn an_exchange_has_a_deadline() {
        let connection = open();
        // Another test makes the answer about a link too long for one datagram.
        let request = Request::new(&RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP);
        let before = Instant::now();
        let soon = before + Duration::from_millis(50);
        let late = connection.ask(&[request], soon, |_| std::thread::sleep(Duration::from_millis(60)));
        assert!(matches!(late, Err(Error::Late)), "{late:?}");
        // An acknowledgement that was not requested never comes.
        let before = Instant::now();
        let late = connection.ask(&[up(0)], before + Duration::from_millis(50), |_| {});
        assert!(matches!(late, Err(Error::Late)), "{late:?}");
        assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    }

    #[test]
    fn stale_answers_are_skipped() {
        let connection = open();
        connection.send(&[up(NLM_F_ACK)], None).unwrap();
        assert!(count(&connection) > 0);
    }

    #[test]
    fn sequence_numbers_may_wrap_within_a_batch() {
        let connection = open();
        connection.sequence.set(u32::MAX);
        assert!(!connection.ask(&[up(NLM_F_ACK), up(NLM_F_ACK), up(NLM_F_ACK)], soon(), |_| {}).unwrap());
        assert_eq!(connection.sequence.get(), 2);
    }

    #[test]
    fn the_first_refusal_is_the_one_reported() {
        let connection = open();
        let strange = || Request::raw(u16::MAX, 0, vec![0; 16]);
        let outcome = connection.transact(&[up(0), strange(), strange(), up(0)], 3, soon(), |_| {}).unwrap();
        assert_eq!(outcome, Some(Refusal { request: 1, errno: libc::EOPNOTSUPP }));
        assert_eq!(connection.transact(&[up(0), up(0)], 1, soon(), |_| {}).unwrap(), None);
        let error = connection.ask(&[strange(), up(NLM_F_ACK)], soon(), |_| {}).unwrap_err();
        assert!(matches!(error, Error::Refused { errno: libc::EOPNOTSUPP, .. }), "{error:?}");
    }
}
