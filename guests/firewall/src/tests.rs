use super::*;
use postern_guest::fake::{self, Kernel, Subject};
use postern_guest::types::{ErrorCode, IngressPolicy};
use proptest::prelude::*;

const PLUGIN: Subject<Firewall> = Subject::new(Firewall, r#","type":"firewall""#, || Kernel::with_ipam(ADDRESSES));

const ADDRESSES: &str = r#"{"ips":[{"address":"10.1.2.3/24"},{"address":"fd00::3/64"}]}"#;
const PREVIOUS: &str = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"cni0"},{"name":"veth1"},
    {"name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","interface":2},
    {"address":"fd00::3/64","interface":2}],"dns":{"domain":"d"}}"#;

#[test]
fn add_admits_all_addresses_and_returns_the_result() {
    let result = PLUGIN.add(PREVIOUS);
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"d"},"interfaces":[{"name":"cni0"},{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","interface":2},{"address":"fd00::3/64","interface":2}]}"#
    );
    fake::with(|kernel| {
        assert_eq!((kernel.admitted.len(), kernel.isolated), (2, None));
    });
    PLUGIN.call("CHECK", PREVIOUS).unwrap();
    PLUGIN.call("DEL", PREVIOUS).unwrap();
    assert_eq!(PLUGIN.message("CHECK", PREVIOUS), "expected rule [-s 10.1.2.3/32 -j ACCEPT] not found");
    PLUGIN.call("DEL", "").unwrap();
}

#[test]
fn the_bridge_is_isolated_as_the_network_says() {
    for (key, expected) in [
        ("", None),
        (r#","ingressPolicy":"""#, None),
        (r#","ingressPolicy":"open""#, None),
        (r#","ingressPolicy":"same-bridge""#, Some(IngressPolicy::SameBridge)),
        (r#","INGRESSPOLICY":"isolated""#, Some(IngressPolicy::Isolated)),
    ] {
        PLUGIN.add(&format!("{key}{PREVIOUS}"));
        assert_eq!(fake::with(|kernel| kernel.isolated), expected, "{key}");
    }
}

#[test]
fn what_is_missing_is_told_as_native() {
    let bare = r#","prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}"#;
    let nameless =
        r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":""}],"ips":[{"address":"10.1.2.3/24"}]}"#;
    let empty = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"cni0"}]}"#;
    let isolated = r#","ingressPolicy":"isolated""#;
    for (verb, keys, expected) in [
        ("ADD", String::new(), "missing prevResult from earlier plugin"),
        ("CHECK", String::new(), "missing prevResult from earlier plugin"),
        ("ADD", format!("{PREVIOUS},\"ingressPolicy\":\"x\""), "unknown ingress policy: \"x\""),
        (
            "ADD",
            format!("{isolated}{bare}"),
            "interface needs to be set for ingress policy \"isolated\", make sure to chain \"firewall\" plugin with \"bridge\"",
        ),
        ("ADD", format!("{isolated}{nameless}"), "got empty bridge name"),
        ("STATUS", r#","ingressPolicy":"x""#.to_owned(), "unknown ingress policy: \"x\""),
    ] {
        PLUGIN.install();
        assert_eq!(PLUGIN.message(verb, &keys), expected, "{verb} {keys}");
    }
    // A result without addresses is passed on: there is nothing to admit.
    fake::install(Kernel::default());
    PLUGIN.call("ADD", &format!("{isolated}{empty}")).unwrap();
    PLUGIN.call("CHECK", empty).unwrap();
    assert!(fake::log().is_empty());
    for key in ["backend", "iptablesAdminChainName", "firewalldZone", "ingressPolicy"] {
        for verb in ["ADD", "CHECK", "STATUS"] {
            let text = PLUGIN.message(verb, &format!(",\"{key}\":7{PREVIOUS}"));
            assert!(text.starts_with("failed to load netconf: json: cannot unmarshal number into"), "{text}");
        }
        PLUGIN.call("DEL", &format!(",\"{key}\":7{PREVIOUS}")).unwrap();
    }
}

#[test]
fn a_foreign_address_ends_the_add() {
    fake::install(Kernel::with_ipam(r#"{"ips":[{"address":"10.1.2.3/24"}]}"#));
    assert_eq!(PLUGIN.call("ADD", PREVIOUS).unwrap_err().kind(), Some(ErrorCode::Denied));
}

#[test]
fn versions_as_native() {
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1"] {
        let conf = format!(r#"{{"cniVersion":"{version}","name":"n","type":"firewall"}}"#);
        let error = PLUGIN.call_anew("ADD", &conf).unwrap_err();
        assert_eq!((error.object().code, error.object().msg.as_str()), (1, "incompatible CNI versions"));
    }
    assert!(PLUGIN.call("VERSION", "").unwrap().contains(r#"["0.4.0","1.0.0","1.1.0"]"#));
}

#[test]
fn every_failure_of_the_host_is_told() {
    let operations = PLUGIN.with_keys(&format!(r#","ingressPolicy":"isolated"{PREVIOUS}"#)).every_operation_may_fail();
    assert_eq!(operations, [2, 1, 1, 0, 1]);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["backend", "iptablesAdminChainName", "firewalldZone", "ingressPolicy", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("firewall", |verb, conf| PLUGIN.call_anew(verb, conf));
}
