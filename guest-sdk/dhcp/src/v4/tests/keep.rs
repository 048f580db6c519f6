//! A lease that is held, and its end.

use super::lab::{ADDRESS, Lab, one, sent};
use super::reply::Reply;
use crate::{Event, Outcome, Output, State, To};
use dhcproto::v4::{MessageType, OptionCode};

const SERVER: &str = "10.5.0.1";

fn to_server() -> To {
    To::Unicast(SERVER.parse().unwrap())
}

fn loss(output: &Output) -> &str {
    assert_eq!(output.wake_ms, None, "a lost lease has no timer");
    match &output.outcome {
        Some(Outcome::Lost { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_renewal_asks_the_server_itself() {
    let mut lab = Lab::bound();
    let output = lab.later(60_000, Event::Timer);
    let request = one(&output);
    assert_eq!((request.kind, request.to), (MessageType::Request, to_server()));
    assert_eq!(request.message.ciaddr().to_string(), ADDRESS);
    // A renewal has no requested address and no server identifier (RFC 2131, 4.3.6).
    assert_eq!((request.wanted(), request.server()), (None, None));
    assert!(request.message.opts().contains(OptionCode::ClientIdentifier));
    assert!(request.message.opts().contains(OptionCode::ParameterRequestList));
    lab.now_ms += 400;
    let output = lab.reply(&Reply::ack(ADDRESS).number(51, 240));
    let Some(Outcome::Kept { lease }) = &output.outcome else { panic!("{output:?}") };
    assert_eq!((lease.addresses[0].address.to_string().as_str(), lease.seconds), ("10.5.0.50/24", 240));
    assert_eq!(output.wake_ms, Some(120_000 - 400), "the time counts from the request, not from the answer");
}

#[test]
fn a_renewal_is_repeated_until_all_servers_are_asked_and_then_until_the_end() {
    let mut lab = Lab::bound();
    let began = lab.now_ms;
    let mut output = lab.later(60_000, Event::Timer);
    let mut asked = Vec::new();
    while output.outcome.is_none() {
        let seconds = (lab.now_ms - began) / 1000;
        let request = one(&output);
        asked.push((seconds, request.to, request.message.xid()));
        output = lab.sleep(&output);
    }
    assert_eq!(lab.now_ms - began, 120_000);
    let reason = loss(&output);
    assert_eq!(reason, "the lease of 10.5.0.50/24 expired: neither the server 10.5.0.1 nor another server renewed it");
    let renewals = asked.iter().filter(|(_, to, _)| *to == to_server()).count();
    let rebinds: Vec<_> = asked.iter().filter(|(_, to, _)| *to == To::Broadcast).collect();
    assert!((2..=4).contains(&renewals) && (2..=6).contains(&rebinds.len()), "{asked:?}");
    assert_eq!(rebinds[0].0, 102);
    // Each request has its own transaction.
    let mut xids: Vec<_> = asked.iter().map(|(_, _, xid)| xid).collect();
    xids.sort();
    xids.dedup();
    assert_eq!(xids.len(), asked.len());
}

#[test]
fn any_server_can_take_the_lease_over() {
    let mut lab = Lab::bound();
    let output = lab.later(102_000, Event::Timer);
    let request = one(&output);
    assert_eq!((request.to, request.message.ciaddr().to_string().as_str()), (To::Broadcast, ADDRESS));
    let output = lab.reply(&Reply::ack(ADDRESS).raw(54, &[10, 5, 0, 2]));
    let Some(Outcome::Kept { lease }) = &output.outcome else { panic!("{output:?}") };
    assert_eq!(lease.server.unwrap().to_string(), "10.5.0.2");
    assert_eq!(one(&lab.later(60_000, Event::Timer)).to, To::Unicast("10.5.0.2".parse().unwrap()));
}

#[test]
fn answers_that_a_renewal_ignores() {
    let mut lab = Lab::bound();
    let first = lab.later(60_000, Event::Timer);
    for (what, reply) in [
        ("another server", Reply::ack(ADDRESS).raw(54, &[10, 5, 0, 2]).xid(lab.xid)),
        ("another server's refusal", Reply::nak().raw(54, &[10, 5, 0, 2]).xid(lab.xid)),
        ("another transaction", Reply::ack(ADDRESS).xid(lab.xid ^ 1)),
        ("a refusal of another transaction", Reply::nak().xid(lab.xid ^ 1)),
        ("an offer", Reply::offer(ADDRESS).xid(lab.xid)),
        ("no address", Reply::ack("0.0.0.0").xid(lab.xid)),
        ("a lease of no length", Reply::ack(ADDRESS).number(51, 0).xid(lab.xid)),
    ] {
        let output = lab.packet(reply.bytes());
        assert_eq!((output.send.len(), output.outcome, output.wake_ms), (0, None, first.wake_ms), "{what}");
        assert_eq!(lab.phase(), "renewing", "{what}");
    }
    assert!(matches!(lab.reply(&Reply::ack(ADDRESS)).outcome, Some(Outcome::Kept { .. })));
}

#[test]
fn packets_change_nothing_while_the_lease_is_bound() {
    let mut lab = Lab::bound();
    for reply in [Reply::ack("10.5.0.51"), Reply::ack(ADDRESS), Reply::nak(), Reply::offer("10.5.0.51")] {
        let output = lab.reply(&reply);
        assert_eq!((output.send.len(), output.outcome, output.wake_ms), (0, None, Some(60_000)), "{reply:?}");
    }
}

#[test]
fn a_server_takes_the_address_back() {
    for (after, words) in [(60_000, "the server 10.5.0.1 took"), (102_000, "the server 10.5.0.2 took")] {
        let mut lab = Lab::bound();
        lab.later(after, Event::Timer);
        let server = if after == 60_000 { [10, 5, 0, 1] } else { [10, 5, 0, 2] };
        let output = lab.reply(&Reply::nak().raw(54, &server).raw(56, b"lease not found"));
        let reason = loss(&output);
        assert!(
            reason.starts_with(words) && reason.ends_with(r#"10.5.0.50/24 back (DHCPNAK): "lease not found""#),
            "{reason}"
        );
        assert_eq!(lab.phase(), "ended");
    }
}

#[test]
fn another_address_is_no_renewal() {
    let mut lab = Lab::bound();
    lab.later(60_000, Event::Timer);
    let output = lab.reply(&Reply::ack("10.5.0.51"));
    assert_eq!(loss(&output), "the server 10.5.0.1 gave 10.5.0.51 instead of 10.5.0.50 when the lease was renewed");
}

#[test]
fn the_prefix_length_stays_what_is_on_the_link() {
    for reply in [Reply::ack(ADDRESS).without(1), Reply::ack(ADDRESS).raw(1, &[255, 255, 0, 0])] {
        let mut lab = Lab::bound();
        lab.later(60_000, Event::Timer);
        let Some(Outcome::Kept { lease }) = lab.reply(&reply).outcome else { panic!("{reply:?}") };
        assert_eq!(lease.addresses[0].address.to_string(), "10.5.0.50/24");
    }
}

#[test]
fn a_late_timer_finds_the_state_that_is_due() {
    for (after, phase) in
        [(59_999, "bound"), (60_000, "renewing"), (101_999, "renewing"), (102_000, "rebinding"), (119_999, "rebinding")]
    {
        let mut lab = Lab::bound();
        for event in [Event::Timer, Event::Resume] {
            let mut lab = lab.clone();
            let output = lab.later(after, event);
            assert_eq!((lab.phase().as_str(), output.outcome), (phase, None), "{after}");
            assert_eq!(output.send.len(), usize::from(phase != "bound"));
        }
        assert!(loss(&lab.later(120_000, Event::Resume)).contains("expired"));
    }
}

#[test]
fn a_clock_that_went_back_does_not_make_the_lease_longer() {
    let mut lab = Lab::bound();
    lab.now_ms -= 900_000;
    assert_eq!(lab.on(Event::Resume).wake_ms, Some(60_000));
}

#[test]
fn a_lease_without_end_has_no_timer() {
    let mut lab = Lab::new();
    lab.on(Event::Start { previous: None });
    lab.reply(&Reply::offer(ADDRESS));
    let output = lab.reply(&Reply::ack(ADDRESS).number(51, u32::MAX));
    assert_eq!(output.wake_ms, None);
    let output = lab.later(u64::from(u32::MAX) * 1000, Event::Resume);
    assert_eq!((output.wake_ms, output.outcome, lab.phase().as_str()), (None, None, "bound"));
}

#[test]
fn a_lease_is_given_back() {
    for mut lab in [Lab::bound(), Lab::kept()] {
        let output = lab.on(Event::Release);
        let release = one(&output);
        assert_eq!((release.kind, release.to), (MessageType::Release, to_server()));
        assert_eq!(release.message.ciaddr().to_string(), ADDRESS);
        assert_eq!((release.server().unwrap().to_string().as_str(), release.wanted()), (SERVER, None));
        assert!(release.message.opts().contains(OptionCode::ClientIdentifier));
        assert_eq!((output.outcome, output.wake_ms), (Some(Outcome::Ended), None));
        // A second release is no error, and sends nothing.
        let output = lab.on(Event::Release);
        assert_eq!((output.send.len(), output.outcome), (0, Some(Outcome::Ended)));
    }
}

/// The server may have given the address, although its answer has not arrived yet.
#[test]
fn a_requested_address_is_given_back() {
    let requesting = || {
        let mut lab = Lab::new();
        lab.on(Event::Start { previous: None });
        lab.reply(&Reply::offer(ADDRESS));
        assert_eq!(lab.phase(), "requesting");
        lab
    };
    for (output, is_failure) in
        [(requesting().on(Event::Release), false), (requesting().later(3_600_000, Event::Timer), true)]
    {
        let release = one(&output);
        assert_eq!((release.kind, release.to), (MessageType::Release, to_server()));
        assert_eq!(release.message.ciaddr().to_string(), ADDRESS);
        assert_eq!(release.server().unwrap().to_string(), SERVER);
        assert_eq!(matches!(output.outcome, Some(Outcome::Failed { .. })), is_failure, "{output:?}");
        assert_eq!(output.wake_ms, None);
    }
}

#[test]
fn without_a_lease_nothing_is_sent_at_the_end() {
    let mut lab = Lab::new();
    lab.on(Event::Start { previous: None });
    let output = lab.on(Event::Release);
    assert_eq!((output.send.len(), output.outcome, output.wake_ms), (0, Some(Outcome::Ended), None));
}

#[test]
fn a_conflict_after_a_renewal_ends_the_lease() {
    for after in [0, 60_000, 102_000] {
        let mut lab = Lab::kept();
        lab.later(after, Event::Timer);
        let output = lab.on(Event::Conflict);
        assert_eq!(one(&output).kind, MessageType::Decline);
        assert_eq!(loss(&output), "another station uses 10.5.0.50");
    }
}

#[test]
fn a_lease_that_was_lost_stays_lost() {
    let mut lab = Lab::bound();
    lab.later(120_000, Event::Timer);
    for event in [Event::Timer, Event::Resume, Event::Conflict] {
        let output = lab.on(event);
        assert_eq!((output.send.len(), output.outcome, output.wake_ms), (0, None, None));
    }
    assert_eq!(lab.reply(&Reply::ack(ADDRESS)).outcome, None);
    // A new ADD begins anew.
    assert_eq!(one(&lab.on(Event::Start { previous: None })).kind, MessageType::Discover);
}

#[test]
fn a_damaged_state_is_a_lost_lease() {
    for state in [None, Some(State(serde_json::json!({"version": 2}))), Some(State(serde_json::json!("x")))] {
        let mut lab = Lab::new();
        for event in [Event::Timer, Event::Resume, Event::Conflict] {
            lab.state = state.clone();
            let output = lab.on(event);
            assert!(loss(&output).starts_with("dhcp: the"), "{output:?}");
        }
        lab.state = state.clone();
        assert_eq!(lab.on(Event::Release).outcome, Some(Outcome::Ended));
        lab.state = state.clone();
        assert_eq!(sent(&lab.on(Event::Start { previous: None })).len(), 1);
    }
}

#[test]
fn a_lease_outlives_its_configuration() {
    let mut lab = Lab::bound();
    lab.client.configuration = "{".into();
    lab.later(60_000, Event::Timer);
    assert!(matches!(lab.reply(&Reply::ack(ADDRESS)).outcome, Some(Outcome::Kept { .. })));
}
