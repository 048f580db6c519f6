//! Tests of whole steps, with packets that are written byte by byte.

use crate::{Client, Event, Hex, Input, Lease, Outcome, Output, Payload, State, Timeouts, To, duid, step};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv6Addr};

const ADDRESS: &str = "2001:db8:5::50";
const SERVER: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const START: Event = Event::Start { previous: None };

fn option(code: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [&code.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

/// A message of a server.
#[derive(Clone)]
struct Reply {
    kind: u8,
    client: Vec<u8>,
    server: Vec<u8>,
    /// Address, preferred and valid lifetime.
    address: Option<(Ipv6Addr, u32, u32)>,
    times: (u32, u32),
    id: u32,
    /// The status in the message, and the status in the association.
    status: [Option<u16>; 2],
    more: Vec<u8>,
}

impl Reply {
    fn new(kind: u8, address: &str) -> Self {
        Self {
            kind,
            client: duid("abc", "net", "eth0"),
            server: SERVER.to_vec(),
            address: Some((address.parse().unwrap(), 100, 120)),
            times: (50, 80),
            id: 1,
            status: [None; 2],
            more: Vec::new(),
        }
    }

    fn bytes(&self, xid: u32) -> Vec<u8> {
        let text = |code: u16| option(13, &[&code.to_be_bytes()[..], b"no \x1bmore"].concat());
        let mut association = [self.id, self.times.0, self.times.1].map(u32::to_be_bytes).concat();
        if let Some((address, preferred, valid)) = self.address {
            association
                .extend(option(5, &[&address.octets()[..], &preferred.to_be_bytes(), &valid.to_be_bytes()].concat()));
        }
        association.extend(self.status[1].map(text).unwrap_or_default());
        let [_, x, y, z] = xid.to_be_bytes();
        let mut bytes = vec![self.kind, x, y, z];
        bytes.extend(option(1, &self.client));
        bytes.extend(option(2, &self.server));
        bytes.extend(option(3, &association));
        bytes.extend(self.status[0].map(text).unwrap_or_default());
        bytes.extend(&self.more);
        bytes
    }
}

#[derive(Clone)]
struct Lab {
    client: Client,
    state: Option<State>,
    now_ms: u64,
    xid: u32,
    random: u64,
}

impl Lab {
    fn with(ipam: &str) -> Self {
        let client = Client {
            family: 6,
            id: Hex(duid("abc", "net", "eth0")),
            mac: [2, 0, 0, 0, 0, 0x50],
            configuration: format!(r#"{{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{ipam}}}"#),
            args: String::new(),
            broadcast: false,
            timeouts: Timeouts::default(),
        };
        Self { client, state: None, now_ms: 1_000_000, xid: 0, random: 0x0bad_cafe }
    }

    /// A client that has a lease of 120 s: T1 is 50 s, T2 80 s.
    fn bound() -> Self {
        let mut lab = Self::with("{}");
        lab.bind(&Reply::new(7, ADDRESS));
        lab
    }

    fn bind(&mut self, reply: &Reply) -> Lease {
        self.on(START);
        self.advertise_router();
        self.reply(&Reply { kind: 2, ..reply.clone() });
        match self.reply(reply).outcome {
            Some(Outcome::Bound { lease, probe: true }) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn on(&mut self, event: Event) -> Output {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let state = self.state.take();
        let input = Input { client: self.client.clone(), state, event, now_ms: self.now_ms, random: self.random };
        let output = step(&input);
        self.state = Some(output.state.clone());
        for send in &output.send {
            assert_eq!(send.to, To::Broadcast);
            assert!(send.payload.0.len() <= 1400);
            self.xid = u32::from_be_bytes([0, send.payload.0[1], send.payload.0[2], send.payload.0[3]]);
        }
        output
    }

    fn later(&mut self, ms: u64, event: Event) -> Output {
        self.now_ms += ms;
        self.on(event)
    }

    fn sleep(&mut self, last: &Output) -> Output {
        self.later(last.wake_ms.unwrap(), Event::Timer)
    }

    fn packet(&mut self, payload: Vec<u8>, from: &str) -> Output {
        self.on(Event::Packet { payload: Payload(payload), from: from.parse::<IpAddr>().unwrap() })
    }

    fn reply(&mut self, reply: &Reply) -> Output {
        let bytes = reply.bytes(self.xid);
        self.packet(bytes, "fe80::1")
    }

    fn advertise_router(&mut self) -> Output {
        self.packet(advertisement(1800, &[prefix(64, 0xc0, "2001:db8:5::"), vec![5, 1, 0, 0, 0, 0, 5, 220]]), "fe80::1")
    }

    fn phase(&self) -> String {
        self.state.as_ref().unwrap().0["is"].as_str().unwrap().to_owned()
    }
}

/// A router advertisement.
fn advertisement(lifetime: u16, options: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![134, 0, 0, 0, 64, 0x80];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(options.concat());
    bytes
}

fn prefix(length: u8, flags: u8, prefix: &str) -> Vec<u8> {
    let mut bytes = vec![3, 4, length, flags, 0, 0, 14, 16, 0, 0, 7, 8, 0, 0, 0, 0];
    bytes.extend(prefix.parse::<Ipv6Addr>().unwrap().octets());
    bytes
}

/// Returns the type of an output's only packet, and the codes of the packet's options.
fn one(output: &Output) -> (u8, Vec<u16>) {
    assert_eq!(output.send.len(), 1, "{output:?}");
    let bytes = &output.send[0].payload.0;
    let (mut codes, mut rest) = (Vec::new(), &bytes[4..]);
    while !rest.is_empty() {
        codes.push(u16::from_be_bytes([rest[0], rest[1]]));
        rest = &rest[4 + usize::from(u16::from_be_bytes([rest[2], rest[3]]))..];
    }
    (bytes[0], codes)
}

fn loss(output: &Output) -> &str {
    match &output.outcome {
        Some(Outcome::Lost { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn solicit_advertise_request_reply() {
    let mut lab =
        Lab::with(r#"{"priority":5,"request":[{"option":"6"},{"option":"15"},{"option":"119"},{"option":"26"}]}"#);
    let output = lab.on(START);
    assert_eq!((output.send.len(), output.wake_ms), (0, Some(1_500)), "the client waits for a router");
    assert_eq!(one(&lab.advertise_router()), (1, vec![1, 3, 6, 8]));
    assert_eq!(one(&lab.reply(&Reply::new(2, ADDRESS))), (3, vec![1, 2, 3, 6, 8]));
    let servers: Vec<u8> =
        ["2001:db8::53", "::1", "ff02::1"].iter().flat_map(|text| text.parse::<Ipv6Addr>().unwrap().octets()).collect();
    let more = [option(23, &servers), option(24, b"\x01a\x07example\0\x04\nb c\0\x01b\x07example\0")].concat();
    let output = lab.reply(&Reply { more, ..Reply::new(7, ADDRESS) });
    let Some(Outcome::Bound { lease, probe: true }) = &output.outcome else { panic!("{output:?}") };
    assert_eq!(lease.addresses[0].address.to_string(), "2001:db8:5::50/64");
    assert_eq!(lease.addresses[0].gateway.unwrap().to_string(), "fe80::1");
    assert_eq!((lease.routes[0].dst.to_string().as_str(), lease.routes[0].priority), ("::/0", Some(5)));
    assert_eq!(lease.dns.nameservers, ["2001:db8::53".parse::<IpAddr>().unwrap()]);
    assert_eq!((lease.dns.domain.as_deref(), lease.dns.search.len()), (Some("a.example"), 2));
    assert_eq!((lease.mtu, lease.seconds, lease.t1, lease.t2), (Some(1500), 120, 50, 80));
    assert_eq!(output.wake_ms, Some(50_000));
}

#[test]
fn without_a_router_the_address_stands_alone() {
    let mut lab = Lab::with("{}");
    let output = lab.on(START);
    assert_eq!(one(&lab.sleep(&output)), (1, vec![1, 3, 8]));
    lab.reply(&Reply::new(2, ADDRESS));
    let Some(Outcome::Bound { lease, .. }) = lab.reply(&Reply::new(7, ADDRESS)).outcome else { panic!() };
    assert_eq!(lease.addresses[0].address.to_string(), "2001:db8:5::50/128");
    assert!(lease.addresses[0].gateway.is_none() && lease.routes.is_empty());
}

#[test]
fn advertisements_that_name_no_router() {
    let good = advertisement(1800, &[]);
    for (what, bytes, from) in [
        ("no default router", advertisement(0, &[]), "fe80::1"),
        ("from beyond the link", good.clone(), "2001:db8::1"),
        ("by IPv4", good.clone(), "10.5.0.1"),
        ("another code", [&[134, 1], &good[2..]].concat(), "fe80::1"),
        ("cut off", good[..15].to_vec(), "fe80::1"),
        ("an option without length", advertisement(1800, &[vec![1, 0, 0, 0, 0, 0, 0, 0]]), "fe80::1"),
        ("an option that is cut off", advertisement(1800, &[vec![1, 2, 0, 0, 0, 0, 0, 0]]), "fe80::1"),
    ] {
        let mut lab = Lab::with("{}");
        lab.on(START);
        let output = lab.packet(bytes, from);
        assert_eq!((output.send.len(), lab.phase().as_str()), (0, "waiting"), "{what}");
    }
}

#[test]
fn only_prefixes_on_the_link_count() {
    for (option, expected) in [
        (prefix(64, 0x80, "2001:db8:5::"), 64),
        (prefix(64, 0x40, "2001:db8:5::"), 128),
        (prefix(64, 0x80, "2001:db8:6::"), 128),
        (prefix(0, 0x80, "::"), 128),
        (prefix(129, 0x80, "2001:db8:5::"), 128),
        (prefix(64, 0x80, "fe80::"), 128),
    ] {
        let mut lab = Lab::with("{}");
        lab.on(START);
        lab.packet(advertisement(1800, std::slice::from_ref(&option)), "fe80::1");
        lab.reply(&Reply::new(2, ADDRESS));
        let Some(Outcome::Bound { lease, .. }) = lab.reply(&Reply::new(7, ADDRESS)).outcome else { panic!() };
        assert_eq!(lease.addresses[0].address.prefix_len(), expected, "{option:?}");
    }
}

#[test]
fn offers_that_are_ignored() {
    let mut lab = Lab::with("{}");
    lab.on(START);
    let first = lab.advertise_router();
    let good = Reply::new(2, ADDRESS);
    let lifetimes = |preferred, valid| Some((ADDRESS.parse().unwrap(), preferred, valid));
    for (what, bytes) in [
        ("another transaction", good.bytes(lab.xid ^ 1)),
        ("a reply", Reply::new(7, ADDRESS).bytes(lab.xid)),
        ("another client", Reply { client: duid("x", "net", "eth0"), ..good.clone() }.bytes(lab.xid)),
        ("no server", Reply { server: vec![], ..good.clone() }.bytes(lab.xid)),
        ("a server with a long name", Reply { server: vec![7; 131], ..good.clone() }.bytes(lab.xid)),
        ("another association", Reply { id: 2, ..good.clone() }.bytes(lab.xid)),
        ("no address", Reply { address: None, ..good.clone() }.bytes(lab.xid)),
        ("link-local", Reply::new(2, "fe80::9").bytes(lab.xid)),
        ("multicast", Reply::new(2, "ff02::9").bytes(lab.xid)),
        ("loopback", Reply::new(2, "::1").bytes(lab.xid)),
        ("IPv4 in disguise", Reply::new(2, "::ffff:10.5.0.9").bytes(lab.xid)),
        ("a moment", Reply { address: lifetimes(2, 3), ..good.clone() }.bytes(lab.xid)),
        ("preferred longer than valid", Reply { address: lifetimes(200, 100), ..good.clone() }.bytes(lab.xid)),
        ("a refusal", Reply { status: [Some(2), None], ..good.clone() }.bytes(lab.xid)),
        ("a refusal in the association", Reply { status: [None, Some(2)], ..good.clone() }.bytes(lab.xid)),
        ("two servers", Reply { more: option(2, &SERVER), ..good.clone() }.bytes(lab.xid)),
        ("a cut option", [good.bytes(lab.xid), vec![0, 23, 0, 9, 1]].concat()),
    ] {
        let output = lab.packet(bytes, "fe80::2");
        assert_eq!((output.send.len(), output.outcome, output.wake_ms), (0, None, first.wake_ms), "{what}");
    }
    let mut output = lab.reply(&Reply { status: [Some(2), None], ..good });
    while output.outcome.is_none() {
        output = lab.sleep(&output);
    }
    let Some(Outcome::Failed { reason }) = output.outcome else { panic!() };
    assert!(reason.ends_with(r#"a server refused, with status 2: "no more""#), "{reason}");
}

#[test]
fn renew_rebind_and_the_end() {
    let mut lab = Lab::bound();
    let began = lab.now_ms;
    let mut output = lab.later(50_000, Event::Timer);
    let mut kinds = Vec::new();
    while output.outcome.is_none() {
        kinds.push((one(&output).0, (lab.now_ms - began) / 1000));
        output = lab.sleep(&output);
    }
    assert_eq!(lab.now_ms - began, 120_000);
    assert!(loss(&output).contains("expired"));
    assert!(kinds.iter().all(|(kind, at)| *kind == if *at < 80 { 5 } else { 6 }), "{kinds:?}");
    assert!((4..=14).contains(&kinds.len()) && kinds.contains(&(6, 80)), "{kinds:?}");
}

#[test]
fn a_renewal_keeps_the_address() {
    for (after, server) in [(50_000, &SERVER[..]), (80_000, &[9, 9])] {
        let mut lab = Lab::bound();
        let asked = one(&lab.later(after, Event::Timer));
        assert_eq!(asked.1.contains(&2), after == 50_000, "only a renewal names a server");
        let output = lab.reply(&Reply { server: server.to_vec(), ..Reply::new(7, ADDRESS) });
        let Some(Outcome::Kept { lease }) = &output.outcome else { panic!("{output:?}") };
        assert_eq!(
            (lease.addresses[0].address.to_string().as_str(), output.wake_ms),
            ("2001:db8:5::50/64", Some(50_000))
        );
    }
}

#[test]
fn answers_to_a_renewal() {
    let reply = Reply::new(7, ADDRESS);
    let lifetimes = |preferred, valid| Some((ADDRESS.parse().unwrap(), preferred, valid));
    for (what, reply, lost) in [
        ("another server", Reply { server: vec![9], ..reply.clone() }, None),
        ("nothing about the address", Reply { address: None, ..reply.clone() }, None),
        ("a failure", Reply { status: [Some(1), None], ..reply.clone() }, None),
        ("another address", Reply::new(7, "2001:db8:5::51"), Some("gave 2001:db8:5::51 instead of 2001:db8:5::50")),
        ("an end", Reply { address: lifetimes(0, 0), ..reply.clone() }, Some("took 2001:db8:5::50/64 back")),
    ] {
        let mut lab = Lab::bound();
        lab.later(50_000, Event::Timer);
        let output = lab.reply(&reply);
        match lost {
            None => assert_eq!((output.outcome, lab.phase().as_str()), (None, "renewing"), "{what}"),
            Some(words) => assert!(loss(&output).contains(words), "{what}: {output:?}"),
        }
    }
}

#[test]
fn a_server_that_forgot_the_lease_is_asked_anew() {
    for after in [50_000, 80_000] {
        let mut lab = Lab::bound();
        lab.later(after, Event::Timer);
        let forgotten = Reply { address: None, status: [None, Some(3)], ..Reply::new(7, ADDRESS) };
        let output = lab.reply(&forgotten);
        assert_eq!(one(&output).0, 3, "a request");
        // The second answer of this kind counts as a refusal: client and server must not repeat the exchange at full
        // speed.
        let again = lab.clone().reply(&forgotten);
        assert!(again.send.is_empty() && again.wake_ms.unwrap() > 1_000, "{again:?}");
        assert!(matches!(lab.reply(&Reply::new(7, ADDRESS)).outcome, Some(Outcome::Kept { .. })));
    }
}

#[test]
fn a_lease_is_given_back_declined_or_remembered() {
    let mut lab = Lab::bound();
    let output = lab.on(Event::Release);
    assert_eq!((one(&output), output.outcome), ((8, vec![1, 2, 3, 8]), Some(Outcome::Ended)));
    let mut lab = Lab::bound();
    let output = lab.on(Event::Conflict);
    assert_eq!((one(&output), output.wake_ms), ((9, vec![1, 2, 3, 8]), Some(10_000)));
    // A router that advertises itself does not end the pause.
    assert!(lab.advertise_router().send.is_empty());
    assert_eq!(one(&lab.later(10_000, Event::Timer)).0, 1);
    let mut lab = Lab::bound();
    lab.later(50_000, Event::Timer);
    lab.reply(&Reply::new(7, ADDRESS));
    assert_eq!(loss(&lab.on(Event::Conflict)), "another station uses 2001:db8:5::50");
    // The next start asks for the address of the earlier lease.
    let mut lab = Lab::bound();
    lab.on(START);
    let output = lab.advertise_router();
    let address = ADDRESS.parse::<Ipv6Addr>().unwrap().octets();
    assert!(output.send[0].payload.0.windows(16).any(|bytes| bytes == address));
}

/// The server may have given the address, although its answer has not arrived yet.
#[test]
fn a_requested_address_is_given_back() {
    let requesting = || {
        let mut lab = Lab::with("{}");
        lab.on(START);
        lab.advertise_router();
        assert_eq!(one(&lab.reply(&Reply::new(2, ADDRESS))).0, 3);
        lab
    };
    let output = requesting().on(Event::Release);
    assert_eq!((one(&output), output.outcome), ((8, vec![1, 2, 3, 8]), Some(Outcome::Ended)));
    let output = requesting().later(3_600_000, Event::Timer);
    assert_eq!(one(&output).0, 8);
    assert!(matches!(output.outcome, Some(Outcome::Failed { .. })), "{output:?}");
}

#[test]
fn a_state_of_the_other_family_or_a_damaged_one_is_refused() {
    let mut lab = Lab::bound();
    lab.client.family = 4;
    assert!(loss(&lab.on(Event::Timer)).contains("damaged"));
    let mut lab = Lab::bound();
    lab.state.as_mut().unwrap().0["held"]["t1"] = 4000.into();
    assert!(loss(&lab.on(Event::Timer)).contains("are invalid"));
    let mut lab = Lab::with("{}");
    assert!(loss(&lab.on(Event::Timer)).contains("no state"));
    assert_eq!(lab.on(Event::Release).outcome, Some(Outcome::Ended));
}

#[derive(Clone, Debug)]
enum Act {
    Reply {
        kind: u8,
        address: u16,
        server: u8,
        times: (u32, u32),
        lifetimes: (u32, u32),
        status: [Option<u16>; 2],
        more: Vec<u8>,
    },
    Damaged {
        changes: Vec<(usize, u8)>,
        length: usize,
    },
    Router(Vec<u8>),
    Sleep {
        thousandths: u64,
    },
    Other(Event),
}

fn act() -> impl Strategy<Value = Act> {
    let status = || prop::array::uniform2(prop::option::weighted(0.2, 0..6_u16));
    let kind = prop::sample::select(vec![2_u8, 7, 7]);
    let lifetime = || prop_oneof![Just(0), Just(u32::MAX), 1..10_u32, 100..200_u32];
    prop_oneof![
        8 => (kind, 0x50..0x53_u16, 0..2_u8, (lifetime(), lifetime()), (lifetime(), lifetime()), status(), vec(any::<u8>(), 0..40))
            .prop_map(|(kind, address, server, times, lifetimes, status, more)| Act::Reply { kind, address, server, times, lifetimes, status, more }),
        2 => (vec((0..200_usize, any::<u8>()), 0..6), 0..300_usize).prop_map(|(changes, length)| Act::Damaged { changes, length }),
        1 => vec(any::<u8>(), 0..80).prop_map(Act::Router),
        6 => (0..1200_u64).prop_map(|thousandths| Act::Sleep { thousandths }),
        2 => prop::sample::select(vec![Event::Resume, Event::Conflict, START, Event::Release]).prop_map(Act::Other),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// No packet causes a panic. Only a client that has asked for a lease gets or keeps the lease. A client has a
    /// timer, unless the client has ended or its lease is endless.
    #[test]
    fn sequences(acts in vec(act(), 1..40)) {
        let mut lab = Lab::with(r#"{"request":[{"option":"6"},{"option":"119"}]}"#);
        let mut output = lab.on(START);
        for act in acts {
            let asked = lab.phase();
            output = match act {
                Act::Reply { kind, address, server, times, lifetimes: (preferred, valid), status, more } => {
                    let address = Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 0, 0, 0, address);
                    let reply = Reply { server: vec![server; 4], times, address: Some((address, preferred, valid)), status, more, ..Reply::new(kind, ADDRESS) };
                    lab.reply(&reply)
                }
                Act::Damaged { changes, length } => {
                    let mut bytes = Reply::new(7, ADDRESS).bytes(lab.xid);
                    let count = bytes.len();
                    changes.iter().for_each(|(at, byte)| bytes[at % count] = *byte);
                    bytes.truncate(length);
                    lab.packet(bytes, "fe80::2")
                }
                Act::Router(noise) => lab.packet([vec![134, 0, 0, 0, 0, 0, 1, 1], noise].concat(), "fe80::3"),
                Act::Sleep { thousandths } => {
                    let wait = output.wake_ms.unwrap_or(1_000_000);
                    lab.later(wait * thousandths / 1000, Event::Timer)
                }
                Act::Other(event) => lab.on(event),
            };
            prop_assert!(output.send.len() <= 1);
            let text = serde_json::to_string(&output.state).unwrap();
            prop_assert!(text.len() < 900, "{} bytes: {}", text.len(), text);
            let is_endless = output.state.0.pointer("/held/seconds").is_some_and(|seconds| *seconds == u32::MAX);
            prop_assert_eq!(output.wake_ms.is_none(), lab.phase() == "ended" || is_endless, "{}", &text);
            if let Some(Outcome::Bound { lease, .. } | Outcome::Kept { lease }) = &output.outcome {
                prop_assert!(["requesting", "renewing", "rebinding"].contains(&asked.as_str()), "{}", &asked);
                prop_assert!(lease.t1 <= lease.t2 && lease.t2 <= lease.seconds && lease.seconds >= 4);
            }
        }
    }
}
