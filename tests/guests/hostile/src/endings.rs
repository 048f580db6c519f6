//! Ways to end a run, and outputs before the end.

use crate::say;
use postern_guest::cni::{CniResult, Error, Interface, Version};
use postern_guest::{ipam, leases, link, mac_guard, veth};
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;

/// Ends the run by `behaviour`. Returns `None` if no behaviour has this name. Some behaviours never return.
pub fn end(behaviour: &str, says: &str, made: &CniResult) -> Option<ExitCode> {
    let truth = made.to_json(Version::V1_0_0).unwrap_or_default();
    let claim = |change: fn(&mut CniResult)| {
        let mut claim = made.clone();
        change(&mut claim);
        say(claim.to_json(Version::V1_0_0).unwrap_or_default().as_bytes());
    };
    match behaviour {
        "good" => say(truth.as_bytes()),
        "says" => say(says.as_bytes()),
        "trap" => std::process::abort(),
        "panic" => fall(),
        "silent" => {}
        "silent-failure" => return Some(ExitCode::FAILURE),
        "status" => return Some(ExitCode::from(77)),
        "nonsense" => say(b"everything is fine \x1b[2J"),
        "nonsense-failure" => {
            say(b"nothing is fine \x1b[2J");
            return Some(ExitCode::FAILURE);
        }
        "two-objects" => say(format!("{truth}{truth}").as_bytes()),
        "array" => say(b"[]"),
        "not-utf8" => say(b"{\"cniVersion\": \"\xff\"}"),
        "deep" => say("[".repeat(100_000).as_bytes()),
        "flood-stdout" => flood(std::io::stdout(), b"0123456789abcdef"),
        "flood-stderr" => {
            flood(std::io::stderr(), b"\x1b[2J\x07 0123456789\n");
            return Some(fail("flooded"));
        }
        "error" => return Some(fail("on purpose")),
        "loop" => loop {
            black_box(behaviour);
        },
        // Releases the lease before the link is removed, which no plugin should do, and then never ends.
        "release-and-loop" => {
            let _ = ipam::del();
            loop {
                black_box(behaviour);
            }
        }
        "release-and-trap" => {
            let _ = leases::release();
            std::process::abort()
        }
        "lease-and-loop" => {
            let _ = leases::release();
            loop {
                black_box(behaviour);
            }
        }
        "unguard-and-loop" => {
            let _ = mac_guard::remove();
            loop {
                black_box(behaviour);
            }
        }
        "call-loop" => loop {
            let _ = black_box(link::own());
        },
        "allocate" => hoard(|| vec![1_u8; 1 << 20]),
        "allocate-at-once" => {
            black_box(vec![1_u8; u32::MAX as usize / 2]);
        }
        "hoard-some" => {
            black_box((0..100).map(|_| veth::Options::default()).collect::<Vec<_>>());
            say(truth.as_bytes());
        }
        "recurse" => {
            black_box(recurse(1));
        }
        "hoard" => hoard(veth::Options::default),
        "claim-interface" => claim(|result| {
            result.interfaces.push(Interface { name: "eth9".to_owned(), ..Interface::default() });
        }),
        "claim-sandbox" => claim(|result| {
            let sandbox = "/run/netns/other".to_owned();
            result.interfaces.push(Interface { name: "eth0".to_owned(), sandbox, ..Interface::default() });
        }),
        "claim-address" => say(br#"{"cniVersion": "1.0.0", "ips": [{"address": "10.66.6.6/24"}]}"#),
        "claim-index" => say(br#"{"cniVersion": "1.0.0", "ips": [{"address": "127.0.0.1/8", "interface": 7}]}"#),
        "claim-version" => say(br#"{"cniVersion": "9.9.9"}"#),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

fn fail(message: &str) -> ExitCode {
    say(Error::new(123, message).with_details("as ordered").to_json().as_bytes());
    ExitCode::FAILURE
}

/// Writes 10 MiB of the text.
fn flood(mut to: impl Write, text: &[u8]) {
    let block = text.repeat((64 << 10) / text.len());
    for _ in 0..160 {
        let _ = to.write_all(&block);
    }
}

#[allow(clippy::panic, reason = "the test needs a guest that panics")]
fn fall() {
    panic!("the guest panics");
}

fn hoard<T>(more: impl Fn() -> T) {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(more()));
    }
}

/// Recurses endlessly. The compiler can't turn the recursion into a loop, because each frame has data for later.
#[allow(unconditional_recursion, reason = "the test needs endless recursion")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    recurse(depth + 1) + frame.iter().sum::<u64>()
}
