use super::mac;
use crate::common::U32;
use crate::key::Key;
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "tap",
    about: "Gives the container a tap, for a virtual machine in it",
    source: "https://www.cni.dev/plugins/current/main/tap/",
    role: Role::Main,
    ipam: Delegation::Optional,
    since: Version::V0_1_0,
    keys: &[
        Key::flag("multiQueue", "The tap has several queues"),
        Key::number("mtu", 0, U32, "MTU in bytes; 0 is the kernel's").sample("1400"),
        mac("Address of the tap, unless `CNI_ARGS` or the capability `mac` has one"),
        Key::number("owner", 0, U32, "User that may open the tap").sample("1000"),
        Key::number("group", 0, U32, "Group that may open the tap").sample("1000"),
        Key::text(
            "selinuxContext",
            "SELinux context of the tap; a node without SELinux refuses it [default: the runtime's context]",
        )
        .sample("\"\""),
        Key::text("bridge", "Bridge in the container that the tap joins").sample("\"\""),
    ],
    runtime: &[mac("Address of the tap")],
    args: &[],
    example: "{}",
};
