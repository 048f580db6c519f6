use crate::common::{DNS, ROUTE};
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "static",
    about: "Gives the addresses that the network names",
    source: "https://www.cni.dev/plugins/current/ipam/static/",
    role: Role::Ipam,
    ipam: Delegation::None,
    since: Version::V0_1_0,
    keys: &[
        Key::new("addresses", Kind::List(&Kind::Object(ADDRESS)), "Addresses of the container")
            .sample(r#"[{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}]"#),
        Key::new("routes", Kind::List(&Kind::Object(ROUTE)), "Routes of the container").sample(
            r#"[{"dst": "0.0.0.0/0", "gw": "10.1.2.1", "mtu": 1400, "advmss": 1360, "priority": 100, "table": 254, "scope": 0}]"#,
        ),
        Key::new("dns", Kind::Object(DNS), "Name servers for the container").sample(
            r#"{"nameservers": ["10.1.0.10"], "domain": "example.net", "search": ["example.net"], "options": ["ndots:2"]}"#,
        ),
    ],
    runtime: &[Key::new("ips", Kind::List(&Kind::Text(Form::Cidr)), "Addresses that replace the network's own")
        .sample(r#"["10.1.2.4/24"]"#)],
    args: &[Key::new("ips", Kind::List(&Kind::Text(Form::Cidr)), "Addresses that replace the network's own")
        .sample(r#"["10.1.2.5/24"]"#)],
    example: r#"{"ipam": {"type": "static"}}"#,
};

const ADDRESS: &[Key] = &[
    Key::new("address", Kind::Text(Form::Cidr), "Address, with prefix length").required().sample("\"10.1.2.3/24\""),
    Key::new("gateway", Kind::Text(Form::Ip), "Gateway of the address").sample("\"10.1.2.1\""),
];
