use super::{MASQUERADE, MASQUERADE_BACKEND, WITH_IPAM};
use crate::common::U32;
use crate::key::Key;
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "ptp",
    about: "Connects the container with the node by a pair of links; the node routes",
    source: "https://www.cni.dev/plugins/current/main/ptp/",
    role: Role::Main,
    ipam: Delegation::Required,
    since: Version::V0_1_0,
    keys: &[
        MASQUERADE,
        MASQUERADE_BACKEND,
        Key::number("mtu", 0, U32, "MTU of both ends in bytes; 0 is the kernel's").lenient().sample("1400"),
    ],
    runtime: &[],
    args: &[],
    example: WITH_IPAM,
};
