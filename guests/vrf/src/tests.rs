use super::*;
use postern_guest::fake::{self, Kernel, Place};
use postern_guest::types::ErrorCode;
use proptest::prelude::*;

const PREVIOUS: &str = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","interface":0}],"dns":{"domain":"d"}}"#;

fn call(verb: &str, keys: &str) -> Result<String, Error> {
    let conf = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"vrf"{keys}}}"#);
    fake::call_verb(&Vrf, fake::env(verb), &conf)
}

fn message(verb: &str, keys: &str) -> String {
    call(verb, keys).unwrap_err().object().msg.clone()
}

/// A container with the link that the plugin before made, and another one.
fn linked() -> Kernel {
    let mut kernel = Kernel::default();
    kernel.add_link(Place::Container, "eth0", "veth");
    kernel.add_link(Place::Container, "eth1", "veth");
    kernel
}

#[test]
fn the_link_is_in_the_vrf_until_del() {
    fake::install(linked());
    let blue = format!(r#","vrfname":"blue"{PREVIOUS}"#);
    assert!(call("ADD", &blue).unwrap().contains("10.1.2.3/24"));
    call("CHECK", &blue).unwrap();
    assert_eq!(message("ADD", &blue), "cmdAdd failed: interface eth0 has already a master set: blue");
    assert_eq!(message("CHECK", &format!(r#","vrfname":"red"{PREVIOUS}"#)), "Link not found");
    call("DEL", "").unwrap();
    fake::with(|kernel| assert!(kernel.find(Place::Container, "blue").is_none()));
    call("DEL", "").unwrap();
}

#[test]
fn what_is_missing_is_told_as_native() {
    for (verb, keys, expected) in [
        ("ADD", PREVIOUS.to_owned(), "configuration is expected to have a valid vrf name"),
        ("STATUS", r#","vrfname":"""#.to_owned(), "configuration is expected to have a valid vrf name"),
        ("ADD", r#","vrfname":"x""#.to_owned(), "missing prevResult from earlier plugin"),
        ("CHECK", r#","vrfname":"x""#.to_owned(), "missing prevResult from earlier plugin"),
        ("ADD", format!(r#","vrfname":"eth1"{PREVIOUS}"#), "cmdAdd failed: Netlink eth1 is not a VRF"),
        ("ADD", format!(r#","vrfname":"x","table":254{PREVIOUS}"#), "cmdAdd failed: table 254 is the kernel's own"),
        (
            "ADD",
            r#","vrfname":7"#.to_owned(),
            "failed to load netconf: json: cannot unmarshal number into Go struct field VRFNetConf.vrfname of type string",
        ),
        (
            "ADD",
            r#","vrfname":"x","table":-1"#.to_owned(),
            "failed to load netconf: json: cannot unmarshal number -1 into Go struct field VRFNetConf.table of type uint32",
        ),
    ] {
        fake::install(linked());
        assert_eq!(message(verb, &keys).replace(" NetConf.", " VRFNetConf."), expected, "{verb} {keys}");
    }
    fake::install(Kernel::default());
    let missing = message("ADD", &format!(r#","vrfname":"x"{PREVIOUS}"#));
    assert_eq!(missing, "cmdAdd failed: could not get link by name eth0");
    call("DEL", r#","vrfname":7"#).unwrap();
}

#[test]
fn versions_as_native() {
    assert!(call("VERSION", "").unwrap().contains(r#"["0.3.1","0.4.0","1.0.0","1.1.0"]"#));
    let conf = r#"{"cniVersion":"0.3.0","name":"n","type":"vrf","vrfname":"x"}"#;
    assert_eq!(fake::call_verb(&Vrf, fake::env("ADD"), conf).unwrap_err().object().code, 1);
}

#[test]
fn every_failure_of_the_host_is_told() {
    for (verb, count) in [("ADD", 2), ("CHECK", 1), ("DEL", 1), ("GC", 1)] {
        for n in 0..count {
            fake::install(linked());
            fake::with(|kernel| kernel.fail_at(n, ErrorCode::Kernel));
            let outcome = call(verb, &format!(r#","vrfname":"blue"{PREVIOUS}"#));
            assert!(outcome.unwrap_err().object().msg.ends_with("was made to fail"), "{verb} {n}");
        }
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["vrfname", "table", "prevResult"]),
    ) {
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(linked());
            let _ = call(verb, &format!(r#","{key}":{value}"#));
        }
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("vrf", |verb, conf| {
        fake::install(linked());
        fake::call_verb(&Vrf, fake::env(verb), conf).map_err(|error| error.to_string())
    });
}
