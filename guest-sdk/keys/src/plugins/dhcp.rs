use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "dhcp",
    about: "Gives addresses of a DHCP server, which the node's DHCP service keeps alive",
    source: "https://www.cni.dev/plugins/current/ipam/dhcp/",
    role: Role::Ipam,
    ipam: Delegation::None,
    since: Version::V0_1_0,
    keys: &[
        Key::new("daemonSocketPath", Kind::Text(Form::Path), "Socket of the DHCP service")
            .default("\"/run/cni/dhcp.sock\"")
            .sample("\"/run/cni/dhcp.sock\""),
        Key::new(
            "families",
            Kind::List(&Kind::Text(Form::OneOf(&["ipv4", "ipv6"]))),
            "Address families: `ipv4` by DHCP, `ipv6` by DHCPv6",
        )
        .default(r#"["ipv4"]"#)
        .sample(r#"["ipv4", "ipv6"]"#),
        Key::new("provide", Kind::List(&Kind::Object(PROVIDE)), "Options that are sent to the server")
            .sample(r#"[{"option": "host-name", "value": "c1", "fromArg": "K8S_POD_NAME"}]"#),
        Key::new("request", Kind::List(&Kind::Object(REQUEST)), "Options that the server is asked for")
            .sample(r#"[{"option": "121", "skipDefault": false}]"#),
        Key::number("priority", 0, u32::MAX as u64, "Metric of all routes"),
    ],
    runtime: &[],
    args: &[],
    example: r#"{"ipam": {"type": "dhcp"}}"#,
};

/// The keys of an option that is sent.
const PROVIDE: &[Key] = &[
    Key::text("option", "Name or number of the option").required().sample("\"host-name\""),
    Key::text("value", "Value of the option").sample("\"c1\""),
    Key::text("fromArg", "Key of CNI_ARGS whose value goes before `value`").sample("\"K8S_POD_NAME\""),
];

/// The keys of an option that is asked for.
const REQUEST: &[Key] = &[
    Key::text("option", "Name or number of the option").sample("\"121\""),
    Key::flag("skipDefault", "Routers and subnet mask are not asked for by default"),
];
