use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place, Subject, change};
use proptest::prelude::*;

const PLUGIN: Subject<HostDevice> =
    Subject::new(HostDevice, r#","type":"host-device","ipam":{"type":"host-local"}"#, || node(V4));

const PCI: &str = "0000:3b:00.1";
const ENO1: &str = r#","device":"eno1""#;

/// A host with `eno1`, and with `eno2` of a PCI device.
fn node(ipam: &str) -> Kernel {
    let mut kernel = Kernel::with_ipam(ipam);
    for name in ["eno1", "eno2"] {
        let handle = kernel.add_link(Place::Host, name, "");
        let link = kernel.links.get_mut(&handle).unwrap();
        link.path = Some(format!("/sys/devices/pci0000:3a/{name}/net/{name}"));
        link.pci = (name == "eno2").then(|| PCI.to_owned());
    }
    kernel
}

/// Returns the name that the container's link had on the host.
fn home() -> Option<String> {
    fake::with(|kernel| kernel.own().and_then(|own| own.home.clone()))
}

#[test]
fn add_moves_the_device_in_and_del_moves_it_back() {
    let result = PLUGIN.add(r#","device":"eno1","dns":{"domain":"conf"}"#);
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"conf"},"interfaces":[{"mac":"02:00:00:00:00:01","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
    assert_eq!(home().as_deref(), Some("eno1"));
    fake::with(|kernel| assert!(kernel.own().unwrap().info.up));
    assert_eq!(PLUGIN.call("DEL", ENO1).unwrap(), "");
    assert_eq!(fake::log()[fake::log().len() - 2..], ["device.give-back", "ipam.del"]);
    fake::with(|kernel| assert!(kernel.own().is_none() && kernel.find(Place::Host, "eno1").is_some()));
    // A second DEL succeeds, even without the keys that ADD needs.
    assert_eq!(PLUGIN.call("DEL", "").unwrap(), "");
}

#[test]
fn each_key_names_a_device_and_the_first_counts() {
    for (keys, expected) in [
        (r#","device":"eno1""#, "eno1"),
        (r#","hwaddr":"02:00:00:00:00:02""#, "eno2"),
        (r#","hwaddr":"02-00-00-00-00-01""#, "eno1"),
        (r#","kernelpath":"/sys/devices/pci0000:3a/eno2""#, "eno2"),
        (r#","pciBusID":"0000:3b:00.1""#, "eno2"),
        (r#","runtimeConfig":{"deviceID":"0000:3b:00.1"}"#, "eno2"),
        (r#","pciBusID":"0000:ff:00.0","runtimeConfig":{"deviceID":"0000:3b:00.1"}"#, "eno2"),
        (r#","device":"eno1","hwaddr":"02:00:00:00:00:02","pciBusID":"0000:3b:00.1""#, "eno1"),
        (r#","hwaddr":"02:00:00:00:00:01","kernelpath":"/sys/devices/pci0000:3a/eno2""#, "eno1"),
        (r#","device":"","hwaddr":"","kernelpath":"/sys/devices/pci0000:3a/eno2""#, "eno2"),
    ] {
        PLUGIN.add(keys);
        assert_eq!(home().as_deref(), Some(expected), "{keys}");
    }
}

#[test]
fn without_addresses_it_is_a_cable() {
    let conf = r#"{"cniVersion":"1.1.0","name":"n","type":"host-device","device":"eno1"}"#;
    let plugin = PLUGIN.on(|| node("{}"));
    plugin.call_anew("ADD", conf).unwrap();
    assert_eq!(fake::log(), ["device.take"]);
    let old = conf.replace("1.1.0", "0.2.0");
    assert!(plugin.call_anew("ADD", &old).unwrap_err().to_string().contains("cannot convert"));
}

#[test]
fn a_device_of_user_space_stays_where_it_is() {
    let mut host = node(V4);
    host.userspace = vec![PCI.to_owned()];
    fake::install(host);
    let keys = r#","pciBusID":"0000:3b:00.1""#;
    let result = PLUGIN.call("ADD", keys).unwrap();
    assert!(!result.contains("mac") && result.contains("10.1.2.3/24"), "{result}");
    assert_eq!(fake::log(), ["device.find", "ipam.add"]);
    // CHECK does not look for a link in the container.
    assert_eq!(PLUGIN.call("CHECK", &format!(r#"{keys},"prevResult":{result}"#)).unwrap(), "");
    // The name of a link in the configuration changes nothing.
    PLUGIN.call("ADD", &format!(r#"{keys},"device":"eno1""#)).unwrap();
    fake::with(|kernel| assert!(kernel.own().is_none()));
    assert_eq!(PLUGIN.call("DEL", keys).unwrap(), "");
    // With `DPDKMode`, the link of a device that is no PCI device stays too, as in the native plugin.
    PLUGIN.call("ADD", r#","device":"eno1","DPDKMode":true"#).unwrap();
    fake::with(|kernel| assert!(kernel.own().is_none()));
    fake::with(|kernel| kernel.userspace.clear());
    PLUGIN.call("ADD", &format!(r#"{keys},"DPDKMode":true"#)).unwrap();
    assert_eq!(home().as_deref(), Some("eno2"));
}

#[test]
fn everything_that_is_refused_before_anything_is_moved() {
    let none = r#"specify either "device", "hwaddr", "kernelpath" or "pciBusID""#;
    PLUGIN.add_refuses(&[
        ("", none),
        (r#","device":"""#, none),
        (r#","runtimeConfig":{"deviceID":""}"#, none),
        (r#","device":"eno7""#, "failed to find host device: Link not found"),
        (
            r#","device":7"#,
            "failed to load netconf: json: cannot unmarshal number into Go struct field NetConf.device of type string",
        ),
        (
            r#","DPDKMode":"yes","device":"eno1""#,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.DPDKMode of type bool",
        ),
    ]);
}

#[test]
fn check_finds_what_is_different() {
    PLUGIN.with_keys(ENO1).check_finds(&[
        (change::gone, "Container Interface name in prevResult: eth0 not found"),
        (change::other_mac, "Interface eth0 Mac 02:00:00:00:00:01 doesn't match container Mac: 02:00:00:00:00:99"),
        (change::no_addresses, "Failed to match addr 10.1.2.3/24 on interface eth0"),
    ]);
    PLUGIN.install();
    assert_eq!(PLUGIN.message("CHECK", ENO1), "Required prevResult missing");
}

#[test]
fn status_and_gc() {
    PLUGIN.install();
    assert_eq!(PLUGIN.call("STATUS", ENO1).unwrap(), "");
    assert!(PLUGIN.message("STATUS", "").starts_with("specify either"));
    assert_eq!(PLUGIN.call("GC", "").unwrap(), "");
}

#[test]
fn every_operation_may_fail() {
    PLUGIN.with_keys(ENO1).every_operation_may_fail();
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["device", "hwaddr", "kernelpath", "pciBusID", "runtimeConfig", "DPDKMode", "dns", "ipam", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("host-device", |verb, conf| PLUGIN.call_anew(verb, conf));
}
