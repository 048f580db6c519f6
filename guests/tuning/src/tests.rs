use super::*;
use postern_guest::fake::{self, Kernel, Place, Subject};
use proptest::prelude::*;

const PLUGIN: Subject<Tuning> = Subject::new(Tuning, PREVIOUS, linked);
/// A subject without an earlier plugin.
const ALONE: Subject<Tuning> = Subject::new(Tuning, r#","type":"tuning""#, linked);

const PREVIOUS: &str = r#","type":"tuning","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"cni0"},{"name":"eth0","mac":"02:00:00:00:00:09"},
    {"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/c1"}]}"#;

/// A container with the link that an earlier plugin made.
fn linked() -> Kernel {
    let mut kernel = Kernel::default();
    kernel.add_link(Place::Container, "eth0", "veth");
    kernel
}

/// The state of the link: address, MTU, promiscuous mode, all multicast frames, queue length.
fn link() -> (String, u32, bool, bool, u32) {
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        let mac = own.info.mac.unwrap().to_string();
        (mac, own.info.mtu, own.promisc, own.allmulti, own.tx_queue_length)
    })
}

fn untouched() -> (String, u32, bool, bool, u32) {
    ("02:00:00:00:00:01".to_owned(), 1500, false, false, 1000)
}

#[test]
fn every_key_is_set_compared_and_put_back() {
    let keys = r#","sysctl":{"net.core.somaxconn":"500","net.ipv4.conf.IFNAME.arp_filter":"1"},
        "mac":"02:00:00:00:00:AA","mtu":1400,"promisc":true,"allmulti":true,"txQLen":77"#;
    let result = PLUGIN.add(keys);
    // The host's link with this name is another link. The address keeps its spelling.
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","interfaces":[{"name":"cni0"},{"mac":"02:00:00:00:00:09","name":"eth0"},{"mac":"02:00:00:00:00:AA","name":"eth0","sandbox":"/run/netns/c1"}]}"#
    );
    assert_eq!(link(), ("02:00:00:00:00:aa".to_owned(), 1400, true, true, 77));
    let sysctls = fake::with(|kernel| kernel.settings.clone());
    assert_eq!(
        sysctls.into_iter().collect::<Vec<_>>(),
        [
            ("net.core.somaxconn".to_owned(), "500".to_owned()),
            ("net.ipv4.conf.IFNAME.arp_filter".to_owned(), "1".to_owned()),
        ]
    );
    PLUGIN.call("CHECK", keys).unwrap();
    for (key, other) in [
        ("mtu", "1300"),
        ("promisc", "false"),
        ("allmulti", "false"),
        ("txQLen", "5"),
        ("mac", r#""02:00:00:00:00:bb""#),
    ] {
        assert!(PLUGIN.message("CHECK", &format!(r#"{keys},"{key}":{other}"#)).contains("eth0"), "{key}");
    }
    assert!(PLUGIN.message("CHECK", r#","sysctl":{"net.core.somaxconn":"1"}"#).contains("current value is 500"));
    // CHECK compares only settings that the network names.
    PLUGIN.call("CHECK", "").unwrap();
    PLUGIN.call("DEL", keys).unwrap();
    assert_eq!(link(), untouched());
    PLUGIN.call("DEL", keys).unwrap();
}

/// Plugins of other vendors write other values as the sandbox of the container's interface.
#[test]
fn the_new_address_is_in_the_result() {
    for own in [
        r#"{"name":"eth0","mac":"m","sandbox":"0af3c17f"}"#,
        r#"{"name":"eth0","mac":"m","sandbox":"/host/run/netns/c1"}"#,
        r#"{"name":"eth0","mac":"m"}"#,
        r#"{"name":"eth0","mac":"m"},null"#,
    ] {
        let keys = format!(
            r#","mac":"02:00:00:00:00:aa","prevResult":{{"cniVersion":"1.1.0","interfaces":[{own},{{"name":"cni0","mac":"n"}}]}}"#
        );
        let result = PLUGIN.add(&keys);
        assert!(result.contains("02:00:00:00:00:aa") && !result.contains(r#""m""#), "{own}: {result}");
        assert!(result.contains(r#""n""#), "{own}: {result}");
    }
}

#[test]
fn nothing_asked_for_is_nothing_done() {
    for keys in ["", r#","sysctl":{}"#, r#","promisc":false"#, r#","mtu":0,"mac":"""#] {
        PLUGIN.add(keys);
        assert!(fake::log().is_empty(), "{keys}");
    }
}

#[test]
fn what_goes_before_what() {
    let args =
        |cni: &str| format!(r#","mac":"02:00:00:00:00:11","mtu":1400,"promisc":true,"args":{{"cni":{{{cni}}}}}"#);
    for (variable, keys, mac) in [
        ("", r#","mac":"02:00:00:00:00:11""#.to_owned(), "11"),
        ("MAC=02:00:00:00:00:22", r#","mac":"02:00:00:00:00:11""#.to_owned(), "22"),
        ("MAC=", r#","mac":"02:00:00:00:00:11""#.to_owned(), "11"),
        (
            "IgnoreUnknown=1;X=y;MAC=02:00:00:00:00:22",
            r#","runtimeConfig":{"mac":"02:00:00:00:00:33"}"#.to_owned(),
            "33",
        ),
        ("MAC=02:00:00:00:00:22", args(r#""mac":"02:00:00:00:00:44""#), "44"),
        ("MAC=02:00:00:00:00:22", args(""), "22"),
    ] {
        PLUGIN.install();
        PLUGIN.call_with_args("ADD", variable, &keys).unwrap();
        assert_eq!(link().0, format!("02:00:00:00:00:{mac}"), "{variable} {keys}");
    }
    PLUGIN.add(&args(r#""mtu":1300,"promisc":false,"allmulti":true,"txQLen":9,"sysctl":{"net.core.somaxconn":"5"}"#));
    assert_eq!(link(), ("02:00:00:00:00:11".to_owned(), 1300, false, true, 9));
    assert_eq!(fake::with(|kernel| kernel.settings.len()), 1);
    PLUGIN.add(r#","sysctl":{"net.a":"1","net.b":"1"},"args":{"cni":{"sysctl":{"net.b":"2","net.b":"3"}}}"#);
    let sysctls = fake::with(|kernel| kernel.settings.values().cloned().collect::<Vec<_>>());
    assert_eq!(sysctls, ["1", "3"]);
}

#[test]
fn what_is_wrong_is_told_as_native() {
    for (verb, keys, expected) in [
        ("ADD", r#","sysctl":{"net.a":"1","net.a":"0"}"#, "duplicated sysctl keys are not allowed"),
        ("ADD", r#","sysctl":{"net.a":"1"},"Sysctl":{"net/a":"1"}"#, "duplicated sysctl keys are not allowed"),
        ("CHECK", r#","sysctl":{"net.a":"1","net.a":"1"}"#, "duplicated sysctl keys are not allowed"),
        ("ADD", r#","mac":"xx""#, "invalid args xx for MAC addr: address xx: invalid MAC address"),
        (
            "ADD",
            r#","mac":"02:00:00:00:00:00:00:01""#,
            "invalid args 02:00:00:00:00:00:00:01 for MAC addr: address 02:00:00:00:00:00:00:01: not an Ethernet address of 6 bytes",
        ),
        ("ADD", r#","mac":"01:00:00:00:00:01""#, "01:00:00:00:00:01 is no address of a link"),
        ("ADD", r#","mtu":-5"#, "mtu -5 is out of range: invalid argument"),
        ("ADD", r#","txQLen":-1"#, "txQLen -1 is out of range: invalid argument"),
        ("ADD", r#","txQLen":4294967296"#, "txQLen 4294967296 is out of range: invalid argument"),
        ("STATUS", r#","mtu":-5"#, "mtu -5 is out of range: invalid argument"),
        (
            "STATUS",
            r#","mtu":"1""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.mtu of type int",
        ),
    ] {
        PLUGIN.install();
        assert_eq!(PLUGIN.message(verb, keys), expected, "{verb} {keys}");
    }
    for verb in ["ADD", "CHECK"] {
        PLUGIN.install();
        assert_eq!(ALONE.message(verb, r#","mtu":1400"#), "Required prevResult missing");
        assert_eq!(PLUGIN.call_with_args(verb, "X=1", "").unwrap_err().object().msg, "ARGS: unknown args [\"X=1\"]");
        for key in ["mac", "mtu", "promisc", "allmulti", "txQLen", "sysctl", "dataDir", "args", "runtimeConfig"] {
            for keys in [format!(",\"{key}\":[7]"), format!(r#","args":{{"cni":{{"{key}":[7]}}}}"#)] {
                if keys.contains("cni") && matches!(key, "dataDir" | "args" | "runtimeConfig") {
                    continue;
                }
                let text = PLUGIN.message(verb, &keys);
                assert!(text.contains("json: cannot unmarshal array into"), "{keys}: {text}");
            }
        }
        fake::install(Kernel::default());
        let words =
            if verb == "ADD" { "failed to get \"eth0\": Link not found" } else { "Cannot find container link eth0" };
        assert_eq!(PLUGIN.message(verb, r#","mtu":1400"#), words);
    }
    // DEL works with any configuration.
    PLUGIN.add(r#","mtu":1400"#);
    ALONE.call_with_args("DEL", "X", r#","mtu":"x","sysctl":7"#).unwrap();
    assert_eq!(link(), untouched());
}

#[test]
fn every_failure_of_the_host_is_told() {
    let keys = r#","sysctl":{"net.core.somaxconn":"500"},"mtu":1400"#;
    assert_eq!(PLUGIN.with_keys(keys).every_operation_may_fail(), [3, 1, 3, 0, 1]);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["mac", "mtu", "promisc", "allmulti", "txQLen", "sysctl", "args", "runtimeConfig", "prevResult"]),
    ) {
        ALONE.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("tuning", |verb, conf| PLUGIN.call_anew(verb, conf));
}
