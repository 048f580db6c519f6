use super::mac;
use crate::common::U32;
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "macvlan",
    about: "Gives the container a link with its own address, on a link of the node",
    source: "https://www.cni.dev/plugins/current/main/macvlan/",
    role: Role::Main,
    ipam: Delegation::Optional,
    since: Version::V0_1_0,
    keys: &[
        Key::text("master", "Link to stack on [default: the link of the default route]").sample("\"eth1\""),
        Key::new(
            "mode",
            Kind::Text(Form::OneOf(&["", "bridge", "private", "vepa", "passthru"])),
            "How links of one master reach each other",
        )
        .default("\"bridge\"")
        .sample("\"private\""),
        Key::number("mtu", 0, 0x7fff_ffff, "MTU in bytes, at most the master's; 0 means the master's MTU")
            .sample("1400"),
        mac("Address of the link, unless `CNI_ARGS` or the capability `mac` has one"),
        Key::flag("linkInContainer", "The master is in the container"),
        Key::number("bcqueuelen", 0, U32, "Length of the queue for broadcasts; 0 means the kernel's length")
            .sample("100"),
    ],
    runtime: &[mac("Address of the link")],
    args: &[],
    example: "{}",
};
