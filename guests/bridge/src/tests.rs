//! ADD, and the behaviour that all verbs share.

mod chained;
mod verbs;

use super::*;
use postern_guest::fake::{self, Kernel, Place, Subject};
use postern_guest::types::{Backend, ErrorCode, LinkSysctl, OpError, PortSpec, Route, ops};
use proptest::prelude::*;

const PLUGIN: Subject<Bridge> = Subject::new(Bridge, r#","type":"bridge","bridge":"br0""#, Kernel::default);
/// The plugin on a node whose IPAM gives addresses.
const ADDRESSED: Subject<Bridge> = PLUGIN.on(|| Kernel::with_ipam(V4));

const V4: &str = r#"{"ips":[{"address":"10.1.2.3/24"}],"dns":{"domain":"ipam"}}"#;
const DUAL: &str =
    r#"{"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::3/64","gateway":"fd00::1"}]}"#;
const IPAM: &str = r#","ipam":{"type":"host-local"}"#;

/// Runs ADD with IPAM on a fresh host; returns the result on one line.
fn add(ipam: &str, keys: &str) -> String {
    fake::install(Kernel::with_ipam(ipam));
    PLUGIN.call("ADD", &format!("{IPAM}{keys}")).unwrap().replace([' ', '\n'], "")
}

fn container_routes() -> Vec<String> {
    let text = |route: &Route| match route.gateway {
        Some(gateway) => format!("{} via {gateway}", route.dst),
        None => route.dst.to_string(),
    };
    fake::with(|kernel| kernel.own().unwrap().routes.iter().map(text).collect())
}

fn port() -> PortSpec {
    fake::with(|kernel| kernel.host_end().unwrap().port.clone().unwrap())
}

#[test]
fn layer_2() {
    let result = PLUGIN.add("");
    // The bridge has taken the address of its only port.
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:00:00:00:03","name":"br0"},{"mac":"02:00:00:00:00:03","name":"veth00000002"},{"mac":"02:00:00:00:00:02","name":"eth0","sandbox":"/run/netns/c1"}]}"#
    );
    assert_eq!(
        fake::log(),
        ["bridge.ensure", "veth.create", "bridge.attach", "link.up", "veth.wait-running", "link.attributes"]
    );
    assert_eq!(port(), PortSpec::default());
}

#[test]
fn the_bridge_has_a_default_name() {
    PLUGIN.call_anew("ADD", r#"{"cniVersion":"1.0.0","name":"n"}"#).unwrap();
    assert!(fake::with(|kernel| kernel.find(Place::Host, "cni0").is_some()));
}

#[test]
fn layer_3_without_gateway() {
    let result = add(V4, "");
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"ipam"},"interfaces":[{"mac":"02:00:00:00:00:03","name":"br0"},{"mac":"02:00:00:00:00:03","name":"veth00000002"},{"mac":"02:00:00:00:00:02","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","interface":2}]}"#
    );
    assert_eq!(
        fake::log(),
        [
            "bridge.ensure",
            "veth.create",
            "bridge.attach",
            "ipam.add",
            "link-sysctl.set",
            "link-sysctl.set",
            "addresses.add",
            "link.up",
            "veth.wait-running",
            "link.attributes"
        ]
    );
    assert!(!fake::with(|kernel| kernel.forwarding));
}

#[test]
fn layer_3_with_everything() {
    let keys = r#","isDefaultGateway":true,"ipMasq":true,"macspoofchk":true,"mtu":1400"#;
    let result = add(DUAL, keys);
    assert_eq!(
        fake::log(),
        [
            "bridge.ensure",
            "veth.create",
            "bridge.attach",
            "mac-guard.ensure",
            "ipam.add",
            "link-sysctl.set",
            "link-sysctl.set",
            "link-sysctl.set",
            "link-sysctl.set",
            "addresses.add",
            "link.up",
            "addresses.settle",
            "routes.add",
            "bridge.ensure-gateways",
            "forwarding.enable",
            "masquerade.ensure",
            "veth.wait-running",
            "link.attributes"
        ]
    );
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!(
            own.sysctls,
            [
                (LinkSysctl::AcceptDad, false),
                (LinkSysctl::ArpNotify, true),
                (LinkSysctl::DisableIpv6, false),
                (LinkSysctl::KeepAddrOnDown, true)
            ]
        );
        assert_eq!((own.info.mtu, kernel.mac_guard), (1400, own.info.mac));
        assert_eq!(kernel.masquerade, [Backend::Iptables]);
        assert!(kernel.forwarding);
        let bridge = kernel.find(Place::Host, "br0").unwrap();
        let nets: Vec<_> = bridge.addresses.iter().map(|address| address.net.to_string()).collect();
        assert_eq!(nets, ["10.1.2.1/24", "fd00::1/64"]);
        assert_eq!(bridge.info.mtu, 1400);
    });
    assert_eq!(container_routes(), ["10.1.2.0/24", "fd00::/64", "0.0.0.0/0 via 10.1.2.1", "::/0 via fd00::1"]);
    // The bridge has its own address again, which a port had replaced.
    assert!(result.contains(r#"[{"mac":"02:00:00:00:00:01","name":"br0"}"#), "{result}");
    assert!(result.contains(r#""routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"},{"dst":"::/0","gw":"fd00::1"}]"#));
}

#[test]
fn gateways_are_derived_where_ipam_names_none() {
    assert!(add(V4, r#","isGateway":true"#).contains(r#""gateway":"10.1.2.1""#));
    assert_eq!(container_routes(), ["10.1.2.0/24"]);
    assert!(!add(V4, "").contains("gateway"));
}

#[test]
fn default_routes_are_not_doubled() {
    let with = |route: &str| format!(r#"{{"ips":[{{"address":"10.1.2.3/24"}}],"routes":[{route}]}}"#);
    for (route, expected) in [
        // ADD adds no default route beside a default route of IPAM that names a gateway.
        (r#"{"dst":"0.0.0.0/0","gw":"10.1.2.9"}"#, vec!["0.0.0.0/0 via 10.1.2.9"]),
        // A default route without a gateway gets the gateway of ADD's default route, so ADD adds no second route.
        (r#"{"dst":"0.0.0.0/0"}"#, vec!["0.0.0.0/0 via 10.1.2.1"]),
        // A route with another metric is another route.
        (r#"{"dst":"0.0.0.0/0","priority":9}"#, vec!["0.0.0.0/0 via 10.1.2.1", "0.0.0.0/0 via 10.1.2.1"]),
        (r#"{"dst":"10.9.0.0/16"}"#, vec!["10.9.0.0/16 via 10.1.2.1", "0.0.0.0/0 via 10.1.2.1"]),
    ] {
        add(&with(route), r#","isDefaultGateway":true"#);
        assert_eq!(container_routes().split_off(1), expected, "{route}");
    }
}

#[test]
fn several_addresses_share_a_default_route() {
    let three = r#"{"ips":[{"address":"fd00::3/64"},{"address":"10.1.2.3/24"},{"address":"fd01::3/64"}]}"#;
    let result = add(three, r#","isDefaultGateway":true"#);
    let routes = r#""routes":[{"dst":"::/0","gw":"fd00::1"},{"dst":"0.0.0.0/0","gw":"10.1.2.1"}]"#;
    assert!(result.contains(routes), "{result}");
}

#[test]
fn a_bridge_with_another_address() {
    let keys = r#","isGateway":true"#;
    add(V4, keys);
    fake::with(|kernel| {
        let own = kernel.own().unwrap().info.handle;
        kernel.call(&ops::Link::Delete { link: own }.into()).unwrap();
        kernel.ipam.result = Ok(r#"{"ips":[{"address":"10.2.0.3/24"}]}"#.to_owned());
    });
    assert_eq!(
        PLUGIN.message("ADD", &format!("{IPAM}{keys}")),
        "failed to set bridge addr: \"br0\" already has an IP address different from 10.2.0.1/24"
    );
    fake::with(|kernel| {
        let own = kernel.own().unwrap().info.handle;
        kernel.call(&ops::Link::Delete { link: own }.into()).unwrap();
    });
    PLUGIN.call("ADD", &format!(r#"{IPAM}{keys},"forceAddress":true"#)).unwrap();
}

#[test]
fn duplicate_detection() {
    add(DUAL, r#","enabledad":true"#);
    fake::with(|kernel| {
        let sysctls = &kernel.own().unwrap().sysctls;
        assert!(sysctls.starts_with(&[(LinkSysctl::EnhancedDad, true), (LinkSysctl::AcceptDad, true)]));
    });
    assert!(fake::log().contains(&"addresses.settle"));
}

#[test]
fn a_kernel_without_ipv6_is_none_the_worse() {
    fake::install(Kernel { ipv6: false, ..Kernel::with_ipam(V4) });
    PLUGIN.call("ADD", IPAM).unwrap();
    fake::install(Kernel { ipv6: false, ..Kernel::with_ipam(DUAL) });
    PLUGIN.call("ADD", IPAM).unwrap();
}

#[test]
fn vlans() {
    PLUGIN.add(r#","vlan":100,"vlanTrunk":[{"minID":5,"maxID":7,"id":6},{"id":3},{}],"preserveDefaultVlan":true"#);
    let expected =
        PortSpec { vlan: Some(100), trunk: vec![3, 5, 6, 7], preserve_default_vlan: true, ..PortSpec::default() };
    assert_eq!(port(), expected);
    assert!(fake::with(|kernel| kernel.find(Place::Host, "br0").unwrap().vlan_filtering));

    // An empty trunk is a trunk.
    PLUGIN.add(r#","vlanTrunk":[]"#);
    assert!(fake::with(|kernel| kernel.find(Place::Host, "br0").unwrap().vlan_filtering));

    fake::install(Kernel { vlans: false, ..Kernel::default() });
    assert_eq!(PLUGIN.message("ADD", r#","vlan":5"#), "failed to create bridge \"br0\": operation not supported");
}

#[test]
fn vlan_gateways_are_listed() {
    let result = add(V4, r#","vlan":100,"isGateway":true"#);
    assert!(result.contains(r#"{"mac":"02:00:00:00:00:04","name":"br0.100"}]"#), "{result}");
    fake::with(|kernel| {
        assert!(kernel.find(Place::Host, "br0").unwrap().addresses.is_empty());
        assert_eq!(kernel.find(Place::Host, "br0.100").unwrap().addresses.len(), 1);
    });
}

#[test]
fn ports() {
    PLUGIN.add(r#","hairpinMode":true,"portIsolation":true"#);
    assert_eq!(port(), PortSpec { hairpin: true, isolated: true, ..PortSpec::default() });
    PLUGIN.add(r#","promiscMode":true"#);
    assert!(fake::with(|kernel| kernel.find(Place::Host, "br0").unwrap().promisc));
}

#[test]
fn the_last_of_three_addresses_counts() {
    let mac = |args: &str, keys: &str| {
        PLUGIN.install();
        PLUGIN.call_with_args("ADD", args, keys).unwrap();
        fake::with(|kernel| kernel.own().unwrap().info.mac.unwrap().to_string())
    };
    let args = r#","args":{"cni":{"mac":"02:00:00:00:aa:02"}}"#;
    let runtime = r#","runtimeConfig":{"mac":"02-00-00-00-AA-03"}"#;
    assert_eq!(mac("MAC=02:00:00:00:aa:01", ""), "02:00:00:00:aa:01");
    assert_eq!(mac("MAC=02:00:00:00:aa:01", args), "02:00:00:00:aa:02");
    assert_eq!(mac("", &format!("{args}{runtime}")), "02:00:00:00:aa:03");
    assert_eq!(mac("MAC=", r#","runtimeConfig":{"mac":""}"#), "02:00:00:00:00:02");
}

#[test]
fn everything_that_is_refused_before_anything_is_done() {
    let trunk = |entry: &str| format!(r#","vlanTrunk":[{entry}]"#);
    let cases = [
        (
            "",
            r#","isGateway":"true""#.to_owned(),
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.isGateway of type bool",
        ),
        (
            "",
            r#","portIsolation":"true""#.to_owned(),
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.portIsolation of type bool",
        ),
        (
            "",
            r#","ipam":"x""#.to_owned(),
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.ipam of type struct",
        ),
        (
            "",
            r#","vlan":1.5"#.to_owned(),
            "failed to load netconf: json: cannot unmarshal number 1.5 into Go struct field NetConf.vlan of type int",
        ),
        ("", r#","vlan":-1"#.to_owned(), "invalid VLAN ID -1 (must be between 0 and 4094)"),
        ("", r#","vlan":4095"#.to_owned(), "invalid VLAN ID 4095 (must be between 0 and 4094)"),
        ("", trunk(r#"{"minID":0,"maxID":5}"#), "incorrect trunk minID parameter"),
        ("", trunk(r#"{"minID":1,"maxID":4095}"#), "incorrect trunk maxID parameter"),
        ("", trunk(r#"{"minID":6,"maxID":5}"#), "minID is greater than maxID in trunk parameter"),
        ("", trunk(r#"{"minID":6}"#), "minID and maxID should be configured simultaneously, maxID is missing"),
        ("", trunk(r#"{"maxID":6,"id":5}"#), "minID and maxID should be configured simultaneously, minID is missing"),
        ("", trunk(r#"{"id":4095}"#), "incorrect trunk id parameter"),
        ("IP=1.2.3.4", String::new(), r#"ARGS: unknown args ["IP=1.2.3.4"]"#),
        ("MAC", String::new(), r#"ARGS: invalid pair "MAC""#),
        ("MAC=foo", String::new(), "failed to make veth pair: address foo: invalid MAC address"),
        ("MAC=02:00:00:00:00:00:00:01", String::new(), "failed to make veth pair: invalid argument"),
        (
            "",
            r#","hairpinMode":true,"promiscMode":true"#.to_owned(),
            "cannot set hairpin mode and promiscuous mode at the same time",
        ),
        (
            "",
            format!(r#"{IPAM},"disableContainerInterface":true"#),
            "cannot use IPAM when DisableContainerInterface flag is set",
        ),
        ("", r#","mtu":4294967296"#.to_owned(), "mtu 4294967296 is out of range"),
        ("", format!(r#"{IPAM},"ipMasq":true,"ipMasqBackend":"ebtables""#), "unknown ipmasq backend \"ebtables\""),
    ];
    for (args, keys, expected) in cases {
        PLUGIN.install();
        assert_eq!(PLUGIN.call_with_args("ADD", args, &keys).unwrap_err().object().msg, expected);
        assert_eq!(fake::log(), [""; 0], "{keys}");
    }
}

#[test]
fn results_that_could_not_be_printed_are_refused_before_anything_is_done() {
    let old = r#"{"cniVersion":"0.2.0","name":"n"}"#;
    let error = PLUGIN.call_anew("ADD", old).unwrap_err();
    assert_eq!(error.object().msg, "cannot convert: no valid IP addresses");
    assert_eq!(fake::log(), [""; 0]);
    let old = r#"{"cniVersion":"0.2.0","name":"n","ipam":{"type":"static"}}"#;
    assert!(ADDRESSED.call_anew("ADD", old).unwrap().contains("ip4"));
}

#[test]
fn other_failures_of_add() {
    fake::install(Kernel { netns: false, ..Kernel::default() });
    assert_eq!(PLUGIN.message("ADD", ""), "the container's network namespace is gone");
    fake::install(Kernel::with_ipam("{}"));
    assert_eq!(PLUGIN.message("ADD", IPAM), "IPAM plugin returned missing IP config");
    let mut kernel = Kernel::default();
    kernel.add_link(Place::Host, "br0", "dummy");
    fake::install(kernel);
    assert_eq!(
        PLUGIN.message("ADD", ""),
        "failed to create bridge \"br0\": \"br0\" already exists but is not a bridge"
    );
    PLUGIN.add("");
    assert_eq!(PLUGIN.message("ADD", ""), "container veth name (\"eth0\") peer provided (\"vethfake\") already exists");
}

#[test]
fn a_disabled_container_interface_stays_down() {
    PLUGIN.add(r#","disableContainerInterface":true"#);
    assert!(!fake::with(|kernel| kernel.own().unwrap().info.up));
    assert!(!fake::log().contains(&"veth.wait-running"));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        args in "[A-Z0-9=;:]{0,20}",
        address in "[0-9a-f.:]{0,12}(/[0-9]{1,3})?",
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec![
            "bridge", "isGateway", "isDefaultGateway", "ipMasq", "mtu", "vlan", "vlanTrunk", "args", "runtimeConfig",
            "dns", "ipam", "prevResult",
        ]),
    ) {
        let ips = format!(r#"{{"ips":[{{"address":"{address}"}}],"routes":[{{"dst":"{address}"}}]}}"#);
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(Kernel::with_ipam(&ips));
            let _ = PLUGIN.call_with_args(verb, &args, &format!(r#","{key}":{value}"#));
            let _ = PLUGIN.call(verb, &format!(r#"{IPAM},"isDefaultGateway":true,"prevResult":{ips}"#));
        }
    }

    #[test]
    fn any_whole_numbers_are_judged(vlan in any::<i64>(), min in any::<i32>(), max in -5..5000i64, mtu in any::<i64>()) {
        PLUGIN.install();
        let trunk = format!(r#"[{{"minID":{min},"maxID":{max}}},{{"id":{max}}}]"#);
        let _ = PLUGIN.call("ADD", &format!(r#","vlan":{vlan},"mtu":{mtu},"vlanTrunk":{trunk}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("bridge", |verb, conf| ADDRESSED.call_anew(verb, conf));
}
