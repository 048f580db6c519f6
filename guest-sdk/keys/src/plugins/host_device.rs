use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "host-device",
    about: "Moves a link of the node into the container",
    source: "https://www.cni.dev/plugins/current/main/host-device/",
    role: Role::Main,
    ipam: Delegation::Optional,
    since: Version::V0_1_0,
    keys: &[
        Key::text("device", "Name of the link").sample("\"eno1\""),
        Key::new("hwaddr", Kind::Text(Form::Mac), "The link's address").lenient().sample("\"02:00:00:00:00:01\""),
        Key::new("kernelpath", Kind::Text(Form::Path), "Device of the link in sysfs, below /sys/devices")
            .lenient()
            .sample("\"/sys/devices/x\""),
        Key::text("pciBusID", "PCI address of the link").sample("\"0000:3b:00.1\""),
        Key::flag("DPDKMode", "A user-space driver has the device, so no link is moved"),
    ],
    runtime: &[Key::text("deviceID", "PCI address or name of an auxiliary device").sample("\"0000:3b:00.1\"")],
    args: &[],
    example: r#"{"device": "eno1"}"#,
};
