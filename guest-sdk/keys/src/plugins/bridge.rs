use super::{MASQUERADE, MASQUERADE_BACKEND, mac};
use crate::common::U32;
use crate::key::{Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "bridge",
    about: "Connects the container with a bridge of the node",
    source: "https://www.cni.dev/plugins/current/main/bridge/",
    role: Role::Main,
    ipam: Delegation::Optional,
    since: Version::V0_1_0,
    keys: &[
        Key::text("bridge", "Name of the bridge; a missing bridge is made").default("\"cni0\"").sample("\"br0\""),
        Key::flag("isGateway", "The bridge gets the gateway's address, and the node forwards"),
        Key::flag("isDefaultGateway", "As `isGateway`, and the container's default route leads to the bridge"),
        Key::flag("forceAddress", "Replace an address of the bridge that conflicts"),
        MASQUERADE,
        MASQUERADE_BACKEND,
        Key::number("mtu", 0, U32, "MTU of the pair and of a new bridge, in bytes; 0 is the kernel's default")
            .sample("1400")
            .lenient(),
        Key::flag("hairpinMode", "Frames may leave by the port through which they came"),
        Key::flag("promiscMode", "The bridge takes every frame; not together with `hairpinMode`"),
        Key::number("vlan", 0, 4094, "Access VLAN of the port; 0 is none").sample("7"),
        Key::new("vlanTrunk", Kind::List(&Kind::Object(TRUNK)), "VLANs that the port carries tagged")
            .sample(r#"[{"minID": 10, "maxID": 20, "id": 5}]"#),
        Key::flag("preserveDefaultVlan", "Keep the VLANs that the port has by default"),
        Key::flag("macspoofchk", "Only frames with the container's own address may leave the container"),
        Key::flag("enabledad", "Look for duplicates of IPv6 addresses"),
        Key::flag("disableContainerInterface", "Leave the container's end down; without `ipam` only"),
        Key::flag("portIsolation", "No traffic to other isolated ports"),
    ],
    runtime: &[mac("Address of the container's end")],
    args: &[mac("Address of the container's end, unless the capability `mac` gives an address")],
    example: r#"{"bridge": "br0"}"#,
};

const TRUNK: &[Key] = &[
    Key::number("minID", 1, 4094, "First VLAN of a range; with `maxID`").sample("10"),
    Key::number("maxID", 1, 4094, "Last VLAN of a range").sample("20"),
    Key::number("id", 1, 4094, "One VLAN").sample("5"),
];
