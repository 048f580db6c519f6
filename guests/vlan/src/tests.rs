use super::*;
use postern_guest::fake::{self, ONE_ADDRESS as V4, Place, Subject, two_links as node};
use proptest::prelude::*;

const PLUGIN: Subject<Vlan> =
    Subject::new(Vlan, r#","type":"vlan","master":"eth1","vlanId":5,"ipam":{"type":"host-local"}"#, || node(V4));

#[test]
fn every_key_reaches_the_link() {
    let result = PLUGIN.add(r#","dns":{"domain":"conf"},"mtu":1400"#);
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"conf"},"interfaces":[{"mac":"02:00:00:00:00:02","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.vlan_id, own.stands_on, own.info.mtu, own.info.up), (Some(5), Some(2), 1400, true));
        assert!(own.sysctls.is_empty());
    });
    let mut inside = node(V4);
    let below = inside.add_link(Place::Container, "net1", "veth");
    fake::install(inside);
    PLUGIN.call("ADD", r#","master":"net1","linkInContainer":true,"vlanId":0"#).unwrap();
    fake::with(|kernel| {
        assert_eq!((kernel.own().unwrap().vlan_id, kernel.own().unwrap().stands_on), (Some(0), Some(below)))
    });
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    PLUGIN.add_refuses(&[
        (
            r#","master":"""#,
            "\"master\" field is required. It specifies the host interface name to create the VLAN for",
        ),
        (r#","vlanId":4095"#, "invalid VLAN ID 4095 (must be between 0 and 4095 inclusive)"),
        (r#","vlanId":-1"#, "invalid VLAN ID -1 (must be between 0 and 4095 inclusive)"),
        (r#","vlanId":70000"#, "invalid VLAN ID 70000 (must be between 0 and 4095 inclusive)"),
        (r#","mtu":1501"#, "invalid MTU 1501, must be [0, master MTU(1500)]"),
        (r#","mtu":-1"#, "invalid MTU -1, must be [0, master MTU(1500)]"),
        (r#","master":"eth7""#, "Link not found"),
        (r#","linkInContainer":true"#, "Link not found"),
        (r#","ipam":{"type":""}"#, "failed to execute IPAM delegate: no plugin name provided"),
        (
            r#","vlanId":"5""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.vlanId of type int",
        ),
    ]);
}

#[test]
fn a_vlan_is_there_once() {
    let mut node = node(V4);
    let other = node.add_link(Place::Host, "eth1.5", "vlan");
    let link = node.links.get_mut(&other).unwrap();
    (link.vlan_id, link.stands_on) = (Some(5), Some(2));
    fake::install(node);
    assert!(PLUGIN.message("ADD", "").contains("VLAN 5 of \"eth1\" is in use, \"eth1.5\" has it"));
    PLUGIN.call("ADD", r#","vlanId":6"#).unwrap();
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
        "vlan: Container Interface name in prevResult: eth0 not found",
        "Error: Container interface eth0 not of type vlan",
        "vlan: Interface eth0 Mac 02:00:00:00:00:02 doesn't match container Mac: 02:00:00:00:00:99",
        "Interface eth0 is down",
        "Failed to match addr 10.1.2.3/24 on interface eth0",
    ]);
    PLUGIN.check_finds(&[(
        |kernel| kernel.own_mut().unwrap().vlan_id = Some(6),
        "Error: Tuning link eth0 configured VLAN ID 5, has 6",
    )]);
    assert_eq!(PLUGIN.message("CHECK", ""), "vlan: Required prevResult missing");
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
    postern_keys::agreement::check("vlan", |verb, conf| PLUGIN.call_anew(verb, conf));
}
