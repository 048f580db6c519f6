use super::*;
use postern_guest::fake::{self, Kernel, Subject};
use postern_guest::types::RateLimit;
use proptest::prelude::*;

const PLUGIN: Subject<Bandwidth> = Subject::new(Bandwidth, r#","type":"bandwidth""#, Kernel::default);

const PREVIOUS: &str = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"cni0"},{"name":"veth1"},
    {"name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","interface":2}],"dns":{"domain":"d"}}"#;
const BOTH: &str = r#","ingressRate":8000,"ingressBurst":16000,"egressRate":80,"egressBurst":160"#;

fn rate(rate: u64, burst: u64) -> Option<RateLimit> {
    Some(RateLimit { rate, burst })
}

#[test]
fn both_directions_are_limited_and_the_ifb_is_in_the_result() {
    let result = PLUGIN.add(&format!("{BOTH}{PREVIOUS}"));
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"d"},"interfaces":[{"name":"cni0"},{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/c1"},{"mac":"02:00:00:00:00:bb","name":"bwpfake"}],"ips":[{"address":"10.1.2.3/24","interface":2}]}"#
    );
    fake::with(|kernel| assert_eq!(kernel.limits, (rate(8000, 16000), rate(80, 160))));
    PLUGIN.call("CHECK", &format!("{BOTH}{PREVIOUS}")).unwrap();
    PLUGIN.call("DEL", PREVIOUS).unwrap();
    assert_eq!(PLUGIN.message("CHECK", &format!("{BOTH}{PREVIOUS}")), "Rate doesn't match");
    PLUGIN.call("DEL", "").unwrap();
}

#[test]
fn one_direction_changes_nothing_of_the_result() {
    let result = PLUGIN.add(&format!(r#","ingressRate":8,"ingressBurst":8{PREVIOUS}"#));
    assert!(!result.contains("bwp"), "{result}");
    fake::with(|kernel| assert_eq!(kernel.limits, (rate(8, 8), None)));
}

#[test]
fn without_a_rate_the_result_is_passed_on() {
    for keys in ["", r#","ingressRate":0,"egressBurst":0"#, r#","runtimeConfig":{"bandwidth":{}}"#] {
        assert!(PLUGIN.add(&format!("{keys}{PREVIOUS}")).contains("veth1"));
        PLUGIN.call("CHECK", &format!("{keys}{PREVIOUS}")).unwrap();
        assert!(fake::log().is_empty(), "{keys}");
    }
}

#[test]
fn what_is_missing_is_told_as_native() {
    let bare = r#","prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}]}"#;
    for (verb, keys, expected) in [
        ("ADD", BOTH.to_owned(), "must be called as chained plugin"),
        ("CHECK", BOTH.to_owned(), "must be called as a chained plugin"),
        ("CHECK", format!("{BOTH}{bare}"), "no interfaces provided"),
        // Here the native plugin crashes.
        ("ADD", String::new(), "must be called as chained plugin"),
        ("ADD", format!("{BOTH}{bare}"), "no interfaces provided"),
        ("ADD", format!(r#","ingressRate":8{PREVIOUS}"#), "if rate is set, burst must also be set"),
        ("CHECK", format!(r#","egressBurst":8{PREVIOUS}"#), "if burst is set, rate must also be set"),
        ("STATUS", r#","egressBurst":8"#.to_owned(), "if burst is set, rate must also be set"),
    ] {
        PLUGIN.install();
        assert_eq!(PLUGIN.message(verb, &keys), expected, "{verb} {keys}");
    }
    PLUGIN.call("DEL", r#","egressBurst":8"#).unwrap();
}

#[test]
fn versions_as_native() {
    for version in ["0.1.0", "0.2.0"] {
        let conf = format!(r#"{{"cniVersion":"{version}","name":"n","type":"bandwidth"}}"#);
        let error = PLUGIN.call_anew("ADD", &conf).unwrap_err();
        assert_eq!((error.object().code, error.object().msg.as_str()), (1, "incompatible CNI versions"));
    }
    assert!(PLUGIN.call("VERSION", "").unwrap().contains(r#"["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]"#));
}

#[test]
fn every_failure_of_the_host_is_told() {
    let operations = PLUGIN.with_keys(&format!("{BOTH}{PREVIOUS}")).every_operation_may_fail();
    assert_eq!(operations, [1, 1, 1, 0, 1]);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["ingressRate", "egressBurst", "runtimeConfig", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("bandwidth", |verb, conf| PLUGIN.call_anew(verb, conf));
}
