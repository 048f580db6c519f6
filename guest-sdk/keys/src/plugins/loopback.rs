use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "loopback",
    about: "Sets the container's lo up",
    source: "https://www.cni.dev/plugins/current/main/loopback/",
    role: Role::Main,
    ipam: Delegation::None,
    since: Version::V0_1_0,
    keys: &[],
    runtime: &[],
    args: &[],
    example: "{}",
};
