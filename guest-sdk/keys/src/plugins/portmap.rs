use super::{BACKENDS, PREVIOUS};
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "portmap",
    about: "Forwards ports of the node to the container",
    source: "https://www.cni.dev/plugins/current/meta/portmap/",
    role: Role::Chained,
    ipam: Delegation::None,
    since: Version::V0_1_0,
    keys: &[
        Key::new("backend", BACKENDS, "Packet filter [default: the node's]").sample("\"nftables\""),
        Key::flag("snat", "Masquerade packets that the node or the container itself sends to a port").default("true"),
        Key::flag("masqAll", "Masquerade every source"),
        Key::number("markMasqBit", 0, 31, "Bit of the mark for masquerading; not with `externalSetMarkChain`")
            .default("13")
            .sample("13"),
        Key::text("externalSetMarkChain", "Chain of iptables that sets the mark").sample("\"KUBE-MARK-MASQ\""),
        Key::new("conditionsV4", Kind::List(&Kind::Text(Form::Free)), "Further conditions of rules for IPv4")
            .sample(r#"["-i", "eth0"]"#),
        Key::new("conditionsV6", Kind::List(&Kind::Text(Form::Free)), "Further conditions of rules for IPv6")
            .sample(r#"["-i", "eth0"]"#),
    ],
    runtime: &[Key::new("portMappings", Kind::List(&Kind::Object(MAPPING)), "Ports of the node, with their targets")
        .sample(r#"[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "10.0.0.1"}]"#)],
    args: &[],
    example: PREVIOUS,
};

const MAPPING: &[Key] = &[
    Key::number("hostPort", 1, 65535, "Port of the node").required().sample("8080"),
    Key::number("containerPort", 1, 65535, "Port of the container").required().sample("80"),
    Key::new("protocol", Kind::Text(Form::OneOf(&["tcp", "udp", "sctp"])), "Protocol").required().sample("\"tcp\""),
    Key::new("hostIP", Kind::Text(Form::Ip), "Address of the node [default: all]").sample("\"10.0.0.1\""),
];
