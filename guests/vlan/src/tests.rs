use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place, two_links as node};
use proptest::prelude::*;

fn call(verb: &str, keys: &str) -> Result<String, Error> {
    let conf = format!(
        r#"{{"cniVersion":"1.1.0","name":"n","type":"vlan","master":"eth1","vlanId":5,"ipam":{{"type":"host-local"}}{keys}}}"#
    );
    fake::call_verb(&Vlan, fake::env(verb), &conf)
}

fn message(verb: &str, keys: &str) -> String {
    call(verb, keys).unwrap_err().object().msg.clone()
}

fn attached(keys: &str) -> String {
    fake::install(node(V4));
    let result = call("ADD", keys).unwrap();
    format!(r#"{keys},"prevResult":{result}"#)
}

#[test]
fn every_key_reaches_the_link() {
    fake::install(node(V4));
    let result = call("ADD", r#","dns":{"domain":"conf"},"mtu":1400"#).unwrap().replace([' ', '\n'], "");
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
    call("ADD", r#","master":"net1","linkInContainer":true,"vlanId":0"#).unwrap();
    fake::with(|kernel| {
        assert_eq!((kernel.own().unwrap().vlan_id, kernel.own().unwrap().stands_on), (Some(0), Some(below)))
    });
}

#[test]
fn everything_that_is_refused_before_anything_is_made() {
    for (keys, expected) in [
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
    ] {
        fake::install(node(V4));
        assert_eq!(message("ADD", keys), expected);
        fake::with(|kernel| assert!(kernel.own().is_none(), "{keys}"));
    }
}

#[test]
fn a_vlan_is_there_once() {
    let mut node = node(V4);
    let other = node.add_link(Place::Host, "eth1.5", "vlan");
    let link = node.links.get_mut(&other).unwrap();
    (link.vlan_id, link.stands_on) = (Some(5), Some(2));
    fake::install(node);
    assert!(message("ADD", "").contains("VLAN 5 of \"eth1\" is in use, \"eth1.5\" has it"));
    call("ADD", r#","vlanId":6"#).unwrap();
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
            "vlan: Container Interface name in prevResult: eth0 not found",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.kind = "veth".to_owned(),
            "Error: Container interface eth0 not of type vlan",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.mac = "02:00:00:00:00:99".parse().ok(),
            "vlan: Interface eth0 Mac 02:00:00:00:00:02 doesn't match container Mac: 02:00:00:00:00:99",
        ),
        (|kernel| kernel.links.get_mut(&3).unwrap().info.up = false, "Interface eth0 is down"),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().addresses.clear(),
            "Failed to match addr 10.1.2.3/24 on interface eth0",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().vlan_id = Some(6),
            "Error: Tuning link eth0 configured VLAN ID 5, has 6",
        ),
    ];
    for (change, expected) in changes {
        let keys = attached("");
        fake::with(change);
        assert_eq!(message("CHECK", &keys), *expected);
    }
    assert_eq!(message("CHECK", ""), "vlan: Required prevResult missing");
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
    postern_keys::agreement::check("vlan", |verb, conf| {
        fake::install(node(V4));
        fake::call_verb(&Vlan, fake::env(verb), conf).map_err(|error| error.to_string())
    });
}
