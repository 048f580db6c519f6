use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place};
use postern_guest::types::LinkSysctl;
use proptest::prelude::*;

fn call(verb: &str, keys: &str) -> Result<String, Error> {
    with_args(verb, keys, "")
}

fn with_args(verb: &str, keys: &str, args: &str) -> Result<String, Error> {
    let conf = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"tap","ipam":{{"type":"host-local"}}{keys}}}"#);
    let mut env = fake::env(verb);
    args.clone_into(&mut env.args);
    fake::call_verb(&Tap, env, &conf)
}

fn message(verb: &str, keys: &str) -> String {
    call(verb, keys).unwrap_err().object().msg.clone()
}

fn attached(keys: &str) -> String {
    fake::install(Kernel::with_ipam(V4));
    let result = call("ADD", keys).unwrap();
    format!(r#"{keys},"prevResult":{result}"#)
}

fn asked() -> String {
    fake::with(|kernel| format!("{:?}", kernel.log))
}

#[test]
fn add_with_addresses() {
    fake::install(Kernel::with_ipam(V4));
    let result = call("ADD", r#","dns":{"domain":"conf"}"#).unwrap().replace([' ', '\n'], "");
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
    let mut node = Kernel::with_ipam(V4);
    let bridge = node.add_link(Place::Container, "br0", "bridge");
    fake::install(node);
    call("ADD", r#","multiQueue":true,"mtu":1400,"owner":1000,"bridge":"br0","args":{"cni":{"mac":"x"}}"#).unwrap();
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.info.mtu, own.master), (1400, Some(bridge)));
    });
    let log = asked();
    for text in
        ["multi_queue: true", "owner: Some(1000)", "group: None", "packet_information: false", "vnet_header: false"]
    {
        assert!(log.contains(text), "{text}: {log}");
    }
}

/// Keys of the list are found in any case, as natively. An empty context is none.
#[test]
fn the_context_reaches_the_link() {
    for (keys, expected) in [
        (r#","selinuxContext":"a:b:c:s0""#, r#"selinux_context: Some("a:b:c:s0")"#),
        (r#","selinuxcontext":"a:b:c:s0""#, r#"selinux_context: Some("a:b:c:s0")"#),
        (r#","selinuxContext":"""#, "selinux_context: None"),
    ] {
        fake::install(Kernel::with_ipam(V4));
        call("ADD", keys).unwrap();
        assert!(asked().contains(expected), "{keys}: {}", asked());
    }
}

/// The native plugin takes another way with both.
#[test]
fn owner_and_group_together_change_the_first_settings() {
    for (keys, information, header) in [
        (r#","owner":0"#, false, false),
        (r#","group":0"#, false, false),
        (r#","owner":0,"group":0"#, true, true),
        (r#","owner":0,"group":0,"multiQueue":true"#, false, true),
        (r#","owner":0,"group":0,"selinuxContext":"a:b:c:s0""#, false, false),
    ] {
        fake::install(Kernel::with_ipam(V4));
        call("ADD", keys).unwrap();
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
        fake::install(Kernel::with_ipam(V4));
        with_args("ADD", keys, args).unwrap();
        assert_eq!(fake::with(|kernel| kernel.own().unwrap().info.mac.unwrap().to_string()), expected);
    }
}

#[test]
fn without_addresses_it_is_a_cable() {
    fake::install(Kernel::with_ipam("{}"));
    let conf = r#"{"cniVersion":"1.1.0","name":"n","type":"tap"}"#;
    fake::call_verb(&Tap, fake::env("ADD"), conf).unwrap();
    assert_eq!(fake::log(), ["tap.create", "link.up"]);
    let old = conf.replace("1.1.0", "0.2.0");
    assert!(fake::call_verb(&Tap, fake::env("ADD"), &old).unwrap_err().to_string().contains("cannot convert"));
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    for (keys, expected) in [
        (r#","mtu":-1"#, "invalid MTU -1"),
        (r#","mac":"x""#, "invalid args x for MAC addr"),
        (r#","mac":"02:00:00:00:00:00:00:01""#, "it must have 6 bytes"),
        (r#","selinuxContext":7"#, "failed to load netconf: json: cannot unmarshal number"),
        (
            r#","owner":-1"#,
            "failed to load netconf: json: cannot unmarshal number -1 into Go struct field NetConf.owner of type uint32",
        ),
        (
            r#","group":"x""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.group of type uint32",
        ),
        (r#","bridge":7"#, "failed to load netconf: json: cannot unmarshal number"),
    ] {
        fake::install(Kernel::with_ipam(V4));
        let message = message("ADD", keys);
        assert!(message.contains(expected), "{message}");
        fake::with(|kernel| assert!(kernel.own().is_none(), "{keys}"));
    }
    fake::install(Kernel::with_ipam(V4));
    assert_eq!(message("ADD", r#","bridge":"br7""#), "failed to get bridge br7: Link not found");
    fake::install(Kernel::with_ipam("{}"));
    assert_eq!(message("ADD", ""), "IPAM plugin returned missing IP config");
}

#[test]
fn del_tries_everything() {
    fake::del_tries_everything(call);
}

#[test]
fn check_finds_what_is_different() {
    let keys = attached("");
    assert_eq!(call("CHECK", &keys).unwrap(), "");
    type Change = fn(&mut Kernel);
    let changes: &[(Change, &str)] = &[
        (|kernel| kernel.links.clear(), "Container Interface name in prevResult: eth0 not found"),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().info.kind = "veth".to_owned(),
            "Error: Container interface eth0 not of type tap",
        ),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().info.mac = "02:00:00:00:00:99".parse().ok(),
            "Interface eth0 Mac 02:00:00:00:00:01 doesn't match container Mac: 02:00:00:00:00:99",
        ),
        (|kernel| kernel.links.get_mut(&1).unwrap().info.up = false, "Interface eth0 is down"),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().addresses.clear(),
            "Failed to match addr 10.1.2.3/24 on interface eth0",
        ),
    ];
    for (change, expected) in changes {
        let keys = attached("");
        fake::with(change);
        assert_eq!(message("CHECK", &keys), *expected);
    }
    assert_eq!(message("CHECK", ""), "Required prevResult missing");
}

#[test]
fn status_and_gc_are_about_addresses() {
    fake::install(Kernel::with_ipam(V4));
    assert_eq!(call("STATUS", "").unwrap(), "");
    assert_eq!(call("GC", "").unwrap(), "");
    assert_eq!(fake::log(), ["ipam.status", "attachments.collect", "ipam.gc"]);
}

#[test]
fn every_operation_may_fail() {
    let prepare = |verb: &str| match verb {
        "ADD" => {
            let mut node = Kernel::with_ipam(V4);
            node.add_link(Place::Container, "br0", "bridge");
            fake::install(node);
            r#","bridge":"br0""#.to_owned()
        }
        _ => attached(""),
    };
    fake::each_operation_fails(prepare, call);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["multiQueue", "mtu", "mac", "owner", "group", "selinuxContext", "bridge", "dns", "ipam", "prevResult"]),
    ) {
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(Kernel::with_ipam(V4));
            let _ = call(verb, &format!(r#","{key}":{value}"#));
        }
    }
}
