use super::*;
use postern_guest::fake::{self, Kernel, Place, Subject};
use proptest::prelude::*;

const PLUGIN: Subject<Vrf> = Subject::new(Vrf, r#","type":"vrf""#, linked);

const PREVIOUS: &str = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","interface":0}],"dns":{"domain":"d"}}"#;

/// A container with the link that an earlier plugin made, and another link.
fn linked() -> Kernel {
    let mut kernel = Kernel::default();
    kernel.add_link(Place::Container, "eth0", "veth");
    kernel.add_link(Place::Container, "eth1", "veth");
    kernel
}

#[test]
fn the_link_is_in_the_vrf_until_del() {
    PLUGIN.install();
    let blue = format!(r#","vrfname":"blue"{PREVIOUS}"#);
    assert!(PLUGIN.call("ADD", &blue).unwrap().contains("10.1.2.3/24"));
    PLUGIN.call("CHECK", &blue).unwrap();
    assert_eq!(PLUGIN.message("ADD", &blue), "cmdAdd failed: interface eth0 has already a master set: blue");
    assert_eq!(PLUGIN.message("CHECK", &format!(r#","vrfname":"red"{PREVIOUS}"#)), "Link not found");
    PLUGIN.call("DEL", "").unwrap();
    fake::with(|kernel| assert!(kernel.find(Place::Container, "blue").is_none()));
    PLUGIN.call("DEL", "").unwrap();
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
        PLUGIN.install();
        assert_eq!(PLUGIN.message(verb, &keys).replace(" NetConf.", " VRFNetConf."), expected, "{verb} {keys}");
    }
    fake::install(Kernel::default());
    let missing = PLUGIN.message("ADD", &format!(r#","vrfname":"x"{PREVIOUS}"#));
    assert_eq!(missing, "cmdAdd failed: could not get link by name eth0");
    PLUGIN.call("DEL", r#","vrfname":7"#).unwrap();
}

#[test]
fn versions_as_native() {
    assert!(PLUGIN.call("VERSION", "").unwrap().contains(r#"["0.3.1","0.4.0","1.0.0","1.1.0"]"#));
    let conf = r#"{"cniVersion":"0.3.0","name":"n","type":"vrf","vrfname":"x"}"#;
    assert_eq!(PLUGIN.call_anew("ADD", conf).unwrap_err().object().code, 1);
}

#[test]
fn every_failure_of_the_host_is_told() {
    let operations = PLUGIN.with_keys(&format!(r#","vrfname":"blue"{PREVIOUS}"#)).every_operation_may_fail();
    assert_eq!(operations, [2, 1, 1, 0, 1]);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["vrfname", "table", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("vrf", |verb, conf| PLUGIN.call_anew(verb, conf));
}
