use crate::common::ROUTE;
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "host-local",
    about: "Gives addresses of ranges, and keeps them in files of the node",
    source: "https://www.cni.dev/plugins/current/ipam/host-local/",
    role: Role::Ipam,
    ipam: Delegation::None,
    since: Version::V0_1_0,
    keys: &[
        Key::new("ranges", SETS, "Sets of ranges; a container gets one address of each set")
            .sample(r#"[[{"subnet": "10.9.3.0/24", "rangeStart": "10.9.3.5", "rangeEnd": "10.9.3.9", "gateway": "10.9.3.1"}]]"#),
        SUBNET.sample("\"10.9.4.0/24\""),
        START.sample("\"10.9.4.5\"").with(r#"{"subnet": "10.9.4.0/24"}"#),
        END.sample("\"10.9.4.9\"").with(r#"{"subnet": "10.9.4.0/24"}"#),
        GATEWAY.sample("\"10.9.4.1\"").with(r#"{"subnet": "10.9.4.0/24"}"#),
        Key::new("routes", Kind::List(&Kind::Object(ROUTE)), "Routes of the container").sample(
            r#"[{"dst": "0.0.0.0/0", "gw": "10.1.2.1", "mtu": 1400, "advmss": 1360, "priority": 100, "table": 254, "scope": 0}]"#,
        ),
        Key::text("dataDir", "Directory of the files").default("\"/var/lib/cni/networks\"").sample("\"/var/lib/cni/networks\""),
        Key::text("resolvConf", "File with name servers for the container").sample("\"\""),
    ],
    runtime: &[
        Key::new("ipRanges", SETS, "Sets of ranges that go before the network's sets")
            .sample(r#"[[{"subnet": "10.9.5.0/24", "rangeStart": "10.9.5.5", "rangeEnd": "10.9.5.9", "gateway": "10.9.5.1"}]]"#),
        Key::new("ips", Kind::List(&Kind::Text(Form::IpOrCidr)), "Addresses that the container wants").sample(r#"["10.9.2.7"]"#),
    ],
    args: &[Key::new("ips", Kind::List(&Kind::Text(Form::IpOrCidr)), "Addresses that the container wants")
        .sample(r#"["10.9.2.8/24"]"#)],
    example: r#"{"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.2.0/24"}]]}}"#,
};

const SETS: Kind = Kind::List(&Kind::List(&Kind::Object(RANGE)));

const SUBNET: Key = Key::new("subnet", Kind::Text(Form::Cidr), "Network, without host bits");
const START: Key =
    Key::new("rangeStart", Kind::Text(Form::Ip), "First address to give [default: the first after the network's]");
const END: Key =
    Key::new("rangeEnd", Kind::Text(Form::Ip), "Last address to give [default: the last before broadcast]");
const GATEWAY: Key =
    Key::new("gateway", Kind::Text(Form::Ip), "Gateway; no container gets it [default: the first after the network's]");

/// The keys of one range.
const RANGE: &[Key] = &[
    SUBNET.required().sample("\"10.9.3.0/24\""),
    START.sample("\"10.9.3.5\""),
    END.sample("\"10.9.3.9\""),
    GATEWAY.sample("\"10.9.3.1\""),
];
