//! The way to a lease.

use super::lab::{ADDRESS, Lab, one, sent};
use super::reply::Reply;
use crate::{Event, Outcome, Timeouts, To};
use dhcproto::v4::{DhcpOption, MessageType, OptionCode};
use std::net::Ipv4Addr;

const START: Event = Event::Start { previous: None };

fn failure(outcome: Option<Outcome>) -> String {
    match outcome {
        Some(Outcome::Failed { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn discover_offer_request_acknowledgement() {
    let mut lab = Lab::with(r#"{"request":[{"option":"121"}],"provide":[{"option":"host-name","value":"pod"}]}"#, "");
    let discover = one(&lab.on(START));
    assert_eq!((discover.kind, discover.to), (MessageType::Discover, To::Broadcast));
    assert_eq!((discover.wanted(), discover.server()), (None, None));
    let output = lab.reply(&Reply::offer(ADDRESS));
    let request = one(&output);
    assert_eq!((request.kind, request.to), (MessageType::Request, To::Broadcast));
    assert_eq!(request.message.xid(), discover.message.xid());
    assert_eq!(request.wanted().unwrap().to_string(), ADDRESS);
    assert_eq!(request.server().unwrap().to_string(), "10.5.0.1");
    for sent in [&discover, &request] {
        let options = sent.message.opts();
        assert_eq!(sent.message.ciaddr(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(
            options.get(OptionCode::ClientIdentifier),
            Some(&DhcpOption::ClientIdentifier(b"\0abc/net/eth0".into()))
        );
        assert_eq!(options.get(OptionCode::Hostname), Some(&DhcpOption::Hostname("pod".into())));
        let list = [OptionCode::ClasslessStaticRoute, OptionCode::Router, OptionCode::SubnetMask];
        assert_eq!(options.get(OptionCode::ParameterRequestList), Some(&DhcpOption::ParameterRequestList(list.into())));
        assert!(!sent.message.flags().broadcast());
    }
    let output = lab.reply(&Reply::ack(ADDRESS));
    assert!(matches!(output.outcome, Some(Outcome::Bound { probe: true, .. })), "{output:?}");
    assert_eq!((output.send.len(), output.wake_ms), (0, Some(60_000)));
}

#[test]
fn the_lease_counts_from_the_request() {
    let mut lab = Lab::new();
    lab.on(START);
    lab.reply(&Reply::offer(ADDRESS));
    lab.now_ms += 700;
    assert_eq!(lab.reply(&Reply::ack(ADDRESS)).wake_ms, Some(60_000 - 700));
}

#[test]
fn links_that_need_broadcasts_say_so() {
    let mut lab = Lab::new();
    lab.client.broadcast = true;
    assert!(one(&lab.on(START)).message.flags().broadcast());
    assert!(one(&lab.reply(&Reply::offer(ADDRESS))).message.flags().broadcast());
    lab.reply(&Reply::ack(ADDRESS));
    // Now the client has its address.
    assert!(!one(&lab.later(60_000, Event::Timer)).message.flags().broadcast());
}

#[test]
fn packets_are_sent_again_as_the_native_client_does() {
    let mut lab = Lab::new();
    let (mut output, began) = (lab.on(START), lab.now_ms);
    let (xid, mut waits) = (lab.xid, Vec::new());
    while output.outcome.is_none() {
        waits.push(output.wake_ms.unwrap());
        output = lab.sleep(&output);
        assert!(sent(&output).iter().all(|sent| sent.kind == MessageType::Discover && sent.message.xid() == xid));
    }
    for (wait, middle) in waits.iter().zip([2_000, 2_000, 2_000, 2_000, 4_000, 8_000, 16_000, 32_000]) {
        assert!((middle - 1_000..middle + 1_000).contains(wait), "{waits:?}");
    }
    assert!(waits[8..].iter().all(|wait| *wait <= 62_000), "{waits:?}");
    assert_eq!(lab.now_ms - began, 208_000);
    assert_eq!(output.wake_ms, None);
    let tries = waits.len();
    let reason = failure(output.outcome);
    let words = format!("no more tries: no DHCP server answered within 208 s ({tries} times asked)");
    assert!(reason.starts_with(&words), "{reason}");
}

#[test]
fn settings_limit_the_times() {
    let mut lab = Lab::new();
    lab.client.timeouts = Timeouts { request_ms: 1_000, resend_max_ms: 500, resend_ms: 3_000 };
    let (mut output, began) = (lab.on(START), lab.now_ms);
    while output.outcome.is_none() {
        assert!(output.wake_ms.unwrap() <= 500);
        output = lab.sleep(&output);
    }
    assert_eq!(lab.now_ms - began, 3_000);
    assert!(failure(output.outcome).contains("within 3 s"));
}

#[test]
fn a_timer_that_comes_too_early_changes_nothing() {
    let mut lab = Lab::new();
    let first = lab.on(START);
    let output = lab.later(10, Event::Timer);
    assert_eq!((output.send.len(), output.wake_ms), (0, first.wake_ms.map(|wait| wait - 10)));
    let resumed = lab.on(Event::Resume);
    assert_eq!((resumed.send.len(), resumed.wake_ms), (0, output.wake_ms));
}

#[test]
fn offers_of_other_transactions_and_nonsense_are_ignored() {
    let mut lab = Lab::new();
    let first = lab.on(START);
    let other = lab.xid ^ 1;
    for (what, reply) in [
        ("another transaction", Reply::offer(ADDRESS).xid(other).bytes()),
        ("an acknowledgement", Reply::ack(ADDRESS).xid(lab.xid).bytes()),
        ("a refusal", Reply::nak().xid(lab.xid).bytes()),
        ("no server", Reply::offer(ADDRESS).without(54).xid(lab.xid).bytes()),
        ("a zero address", Reply::offer("0.0.0.0").xid(lab.xid).bytes()),
        ("loopback", Reply::offer("127.0.0.9").xid(lab.xid).bytes()),
        ("multicast", Reply::offer("224.0.0.9").xid(lab.xid).bytes()),
        ("link-local", Reply::offer("169.254.0.9").xid(lab.xid).bytes()),
        ("all ones", Reply::offer("255.255.255.255").xid(lab.xid).bytes()),
        ("the network's broadcast address", Reply::offer("10.5.0.255").xid(lab.xid).bytes()),
        ("the network", Reply::offer("10.5.0.0").xid(lab.xid).bytes()),
        ("the server's own", Reply::offer("10.5.0.1").xid(lab.xid).bytes()),
        ("three seconds", Reply::offer(ADDRESS).number(51, 3).xid(lab.xid).bytes()),
        ("no seconds", Reply::offer(ADDRESS).number(51, 0).xid(lab.xid).bytes()),
        ("no packet", vec![0xff; 64]),
    ] {
        let output = lab.packet(reply);
        assert_eq!((output.send.len(), &output.outcome, output.wake_ms), (0, &None, first.wake_ms), "{what}");
        assert_eq!(lab.phase(), "selecting", "{what}");
    }
    // A good offer counts nevertheless.
    assert_eq!(one(&lab.reply(&Reply::offer(ADDRESS))).kind, MessageType::Request);
}

#[test]
fn the_trouble_with_offers_is_told_at_the_end() {
    let mut lab = Lab::new();
    let mut output = lab.on(START);
    lab.reply(&Reply::offer(ADDRESS).number(51, 3));
    while output.outcome.is_none() {
        output = lab.sleep(&output);
    }
    let reason = failure(output.outcome);
    assert!(reason.ends_with("the server 10.5.0.1 offers a lease of 3 s, and at least 4 s are needed"), "{reason}");
}

#[test]
fn only_the_chosen_server_can_acknowledge() {
    let mut lab = Lab::new();
    lab.on(START);
    lab.reply(&Reply::offer(ADDRESS));
    for (what, reply) in [
        ("another server", Reply::ack(ADDRESS).raw(54, &[10, 5, 0, 2]).xid(lab.xid)),
        ("another server's refusal", Reply::nak().raw(54, &[10, 5, 0, 2]).xid(lab.xid)),
        ("another address", Reply::ack("10.5.0.51").xid(lab.xid)),
        ("another transaction", Reply::ack(ADDRESS).xid(lab.xid ^ 1)),
        ("a second offer", Reply::offer("10.5.0.51").xid(lab.xid)),
        ("a lease of no length", Reply::ack(ADDRESS).number(51, 0).xid(lab.xid)),
    ] {
        let output = lab.packet(reply.bytes());
        assert_eq!((output.send.len(), output.outcome, lab.phase().as_str()), (0, None, "requesting"), "{what}");
    }
    assert!(matches!(lab.reply(&Reply::ack(ADDRESS)).outcome, Some(Outcome::Bound { .. })));
}

#[test]
fn a_request_without_an_answer_is_sent_again_and_then_all_begins_anew() {
    let mut lab = Lab::new();
    lab.on(START);
    let xid = lab.xid;
    let (mut output, asked) = (lab.reply(&Reply::offer(ADDRESS)), lab.now_ms);
    let mut requests = 0;
    while one(&output).kind == MessageType::Request {
        requests += 1;
        output = lab.sleep(&output);
    }
    assert!((4..=9).contains(&requests), "{requests}");
    assert_eq!((lab.now_ms - asked, one(&output).kind), (10_000, MessageType::Discover));
    assert_ne!(lab.xid, xid);
    while output.outcome.is_none() {
        output = lab.sleep(&output);
    }
    assert!(failure(output.outcome).contains("10.5.0.1 did not answer a request for its own offer"));
}

#[test]
fn a_server_that_refuses_its_own_offer() {
    let mut lab = Lab::new();
    lab.client.timeouts.resend_ms = 20_000;
    lab.on(START);
    let mut discovers = 1;
    let reason = loop {
        lab.reply(&Reply::offer(ADDRESS));
        let output = lab.reply(&Reply::nak().raw(56, b"no \x1b[2Jlease\n"));
        assert_eq!((output.send.len(), output.outcome.as_ref()), (0, None));
        assert!(output.wake_ms.unwrap() >= 1_000 || lab.now_ms > 1_019_000, "a pause prevents a flood");
        let output = lab.sleep(&output);
        if let Some(outcome) = output.outcome {
            break failure(Some(outcome));
        }
        assert_eq!(one(&output).kind, MessageType::Discover);
        discovers += 1;
    };
    assert!((5..=12).contains(&discovers), "{discovers}");
    assert!(reason.ends_with(r#"the server 10.5.0.1 refused its own offer (DHCPNAK): "no [2Jlease""#), "{reason}");
}

#[test]
fn an_earlier_address_is_asked_for_first() {
    let mut lab = Lab::new();
    let output = lab.on(Event::Start { previous: Some("10.5.0.77".parse().unwrap()) });
    let request = one(&output);
    assert_eq!((request.kind, request.to, request.server()), (MessageType::Request, To::Broadcast, None));
    assert_eq!(
        (request.wanted().unwrap().to_string().as_str(), request.message.ciaddr()),
        ("10.5.0.77", Ipv4Addr::UNSPECIFIED)
    );
    // An answer with another address is ignored.
    assert_eq!(lab.reply(&Reply::ack(ADDRESS)).outcome, None);
    assert!(matches!(lab.reply(&Reply::ack("10.5.0.77")).outcome, Some(Outcome::Bound { .. })));
}

#[test]
fn an_earlier_address_that_is_gone() {
    let previous = Some("10.5.0.77".parse().unwrap());
    let mut lab = Lab::new();
    lab.on(Event::Start { previous });
    let output = lab.reply(&Reply::nak());
    let discover = one(&output);
    assert_eq!((discover.kind, discover.wanted(), output.outcome), (MessageType::Discover, None, None));
    // A server that does not know the lease is silent.
    let mut lab = Lab::new();
    let mut output = lab.on(Event::Start { previous });
    for _ in 0..3 {
        assert_eq!(one(&output).kind, MessageType::Request);
        output = lab.sleep(&output);
    }
    let discover = one(&output);
    assert_eq!((discover.kind, discover.wanted()), (MessageType::Discover, previous));
    // The client does not ask for an address that no host can have.
    for previous in ["0.0.0.0", "127.0.0.1", "255.255.255.255", "224.0.0.1"] {
        let output = Lab::new().on(Event::Start { previous: Some(previous.parse().unwrap()) });
        assert_eq!(one(&output).kind, MessageType::Discover, "{previous}");
    }
}

#[test]
fn an_address_that_another_station_has_is_declined() {
    let mut lab = Lab::bound();
    let output = lab.on(Event::Conflict);
    let decline = one(&output);
    assert_eq!((decline.kind, decline.to), (MessageType::Decline, To::Broadcast));
    assert_eq!(decline.wanted().unwrap().to_string(), ADDRESS);
    assert_eq!(decline.server().unwrap().to_string(), "10.5.0.1");
    assert_eq!(
        (decline.message.ciaddr(), decline.message.opts().get(OptionCode::ParameterRequestList)),
        (Ipv4Addr::UNSPECIFIED, None)
    );
    assert_eq!((output.outcome.as_ref(), output.wake_ms), (None, Some(10_000)));
    let output = lab.sleep(&output);
    assert_eq!(one(&output).kind, MessageType::Discover);
    lab.reply(&Reply::offer("10.5.0.51"));
    assert!(matches!(lab.reply(&Reply::ack("10.5.0.51")).outcome, Some(Outcome::Bound { .. })));
}

#[test]
fn a_network_where_all_addresses_are_taken() {
    let mut lab = Lab::new();
    lab.on(START);
    let mut conflicts = 0;
    let reason = loop {
        lab.reply(&Reply::offer(ADDRESS));
        lab.reply(&Reply::ack(ADDRESS));
        conflicts += 1;
        let output = lab.on(Event::Conflict);
        let output = lab.sleep(&output);
        if let Some(outcome) = output.outcome {
            break failure(Some(outcome));
        }
    };
    assert_eq!(conflicts, 21, "208 s, and 10 s for each");
    assert!(reason.contains("another station uses 10.5.0.50, which the server 10.5.0.1 gave"), "{reason}");
}

#[test]
fn a_configuration_that_is_wrong_fails_at_once() {
    for (ipam, words) in [
        (r#"{"request":[{"option":"x"}]}"#, r#"Can not parse option "x": "#),
        (r#"{"provide":[{"option":"53","value":"1"}]}"#, "dhcp: ipam.provide has option 53"),
        ("7", "error parsing netconf: json: cannot unmarshal number"),
    ] {
        let output = Lab::with(ipam, "").on(START);
        assert_eq!((output.send.len(), output.wake_ms), (0, None));
        let reason = failure(output.outcome);
        assert!(reason.starts_with(words), "{reason}");
    }
    let mut lab = Lab::new();
    lab.client.family = 5;
    assert!(failure(lab.on(START).outcome).contains("family 5"));
}

#[test]
fn the_largest_request_fits() {
    let provide: Vec<String> =
        (200..206).map(|code| format!(r#"{{"option":"{code}","value":"{}"}}"#, "v".repeat(98))).collect();
    let request: Vec<String> = (2..255).map(|code| format!(r#"{{"option":"{code}"}}"#)).collect();
    let ipam = format!(r#"{{"provide":[{}],"request":[{}]}}"#, provide.join(","), request.join(","));
    let mut lab = Lab::with(&ipam, "");
    lab.client.id.0 = vec![7; 255];
    // The reader of packets in these tests fails if a packet exceeds the host's limit.
    assert!(one(&lab.on(Event::Start { previous: Some("10.5.0.77".parse().unwrap()) })).bytes.len() > 1_300);
    lab.on(START);
    assert!(one(&lab.reply(&Reply::offer(ADDRESS))).bytes.len() > 1_300);
}
