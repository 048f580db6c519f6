use super::PREVIOUS;
use crate::key::{Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "bandwidth",
    about: "Limits the rate of the container's traffic",
    source: "https://www.cni.dev/plugins/current/meta/bandwidth/",
    role: Role::Chained,
    ipam: Delegation::None,
    since: Version::V0_3_0,
    keys: LIMITS,
    runtime: &[Key::new(
        "bandwidth",
        Kind::Object(LIMITS),
        "Limits of the runtime; they count if the network has none",
    )
    .sample(r#"{"ingressRate": 8000, "ingressBurst": 8000, "egressRate": 8000, "egressBurst": 8000}"#)],
    args: &[],
    example: PREVIOUS,
};

const LIMITS: &[Key] = &[
    Key::number("ingressRate", 0, u64::MAX, "Bits per second to the container; 0 is no limit")
        .sample("8000")
        .with(r#"{"ingressBurst": 8000}"#),
    Key::number("ingressBurst", 0, BURST, "Bits to the container that may go at once")
        .sample("8000")
        .with(r#"{"ingressRate": 8000}"#),
    Key::number("egressRate", 0, u64::MAX, "Bits per second from the container; 0 is no limit")
        .sample("8000")
        .with(r#"{"egressBurst": 8000}"#),
    Key::number("egressBurst", 0, BURST, "Bits from the container that may go at once")
        .sample("8000")
        .with(r#"{"egressRate": 8000}"#),
];

/// The largest burst, in bits: its number of bytes is below 4 GiB.
const BURST: u64 = 0xffff_ffff * 8 - 1;
