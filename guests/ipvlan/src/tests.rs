use super::*;
use postern_guest::fake::{self, ONE_ADDRESS as V4, Place, Subject, two_links as node};
use proptest::prelude::*;

const PLUGIN: Subject<Ipvlan> = Subject::new(Ipvlan, r#","type":"ipvlan","ipam":{"type":"host-local"}"#, || node(V4));

const PREVIOUS: &str = r#","ipam":{"type":""},"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth1"}],"ips":[{"address":"10.7.0.8/24","interface":0}],"routes":[{"dst":"10.5.0.0/16"}]}"#;

#[test]
fn add_with_the_link_of_the_default_route() {
    let result = PLUGIN.add(r#","dns":{"domain":"conf"}"#);
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
    PLUGIN.add(r#","master":"eth1","mode":"l3s","mtu":9000"#);
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
    let result = PLUGIN.call("ADD", PREVIOUS).unwrap().replace([' ', '\n'], "");
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:00:00:00:02","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.7.0.8/24","interface":0}],"routes":[{"dst":"10.5.0.0/16"}]}"#
    );
    fake::with(|kernel| assert_eq!(kernel.own().unwrap().stands_on, Some(2)));
    for interfaces in ["[]", r#"[{"name":"eth0"},{"name":"eth1"}]"#, r#"[{"name":""}]"#] {
        PLUGIN.install();
        let keys = PREVIOUS.replace(r#"[{"name":"eth1"}]"#, interfaces);
        assert_eq!(PLUGIN.message("ADD", &keys), "chained master failure. PrevResult lacks a single named interface");
    }
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    PLUGIN.add_refuses(&[
        (r#","mode":"open""#, "unknown ipvlan mode: \"open\""),
        (r#","master":"eth7""#, "failed to lookup master \"eth7\": Link not found"),
        (r#","linkInContainer":true"#, "no default route interface found"),
        (r#","ipam":{"type":""}"#, "no plugin name provided"),
        (
            r#","mtu":"5""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.mtu of type int",
        ),
    ]);
}

#[test]
fn a_master_has_one_mode() {
    let mut node = node(V4);
    let other = node.add_link(Place::Host, "ipvl0", "ipvlan");
    let link = node.links.get_mut(&other).unwrap();
    (link.ipvlan_mode, link.stands_on) = (Some(IpvlanMode::L3), Some(2));
    fake::install(node);
    assert!(PLUGIN.message("ADD", r#","master":"eth1""#).contains("\"eth1\" has a link in mode l3"));
    PLUGIN.call("ADD", r#","master":"eth1","mode":"l3""#).unwrap();
}

#[test]
fn status_looks_at_the_master() {
    PLUGIN.install();
    assert_eq!(PLUGIN.call("STATUS", "").unwrap(), "");
    assert!(PLUGIN.message("STATUS", r#","master":"eth7""#).contains("Link not found"));
    assert_eq!(PLUGIN.call("STATUS", r#","master":"eth7","linkInContainer":true"#).unwrap(), "");
}

#[test]
fn del_tries_everything() {
    fake::del_tries_everything(|verb, keys| PLUGIN.call(verb, keys));
}

#[test]
fn check_finds_what_is_different() {
    PLUGIN.check_compares_link([
        "Container Interface name in prevResult: eth0 not found",
        "Error: Container interface eth0 not of type ipvlan",
        "Interface eth0 Mac 02:00:00:00:00:01 doesn't match container Mac: 02:00:00:00:00:99",
        "Interface eth0 is down",
        "Failed to match addr 10.1.2.3/24 on interface eth0",
    ]);
    PLUGIN.check_finds(&[(
        |kernel| kernel.own_mut().unwrap().ipvlan_mode = Some(IpvlanMode::L3),
        "Container IPVlan mode l3 does not match expected value: l2",
    )]);
    assert_eq!(PLUGIN.message("CHECK", ""), "Required prevResult missing");
}

#[test]
fn every_operation_may_fail() {
    PLUGIN.every_operation_may_fail();
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["master", "mode", "mtu", "vlanId", "linkInContainer", "dns", "ipam", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("ipvlan", |verb, conf| PLUGIN.call_anew(verb, conf));
}
