//! Exchanges with the real kernel.

use super::receive::BUFFER;
use super::*;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage, Prop};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc;
use std::net::IpAddr;
use std::time::Duration;

fn open() -> Connection {
    Connection::open(NETLINK_ROUTE, |socket| socket.set_ext_ack(true)).unwrap()
}

/// Without a mask of extensions the kernel has no room for a long link in a dump. The kernel ends the dump there,
/// without an error.
fn links() -> NetlinkRequest {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    NetlinkRequest::new(&RouteNetlinkMessage::GetLink(message), 0)
}

fn up(flags: u16) -> NetlinkRequest {
    let mut message = LinkMessage::default();
    message.header.index = 1;
    NetlinkRequest::new(&RouteNetlinkMessage::SetLink(message), flags)
}

/// The limits of an ordinary list.
fn limits() -> DumpLimits {
    DumpLimits { attempts: MOST_ATTEMPTS, most: 1000, may_change: false }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

fn count(connection: &Connection) -> usize {
    connection.dump(links(), soon(), limits(), |_| Some([()])).unwrap().len()
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

#[test]
fn an_object_that_is_not_understood_is_left_out() {
    let connection = open();
    assert_eq!(connection.dump(links(), soon(), limits(), |_| None::<[u8; 1]>).unwrap(), []);
    assert!(count(&connection) > 0);
}

/// A request that adds this address to `lo`, or removes it.
fn address(address: [u8; 4], there: bool) -> NetlinkRequest {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 32;
    message.header.index = 1;
    message.attributes.push(AddressAttribute::Local(IpAddr::from(address)));
    match there {
        true => NetlinkRequest::new(&RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | NLM_F_CREATE),
        false => NetlinkRequest::new(&RouteNetlinkMessage::DelAddress(message), NLM_F_ACK),
    }
}

/// Another test may have made the address before.
fn is_there(made: Result<(), NetlinkError>) {
    assert!(matches!(made, Ok(()) | Err(NetlinkError::Refused { errno: libc::EEXIST, .. })), "{made:?}");
}

/// Makes more addresses than one datagram holds.
fn make_addresses() {
    let connection = open();
    for number in 0..=250_u8 {
        for net in [8, 9] {
            is_there(connection.ask(&[address([127, net, 0, number], true)], soon(), |_| {}));
        }
    }
}

fn addresses() -> NetlinkRequest {
    NetlinkRequest::new(&RouteNetlinkMessage::GetAddress(AddressMessage::default()), 0)
}

/// Gives `lo` so many alternative names that an answer about it is longer than 32 KiB.
fn make_long() {
    for round in ["a", "b"] {
        let mut link = LinkMessage::default();
        link.header.index = 1;
        let names = (0..125).map(|number| Prop::AltIfName(format!("{round}{number:0126}")));
        link.attributes.push(LinkAttribute::PropList(names.collect()));
        let add = NetlinkRequest::new(&RouteNetlinkMessage::NewLinkProp(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
        is_there(open().ask(&[add], soon(), |_| {}));
    }
}

fn lo() -> NetlinkRequest {
    let mut lo = LinkMessage::default();
    lo.header.index = 1;
    lo.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    NetlinkRequest::new(&RouteNetlinkMessage::GetLink(lo), 0)
}

/// The kernel refuses a second dump on a socket with an unfinished dump (`EBUSY`).
#[test]
fn a_dump_that_was_left_is_read_before_the_next_one() {
    let connection = open();
    make_addresses();
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
    make_long();
    let length = open().get(lo(), soon(), |link| Some(link.len())).unwrap().unwrap();
    assert!(length > BUFFER, "{length}");
    // In a dump the long object is one of several.
    let all = open().dump(links(), soon(), limits(), |link| Some([link.len()])).unwrap();
    assert_eq!(all.iter().max(), Some(&length));
    let (all, whole) = open().dump_until(links(), soon(), |link| Some(link.len()), |_| false).unwrap();
    assert!(whole && all.contains(&length));
}

/// A late answer that is longer than the buffer is skipped like any late answer.
#[test]
fn a_long_answer_that_is_late_fails_no_other_request() {
    make_long();
    let connection = open();
    connection.send(&[lo()], None).unwrap();
    connection.ask(&[up(NLM_F_ACK)], soon(), |_| {}).unwrap();
    let connection = open();
    connection.send(&[lo()], None).unwrap();
    assert!(connection.dump(addresses(), soon(), limits(), |_| Some([()])).is_ok());
}

/// A kernel that runs out of memory ends a dump without an end message. The next request does not wait for this
/// message.
#[test]
fn an_end_that_never_comes_is_not_waited_for() {
    let connection = open();
    let before = Instant::now();
    connection.unfinished.set(Some(4711));
    assert!(count(&connection) > 0);
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    assert!(connection.unfinished.get().is_none());
}

/// The kernel reports an error for a dump if the socket's buffer is full, but continues the dump when the buffer has
/// room.
#[test]
fn a_full_buffer_is_no_end_of_a_dump() {
    make_addresses();
    for filled in [1, 20, 200] {
        let connection = open();
        setsockopt(&connection.socket, sockopt::RcvBuf, &0).unwrap();
        for _ in 0..filled {
            connection.send(&[up(NLM_F_ACK)], None).unwrap();
        }
        for _ in 0..3 {
            let all = connection.dump(addresses(), soon(), limits(), |_| Some([()]));
            assert!(all.as_ref().is_ok_and(|all| all.len() > 500), "{filled} {:?}", all.map(|all| all.len()));
            connection.ask(&[up(NLM_F_ACK)], soon(), |_| {}).unwrap();
        }
    }
}

/// Calls `ip` with the words of a text as arguments.
fn ip(arguments: &str) {
    let status = std::process::Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Other processes can change a list whenever it is read. In a container the last reading counts.
#[test]
fn a_list_that_changes_without_end_is_an_error_or_taken() {
    for number in 0..80 {
        ip(&format!("link add many{number} type ifb"));
    }
    let connection = open();
    let (seen, there) = (Cell::new(0), Cell::new(false));
    let dump = |may_change| {
        connection.dump(links(), soon(), DumpLimits { may_change, ..limits() }, |_| {
            seen.set(seen.get() + 1);
            // The next datagram is ready now, but the datagram after it is not.
            if seen.get() % 20 == 1 {
                ip(if there.replace(!there.get()) { "link del new0" } else { "link add new0 type ifb" });
            }
            Some([()])
        })
    };
    assert!(matches!(dump(false), Err(NetlinkError::Changing)));
    assert!(seen.get() >= MOST_ATTEMPTS * 80, "{}", seen.get());
    assert!(dump(true).unwrap().len() > 80);
    assert!(count(&connection) > 80);
}

/// A list that is longer than allowed is read to its end, and not kept.
#[test]
fn long_dumps_are_refused() {
    let connection = open();
    // The first message has as many objects as allowed, or more.
    let dump = |more: usize| {
        let left = Cell::new(1000 + more);
        connection.dump(links(), soon(), limits(), |_| Some(vec![0_u8; left.take()]))
    };
    assert_eq!(dump(0).unwrap().len(), 1000);
    assert_eq!(dump(1).unwrap_err().to_string(), "there are more than 1000");
    assert_eq!(dump(0).unwrap().len(), 1000);
}

/// If `enough` is never true, the whole list is read.
#[test]
fn a_dump_that_has_never_enough_is_whole() {
    let connection = open();
    let (all, whole) = connection.dump_until(links(), soon(), |_| Some(()), |_| false).unwrap();
    assert!(whole && all.len() == count(&connection));
}

/// One deadline covers all messages of an exchange, whatever their number.
#[test]
fn an_exchange_has_a_deadline() {
    let connection = open();
    // Another test makes the answer about a link too long for one datagram.
    let request = NetlinkRequest::new(&RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP);
    let before = Instant::now();
    let soon = before + Duration::from_millis(50);
    let late = connection.ask(&[request], soon, |_| std::thread::sleep(Duration::from_millis(60)));
    assert!(matches!(late, Err(NetlinkError::Late)), "{late:?}");
    // An acknowledgement that was not requested never comes.
    let before = Instant::now();
    let late = connection.ask(&[up(0)], before + Duration::from_millis(50), |_| {});
    assert!(matches!(late, Err(NetlinkError::Late)), "{late:?}");
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
    connection.ask(&[up(NLM_F_ACK), up(NLM_F_ACK), up(NLM_F_ACK)], soon(), |_| {}).unwrap();
    assert_eq!(connection.sequence.get(), 2);
}

#[test]
fn the_first_refusal_is_the_one_reported() {
    let connection = open();
    let strange = || NetlinkRequest::raw(u16::MAX, 0, vec![0; 16]);
    let outcome = connection.transact(&[up(0), strange(), strange(), up(0)], 3, soon(), |_| {}).unwrap();
    assert_eq!(outcome, Some(RefusedRequest { request: 1, errno: libc::EOPNOTSUPP }));
    assert_eq!(connection.transact(&[up(0), up(0)], 1, soon(), |_| {}).unwrap(), None);
    let error = connection.ask(&[strange(), up(NLM_F_ACK)], soon(), |_| {}).unwrap_err();
    assert!(matches!(error, NetlinkError::Refused { errno: libc::EOPNOTSUPP, .. }), "{error:?}");
}
