//! The rules of links that are made for an attachment, and of links that an attachment takes.

use super::decided;
use crate::Policy;
use postern_types::ops;

#[test]
fn a_pair_has_the_networks_mtu() {
    let create = |mtu| ops::Veth::Create { mtu, mac: None }.into();
    let of = |policy, config, mtu| decided(policy, config, &create(mtu));
    let policy = "[grant.veth]\nmtu = \"${config.mtu | 0}\"";
    assert_eq!(of(policy, "{}", None), Ok("veth"));
    assert_eq!(of(policy, r#"{"mtu":1400}"#, Some(1400)), Ok("veth"));
    // A bridge would get the MTU of its port.
    assert!(of(policy, "{}", Some(68)).unwrap_err().contains("veth.create with MTU 68; "));
    let refusal = of("[grant.veth]", r#"{"mtu":68}"#, Some(68)).unwrap_err();
    assert!(refusal.contains("with `grant.veth = { mtu = \"68\" }` in"), "{refusal}");
}

#[test]
fn a_parent_is_the_one_that_the_network_names() {
    let policy = "[grant.parent]\nnames = [\"${config.master | node.default-link}\"]\nin-container = \"${config.linkInContainer | false}\"";
    let find = |config, name: &str, in_container| {
        decided(policy, config, &ops::Parent::Find { name: name.to_owned(), in_container }.into())
    };
    assert_eq!(find(r#"{"master":"eth1"}"#, "eth1", false), Ok("parent.names"));
    assert_eq!(find("{}", "", false), Ok("parent.names"));
    assert_eq!(find(r#"{"linkInContainer":true}"#, "", true), Ok("parent.names"));
    // The plugin asks for another link, for the default link although a link is named, or for a named link instead of
    // the default link.
    for (config, name, in_container) in [
        (r#"{"master":"eth1"}"#, "eth2", false),
        (r#"{"master":"eth1"}"#, "", false),
        ("{}", "node.default-link", false),
        ("{}", "eth1", false),
        (r#"{"master":"eth1"}"#, "eth1", true),
        (r#"{"master":"eth1","linkInContainer":true}"#, "eth1", false),
    ] {
        find(config, name, in_container).unwrap_err();
    }
    let hint = find(r#"{"master":"eth1"}"#, "", false).unwrap_err();
    assert!(hint.contains("\"${node.default-link}\"]"), "{hint}");
    assert_eq!(
        decided(
            "[grant.parent]\nnames = [\"${node.default-link}\"]",
            "{}",
            &ops::Parent::Find { name: String::new(), in_container: false }.into()
        ),
        Ok("parent.names")
    );
    for bad in
        ["a${node.default-link}", "${node.default-link}*", "x-${config.master | node.default-link}", "${node.other}"]
    {
        Policy::parse(&format!("[grant.parent]\nnames = [\"{bad}\"]"), "x.toml").unwrap_err();
    }
    Policy::parse("[grant.ipam]\ntypes = [\"${node.default-link}\"]", "x.toml").unwrap_err();
}

/// The bridge of a tap and a VRF are links in the container. The network gives their names.
#[test]
fn a_link_in_the_container_has_a_name_too() {
    for (key, config) in [("bridge", r#"{"bridge":"br0"}"#), ("vrfname", r#"{"vrfname":"br0"}"#)] {
        let policy = format!("[grant.parent]\nnames = [\"${{config.{key}}}\"]\nin-container = \"true\"");
        let find = |config, in_container| {
            decided(&policy, config, &ops::Parent::Find { name: "br0".to_owned(), in_container }.into())
        };
        assert_eq!(find(config, true), Ok("parent.names"));
        find(config, false).unwrap_err();
        find("{}", true).unwrap_err();
    }
}

#[test]
fn a_device_is_the_one_that_the_network_names() {
    use postern_types::DeviceKey::{Address, Id, Name, Path, Pci};
    let policy = "[grant.device]\nnames = [\"${config.device}\"]\naddresses = [\"${config.hwaddr}\"]\n\
                  paths = [\"${config.kernelpath}\"]\nids = [\"${config.pciBusID}\", \"${config.runtimeConfig.deviceID}\"]";
    let take =
        |config, by, value: &str| decided(policy, config, &ops::Device::Take { by, value: value.to_owned() }.into());
    assert_eq!(take(r#"{"device":"eth1"}"#, Name, "eth1"), Ok("device.names"));
    assert_eq!(take(r#"{"hwaddr":"02:00:00:00:00:0A"}"#, Address, "02:00:00:00:00:0A"), Ok("device.addresses"));
    assert_eq!(take(r#"{"kernelpath":"/sys/devices/x"}"#, Path, "/sys/devices/x"), Ok("device.paths"));
    assert_eq!(take(r#"{"pciBusID":"0000:3b:00.1"}"#, Pci, "0000:3b:00.1"), Ok("device.ids"));
    assert_eq!(take(r#"{"runtimeConfig":{"deviceID":"mlx5_core.sf.4"}}"#, Id, "mlx5_core.sf.4"), Ok("device.ids"));
    for (config, by, value) in [
        ("{}", Name, "eth1"),
        (r#"{"device":"eth1"}"#, Name, "eth0"),
        (r#"{"device":"eth*"}"#, Name, "eth0"),
        (r#"{"device":"eth1"}"#, Id, "eth1"),
        (r#"{"hwaddr":"02:00:00:00:00:0a"}"#, Address, "02:00:00:00:00:0b"),
        (r#"{"kernelpath":"/sys/devices/x"}"#, Path, "/sys/devices/x/../y"),
        (r#"{"pciBusID":"0000:3b:00.1"}"#, Pci, "../../../class/net/eth0"),
    ] {
        take(config, by, value).unwrap_err();
    }
    assert!(take("{}", Name, "eth1").unwrap_err().contains("names = [\"${config.device}\", \"eth1\"]"));
}

#[test]
fn passthru_is_for_networks_that_name_it() {
    use postern_types::MacvlanMode;
    let policy = "[grant.macvlan]\nmodes = [\"${config.mode | bridge}\"]\nmtu = \"${config.mtu | 0}\"";
    let create = |config, mode, mtu| {
        decided(policy, config, &ops::Macvlan::Create { parent: 0, mode, mtu, mac: None, queue: None }.into())
    };
    assert_eq!(create("{}", MacvlanMode::Bridge, None), Ok("macvlan.modes"));
    assert_eq!(create(r#"{"mode":"passthru","mtu":900}"#, MacvlanMode::Passthru, Some(900)), Ok("macvlan.modes"));
    assert!(create("{}", MacvlanMode::Passthru, None).unwrap_err().contains("macvlan.create on \"passthru\""));
    assert!(create("{}", MacvlanMode::Bridge, Some(900)).unwrap_err().contains("with MTU 900"));
}

#[test]
fn a_vlan_and_a_mode_are_those_of_the_network() {
    use postern_types::IpvlanMode;
    let policy = "[grant.vlan]\nids = [\"${config.vlanId | 0}\"]\nmtu = \"${config.mtu | 0}\"\n\
                  [grant.ipvlan]\nmodes = [\"${config.mode | l2}\"]\n[grant.dummy]\nlook-only = \"${config.x | false}\"";
    let vlan = |config, id, mtu| decided(policy, config, &ops::Vlan::Create { parent: 0, id, mtu }.into());
    assert_eq!(vlan(r#"{"vlanId":5,"mtu":900}"#, 5, Some(900)), Ok("vlan.ids"));
    assert_eq!(vlan("{}", 0, None), Ok("vlan.ids"));
    assert!(vlan(r#"{"vlanId":5}"#, 6, None).unwrap_err().contains("vlan.create on \"6\""));
    // The gate refuses an impossible VLAN, as the native plugin does.
    assert_eq!(vlan(r#"{"vlanId":4095}"#, 4095, None), Ok("vlan.ids"));
    assert!(vlan(r#"{"vlanId":5}"#, 5, Some(900)).unwrap_err().contains("with MTU 900"));
    let ipvlan = |config, mode| decided(policy, config, &ops::Ipvlan::Create { parent: 0, mode, mtu: None }.into());
    assert_eq!(ipvlan("{}", IpvlanMode::L2), Ok("ipvlan.modes"));
    assert!(ipvlan(r#"{"mode":"l3"}"#, IpvlanMode::L3s).unwrap_err().contains("ipvlan.create on \"l3s\""));
    assert_eq!(decided(policy, "{}", &ops::Dummy::Create.into()), Ok("dummy"));
    assert!(decided(policy, r#"{"x":true}"#, &ops::Dummy::Create.into()).is_err());
}

#[test]
fn a_tap_belongs_to_whom_the_network_names() {
    use postern_types::TapSettings;
    let policy = "[grant.tap]\nmtu = \"${config.mtu | 0}\"\nowners = [\"${config.owner}\"]\ngroups = [\"${config.group}\"]\n\
                  multi-queue = \"${config.multiQueue | false}\"\nbridges = [\"${config.bridge}\"]";
    let create = |config, settings: TapSettings| decided(policy, config, &ops::Tap::Create { settings }.into());
    let of = |owner, group| TapSettings { owner, group, ..TapSettings::default() };
    assert_eq!(create("{}", of(None, None)), Ok("tap"));
    assert_eq!(create(r#"{"owner":0}"#, of(Some(0), None)), Ok("tap"));
    assert_eq!(create(r#"{"owner":1000,"group":4294967295}"#, of(Some(1000), Some(u32::MAX))), Ok("tap"));
    for (config, owner, group, expected) in [
        // Everybody could open a tap without an owner.
        (r#"{"owner":1000}"#, None, None, "tap.create without owner"),
        (r#"{"owner":1000,"group":7}"#, Some(1000), None, "tap.create without group"),
        (r#"{"owner":1000}"#, Some(0), None, "with owner 0"),
        (r#"{"owner":1000}"#, Some(1000), Some(1000), "with group 1000"),
        ("{}", Some(0), None, "with owner 0"),
    ] {
        let refusal = create(config, of(owner, group)).unwrap_err();
        assert!(refusal.contains(expected), "{refusal}");
    }
    let queues = TapSettings { multi_queue: true, ..TapSettings::default() };
    assert!(create("{}", queues.clone()).unwrap_err().contains("with several queues"));
    assert_eq!(create(r#"{"multiQueue":true}"#, queues), Ok("tap"));
    let mtu = TapSettings { mtu: Some(1400), ..TapSettings::default() };
    assert!(create("{}", mtu.clone()).unwrap_err().contains("with MTU 1400"));
    assert_eq!(create(r#"{"mtu":1400}"#, mtu), Ok("tap"));
    let labelled = |config, context: Option<&str>| {
        let policy = "[grant.tap]\nselinux-context = \"${config.selinuxContext}\"";
        let settings = TapSettings { selinux_context: context.map(str::to_owned), ..TapSettings::default() };
        decided(policy, config, &ops::Tap::Create { settings }.into())
    };
    let config = r#"{"selinuxContext":"u:r:a_t:s0"}"#;
    assert_eq!(labelled(config, Some("u:r:a_t:s0")), Ok("tap"));
    assert_eq!(labelled("{}", None), Ok("tap"));
    assert!(labelled(config, None).unwrap_err().contains("tap.create without SELinux context"));
    assert!(labelled(config, Some("u:r:b_t:s0")).unwrap_err().contains("with SELinux context u:r:b_t:s0"));
    assert!(labelled("{}", Some("u:r:a_t:s0")).is_err());
    let join =
        |config, bridge: &str| decided(policy, config, &ops::Tap::Join { link: 0, bridge: bridge.to_owned() }.into());
    assert_eq!(join(r#"{"bridge":"br0"}"#, "br0"), Ok("tap.bridges"));
    assert!(join(r#"{"bridge":"br0"}"#, "br1").unwrap_err().contains("tap.join on \"br1\""));
    assert!(join("{}", "br0").is_err() && join("{}", "").is_err());
}
