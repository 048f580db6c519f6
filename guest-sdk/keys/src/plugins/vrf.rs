use crate::common::U32;
use crate::key::Key;
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "vrf",
    about: "Puts the container's link into a VRF, which has its own routes",
    source: "https://www.cni.dev/plugins/current/meta/vrf/",
    role: Role::Chained,
    ipam: Delegation::None,
    since: Version::V0_3_1,
    keys: &[
        Key::text("vrfname", "Name of the VRF; it is made if it is missing").required().sample("\"blue\""),
        Key::number("table", 0, U32, "Routing table of the VRF [default: the lowest unused table]").sample("10"),
    ],
    runtime: &[],
    args: &[],
    example: r#"{"vrfname": "blue", "prevResult": {"cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/c1"}],
        "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 0}]}}"#,
};
