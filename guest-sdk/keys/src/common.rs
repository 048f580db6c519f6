//! The keys that all plugins and all lists have.

use crate::key::{Form, Key, Kind};

/// The web page about the keys of lists and the common keys of plugins.
pub const SOURCE: &str = "https://www.cni.dev/docs/spec/#section-1-network-configuration-format";

/// The keys of a list. A runtime reads them in exactly this spelling.
pub const LIST: &[Key] = &[
    Key::new("cniVersion", Kind::Text(Form::Free), "Version of the specification for all plugins").default("\"0.1.0\""),
    Key::new(
        "cniVersions",
        Kind::List(&Kind::Text(Form::Free)),
        "Versions; the runtime takes the highest version that it knows",
    ),
    Key::text("name", "Name of the network, unique on the node: letters, digits, '_', '.', '-'").required(),
    Key::new("disableCheck", Kind::Switch, "CHECK of this network does nothing").default("false"),
    Key::new("disableGC", Kind::Switch, "GC of this network does nothing").default("false"),
    Key::new(
        "loadOnlyInlinedPlugins",
        Kind::Switch,
        "Plugins come from this list alone, not from the directory of the network's name",
    )
    .default("false"),
    Key::new("plugins", Kind::List(&Kind::Open), "Plugins, in the order of their ADD"),
];

/// The keys of a plugin's configuration, beside the plugin's own keys.
pub const PLUGIN: &[Key] = &[
    Key::text("cniVersion", "Version of the specification; in a list, the list's version counts").sample("\"1.0.0\""),
    Key::text("name", "Name of the network; in a list, the list's name counts").sample("\"net\""),
    Key::text("type", "Name of the plugin's program").required(),
    Key::new(
        "capabilities",
        Kind::Map(&Kind::Bool),
        "Data that the runtime shall give to this plugin, in `runtimeConfig`",
    )
    .sample(r#"{"mac": true}"#),
    Key::new("ipam", Kind::Ipam, "The IPAM plugin: `type` is its name, and the other keys are its own"),
    Key::new("dns", Kind::Object(DNS), "Name servers for the container"),
    Key::new("args", Kind::Open, "Arguments of the runtime; `cni` has the arguments that CNI's conventions define"),
    Key::new("runtimeConfig", Kind::Open, "Data of the runtime, for capabilities; never in a configuration file"),
    Key::new("prevResult", Kind::Open, "Result of the previous plugin; only the runtime sets this key"),
    Key::new(
        "cni.dev/valid-attachments",
        Kind::List(&Kind::Object(ATTACHMENT)),
        "Attachments that stay at GC; only the runtime sets this key",
    ),
    Key::new(
        "cni.dev/attachments",
        Kind::List(&Kind::Object(ATTACHMENT)),
        "Attachments that stay at GC, in older runtimes",
    ),
];

/// The keys of `dns`.
pub const DNS: &[Key] = &[
    Key::new(
        "nameservers",
        Kind::List(&Kind::Text(Form::Free)),
        "Addresses of name servers, in the order of preference",
    )
    .sample(r#"["10.1.0.10"]"#),
    Key::text("domain", "Domain for short names").sample("\"example.net\""),
    Key::new("search", Kind::List(&Kind::Text(Form::Free)), "Domains to search for short names")
        .sample(r#"["example.net"]"#),
    Key::new("options", Kind::List(&Kind::Text(Form::Free)), "Options of the resolver").sample(r#"["ndots:2"]"#),
];

/// The keys of an attachment in GC's lists.
const ATTACHMENT: &[Key] = &[
    Key::text("containerID", "The container").sample("\"c1\""),
    Key::text("ifname", "The interface").sample("\"eth0\""),
];

/// The keys of a route in `ipam.routes`.
pub const ROUTE: &[Key] = &[
    Key::new("dst", Kind::Text(Form::Cidr), "Destination, with prefix length").required().sample("\"0.0.0.0/0\""),
    Key::new("gw", Kind::Text(Form::Ip), "Next hop [default: the gateway of the address]").sample("\"10.1.2.1\""),
    Key::number("mtu", 0, U32, "Path MTU, in bytes").sample("1400").lenient(),
    Key::number("advmss", 0, U32, "TCP segment size to advertise, in bytes").sample("1360").lenient(),
    Key::number("priority", 0, U32, "Metric; of equal routes the lowest counts").sample("100").lenient(),
    Key::number("table", 0, U32, "Routing table [default: main]").sample("254").lenient(),
    Key::number("scope", 0, 255, "Scope: 0 universe, 253 link, 254 host").sample("0").lenient(),
];

/// The largest number of 32 bits.
pub const U32: u64 = 0xffff_ffff;

/// The capabilities that runtimes know, by the conventions of the specification.
pub const CAPABILITIES: &[&str] = &[
    "aliases",
    "bandwidth",
    "cgroupPath",
    "deviceID",
    "dns",
    "infinibandGUID",
    "ipRanges",
    "ips",
    "mac",
    "portMappings",
];
