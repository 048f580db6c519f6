use super::*;
use postern_guest::fake::{self, ONE_ADDRESS as V4, Place, Subject, two_links as node};
use postern_guest::types::{LinkSysctl, MacvlanMode};
use proptest::prelude::*;

const PLUGIN: Subject<Macvlan> =
    Subject::new(Macvlan, r#","type":"macvlan","ipam":{"type":"host-local"}"#, || node(V4));

fn own_mac() -> String {
    fake::with(|kernel| kernel.own().unwrap().info.mac.unwrap().to_string())
}

#[test]
fn add_with_the_link_of_the_default_route() {
    let result = PLUGIN.add(r#","dns":{"domain":"conf"}"#);
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
    PLUGIN.add(r#","master":"eth1","mode":"vepa","mtu":1400,"bcqueuelen":2000"#);
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.macvlan_mode, own.info.mtu), (Some(MacvlanMode::Vepa), 1400));
        assert!(format!("{:?}", kernel.log).contains("queue: Some(2000)"));
    });
    let mut inside = node(V4);
    inside.add_link(Place::Container, "net1", "veth");
    fake::install(inside);
    PLUGIN.call("ADD", r#","master":"net1","linkInContainer":true"#).unwrap();
    PLUGIN.add(r#","mode":"passthru","mac":"02:00:00:00:0a:01""#);
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
        PLUGIN.install();
        PLUGIN.call_with_args("ADD", args, keys).unwrap();
        assert_eq!(own_mac(), expected);
    }
}

#[test]
fn without_addresses_it_is_a_cable() {
    let conf = r#"{"cniVersion":"1.1.0","name":"n","type":"macvlan","master":"eth1"}"#;
    let plugin = PLUGIN.on(|| node("{}"));
    plugin.call_anew("ADD", conf).unwrap();
    assert_eq!(fake::log(), ["parent.find", "link.attributes", "macvlan.create", "link.up"]);
    let old = conf.replace("1.1.0", "0.2.0");
    assert!(plugin.call_anew("ADD", &old).unwrap_err().to_string().contains("cannot convert"));
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    PLUGIN.add_refuses(&[
        (r#","mode":"open""#, "unknown macvlan mode: \"open\""),
        (r#","mtu":1501"#, "invalid MTU 1501, must be [0, master MTU(1500)]"),
        (r#","mtu":-1"#, "invalid MTU -1, must be [0, master MTU(1500)]"),
        (r#","master":"eth7""#, "failed to lookup master \"eth7\": Link not found"),
        (r#","linkInContainer":true"#, "no default route interface found"),
        (
            r#","bcqueuelen":-1"#,
            "failed to load netconf: json: cannot unmarshal number -1 into Go struct field NetConf.bcqueuelen of type uint32",
        ),
    ]);
    PLUGIN.install();
    assert!(PLUGIN.message("ADD", r#","mac":"x""#).contains("invalid"));
}

#[test]
fn del_tries_everything() {
    fake::del_tries_everything(|verb, keys| PLUGIN.call(verb, keys));
}

#[test]
fn check_finds_what_is_different() {
    PLUGIN.check_compares_link([
        "container Interface name in prevResult: eth0 not found",
        "error: Container interface eth0 not of type macvlan",
        "interface eth0 Mac 02:00:00:00:00:03 doesn't match container Mac: 02:00:00:00:00:99",
        "Interface eth0 is down",
        "Failed to match addr 10.1.2.3/24 on interface eth0",
    ]);
    PLUGIN.check_finds(&[(
        |kernel| kernel.own_mut().unwrap().macvlan_mode = Some(MacvlanMode::Private),
        "container macvlan mode private does not match expected value: bridge",
    )]);
    assert_eq!(PLUGIN.message("CHECK", ""), "required prevResult missing");
}

#[test]
fn status_looks_at_the_master() {
    PLUGIN.install();
    assert_eq!(PLUGIN.call("STATUS", "").unwrap(), "");
    assert_eq!(PLUGIN.call("GC", "").unwrap(), "");
    assert!(PLUGIN.message("STATUS", r#","master":"eth7""#).contains("Link not found"));
    assert_eq!(PLUGIN.call("STATUS", r#","master":"eth7","linkInContainer":true"#).unwrap(), "");
}

#[test]
fn every_operation_may_fail() {
    PLUGIN.every_operation_may_fail();
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["master", "mode", "mtu", "mac", "linkInContainer", "bcqueuelen", "dns", "ipam", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("macvlan", |verb, conf| PLUGIN.call_anew(verb, conf));
}
