use super::*;
use postern_guest::fake::{self, Kernel, Place, Subject};
use postern_guest::types::{Operation, Route, ops};
use proptest::prelude::*;

const PLUGIN: Subject<Sbr> = Subject::new(Sbr, r#","type":"sbr""#, linked);

const PREVIOUS: &str = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/c1"},{"name":"eth1","sandbox":"/run/netns/c1"}],
    "ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":1},{"address":"fd00::3/64","gateway":"fd00::1"},{"address":"10.7.0.3/24","interface":2}],"dns":{"domain":"d"}}"#;

/// A container with the link that an earlier plugin made.
fn linked() -> Kernel {
    let mut kernel = Kernel::default();
    let handle = kernel.add_link(Place::Container, "eth0", "veth");
    let link = kernel.links.get_mut(&handle).unwrap();
    link.info.up = true;
    let to = |dst: &str, gateway: Option<&str>| Route {
        dst: dst.parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        source: None,
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
        scope: None,
    };
    link.routes = vec![to("10.1.2.0/24", None), to("0.0.0.0/0", Some("10.1.2.1"))];
    kernel
}

/// The sources with their gateways, the table, and whether the plugin asks for hints.
type Asked = (Vec<(String, Option<String>)>, Option<u32>, bool);

/// Returns the request to the host.
fn asked() -> Asked {
    let log = fake::with(|kernel| kernel.log.clone());
    let applied = log.iter().find_map(|operation| match operation {
        Operation::SourceRoutes(ops::SourceRoutes::Apply { sources, table, hints, .. }) => {
            let text = |source: &RouteSource| (source.address.to_string(), source.gateway.map(|g| g.to_string()));
            Some((sources.iter().map(text).collect(), *table, *hints))
        }
        _ => None,
    });
    applied.unwrap()
}

#[test]
fn own_addresses_are_routed_by_their_gateways() {
    let (v4, v6) = ("10.1.2.3/24".to_owned(), "fd00::3/64".to_owned());
    let gateway = |text: &str| Some(text.to_owned());
    for (keys, expected) in [
        ("", (vec![(v4.clone(), gateway("10.1.2.1")), (v6.clone(), gateway("fd00::1"))], None, false)),
        (
            r#","gateways":["fd00::9"],"addSourceHints":true"#,
            (vec![(v4.clone(), gateway("10.1.2.1")), (v6.clone(), gateway("fd00::9"))], None, true),
        ),
        (
            r#","GATEWAYS":["10.1.2.9","fd00::9"]"#,
            (vec![(v4.clone(), gateway("10.1.2.9")), (v6.clone(), gateway("fd00::9"))], None, false),
        ),
        (r#","table":77"#, (vec![(v4.clone(), None), (v6.clone(), None)], Some(77), false)),
    ] {
        let result = PLUGIN.add(&format!("{keys}{PREVIOUS}"));
        assert!(result.contains("10.7.0.3") && result.contains("domain"), "{result}");
        assert_eq!(asked(), expected, "{keys}");
        PLUGIN.call("CHECK", keys).unwrap();
        PLUGIN.call("DEL", keys).unwrap();
        fake::with(|kernel| assert!(kernel.rules.is_empty()));
    }
}

#[test]
fn what_is_missing_is_told_as_native() {
    let none = r#","prevResult":{"cniVersion":"1.1.0"}"#;
    for (verb, keys, expected) in [
        ("ADD", String::new(), "This plugin must be called as chained plugin"),
        ("ADD", none.to_owned(), "No IP addresses supplied on interface: eth0"),
        ("ADD", PREVIOUS.to_owned(), "Cannot find network interface eth0: Link not found"),
        (
            "ADD",
            r#","table":"x""#.to_owned(),
            "failed to parse network configuration: json: cannot unmarshal string into Go struct field PluginConf.table of type int",
        ),
        ("STATUS", r#","table":-1"#.to_owned(), "table -1 is out of range: invalid argument"),
        ("ADD", r#","table":4294967296"#.to_owned(), "table 4294967296 is out of range: invalid argument"),
        (
            "STATUS",
            r#","gateways":["10.1.2.1","10.1.2.2"]"#.to_owned(),
            "`gateways` has two addresses of one IP version",
        ),
        (
            "ADD",
            r#","gateways":["10.1.2.1","fd00::1","fd00::2"]"#.to_owned(),
            "`gateways` has 3 entries: at most one for each IP version is allowed",
        ),
        ("ADD", r#","gateways":["10.1.2.1/24"]"#.to_owned(), "`gateways` has \"10.1.2.1/24\", which is no IP address"),
    ] {
        fake::install(Kernel::default());
        assert_eq!(PLUGIN.message(verb, &keys), expected, "{verb} {keys}");
    }
    PLUGIN.call("DEL", r#","table":"x""#).unwrap();
}

#[test]
fn every_failure_of_the_host_is_told() {
    assert_eq!(PLUGIN.with_keys(PREVIOUS).every_operation_may_fail(), [2, 1, 1, 0, 1]);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["table", "gateways", "addSourceHints", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("sbr", |verb, conf| PLUGIN.call_anew(verb, conf));
}
