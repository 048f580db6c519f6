//! Random packets and random sequences of events.

use super::lab::{Lab, sent};
use super::reply::Reply;
use crate::{Event, Lease, Outcome, Output};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// An event of a sequence.
#[derive(Clone, Debug)]
enum Act {
    /// A server's packet, in the client's transaction or in another transaction.
    Reply {
        kind: u8,
        address: u8,
        server: u8,
        options: Vec<(u8, Vec<u8>)>,
        ours: bool,
    },
    /// A server's packet with some bytes changed.
    Damaged {
        kind: u8,
        changes: Vec<(usize, u8)>,
        length: usize,
    },
    Noise(Vec<u8>),
    Sleep {
        thousandths: u64,
    },
    Resume,
    Conflict,
    Start(Option<u32>),
    Release,
}

fn option() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let known = prop::sample::select(vec![1_u8, 3, 6, 15, 26, 33, 51, 52, 53, 54, 56, 58, 59, 119, 121]);
    (known, vec(any::<u8>(), 0..40))
}

fn act() -> impl Strategy<Value = Act> {
    let kind = prop::sample::select(vec![2_u8, 5, 5, 6]);
    prop_oneof![
        8 => (kind.clone(), 50..53_u8, 1..3_u8, vec(option(), 0..4), prop::bool::weighted(0.9))
            .prop_map(|(kind, address, server, options, ours)| Act::Reply { kind, address, server, options, ours }),
        2 => (kind, vec((0..400_usize, any::<u8>()), 0..6), 0..400_usize)
            .prop_map(|(kind, changes, length)| Act::Damaged { kind, changes, length }),
        1 => vec(any::<u8>(), 0..600).prop_map(Act::Noise),
        6 => (0..1200_u64).prop_map(|thousandths| Act::Sleep { thousandths }),
        1 => Just(Act::Resume),
        1 => Just(Act::Conflict),
        1 => any::<Option<u32>>().prop_map(Act::Start),
        1 => Just(Act::Release),
    ]
}

/// Plays a sequence, and checks the invariants after each step.
fn play(acts: Vec<Act>) {
    let mut lab = Lab::with(
        r#"{"request":[{"option":"6"},{"option":"15"},{"option":"26"},{"option":"119"},{"option":"121"}]}"#,
        "",
    );
    let mut output = lab.on(Event::Start { previous: None });
    // The addresses that a server has acknowledged.
    let mut acknowledged = BTreeSet::new();
    let mut held: Option<Lease> = None;
    for act in acts {
        let asked = lab.phase();
        output = match &act {
            Act::Reply { kind, address, server, options, ours } => {
                let text = format!("10.5.0.{address}");
                let mut reply = Reply::ack(&text).raw(53, &[*kind]).raw(54, &[10, 5, 0, *server]);
                for (code, data) in options {
                    reply = reply.raw(*code, data);
                }
                acknowledged.insert(text);
                lab.packet(reply.xid(if *ours { lab.xid } else { !lab.xid }).bytes())
            }
            Act::Damaged { kind, changes, length } => {
                let mut bytes = Reply::ack("10.5.0.50").raw(53, &[*kind]).xid(lab.xid).bytes();
                let count = bytes.len();
                changes.iter().for_each(|(at, byte)| bytes[at % count] = *byte);
                // The changed bytes may be a part of the address.
                acknowledged.insert(format!("{}.{}.{}.{}", bytes[16], bytes[17], bytes[18], bytes[19]));
                bytes.truncate(count.min(*length));
                lab.packet(bytes)
            }
            Act::Noise(bytes) => lab.packet(bytes.clone()),
            Act::Sleep { thousandths } => {
                let wait = output.wake_ms.unwrap_or(1_000_000);
                lab.later(wait * thousandths / 1000, Event::Timer)
            }
            Act::Resume => lab.on(Event::Resume),
            Act::Conflict => lab.on(Event::Conflict),
            Act::Start(previous) => lab.on(Event::Start { previous: previous.map(Into::into) }),
            Act::Release => lab.on(Event::Release),
        };
        check(&lab, &output, &acknowledged, &act, &asked);
        held = match &output.outcome {
            Some(Outcome::Bound { lease, .. }) => Some(lease.clone()),
            Some(Outcome::Kept { lease }) => {
                assert_eq!(
                    held.unwrap().addresses[0].address,
                    lease.addresses[0].address,
                    "a renewal keeps the address"
                );
                Some(lease.clone())
            }
            Some(Outcome::Lost { .. } | Outcome::Failed { .. } | Outcome::Ended) => None,
            None if matches!(act, Act::Start(_) | Act::Conflict) => None,
            None => held,
        };
        let is_held = ["bound", "renewing", "rebinding"].contains(&lab.phase().as_str());
        assert_eq!(is_held, held.is_some(), "{act:?} in {asked}");
    }
}

fn check(lab: &Lab, output: &Output, acknowledged: &BTreeSet<String>, act: &Act, asked: &str) {
    // `sent` checks the form of each packet.
    assert!(sent(output).len() <= 1);
    let text = serde_json::to_string(&output.state).unwrap();
    assert!(text.len() < 450, "{} bytes: {text}", text.len());
    // A lease that has not ended has a timer; an endless lease needs none.
    let endless = output.state.0.pointer("/held/seconds").is_some_and(|seconds| *seconds == u32::MAX);
    assert_eq!(output.wake_ms.is_none(), lab.phase() == "ended" || endless, "{act:?} in {asked}: {text}");
    if let Some(Outcome::Bound { lease, .. } | Outcome::Kept { lease }) = &output.outcome {
        let address = lease.addresses[0].address.addr().to_string();
        assert!(acknowledged.contains(&address), "{address} was never acknowledged");
        assert!(lease.t1 <= lease.t2 && lease.t2 <= lease.seconds && lease.seconds >= 4);
        assert!(["requesting", "rebooting", "renewing", "rebinding"].contains(&asked), "{asked}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn sequences(acts in vec(act(), 1..40)) {
        play(acts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn options_of_any_form(options in vec((any::<u8>(), vec(any::<u8>(), 0..300)), 0..12), sname: [u8; 32], file: [u8; 32]) {
        let mut lab = Lab::with(r#"{"request":[{"option":"6"},{"option":"15"},{"option":"26"},{"option":"119"}]}"#, "");
        lab.on(Event::Start { previous: None });
        lab.reply(&Reply::offer("10.5.0.50"));
        let mut reply = Reply::ack("10.5.0.50").xid(lab.xid);
        for (code, data) in &options {
            reply = reply.raw(*code, data);
        }
        lab.packet(reply.with_fields(&sname, &file));
    }
}
