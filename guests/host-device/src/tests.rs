use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place};
use proptest::prelude::*;

const PCI: &str = "0000:3b:00.1";

/// A host with `eno1` and `eno2`, which is a PCI device.
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

fn call(verb: &str, keys: &str) -> Result<String, Error> {
    let conf =
        format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"host-device","ipam":{{"type":"host-local"}}{keys}}}"#);
    fake::call_verb(&HostDevice, fake::env(verb), &conf)
}

fn message(verb: &str, keys: &str) -> String {
    call(verb, keys).unwrap_err().object().msg.clone()
}

/// Returns the name of the container's link on the host.
fn home() -> Option<String> {
    fake::with(|kernel| kernel.own().and_then(|own| own.home.clone()))
}

#[test]
fn add_moves_the_device_in_and_del_moves_it_back() {
    fake::install(node(V4));
    let result = call("ADD", r#","device":"eno1","dns":{"domain":"conf"}"#).unwrap().replace([' ', '\n'], "");
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"conf"},"interfaces":[{"mac":"02:00:00:00:00:01","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
    assert_eq!(home().as_deref(), Some("eno1"));
    fake::with(|kernel| assert!(kernel.own().unwrap().info.up));
    assert_eq!(call("DEL", r#","device":"eno1""#).unwrap(), "");
    assert_eq!(fake::log()[fake::log().len() - 2..], ["device.give-back", "ipam.del"]);
    fake::with(|kernel| assert!(kernel.own().is_none() && kernel.find(Place::Host, "eno1").is_some()));
    // DEL succeeds again, and without the keys that ADD needs.
    assert_eq!(call("DEL", "").unwrap(), "");
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
        fake::install(node(V4));
        call("ADD", keys).unwrap();
        assert_eq!(home().as_deref(), Some(expected), "{keys}");
    }
}

#[test]
fn without_addresses_it_is_a_cable() {
    fake::install(node("{}"));
    let conf = r#"{"cniVersion":"1.1.0","name":"n","type":"host-device","device":"eno1"}"#;
    fake::call_verb(&HostDevice, fake::env("ADD"), conf).unwrap();
    assert_eq!(fake::log(), ["device.take"]);
    let old = conf.replace("1.1.0", "0.2.0");
    assert!(fake::call_verb(&HostDevice, fake::env("ADD"), &old).unwrap_err().to_string().contains("cannot convert"));
}

#[test]
fn a_device_of_user_space_stays_where_it_is() {
    let mut host = node(V4);
    host.userspace = vec![PCI.to_owned()];
    fake::install(host);
    let keys = r#","pciBusID":"0000:3b:00.1""#;
    let result = call("ADD", keys).unwrap();
    assert!(!result.contains("mac") && result.contains("10.1.2.3/24"), "{result}");
    assert_eq!(fake::log(), ["device.find", "ipam.add"]);
    // CHECK looks for no link in the container.
    assert_eq!(call("CHECK", &format!(r#"{keys},"prevResult":{result}"#)).unwrap(), "");
    // A link that is named too does not change that.
    call("ADD", &format!(r#"{keys},"device":"eno1""#)).unwrap();
    fake::with(|kernel| assert!(kernel.own().is_none()));
    assert_eq!(call("DEL", keys).unwrap(), "");
    // `DPDKMode` does the same for a device that is no PCI device, as in the native plugin.
    call("ADD", r#","device":"eno1","DPDKMode":true"#).unwrap();
    fake::with(|kernel| assert!(kernel.own().is_none()));
    fake::with(|kernel| kernel.userspace.clear());
    call("ADD", &format!(r#"{keys},"DPDKMode":true"#)).unwrap();
    assert_eq!(home().as_deref(), Some("eno2"));
}

#[test]
fn everything_that_is_refused_before_anything_is_moved() {
    let none = r#"specify either "device", "hwaddr", "kernelpath" or "pciBusID""#;
    for (keys, expected) in [
        ("", none),
        (r#","device":"""#, none),
        (r#","runtimeConfig":{"deviceID":""}"#, none),
        (r#","device":"eno7""#, "failed to find host device: Link not found"),
        (r#","device":7"#, "failed to load netconf: json: cannot unmarshal number"),
        (r#","DPDKMode":"yes","device":"eno1""#, "failed to load netconf: json: cannot unmarshal string"),
    ] {
        fake::install(node(V4));
        let said = message("ADD", keys);
        assert!(said.starts_with(expected), "{keys}: {said}");
        fake::with(|kernel| assert!(kernel.own().is_none(), "{keys}"));
    }
}

fn attached() -> String {
    fake::install(node(V4));
    let keys = r#","device":"eno1""#;
    let result = call("ADD", keys).unwrap();
    format!(r#"{keys},"prevResult":{result}"#)
}

#[test]
fn check_finds_what_is_different() {
    let keys = attached();
    assert_eq!(call("CHECK", &keys).unwrap(), "");
    type Change = fn(&mut Kernel);
    let changes: [(Change, &str); 3] = [
        (
            |kernel| kernel.links.retain(|_, link| link.place == Place::Host),
            "Container Interface name in prevResult: eth0 not found",
        ),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().info.mac = "02:00:00:00:00:99".parse().ok(),
            "Interface eth0 Mac 02:00:00:00:00:01 doesn't match container Mac: 02:00:00:00:00:99",
        ),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().addresses.clear(),
            "Failed to match addr 10.1.2.3/24 on interface eth0",
        ),
    ];
    for (change, expected) in changes {
        let keys = attached();
        fake::with(change);
        assert_eq!(message("CHECK", &keys), expected);
    }
    fake::install(node(V4));
    assert_eq!(message("CHECK", r#","device":"eno1""#), "Required prevResult missing");
}

#[test]
fn status_and_gc() {
    fake::install(node(V4));
    assert_eq!(call("STATUS", r#","device":"eno1""#).unwrap(), "");
    assert!(message("STATUS", "").starts_with("specify either"));
    assert_eq!(call("GC", "").unwrap(), "");
}

#[test]
fn every_operation_may_fail() {
    let prepare = |verb: &str| match verb {
        "ADD" => {
            fake::install(node(V4));
            r#","device":"eno1""#.to_owned()
        }
        _ => attached(),
    };
    fake::each_operation_fails(prepare, call);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["device", "hwaddr", "kernelpath", "pciBusID", "runtimeConfig", "DPDKMode", "dns", "ipam", "prevResult"]),
    ) {
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(node(V4));
            let _ = call(verb, &format!(r#","{key}":{value}"#));
        }
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("host-device", |verb, conf| {
        fake::install(node(V4));
        fake::call_verb(&HostDevice, fake::env(verb), conf).map_err(|error| error.to_string())
    });
}
