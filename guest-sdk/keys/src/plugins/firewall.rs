use super::PREVIOUS;
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "firewall",
    about: "Lets the node's firewall pass the container's traffic, and isolates bridges",
    source: "https://www.cni.dev/plugins/current/meta/firewall/",
    role: Role::Chained,
    ipam: Delegation::None,
    since: Version::V0_4_0,
    keys: &[
        Key::new(
            "backend",
            Kind::Text(Form::OneOf(&["", "iptables", "firewalld"])),
            "Program that lets the traffic pass [default: firewalld if it runs, else iptables]",
        )
        .sample("\"iptables\"")
        .lenient(),
        Key::text("iptablesAdminChainName", "Chain for the operator's own rules")
            .default("\"CNI-ADMIN\"")
            .sample("\"CNI-ADMIN\""),
        Key::text("firewalldZone", "Zone of firewalld").default("\"trusted\"").sample("\"trusted\""),
        Key::new(
            "ingressPolicy",
            Kind::Text(Form::OneOf(&["", "open", "same-bridge", "isolated"])),
            "Sources that reach the container: all, its own bridge, none",
        )
        .default("\"open\"")
        .sample("\"open\""),
    ],
    runtime: &[],
    args: &[],
    example: PREVIOUS,
};
