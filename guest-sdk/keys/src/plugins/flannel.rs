use crate::key::{Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "flannel",
    about: "Hands the attachment to another plugin, with the node's subnet of flanneld",
    source: "https://github.com/flannel-io/cni-plugin#readme",
    role: Role::Main,
    ipam: Delegation::HandedOn,
    since: Version::V0_1_0,
    keys: &[
        Key::text("subnetFile", "File of flanneld")
            .default("\"/run/flannel/subnet.env\"")
            .sample("\"/run/flannel/subnet.env\""),
        Key::text("dataDir", "Directory of the native plugin's files")
            .default("\"/var/lib/cni/flannel\"")
            .sample("\"/var/lib/cni/flannel\""),
        Key::new(
            "delegate",
            Kind::Delegate,
            "Keys for the other plugin, without `name` and `ipam`; `type` is bridge by default",
        )
        .sample(r#"{"type": "bridge"}"#),
    ],
    runtime: &[],
    args: &[],
    example: "{}",
};
