//! Hostile packets for the DHCP client, which runs as the installed, compiled component. For any packets of a server, a
//! step finishes normally, with a readable answer and without an operation. The lease stays intact.
#![allow(unsafe_code, reason = "loads what it has just compiled")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use postern_dhcp::{Client, Event, Hex, Input, Outcome, Output, Payload, State, Timeouts, client_id, duid};
use postern_sandbox::compile::precompile;
use postern_sandbox::{CallReceiver, Guest};
use postern_types::{GuestLimits, OpError, Operation, Reply, Start};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x50];

/// A gate without any operation. The client must never call it.
struct Nothing;

impl CallReceiver for Nothing {
    fn call(&mut self, operation: Operation) -> Result<Reply, OpError> {
        panic!("the client has asked for {}", operation.name());
    }

    fn stderr(&mut self, _text: String) {}
}

/// The component's code, compiled once.
static CODE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/wasm32-wasip2/guest/postern-dhcp.wasm");
    let wasm =
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; `tests/setup test` makes it", path.display()));
    precompile(&wasm).unwrap().cwasm
});

fn component(name: &str) -> Guest {
    let path = std::env::temp_dir().join(format!("postern-dhcp-{}-{name}", std::process::id()));
    File::create(&path).unwrap().write_all(&CODE).unwrap();
    let guest = Guest::load(File::open(&path).unwrap().into()).unwrap();
    fs::remove_file(&path).unwrap();
    guest
}

/// The client, with a generator of random numbers and a clock.
struct Lab {
    guest: Guest,
    family: u8,
    random: u64,
    now_ms: u64,
}

impl Lab {
    /// Returns a number below `limit` (xorshift).
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 11).unwrap() % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    fn step(&mut self, state: Option<&State>, event: Event) -> Output {
        let configuration =
            r#"{"name":"n","ipam":{"request":[{"option":"6"},{"option":"15"},{"option":"119"},{"option":"26"}]}}"#;
        let client = Client {
            family: self.family,
            id: Hex(if self.family == 4 { client_id("c", "n", "eth0") } else { duid("c", "n", "eth0") }),
            mac: MAC,
            configuration: configuration.into(),
            args: String::new(),
            broadcast: false,
            timeouts: Timeouts::default(),
        };
        let input = Input { client, state: state.cloned(), event, now_ms: self.now_ms, random: self.random };
        let start = Start {
            env: vec![("CNI_COMMAND".into(), "STEP".into())],
            stdin: Arc::new(serde_json::to_string(&input).unwrap()),
            limits: GuestLimits::default(),
        };
        match self.guest.run(start, Box::new(Nothing)).outcome {
            postern_sandbox::GuestOutcome::Finished { stdout, status: 0 } => serde_json::from_str(&stdout).unwrap(),
            other => panic!("{other:?} of {input:?}"),
        }
    }

    fn packet(&mut self, state: &State, payload: Vec<u8>) -> Output {
        let from = if self.family == 4 { "10.5.0.1" } else { "fe80::1" };
        self.step(Some(state), Event::Packet { payload: Payload(payload), from: from.parse().unwrap() })
    }

    /// Makes a DHCPv6 message, or a router advertisement, with options of any form.
    fn hostile_v6(&mut self, xid: u32) -> Vec<u8> {
        let is_router = self.below(4) == 0;
        let mut bytes = if is_router { advertisement() } else { reply_v6(7, xid) };
        for _ in 0..self.below(12) {
            let known: [u8; 14] = [1, 2, 3, 4, 5, 6, 12, 13, 14, 20, 23, 24, 25, 82];
            let code = if self.below(3) == 0 { self.byte() } else { known[self.below(known.len())] };
            let length = if self.below(4) == 0 { self.byte() } else { [0, 1, 4, 12, 16, 24, 28, 30][self.below(8)] };
            // In an advertisement, a length counts units of 8 bytes.
            let header = if is_router { vec![code, length / 8] } else { vec![0, code, self.byte() & 1, length] };
            bytes.extend(header);
            let there = if self.below(8) == 0 { self.below(256) } else { usize::from(length) };
            bytes.extend((0..there).map(|_| self.byte()).collect::<Vec<_>>());
        }
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            bytes[at] = self.byte();
        }
        let length = if self.below(5) == 0 { self.below(bytes.len()) } else { bytes.len() };
        bytes.truncate(length);
        // The host passes on at most 4096 bytes.
        bytes.truncate(4096);
        bytes
    }

    /// Makes a packet of a server with options of any form: cut off, too long, repeated, in any field.
    fn hostile(&mut self, xid: u32) -> Vec<u8> {
        let mut bytes = reply(5, xid);
        for _ in 0..self.below(12) {
            let known = [1, 3, 6, 15, 26, 33, 51, 52, 53, 54, 56, 58, 59, 80, 81, 82, 119, 121, 151, 255, 0];
            let code = if self.below(3) == 0 { self.byte() } else { known[self.below(known.len())] };
            let length = if self.below(4) == 0 { self.byte() } else { [0, 1, 3, 4, 5, 8, 16][self.below(7)] };
            bytes.extend([code, length]);
            let there = if self.below(8) == 0 { self.below(256) } else { usize::from(length) };
            bytes.extend((0..there).map(|_| self.byte()).collect::<Vec<_>>());
        }
        if self.below(2) == 0 {
            (44..236).for_each(|at| bytes[at] = self.byte());
            bytes.extend([52, 1, 3]);
        }
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            bytes[at] = self.byte();
        }
        let length = if self.below(5) == 0 { self.below(bytes.len()) } else { bytes.len() };
        bytes.truncate(length);
        // The host passes on at most 4096 bytes.
        bytes.truncate(4096);
        bytes
    }
}

/// A packet of 10.5.0.1 that gives 10.5.0.50/24 for 120 s. The end mark is missing.
fn reply(kind: u8, xid: u32) -> Vec<u8> {
    let mut bytes = vec![2, 1, 6, 0];
    bytes.extend(xid.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 10, 5, 0, 50, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(MAC);
    bytes.extend([0; 10 + 64 + 128]);
    bytes.extend([99, 130, 83, 99, 53, 1, kind, 54, 4, 10, 5, 0, 1, 51, 4, 0, 0, 0, 120, 1, 4, 255, 255, 255, 0]);
    bytes
}

/// A message of a server that gives 2001:db8:5::50 for 120 s.
fn reply_v6(kind: u8, xid: u32) -> Vec<u8> {
    let option = |code: u8, data: &[u8]| [&[0, code, 0, u8::try_from(data.len()).unwrap()], data].concat();
    let address =
        [&[0x20, 1, 0xd, 0xb8, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50][..], &[0, 0, 0, 100, 0, 0, 0, 120]].concat();
    let association = [&[0, 0, 0, 1, 0, 0, 0, 50, 0, 0, 0, 80][..], &option(5, &address)].concat();
    let [_, x, y, z] = xid.to_be_bytes();
    let options =
        [option(1, &duid("c", "n", "eth0")), option(2, &[0, 3, 0, 1, 2, 0, 0, 0, 0, 1]), option(3, &association)];
    [&[kind, x, y, z][..], &options.concat()].concat()
}

/// A router advertisement without options.
fn advertisement() -> Vec<u8> {
    vec![134, 0, 0, 0, 64, 0x80, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn xid_v6(output: &Output) -> u32 {
    let payload = &output.send[0].payload.0;
    u32::from_be_bytes([0, payload[1], payload[2], payload[3]])
}

fn xid(output: &Output) -> u32 {
    u32::from_be_bytes(output.send[0].payload.0[4..8].try_into().unwrap())
}

#[test]
fn no_packet_stops_the_client_or_hurts_a_lease() {
    let seed = std::env::var("POSTERN_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_0016);
    let runs = std::env::var("POSTERN_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(600);
    let mut lab = Lab { guest: component("packets"), family: 4, random: seed, now_ms: 1_000 };
    let selecting = lab.step(None, Event::Start { previous: None });
    let xid_of_offer = xid(&selecting);
    let requesting = lab.packet(&selecting.state, reply(2, xid_of_offer));
    let bound = lab.packet(&requesting.state, reply(5, xid_of_offer));
    assert!(matches!(bound.outcome, Some(Outcome::Bound { .. })), "{bound:?}");
    lab.now_ms += 60_000;
    let renewing = lab.step(Some(&bound.state), Event::Timer);
    let xid_of_renewal = xid(&renewing);
    let mut outcomes = [0_usize; 3];
    for run in 0..runs {
        let (state, xid) = match run % 4 {
            0 => (&selecting.state, xid_of_offer),
            1 => (&requesting.state, xid_of_offer),
            2 => (&bound.state, xid_of_renewal),
            _ => (&renewing.state, xid_of_renewal),
        };
        let payload = lab.hostile(xid);
        let output = lab.packet(state, payload.clone());
        match (run % 4, &output.outcome) {
            (_, None) => outcomes[0] += 1,
            // The lease has the packet's address, and no other address.
            (1, Some(Outcome::Bound { lease, .. })) | (3, Some(Outcome::Kept { lease })) => {
                assert_eq!(lease.addresses[0].address.addr().to_string(), "10.5.0.50", "{payload:?}");
                outcomes[1] += 1;
            }
            (1, Some(Outcome::Failed { .. })) | (3, Some(Outcome::Lost { .. })) => outcomes[2] += 1,
            (phase, other) => panic!("{other:?} in phase {phase}, seed {seed}, run {run}: {payload:?}"),
        }
        // Only a lost or failed lease, and an endless lease, need no timer.
        let is_over = matches!(output.outcome, Some(Outcome::Failed { .. } | Outcome::Lost { .. }));
        assert_eq!(
            output.wake_ms.is_none(),
            is_over || output.state.0.pointer("/held/seconds") == Some(&u32::MAX.into())
        );
    }
    println!(
        "{runs} packets: {} ignored or only an offer, {} leases, {} refusals",
        outcomes[0], outcomes[1], outcomes[2]
    );
    assert!(outcomes.iter().all(|count| *count > 0), "the packets are too much alike: {outcomes:?}");
}

/// As `no_packet_stops_the_client_or_hurts_a_lease`, for DHCPv6 and router advertisements.
#[test]
fn no_ipv6_packet_stops_the_client_or_hurts_a_lease() {
    let seed = std::env::var("POSTERN_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_0046);
    let runs = std::env::var("POSTERN_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(600);
    let mut lab = Lab { guest: component("ipv6"), family: 6, random: seed, now_ms: 1_000 };
    let waiting = lab.step(None, Event::Start { previous: None });
    let soliciting = lab.packet(&waiting.state, advertisement());
    let xid_of_offer = xid_v6(&soliciting);
    let requesting = lab.packet(&soliciting.state, reply_v6(2, xid_of_offer));
    let xid_of_request = xid_v6(&requesting);
    let bound = lab.packet(&requesting.state, reply_v6(7, xid_of_request));
    assert!(matches!(bound.outcome, Some(Outcome::Bound { .. })), "{bound:?}");
    lab.now_ms += 60_000;
    let renewing = lab.step(Some(&bound.state), Event::Timer);
    let xid_of_renewal = xid_v6(&renewing);
    let mut outcomes = [0_usize; 3];
    for run in 0..runs {
        let (state, xid) = match run % 4 {
            0 => (&soliciting.state, xid_of_offer),
            1 => (&requesting.state, xid_of_request),
            2 => (&bound.state, xid_of_renewal),
            _ => (&renewing.state, xid_of_renewal),
        };
        let payload = lab.hostile_v6(xid);
        let output = lab.packet(state, payload.clone());
        let is_over = matches!(output.outcome, Some(Outcome::Failed { .. } | Outcome::Lost { .. }));
        match (run % 4, output.outcome) {
            (_, None) => outcomes[0] += 1,
            (1, Some(Outcome::Bound { lease, .. })) | (3, Some(Outcome::Kept { lease })) => {
                let [one] = lease.addresses.as_slice() else { panic!("{lease:?}") };
                // Only a host that has advertised itself on this link is a router.
                assert!(one.gateway.is_none_or(|it| it.to_string() == "fe80::1"), "{lease:?}");
                outcomes[1] += 1;
            }
            (1, Some(Outcome::Failed { .. })) | (3, Some(Outcome::Lost { .. })) => outcomes[2] += 1,
            (phase, other) => panic!("{other:?} in phase {phase}, seed {seed}, run {run}: {payload:?}"),
        }
        let is_endless = output.state.0.pointer("/held/seconds") == Some(&u32::MAX.into());
        assert_eq!(output.wake_ms.is_none(), is_over || is_endless, "run {run}: {payload:?}");
    }
    println!(
        "{runs} packets: {} ignored or only an offer, {} leases, {} refusals",
        outcomes[0], outcomes[1], outcomes[2]
    );
    assert!(outcomes.iter().all(|count| *count > 0), "the packets are too much alike: {outcomes:?}");
}

/// A lease's state comes from a file. A state that the client has not written is refused with an error text.
#[test]
fn a_damaged_state_is_refused_in_words() {
    let mut lab = Lab { guest: component("states"), family: 4, random: 7, now_ms: 1_000 };
    for state in
        [serde_json::json!(null), serde_json::json!({"version": 99}), serde_json::json!({"version": 1, "is": "bound"})]
    {
        let output = lab.step(Some(&State(state)), Event::Timer);
        assert!(
            matches!(&output.outcome, Some(Outcome::Lost { reason }) if reason.contains("state of this lease")),
            "{output:?}"
        );
    }
}
