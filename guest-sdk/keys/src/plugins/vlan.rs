use crate::key::Key;
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "vlan",
    about: "Gives the container a link in a VLAN of a link of the node",
    source: "https://www.cni.dev/plugins/current/main/vlan/",
    role: Role::Main,
    ipam: Delegation::Required,
    since: Version::V0_1_0,
    keys: &[
        Key::text("master", "Link that carries the VLAN").required().sample("\"eth1\""),
        Key::number("vlanId", 0, 4094, "VLAN").default("0").sample("7"),
        Key::number("mtu", 0, 0x7fff_ffff, "MTU in bytes, at most the master's; 0 means the master's MTU")
            .sample("1400"),
        Key::flag("linkInContainer", "The master is in the container"),
    ],
    runtime: &[],
    args: &[],
    example: r#"{"master": "eth1", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}]]}}"#,
};
