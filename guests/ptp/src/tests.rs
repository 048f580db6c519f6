use super::*;
use postern_guest::fake::{self, Kernel, Place, Subject, change};
use postern_guest::types::{Backend, ErrorCode, LinkSysctl, OpError};
use proptest::prelude::*;

const PLUGIN: Subject<PointToPoint> =
    Subject::new(PointToPoint, r#","type":"ptp","ipam":{"type":"host-local"}"#, || Kernel::with_ipam(V4));

const V4: &str = r#"{"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"domain":"ipam"}}"#;
const DUAL: &str =
    r#"{"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::3/64","gateway":"fd00::1"}]}"#;

/// Returns the container's routes: destination, gateway, source, scope.
fn routes_of_container() -> Vec<String> {
    let text = |route: &Route| {
        let gateway = route.gateway.map(|ip| format!(" via {ip}")).unwrap_or_default();
        let source = route.source.map(|ip| format!(" src {ip}")).unwrap_or_default();
        let scope = route.scope.map(|scope| format!(" scope {scope}")).unwrap_or_default();
        format!("{}{gateway}{source}{scope}", route.dst)
    };
    fake::with(|kernel| kernel.own().unwrap().routes.iter().map(text).collect())
}

#[test]
fn add_with_ipv4() {
    let result = PLUGIN.add(r#","ipMasq":true,"mtu":1400"#);
    assert_eq!(
        fake::log(),
        [
            "ipam.add",
            "veth.create",
            "addresses.add",
            "link.up",
            "routes.add",
            "routes.remove-connected",
            "routes.add",
            "forwarding.enable",
            "point-to-point.ensure",
            "masquerade.ensure"
        ]
    );
    assert_eq!(
        routes_of_container(),
        ["0.0.0.0/0 via 10.1.2.1", "10.1.2.1/32 src 10.1.2.3 scope 253", "10.1.2.0/24 via 10.1.2.1 src 10.1.2.3"]
    );
    fake::with(|kernel| {
        assert!(kernel.forwarding);
        assert_eq!(kernel.masquerade, [Backend::Iptables]);
        assert_eq!(kernel.own().unwrap().info.mtu, 1400);
        assert_eq!(kernel.host_end().unwrap().addresses.first().unwrap().net.to_string(), "10.1.2.1/32");
    });
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"ipam"},"interfaces":[{"mac":"02:00:00:00:00:02","name":"veth00000001"},{"mac":"02:00:00:00:00:01","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":1}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
}

#[test]
fn add_with_ipv6_does_not_wait_for_duplicates() {
    fake::install(Kernel::with_ipam(DUAL));
    PLUGIN.call("ADD", "").unwrap();
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert!(own.sysctls.contains(&(LinkSysctl::AcceptDad, false)));
        assert!(own.sysctls.contains(&(LinkSysctl::DisableIpv6, false)));
        assert!(own.sysctls.contains(&(LinkSysctl::KeepAddrOnDown, true)));
        assert!(own.addresses.iter().all(|address| !address.tentative));
    });
    assert_eq!(
        routes_of_container(),
        [
            "10.1.2.1/32 src 10.1.2.3 scope 253",
            "10.1.2.0/24 via 10.1.2.1 src 10.1.2.3",
            "fd00::1/128 src fd00::3 scope 253",
            "fd00::/64 via fd00::1 src fd00::3"
        ]
    );
}

#[test]
fn whole_addresses_and_shared_gateways() {
    fake::install(Kernel::with_ipam(
        r#"{"ips":[{"address":"10.1.2.3/32","gateway":"10.9.9.9"}],"routes":[{"dst":"0.0.0.0/0"}]}"#,
    ));
    PLUGIN.call("ADD", "").unwrap();
    assert_eq!(routes_of_container(), ["10.9.9.9/32 src 10.1.2.3 scope 253", "0.0.0.0/0 via 10.9.9.9"]);

    fake::install(Kernel::with_ipam(
        r#"{"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"10.1.2.4/24","gateway":"10.1.2.1"}]}"#,
    ));
    PLUGIN.call("ADD", "").unwrap();
    assert_eq!(routes_of_container(), ["10.1.2.1/32 src 10.1.2.3 scope 253", "10.1.2.0/24 via 10.1.2.1 src 10.1.2.3"]);
}

#[test]
fn name_resolution_of_the_configuration_wins() {
    let result = PLUGIN.add(r#","dns":{"nameservers":["10.0.0.1"]}"#);
    assert!(result.contains("10.0.0.1") && !result.contains("\"ipam\""), "{result}");
}

#[test]
fn everything_that_is_refused_before_anything_is_done() {
    for (keys, expected) in [
        (
            r#","mtu":"1""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.mtu of type int",
        ),
        (
            r#","ipMasq":1"#,
            "failed to load netconf: json: cannot unmarshal number into Go struct field NetConf.ipMasq of type bool",
        ),
        (r#","mtu":5000000000"#, "mtu 5000000000 is out of range"),
        (r#","ipMasq":true,"ipMasqBackend":"ebtables""#, "unknown ipmasq backend \"ebtables\""),
        (r#","ipMasq":true,"ipMasqBackend":"""#, "unknown ipmasq backend \"\""),
    ] {
        PLUGIN.install();
        assert_eq!(PLUGIN.message("ADD", keys), expected);
        assert_eq!(fake::log(), [""; 0]);
    }
    // An unknown backend that is not used is no error.
    PLUGIN.add(r#","ipMasqBackend":"ebtables""#);
}

#[test]
fn useless_answers_of_ipam() {
    for (answer, expected) in [
        ("{}", "IPAM plugin returned missing IP config"),
        (r#"{"ips":[{"address":"10.1.2.3/24"}]}"#, "IPAM plugin returned no gateway for 10.1.2.3/24"),
    ] {
        fake::install(Kernel::with_ipam(answer));
        assert_eq!(PLUGIN.message("ADD", ""), expected);
        assert_eq!(fake::log(), ["ipam.add"]);
    }
}

#[test]
fn missing_namespaces() {
    fake::install(Kernel { netns: false, ..Kernel::with_ipam(V4) });
    assert_eq!(PLUGIN.message("ADD", ""), "the container's network namespace is gone");
    assert_eq!(PLUGIN.call("DEL", r#","ipMasq":true"#).unwrap(), "");
    assert!(fake::log().contains(&"masquerade.remove"));
}

#[test]
fn del_tries_everything() {
    PLUGIN.add(r#","ipMasq":true"#);
    fake::with(|kernel| kernel.ipam.del = Err(OpError::new(ErrorCode::TryAgain, "", "locked")));
    let error = PLUGIN.call("DEL", r#","ipMasq":true"#).unwrap_err();
    assert_eq!((error.object().code, error.object().msg.as_str()), (11, "locked"));
    fake::with(|kernel| {
        assert!(kernel.links.is_empty() && kernel.masquerade.is_empty());
        kernel.ipam.del = Ok(());
    });
    assert_eq!(PLUGIN.call("DEL", r#","ipMasq":true"#).unwrap(), "");
    // Neither keys of a wrong type nor a missing plugin type stops the removal.
    assert_eq!(PLUGIN.call("DEL", r#","mtu":"x","ipMasq":"x""#).unwrap(), "");
    let bare = r#"{"cniVersion":"1.1.0","name":"n"}"#;
    assert_eq!(PLUGIN.call_anew("DEL", bare).unwrap(), "");
}

#[test]
fn check_finds_what_add_made() {
    let keys = PLUGIN.attached(r#","ipMasq":true"#);
    assert_eq!(PLUGIN.call("CHECK", &keys).unwrap(), "");
    // If no backend is named, rules of the other backend are accepted.
    fake::with(|kernel| kernel.masquerade = vec![Backend::Iptables]);
    assert_eq!(PLUGIN.call("CHECK", &keys).unwrap(), "");
}

#[test]
fn check_finds_what_is_different() {
    PLUGIN.check_finds(&[
        (change::gone, "ptp: Container Interface name in prevResult: eth0 not found"),
        (
            |kernel| {
                kernel.links.clear();
                kernel.add_link(Place::Container, "eth0", "dummy");
            },
            "Error: Container interface eth0 not of type veth/p2p",
        ),
        (change::other_mac, "ptp: Interface eth0 Mac 02:00:00:00:00:01 doesn't match container Mac: 02:00:00:00:00:99"),
        (change::no_addresses, "Failed to match addr 10.1.2.3/24 on interface eth0"),
        (
            |kernel| kernel.own_mut().unwrap().routes.retain(|route| route.dst.prefix_len() == 0),
            "Failed to find Gateway 10.1.2.1 for interface eth0",
        ),
        (
            |kernel| kernel.own_mut().unwrap().routes.retain(|route| route.dst.prefix_len() != 0),
            "Expected Route 0.0.0.0/0 not found in routing table",
        ),
    ]);
    PLUGIN
        .with_keys(r#","ipMasq":true"#)
        .check_finds(&[(|kernel| kernel.masquerade.clear(), "the masquerade rules are missing")]);
}

#[test]
fn check_needs_a_matching_prev_result() {
    PLUGIN.attached("");
    assert_eq!(PLUGIN.message("CHECK", ""), "ptp: Required prevResult missing");
    assert_eq!(
        PLUGIN.message("CHECK", r#","prevResult":{}"#),
        "Sandbox in prevResult  doesn't match configured netns: /run/netns/c1"
    );
    fake::with(|kernel| kernel.ipam.check = Err(OpError::new(ErrorCode::Kernel, "", "ipam says no")));
    assert_eq!(PLUGIN.message("CHECK", ""), "ipam says no");
}

#[test]
fn status_and_gc_are_forwarded() {
    fake::install(Kernel::default());
    assert_eq!(PLUGIN.call("STATUS", "").unwrap(), "");
    assert_eq!(PLUGIN.call("GC", "").unwrap(), "");
    assert_eq!(fake::log(), ["ipam.status", "attachments.collect", "ipam.gc"]);
}

#[test]
fn every_operation_may_fail() {
    let masquerading = PLUGIN.with_keys(r#","ipMasq":true"#);
    masquerading.every_operation_may_fail();
    masquerading.on(|| Kernel::with_ipam(DUAL)).every_operation_may_fail();
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        address in "[0-9a-f.:]{0,12}(/[0-9]{1,3})?",
        gateway in "[0-9a-f.:]{0,12}",
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["mtu", "ipMasq", "ipMasqBackend", "dns", "ipam", "prevResult"]),
    ) {
        let ips = format!(r#"{{"ips":[{{"address":"{address}","gateway":"{gateway}"}}],"routes":[{{"dst":"{address}"}}]}}"#);
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(Kernel::with_ipam(&ips));
            let _ = PLUGIN.call(verb, &format!(r#","{key}":{value}"#));
            let _ = PLUGIN.call(verb, &format!(r#","prevResult":{ips}"#));
        }
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("ptp", |verb, conf| PLUGIN.call_anew(verb, conf));
}
