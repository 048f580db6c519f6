use super::*;
use postern_guest::cni::Env;
use postern_guest::fake::{self, Kernel, Lease, Subject};
use postern_guest::types::{self, ErrorCode};
use proptest::prelude::*;

const PLUGIN: Subject<HostLocal> = Subject::new(HostLocal, r#","type":"bridge""#, Kernel::default);

fn message(args: &str, keys: &str) -> String {
    PLUGIN.install();
    PLUGIN.call_with_args("ADD", args, keys).unwrap_err().object().msg.clone()
}

/// Returns the addresses that ADD assigns.
fn addresses(args: &str, keys: &str) -> Vec<String> {
    let result = PLUGIN.call_with_args("ADD", args, keys).unwrap();
    let addresses = result.lines().filter_map(|line| line.trim().strip_prefix(r#""address": ""#));
    addresses.map(|line| line.trim_end_matches(['"', ',']).to_owned()).collect()
}

const RANGES: &str = r#","ipam":{"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/64"}]]}"#;

#[test]
fn one_address_of_each_set() {
    let result = PLUGIN
        .add(r#","ipam":{"ranges":[[{"subnet":"10.1.2.0/24"}]],"routes":[{"dst":"0.0.0.0/0","mtu":1400,"table":0}]}"#);
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.2/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0","mtu":1400,"table":0}]}"#
    );
    assert_eq!(fake::log(), ["leases.reserve"]);
    PLUGIN.install();
    assert_eq!(addresses("", RANGES), ["10.1.2.2/24", "fd00::2/64"]);
}

#[test]
fn order_of_the_sets() {
    PLUGIN.install();
    let keys = r#","ipam":{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.10","gateway":"10.1.2.9",
        "ranges":[[{"subnet":"10.1.3.0/24"}]]},"runtimeConfig":{"ipRanges":[[{"subnet":"10.1.1.0/24"}]]}"#;
    assert_eq!(addresses("", keys), ["10.1.1.2/24", "10.1.2.10/24", "10.1.3.2/24"]);
}

#[test]
fn old_style_keys_need_a_subnet() {
    PLUGIN.install();
    let keys = r#","ipam":{"rangeStart":"10.9.2.9","ranges":[[{"subnet":"10.1.3.0/24"}]]}"#;
    assert_eq!(addresses("", keys), ["10.1.3.2/24"]);
}

#[test]
fn requests_come_from_three_places() {
    let sets = r#","ipam":{"ranges":[[{"subnet":"10.1.1.0/24"}],[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]},
        "args":{"cni":{"ips":["10.1.2.7/8"]}},"runtimeConfig":{"ips":["10.1.1.7"]}"#;
    PLUGIN.install();
    assert_eq!(addresses("IP=10.1.3.7/24", sets), ["10.1.1.7/24", "10.1.2.7/24", "10.1.3.7/24"]);
    PLUGIN.install();
    let error = PLUGIN.call_with_args("ADD", "IP=10.9.9.9", RANGES).unwrap_err();
    assert_eq!(error.object().msg, "failed to allocate all requested IPs: 10.9.9.9");
    PLUGIN.install();
    assert_eq!(addresses("IP=", RANGES), ["10.1.2.2/24", "fd00::2/64"]);
}

#[test]
fn name_servers_of_a_file() {
    let file = types::Dns { nameservers: vec!["10.0.0.1".to_owned()], ..types::Dns::default() };
    let keys = r#","ipam":{"subnet":"10.1.2.0/24","resolvConf":"/etc/resolv.conf"}"#;
    fake::install(Kernel { resolv_conf: Some(file), ..Kernel::default() });
    assert!(PLUGIN.call("ADD", keys).unwrap().contains("\"nameservers\""));
    assert_eq!(fake::log(), ["resolv-conf.read", "leases.reserve"]);
    // Nothing is reserved if the file can't be read.
    assert_eq!(message("", keys), "no such file or directory");
    assert_eq!(fake::log(), ["resolv-conf.read"]);
}

#[test]
fn everything_that_is_refused() {
    for (args, keys, expected) in [
        ("", r#","x":1"#, "IPAM config missing 'ipam' key"),
        ("", r#","ipam":{}"#, "no IP ranges specified"),
        ("", r#","ipam":{"ranges":[]}"#, "no IP ranges specified"),
        ("", r#","ipam":{"ranges":[[]]}"#, "invalid range set 0: empty range set"),
        ("", r#","ipam":{"ranges":[null]}"#, "invalid range set 0: empty range set"),
        ("", r#","ipam":{"ranges":[[{}]]}"#, "invalid range set 0: IP <nil> not v4 nor v6"),
        ("", r#","ipam":{"subnet":"10.1.2.3/24"}"#, "invalid range set 0: Network has host bits set"),
        ("", r#","ipam":{"subnet":"10.1.0.0"}"#, "invalid CIDR address: 10.1.0.0"),
        ("", r#","ipam":{"subnet":"10.1.0.0/16","gateway":"foo"}"#, "invalid IP address: foo"),
        ("", r#","ipam":{"subnet":"10.1.0.0/16"},"runtimeConfig":{"ips":["foo"]}"#, "invalid IP address foo"),
        ("", r#","ipam":{"subnet":"10.1.0.0/16"},"args":{"cni":{"ips":[null]}}"#, "invalid IP address "),
        (
            "",
            r#","ipam":{"ranges":[{}]}"#,
            "json: cannot unmarshal object into Go struct field NetConf.ipam.ranges of type allocator.RangeSet",
        ),
        ("", r#","ipam":{"ranges":[[1]]}"#, "json: cannot unmarshal number into Go value of type Range"),
        (
            "IP=foo",
            r#","ipam":{"subnet":"10.1.0.0/16"}"#,
            r#"ARGS: error parsing value of pair "IP=foo": invalid IP address foo"#,
        ),
        ("MAC=1", r#","ipam":{"subnet":"10.1.0.0/16"}"#, r#"ARGS: unknown args ["MAC=1"]"#),
    ] {
        assert_eq!(message(args, keys), expected, "{keys}");
    }
}

#[test]
fn old_versions_have_one_address_per_family() {
    let conf =
        r#"{"cniVersion":"0.2.0","name":"n","ipam":{"subnet":"10.1.0.0/16","ranges":[[{"subnet":"10.2.0.0/16"}]]}}"#;
    assert_eq!(
        PLUGIN.call_anew("ADD", conf).unwrap_err().object().msg,
        "CNI version 0.2.0 does not support more than 1 address per family"
    );
    assert_eq!(fake::log(), [""; 0]);
}

#[test]
fn del_needs_no_configuration() {
    PLUGIN.add(RANGES);
    let env = Env { args: "garbage".to_owned(), ..fake::env("DEL") };
    assert_eq!(fake::call_verb(&HostLocal, env, r#"{"name":"n","ipam":7}"#).unwrap(), "");
    assert!(fake::with(|kernel| kernel.leases.is_empty()));
    assert_eq!(PLUGIN.call("DEL", RANGES).unwrap(), "");
}

#[test]
fn check_wants_an_address() {
    PLUGIN.install();
    let error = PLUGIN.call("CHECK", RANGES).unwrap_err();
    assert_eq!(error.object().msg, "host-local: Failed to find address added by container c1");
    PLUGIN.call("ADD", RANGES).unwrap();
    assert_eq!(PLUGIN.call("CHECK", RANGES).unwrap(), "");
    assert_eq!(PLUGIN.call("CHECK", r#","ipam":{}"#).unwrap_err().object().msg, "no IP ranges specified");
}

#[test]
fn status_tells_of_exhaustion() {
    let one = r#","ipam":{"subnet":"10.1.2.0/30"}"#;
    PLUGIN.install();
    assert_eq!(PLUGIN.call("STATUS", one).unwrap(), "");
    let taken = Lease { own: false, valid: true, address: "10.1.2.2".parse().unwrap() };
    fake::install(Kernel { leases: vec![taken], ..Kernel::default() });
    let error = PLUGIN.call("STATUS", one).unwrap_err();
    assert_eq!((error.object().code, error.object().msg.as_str()), (50, "no IP addresses available"));
    let error = PLUGIN.call("STATUS", r#","ipam":{}"#).unwrap_err();
    assert_eq!((error.object().code, error.object().msg.as_str()), (50, "no IP ranges specified"));
    assert_eq!(PLUGIN.call("STATUS", r#","ipam":{},"capabilities":{"ipRanges":true}"#).unwrap(), "");
}

#[test]
fn gc_frees_what_the_runtime_no_longer_has() {
    let lease = |valid, address: &str| Lease { own: false, valid, address: address.parse().unwrap() };
    fake::install(Kernel { leases: vec![lease(false, "10.1.2.2"), lease(true, "10.1.2.3")], ..Kernel::default() });
    assert_eq!(PLUGIN.call("GC", RANGES).unwrap(), "");
    assert_eq!(fake::with(|kernel| kernel.leases.len()), 1);
    assert_eq!(fake::log(), ["leases.retain"]);
}

#[test]
fn every_operation_may_fail() {
    let keys = r#","ipam":{"subnet":"10.1.2.0/24","resolvConf":"/etc/resolv.conf"}"#;
    for (verb, operations) in [("ADD", 2), ("DEL", 1), ("CHECK", 1), ("STATUS", 1), ("GC", 1)] {
        for n in 0..operations {
            for (kind, code) in [(ErrorCode::TryAgain, 11), (ErrorCode::Io, 5), (ErrorCode::Denied, 110)] {
                let mut kernel = Kernel { resolv_conf: Some(types::Dns::default()), ..Kernel::default() };
                kernel.fail_at(n, kind);
                fake::install(kernel);
                assert_eq!(PLUGIN.call(verb, keys).unwrap_err().object().code, code, "{verb} {n}");
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        args in "[A-Z0-9=;,./]{0,30}",
        address in "[0-9a-f.:/]{0,20}",
        ranges in r#"[\[\]{}0-9a-z:",./]{0,40}"#,
    ) {
        for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
            PLUGIN.install();
            let single = format!(r#","ipam":{{"subnet":"{address}","rangeStart":"{address}","ranges":[[{{"subnet":"{address}"}}]]}}"#);
            let _ = PLUGIN.call_with_args(verb, &args, &single);
            let _ = PLUGIN.call_with_args(verb, &args, &format!(r#","ipam":{{"ranges":{ranges}}}"#));
        }
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("host-local", |verb, conf| PLUGIN.call_anew(verb, conf));
}
