use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place, two_links as node};
use proptest::prelude::*;

fn call(verb: &str, keys: &str) -> Result<String, Error> {
    let conf = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"ipvlan","ipam":{{"type":"host-local"}}{keys}}}"#);
    fake::call_verb(&Ipvlan, fake::env(verb), &conf)
}

fn message(verb: &str, keys: &str) -> String {
    call(verb, keys).unwrap_err().object().msg.clone()
}

fn attached(keys: &str) -> String {
    fake::install(node(V4));
    let result = call("ADD", keys).unwrap();
    format!(r#"{keys},"prevResult":{result}"#)
}

const PREVIOUS: &str = r#","ipam":{"type":""},"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth1"}],"ips":[{"address":"10.7.0.8/24","interface":0}],"routes":[{"dst":"10.5.0.0/16"}]}"#;

#[test]
fn add_with_the_link_of_the_default_route() {
    fake::install(node(V4));
    let result = call("ADD", r#","dns":{"domain":"conf"}"#).unwrap().replace([' ', '\n'], "");
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"conf"},"interfaces":[{"mac":"02:00:00:00:00:01","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.ipvlan_mode, own.stands_on, own.info.up), (Some(IpvlanMode::L2), Some(1), true));
        assert_eq!(own.sysctls.len(), 2);
    });
}

#[test]
fn every_key_reaches_the_link() {
    fake::install(node(V4));
    call("ADD", r#","master":"eth1","mode":"l3s","mtu":9000"#).unwrap();
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.ipvlan_mode, own.stands_on, own.info.mtu), (Some(IpvlanMode::L3s), Some(2), 9000));
    });
}

#[test]
fn behind_another_plugin() {
    let mut kernel = node(V4);
    kernel.attachment = vec![("10.7.0.8/24".parse().unwrap(), None)];
    fake::install(kernel);
    let result = call("ADD", PREVIOUS).unwrap().replace([' ', '\n'], "");
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:00:00:00:02","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.7.0.8/24","interface":0}],"routes":[{"dst":"10.5.0.0/16"}]}"#
    );
    fake::with(|kernel| assert_eq!(kernel.own().unwrap().stands_on, Some(2)));
    for interfaces in ["[]", r#"[{"name":"eth0"},{"name":"eth1"}]"#, r#"[{"name":""}]"#] {
        fake::install(node(V4));
        let keys = PREVIOUS.replace(r#"[{"name":"eth1"}]"#, interfaces);
        assert_eq!(message("ADD", &keys), "chained master failure. PrevResult lacks a single named interface");
    }
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    for (keys, expected) in [
        (r#","mode":"open""#, "unknown ipvlan mode: \"open\""),
        (r#","master":"eth7""#, "failed to lookup master \"eth7\": Link not found"),
        (r#","linkInContainer":true"#, "no default route interface found"),
        (r#","ipam":{"type":""}"#, "no plugin name provided"),
        (
            r#","mtu":"5""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.mtu of type int",
        ),
    ] {
        fake::install(node(V4));
        assert_eq!(message("ADD", keys), expected);
        fake::with(|kernel| assert!(kernel.own().is_none(), "{keys}"));
    }
}

#[test]
fn a_master_has_one_mode() {
    let mut node = node(V4);
    let other = node.add_link(Place::Host, "ipvl0", "ipvlan");
    let link = node.links.get_mut(&other).unwrap();
    (link.ipvlan_mode, link.stands_on) = (Some(IpvlanMode::L3), Some(2));
    fake::install(node);
    assert!(message("ADD", r#","master":"eth1""#).contains("\"eth1\" has links in mode l3"));
    call("ADD", r#","master":"eth1","mode":"l3""#).unwrap();
}

#[test]
fn status_looks_at_the_master() {
    fake::install(node(V4));
    assert_eq!(call("STATUS", "").unwrap(), "");
    assert!(message("STATUS", r#","master":"eth7""#).contains("Link not found"));
    assert_eq!(call("STATUS", r#","master":"eth7","linkInContainer":true"#).unwrap(), "");
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
        (
            |kernel| kernel.links.retain(|_, link| link.place == Place::Host),
            "Container Interface name in prevResult: eth0 not found",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.kind = "veth".to_owned(),
            "Error: Container interface eth0 not of type ipvlan",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.mac = "02:00:00:00:00:99".parse().ok(),
            "Interface eth0 Mac 02:00:00:00:00:01 doesn't match container Mac: 02:00:00:00:00:99",
        ),
        (|kernel| kernel.links.get_mut(&3).unwrap().info.up = false, "Interface eth0 is down"),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().addresses.clear(),
            "Failed to match addr 10.1.2.3/24 on interface eth0",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().ipvlan_mode = Some(IpvlanMode::L3),
            "Container IPVlan mode l3 does not match expected value: l2",
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
        key in prop::sample::select(vec!["master", "mode", "mtu", "vlanId", "linkInContainer", "dns", "ipam", "prevResult"]),
    ) {
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(node(V4));
            let _ = call(verb, &format!(r#","{key}":{value}"#));
        }
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("ipvlan", |verb, conf| {
        fake::install(node(V4));
        fake::call_verb(&Ipvlan, fake::env(verb), conf).map_err(|error| error.to_string())
    });
}
