use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place, two_links as node};
use postern_guest::types::{LinkSysctl, MacvlanMode};
use proptest::prelude::*;

fn call(verb: &str, keys: &str) -> Result<String, Error> {
    with_args(verb, keys, "")
}

fn with_args(verb: &str, keys: &str, args: &str) -> Result<String, Error> {
    let conf = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"macvlan","ipam":{{"type":"host-local"}}{keys}}}"#);
    let mut env = fake::env(verb);
    args.clone_into(&mut env.args);
    fake::call_verb(&Macvlan, env, &conf)
}

fn message(verb: &str, keys: &str) -> String {
    call(verb, keys).unwrap_err().object().msg.clone()
}

fn own_mac() -> String {
    fake::with(|kernel| kernel.own().unwrap().info.mac.unwrap().to_string())
}

#[test]
fn add_with_the_link_of_the_default_route() {
    fake::install(node(V4));
    let result = call("ADD", r#","dns":{"domain":"conf"}"#).unwrap().replace([' ', '\n'], "");
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"conf"},"interfaces":[{"mac":"02:00:00:00:00:03","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.macvlan_mode, own.info.up), (Some(MacvlanMode::Bridge), true));
        assert_eq!(own.sysctls, [(LinkSysctl::ArpNotify, true), (LinkSysctl::NdiscNotify, true)]);
    });
}

#[test]
fn every_key_reaches_the_link() {
    fake::install(node(V4));
    call("ADD", r#","master":"eth1","mode":"vepa","mtu":1400,"bcqueuelen":2000"#).unwrap();
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.macvlan_mode, own.info.mtu), (Some(MacvlanMode::Vepa), 1400));
        assert!(format!("{:?}", kernel.log).contains("queue: Some(2000)"));
    });
    let mut inside = node(V4);
    inside.add_link(Place::Container, "net1", "veth");
    fake::install(inside);
    call("ADD", r#","master":"net1","linkInContainer":true"#).unwrap();
    fake::install(node(V4));
    call("ADD", r#","mode":"passthru","mac":"02:00:00:00:0a:01""#).unwrap();
    assert_eq!(own_mac(), "02:00:00:00:00:01");
}

#[test]
fn addresses_in_their_order() {
    let (conf, args, runtime) = (
        r#","mac":"02:00:00:00:0a:01""#,
        "MAC=02:00:00:00:0a:02",
        r#","runtimeConfig":{"mac":"02:00:00:00:0a:03"},"mac":"02:00:00:00:0a:01""#,
    );
    for (keys, args, expected) in
        [(conf, "", "02:00:00:00:0a:01"), (conf, args, "02:00:00:00:0a:02"), (runtime, args, "02:00:00:00:0a:03")]
    {
        fake::install(node(V4));
        with_args("ADD", keys, args).unwrap();
        assert_eq!(own_mac(), expected);
    }
}

#[test]
fn without_addresses_it_is_a_cable() {
    fake::install(node("{}"));
    let conf = r#"{"cniVersion":"1.1.0","name":"n","type":"macvlan","master":"eth1"}"#;
    fake::call_verb(&Macvlan, fake::env("ADD"), conf).unwrap();
    assert_eq!(fake::log(), ["parent.find", "link.attributes", "macvlan.create", "link.up"]);
    let old = conf.replace("1.1.0", "0.2.0");
    assert!(fake::call_verb(&Macvlan, fake::env("ADD"), &old).unwrap_err().to_string().contains("cannot convert"));
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    for (keys, expected) in [
        (r#","mode":"open""#, "unknown macvlan mode: \"open\""),
        (r#","mtu":1501"#, "invalid MTU 1501, must be [0, master MTU(1500)]"),
        (r#","mtu":-1"#, "invalid MTU -1, must be [0, master MTU(1500)]"),
        (r#","master":"eth7""#, "failed to lookup master \"eth7\": Link not found"),
        (r#","linkInContainer":true"#, "no default route interface found"),
        (
            r#","bcqueuelen":-1"#,
            "failed to load netconf: json: cannot unmarshal number -1 into Go struct field NetConf.bcqueuelen of type uint32",
        ),
    ] {
        fake::install(node(V4));
        assert_eq!(message("ADD", keys), expected);
        fake::with(|kernel| assert!(kernel.own().is_none(), "{keys}"));
    }
    fake::install(node(V4));
    assert!(message("ADD", r#","mac":"x""#).contains("invalid"));
}

#[test]
fn del_tries_everything() {
    fake::del_tries_everything(call);
}

fn attached(keys: &str) -> String {
    fake::install(node(V4));
    let result = call("ADD", keys).unwrap();
    format!(r#"{keys},"prevResult":{result}"#)
}

#[test]
fn check_finds_what_is_different() {
    let keys = attached("");
    assert_eq!(call("CHECK", &keys).unwrap(), "");
    type Change = fn(&mut Kernel);
    let changes: [(Change, &str); 6] = [
        (
            |kernel| kernel.links.retain(|_, link| link.place == Place::Host),
            "container Interface name in prevResult: eth0 not found",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.kind = "veth".to_owned(),
            "error: Container interface eth0 not of type macvlan",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().macvlan_mode = Some(MacvlanMode::Private),
            "container macvlan mode private does not match expected value: bridge",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.mac = "02:00:00:00:00:99".parse().ok(),
            "interface eth0 Mac 02:00:00:00:00:03 doesn't match container Mac: 02:00:00:00:00:99",
        ),
        (|kernel| kernel.links.get_mut(&3).unwrap().info.up = false, "Interface eth0 is down"),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().addresses.clear(),
            "Failed to match addr 10.1.2.3/24 on interface eth0",
        ),
    ];
    for (change, expected) in changes {
        let keys = attached("");
        fake::with(change);
        assert_eq!(message("CHECK", &keys), expected);
    }
    assert_eq!(message("CHECK", ""), "required prevResult missing");
}

#[test]
fn status_looks_at_the_master() {
    fake::install(node(V4));
    assert_eq!(call("STATUS", "").unwrap(), "");
    assert_eq!(call("GC", "").unwrap(), "");
    assert!(message("STATUS", r#","master":"eth7""#).contains("Link not found"));
    assert_eq!(call("STATUS", r#","master":"eth7","linkInContainer":true"#).unwrap(), "");
}

#[test]
fn every_operation_may_fail() {
    let prepare = |verb: &str| match verb {
        "ADD" => {
            fake::install(node(V4));
            String::new()
        }
        _ => attached(""),
    };
    fake::each_operation_fails(prepare, call);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["master", "mode", "mtu", "mac", "linkInContainer", "bcqueuelen", "dns", "ipam", "prevResult"]),
    ) {
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(node(V4));
            let _ = call(verb, &format!(r#","{key}":{value}"#));
        }
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("macvlan", |verb, conf| {
        fake::install(node(V4));
        fake::call_verb(&Macvlan, fake::env(verb), conf).map_err(|error| error.to_string())
    });
}
