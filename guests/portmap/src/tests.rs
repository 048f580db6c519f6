use super::*;
use postern_guest::fake::{self, Kernel, Subject};
use postern_guest::types::ErrorCode;
use proptest::prelude::*;

const PLUGIN: Subject<Portmap> = Subject::new(Portmap, r#","type":"portmap""#, Kernel::default);

const PREVIOUS: &str = r#","prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"br0"},{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/c1"}],
    "ips":[{"address":"10.9.0.1/24","interface":0},{"address":"10.1.0.2/16","interface":2},{"address":"10.1.0.3/16"},{"address":"fd00::2/64"}]}"#;

fn mapped(keys: &str, mappings: &str) -> String {
    format!(r#"{keys},"runtimeConfig":{{"portMappings":[{mappings}]}}"#)
}

fn message(verb: &str, keys: &str) -> String {
    PLUGIN.install();
    PLUGIN.message(verb, keys)
}

fn forwards() -> Vec<String> {
    fake::with(|kernel| kernel.forwards.iter().map(|(address, forward)| format!("{forward} {address}")).collect())
}

const TWO: &str = r#"{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"HostPort":8081,"ContainerPort":81,"Protocol":"TCP"},
    {"hostPort":53,"containerPort":53,"protocol":"udp","hostIP":"127.0.0.1"}"#;

#[test]
fn forwards_lead_to_the_containers_first_addresses() {
    let result = PLUGIN.add(&mapped(PREVIOUS, TWO));
    assert!(result.contains("10.9.0.1/24") && result.contains("veth1"), "prevResult is passed on: {result}");
    assert_eq!(
        forwards(),
        [
            "tcp:8080-8081:80 10.1.0.2",
            "udp:53:53@127.0.0.1 10.1.0.2",
            "tcp:8080-8081:80 fd00::2",
            "udp:53:53@127.0.0.1 fd00::2"
        ]
    );
    assert_eq!(fake::log(), ["port-mappings.ensure"]);
    PLUGIN.call("CHECK", &mapped(PREVIOUS, TWO)).unwrap();
    PLUGIN.call("DEL", &mapped(PREVIOUS, TWO)).unwrap();
    assert!(forwards().is_empty());
}

/// Plugins of other vendors write other values as the sandbox, or an index without an entry.
#[test]
fn own_addresses_are_found_in_any_spelling() {
    for (own, index) in [
        (r#"{"name":"eth0"}"#, "1"),
        (r#"{"name":"eth0","sandbox":"0af3c17f"}"#, "1"),
        (r#"{"name":"eth0","sandbox":"/host/run/netns/c1"}"#, "1"),
        (r#"{"name":"eth0","sandbox":"/run/netns/c1"}"#, "-1"),
        (r#"{"name":"eth0","sandbox":"/run/netns/c1"}"#, "9"),
        ("null", "1"),
    ] {
        let previous = format!(
            r#","prevResult":{{"cniVersion":"1.0.0","interfaces":[{{"name":"br0"}},{own}],
               "ips":[null,{{"address":"10.9.0.1/24","interface":0}},{{"address":"10.1.0.2/16","interface":{index}}}]}}"#
        );
        PLUGIN.add(&mapped(&previous, r#"{"hostPort":8080,"containerPort":80,"protocol":"tcp"}"#));
        assert_eq!(forwards(), ["tcp:8080:80 10.1.0.2"], "{own} {index}");
    }
}

#[test]
fn without_mappings_nothing_is_asked_of_the_host() {
    for (verb, keys) in [("ADD", PREVIOUS), ("CHECK", PREVIOUS), ("DEL", "")] {
        PLUGIN.install();
        PLUGIN.call(verb, &mapped(keys, "")).unwrap();
        assert_eq!(fake::log(), [""; 0]);
    }
}

#[test]
fn del_needs_no_sound_configuration() {
    for keys in [r#","backend":"pf""#, r#","prevResult":{"cniVersion":"0.2.0"}"#, r#","markMasqBit":99"#] {
        PLUGIN.install();
        PLUGIN.call("DEL", &mapped(keys, TWO)).unwrap();
        assert_eq!(fake::log(), ["port-mappings.remove"], "{keys}");
    }
}

#[test]
fn errors_are_the_native_ones() {
    assert_eq!(message("ADD", &mapped("", TWO)), "must be called as chained plugin");
    assert_eq!(message("CHECK", &mapped("", TWO)), "Required prevResult missing");
    for (keys, expected) in [
        (r#","backend":"pf""#, "failed to parse config: unrecognized backend \"pf\""),
        (r#","markMasqBit":32"#, "failed to parse config: MasqMarkBit must be between 0 and 31"),
        (
            r#","backend":"nftables","conditionsV4":["-d","1.2.3.4"]"#,
            "failed to parse config: nftables backend was requested but configuration contains iptables-specific options [conditionsV4]",
        ),
    ] {
        assert_eq!(message("ADD", &mapped(keys, TWO)), expected);
    }
    for (mapping, expected) in [
        (r#"{"hostPort":0,"containerPort":80,"protocol":"tcp"}"#, "Invalid host port number: 0"),
        (r#"{"hostPort":80,"protocol":"tcp"}"#, "Invalid container port number: 0"),
        (r#"{"hostPort":70000,"containerPort":80,"protocol":"tcp"}"#, "Invalid host port number: 70000"),
        (r#"{"hostPort":80,"containerPort":70000,"protocol":"tcp"}"#, "Invalid container port number: 70000"),
        (r#"{"hostPort":80,"containerPort":80,"protocol":"icmp"}"#, "Invalid protocol: \"icmp\""),
        (r#"{"hostPort":80,"containerPort":80}"#, "Invalid protocol: \"\""),
        (r#"{"hostPort":80,"containerPort":80,"protocol":"tcp","hostIP":"x"}"#, "Invalid host IP: \"x\""),
    ] {
        let error = message("ADD", &mapped(PREVIOUS, mapping));
        assert!(error.starts_with(&format!("failed to parse config: {expected}")), "{error}");
    }
    let error = message("ADD", &mapped(r#","prevResult":{"cniVersion":"0.2.0"}"#, TWO));
    assert!(
        error
            .starts_with("failed to parse config: could not parse prevResult: could not parse prevResult: result type"),
        "{error}"
    );
}

#[test]
fn status_reads_the_configuration() {
    PLUGIN.install();
    PLUGIN.call("STATUS", "").unwrap();
    let error = PLUGIN.call("STATUS", r#","backend":"pf""#).unwrap_err();
    assert_eq!(error.object().code, 50);
    PLUGIN.call("GC", "").unwrap();
    assert_eq!(fake::log(), ["attachments.collect"]);
}

#[test]
fn a_port_of_another_container_is_an_error() {
    fake::install(Kernel { taken_ports: vec!["tcp:8081:1".parse().unwrap()], ..Kernel::default() });
    let error = PLUGIN.call("ADD", &mapped(PREVIOUS, TWO)).unwrap_err();
    assert!(error.object().msg.contains("taken"), "{error:?}");
}

#[test]
fn many_mappings_are_one_request() {
    let mappings: Vec<String> = (0..16_384)
        .map(|step| format!(r#"{{"hostPort":{0},"containerPort":{0},"protocol":"tcp"}}"#, 10_000 + step))
        .collect();
    PLUGIN.add(&mapped(PREVIOUS, &mappings.join(",")));
    assert_eq!(forwards().first().map(String::as_str), Some("tcp:10000-26383:10000 10.1.0.2"));
}

#[test]
fn every_operation_may_fail() {
    PLUGIN.install();
    fake::with(|kernel| kernel.fail_at(0, ErrorCode::Kernel));
    let error = PLUGIN.call("ADD", &mapped(PREVIOUS, TWO)).unwrap_err();
    assert_eq!((error.object().code, error.object().msg.as_str()), (999, "operation 0 was made to fail"));
    assert_eq!(PLUGIN.with_keys(&mapped(PREVIOUS, TWO)).every_operation_may_fail(), [1, 1, 1, 0, 1]);
}

proptest! {
    #[test]
    fn nothing_in_a_configuration_makes_it_panic(value in "[ -~]{0,40}", verb in 0..5usize, port in any::<i64>()) {
        PLUGIN.install();
        let mapping = format!(r#"{{"hostPort":{port},"containerPort":{port},"protocol":"udp"}}"#);
        let verb = ["ADD", "DEL", "CHECK", "STATUS", "GC"][verb];
        for keys in [mapped(&format!(r#","snat":{value}{PREVIOUS}"#), TWO), mapped(PREVIOUS, &mapping)] {
            let _ = PLUGIN.call(verb, &keys);
        }
        let _ = PLUGIN.call_anew(verb, &value);
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("portmap", |verb, conf| PLUGIN.call_anew(verb, conf));
}
