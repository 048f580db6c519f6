use super::WITH_IPAM;
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "dummy",
    about: "Gives the container a link that leads nowhere",
    source: "https://www.cni.dev/plugins/current/main/dummy/",
    role: Role::Main,
    ipam: Delegation::Required,
    since: Version::V0_1_0,
    keys: &[],
    runtime: &[],
    args: &[],
    example: WITH_IPAM,
};
