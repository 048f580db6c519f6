use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place, Subject};
use postern_guest::types::LinkSysctl;
use proptest::prelude::*;

const PLUGIN: Subject<Tap> =
    Subject::new(Tap, r#","type":"tap","ipam":{"type":"host-local"}"#, || Kernel::with_ipam(V4));

/// A container with its own bridge.
fn bridged() -> Kernel {
    let mut node = Kernel::with_ipam(V4);
    node.add_link(Place::Container, "br0", "bridge");
    node
}

fn asked() -> String {
    fake::with(|kernel| format!("{:?}", kernel.log))
}

#[test]
fn add_with_addresses() {
    let result = PLUGIN.add(r#","dns":{"domain":"conf"}"#);
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"conf"},"interfaces":[{"mac":"02:00:00:00:00:01","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.info.kind.as_str(), own.info.up), (KIND, true));
        assert_eq!(own.sysctls, [(LinkSysctl::ArpNotify, true)]);
    });
}

#[test]
fn every_key_reaches_the_link() {
    PLUGIN.on(bridged).add(r#","multiQueue":true,"mtu":1400,"owner":1000,"bridge":"br0","args":{"cni":{"mac":"x"}}"#);
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        let bridge = kernel.find(Place::Container, "br0").unwrap();
        assert_eq!((own.info.mtu, own.master), (1400, Some(bridge.info.handle)));
    });
    let log = asked();
    for text in
        ["multi_queue: true", "owner: Some(1000)", "group: None", "packet_information: false", "vnet_header: false"]
    {
        assert!(log.contains(text), "{text}: {log}");
    }
}

/// Case does not matter in keys, as in the native plugin. An empty context counts as absent.
#[test]
fn the_context_reaches_the_link() {
    for (keys, expected) in [
        (r#","selinuxContext":"a:b:c:s0""#, r#"selinux_context: Some("a:b:c:s0")"#),
        (r#","selinuxcontext":"a:b:c:s0""#, r#"selinux_context: Some("a:b:c:s0")"#),
        (r#","selinuxContext":"""#, "selinux_context: None"),
    ] {
        PLUGIN.add(keys);
        assert!(asked().contains(expected), "{keys}: {}", asked());
    }
}

/// The native plugin makes the tap in another way if `owner` and `group` are both given.
#[test]
fn owner_and_group_together_change_the_first_settings() {
    for (keys, information, header) in [
        (r#","owner":0"#, false, false),
        (r#","group":0"#, false, false),
        (r#","owner":0,"group":0"#, true, true),
        (r#","owner":0,"group":0,"multiQueue":true"#, false, true),
        (r#","owner":0,"group":0,"selinuxContext":"a:b:c:s0""#, false, false),
    ] {
        PLUGIN.add(keys);
        let log = asked();
        assert!(log.contains(&format!("packet_information: {information}")), "{keys}: {log}");
        assert!(log.contains(&format!("vnet_header: {header}")), "{keys}: {log}");
    }
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
        assert_eq!(fake::with(|kernel| kernel.own().unwrap().info.mac.unwrap().to_string()), expected);
    }
}

#[test]
fn without_addresses_it_is_a_cable() {
    let conf = r#"{"cniVersion":"1.1.0","name":"n","type":"tap"}"#;
    let plugin = PLUGIN.on(|| Kernel::with_ipam("{}"));
    plugin.call_anew("ADD", conf).unwrap();
    assert_eq!(fake::log(), ["tap.create", "link.up"]);
    let old = conf.replace("1.1.0", "0.2.0");
    assert!(plugin.call_anew("ADD", &old).unwrap_err().to_string().contains("cannot convert"));
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    PLUGIN.add_refuses(&[
        (r#","mtu":-1"#, "invalid MTU -1"),
        (r#","mac":"x""#, "invalid args x for MAC addr: address x: invalid MAC address"),
        (r#","mac":"02:00:00:00:00:00:00:01""#, "failed to create tap: address 02:00:00:00:00:00:00:01: it must have 6 bytes"),
        (r#","selinuxContext":7"#, "failed to load netconf: json: cannot unmarshal number into Go struct field NetConf.selinuxContext of type string"),
        (
            r#","owner":-1"#,
            "failed to load netconf: json: cannot unmarshal number -1 into Go struct field NetConf.owner of type uint32",
        ),
        (
            r#","group":"x""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.group of type uint32",
        ),
        (r#","bridge":7"#, "failed to load netconf: json: cannot unmarshal number into Go struct field NetConf.bridge of type string"),
    ]);
    PLUGIN.install();
    assert_eq!(PLUGIN.message("ADD", r#","bridge":"br7""#), "failed to get bridge br7: Link not found");
    fake::install(Kernel::with_ipam("{}"));
    assert_eq!(PLUGIN.message("ADD", ""), "IPAM plugin returned missing IP config");
}

#[test]
fn del_tries_everything() {
    fake::del_tries_everything(|verb, keys| PLUGIN.call(verb, keys));
}

#[test]
fn check_finds_what_is_different() {
    PLUGIN.check_compares_link([
        "Container Interface name in prevResult: eth0 not found",
        "Error: Container interface eth0 not of type tap",
        "Interface eth0 Mac 02:00:00:00:00:01 doesn't match container Mac: 02:00:00:00:00:99",
        "Interface eth0 is down",
        "Failed to match addr 10.1.2.3/24 on interface eth0",
    ]);
    assert_eq!(PLUGIN.message("CHECK", ""), "Required prevResult missing");
}

#[test]
fn status_and_gc_are_about_addresses() {
    PLUGIN.install();
    assert_eq!(PLUGIN.call("STATUS", "").unwrap(), "");
    assert_eq!(PLUGIN.call("GC", "").unwrap(), "");
    assert_eq!(fake::log(), ["ipam.status", "attachments.collect", "ipam.gc"]);
}

#[test]
fn every_operation_may_fail() {
    PLUGIN.on(bridged).with_keys(r#","bridge":"br0""#).every_operation_may_fail();
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["multiQueue", "mtu", "mac", "owner", "group", "selinuxContext", "bridge", "dns", "ipam", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("tap", |verb, conf| PLUGIN.call_anew(verb, conf));
}
