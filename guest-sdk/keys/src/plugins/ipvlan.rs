use super::WITH_IPAM;
use crate::common::U32;
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "ipvlan",
    about: "Gives the container a link on a link of the node, and both share a link-layer address",
    source: "https://www.cni.dev/plugins/current/main/ipvlan/",
    role: Role::Main,
    ipam: Delegation::Optional,
    since: Version::V0_1_0,
    keys: &[
        Key::text("master", "Link to stack on [default: the link of the default route]").sample("\"eth1\""),
        Key::new(
            "mode",
            Kind::Text(Form::OneOf(&["", "l2", "l3", "l3s"])),
            "How packets pass; all links of a master have the same mode",
        )
        .default("\"l2\"")
        .sample("\"l3\""),
        Key::number("mtu", 0, U32, "MTU in bytes; 0 is the master's").lenient().sample("1400"),
        Key::flag("linkInContainer", "The master is in the container"),
    ],
    runtime: &[],
    args: &[],
    example: WITH_IPAM,
};
