//! The form of each operation in the audit log: its name, and its `request` with the keys in their order. Scripts read
//! them.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use postern_types::{
    Backend, Capability, DeviceKey, IngressPolicy, IpvlanMode, LeaseRange, LinkSettings, LinkSysctl, MacvlanMode,
    NatSources, Operation, PortSpec, RateLimit, Route, RouteSource, TapSettings, WithoutGrant, ops,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

fn samples() -> Vec<Operation> {
    let nets = || vec!["10.1.0.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()];
    let mac = "02:00:00:00:00:01".parse().unwrap();
    let port =
        || PortSpec { hairpin: true, isolated: true, vlan: Some(5), trunk: vec![6, 7], preserve_default_vlan: true };
    let full = Route {
        dst: "0.0.0.0/0".parse().unwrap(),
        gateway: "10.1.0.1".parse().ok(),
        source: "10.1.0.2".parse().ok(),
        mtu: Some(1400),
        advmss: Some(1360),
        priority: Some(5),
        table: Some(100),
        scope: Some(0),
    };
    let bare = Route {
        dst: "fd00::/8".parse().unwrap(),
        gateway: None,
        source: None,
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
        scope: None,
    };
    let range = LeaseRange {
        subnet: "10.1.0.0/24".parse().unwrap(),
        start: "10.1.0.10".parse().ok(),
        end: "10.1.0.20".parse().ok(),
        gateway: "10.1.0.1".parse().ok(),
    };
    let source = |gateway: Option<&str>| RouteSource {
        address: "10.1.0.2/24".parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    };
    let settings = || LinkSettings {
        mac: Some(mac),
        mtu: Some(1400),
        promisc: Some(true),
        allmulti: Some(false),
        tx_queue_length: Some(77),
    };
    let open = LeaseRange { subnet: "fd00::/64".parse().unwrap(), start: None, end: None, gateway: None };
    vec![
        ops::Link::Own.into(),
        ops::Link::Attributes { link: 1 }.into(),
        ops::Link::Up { link: 2 }.into(),
        ops::Link::Delete { link: 3 }.into(),
        ops::Veth::Create { mtu: None, mac: None }.into(),
        ops::Veth::Create { mtu: Some(1400), mac: Some(mac) }.into(),
        ops::Veth::Find.into(),
        ops::Veth::WaitRunning { host: 4 }.into(),
        ops::Addresses::Add { link: 5, addresses: nets() }.into(),
        ops::Addresses::List { link: 6 }.into(),
        ops::Addresses::Has { link: 6, addresses: nets() }.into(),
        ops::Addresses::Settle { link: 7 }.into(),
        ops::Routes::Add { link: 8, routes: vec![full.clone(), bare.clone()] }.into(),
        ops::Routes::RemoveConnected { link: 9, networks: nets() }.into(),
        ops::Routes::List { link: 10 }.into(),
        ops::Routes::Has { link: 10, routes: vec![full, bare] }.into(),
        ops::LinkSysctl::Set { link: 11, key: LinkSysctl::AcceptDad, value: true }.into(),
        ops::LinkSysctl::Set { link: 11, key: LinkSysctl::EnhancedDad, value: false }.into(),
        ops::LinkSysctl::Set { link: 11, key: LinkSysctl::ArpNotify, value: true }.into(),
        ops::LinkSysctl::Set { link: 11, key: LinkSysctl::NdiscNotify, value: true }.into(),
        ops::LinkSysctl::Set { link: 11, key: LinkSysctl::KeepAddrOnDown, value: true }.into(),
        ops::LinkSysctl::Set { link: 11, key: LinkSysctl::DisableIpv6, value: true }.into(),
        ops::Bridge::Ensure { name: "cni0".to_owned(), mtu: None, vlan_filtering: false, promisc: true }.into(),
        ops::Bridge::Ensure { name: "a\"b".to_owned(), mtu: Some(9000), vlan_filtering: true, promisc: false }.into(),
        ops::Bridge::Find { name: "cni0".to_owned() }.into(),
        ops::Bridge::PreviousLink.into(),
        ops::Bridge::Attach { bridge: 12, host: 13, port: port() }.into(),
        ops::Bridge::Attach { bridge: 12, host: 13, port: PortSpec::default() }.into(),
        ops::Bridge::EnsureGateways { bridge: 14, port: port(), force: true }.into(),
        ops::Parent::Find { name: "eth1".to_owned(), in_container: false }.into(),
        ops::Parent::Find { name: String::new(), in_container: true }.into(),
        ops::Macvlan::Create { parent: 18, mode: MacvlanMode::Passthru, mtu: None, mac: None, queue: None }.into(),
        ops::Macvlan::Create {
            parent: 18,
            mode: MacvlanMode::Bridge,
            mtu: Some(1400),
            mac: Some(mac),
            queue: Some(2000),
        }
        .into(),
        ops::Macvlan::Find.into(),
        ops::Vlan::Create { parent: 21, id: 5, mtu: None }.into(),
        ops::Vlan::Create { parent: 21, id: 0, mtu: Some(1400) }.into(),
        ops::Vlan::Find.into(),
        ops::Ipvlan::Create { parent: 22, mode: IpvlanMode::L3s, mtu: None }.into(),
        ops::Ipvlan::Create { parent: 22, mode: IpvlanMode::L2, mtu: Some(1400) }.into(),
        ops::Ipvlan::Find.into(),
        ops::Dummy::Create.into(),
        ops::Tap::Create { settings: TapSettings::default() }.into(),
        ops::Tap::Create {
            settings: TapSettings {
                mtu: Some(1400),
                mac: Some("02:00:00:00:00:01".parse().unwrap()),
                owner: Some(0),
                group: Some(1000),
                multi_queue: true,
                packet_information: true,
                vnet_header: true,
                selinux_context: Some("system_u:object_r:container_t:s0".to_owned()),
            },
        }
        .into(),
        ops::Tap::Join { link: 23, bridge: "br0".to_owned() }.into(),
        ops::Device::Find { by: DeviceKey::Id, value: "0000:3b:00.1".to_owned() }.into(),
        ops::Device::Take { by: DeviceKey::Name, value: "eth1".to_owned() }.into(),
        ops::Device::Take { by: DeviceKey::Address, value: "02:00:00:00:00:01".to_owned() }.into(),
        ops::Device::Take { by: DeviceKey::Path, value: "/sys/devices/x".to_owned() }.into(),
        ops::Device::Take { by: DeviceKey::Pci, value: "0000:3b:00.1".to_owned() }.into(),
        ops::Device::GiveBack.into(),
        ops::PointToPoint::Ensure { host: 15 }.into(),
        ops::Forwarding::Enable.into(),
        ops::Masquerade::Ensure { backend: None }.into(),
        ops::Masquerade::Ensure { backend: Some(Backend::Nftables) }.into(),
        ops::Masquerade::Check { backend: Some(Backend::Iptables) }.into(),
        ops::Masquerade::Remove.into(),
        ops::PortMappings::Ensure {
            addresses: vec!["10.1.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            forwards: vec!["tcp:8080-8089:80".parse().unwrap(), "udp:53:53@127.0.0.1".parse().unwrap()],
            masquerade: NatSources::Own,
        }
        .into(),
        ops::PortMappings::Check { addresses: Vec::new(), forwards: Vec::new(), masquerade: NatSources::None }.into(),
        ops::PortMappings::Remove.into(),
        ops::MacGuard::Ensure { host: 16, mac }.into(),
        ops::MacGuard::Check { host: 17, mac }.into(),
        ops::MacGuard::Remove.into(),
        ops::Firewall::Admit { addresses: nets() }.into(),
        ops::Firewall::Isolate { ingress: IngressPolicy::SameBridge }.into(),
        ops::Firewall::Isolate { ingress: IngressPolicy::Isolated }.into(),
        ops::Firewall::Check { addresses: nets() }.into(),
        ops::Firewall::Remove.into(),
        ops::Bandwidth::Limit { ingress: Some(RateLimit { rate: 8000, burst: 16000 }), egress: None }.into(),
        ops::Bandwidth::Check { ingress: None, egress: Some(RateLimit { rate: 8, burst: 8 }) }.into(),
        ops::Bandwidth::Remove.into(),
        ops::Ipam::Add.into(),
        ops::Ipam::Del.into(),
        ops::Ipam::Check.into(),
        ops::Ipam::Status.into(),
        ops::Ipam::Gc.into(),
        ops::Leases::Reserve {
            sets: vec![vec![range.clone(), open.clone()], vec![]],
            requested: vec!["10.1.0.11".parse().unwrap()],
        }
        .into(),
        ops::Leases::Held.into(),
        ops::Leases::Release.into(),
        ops::Leases::Retain.into(),
        ops::Leases::Available { sets: vec![vec![range], vec![open]] }.into(),
        ops::ResolvConf::Read.into(),
        ops::Loopback::Up.into(),
        ops::Loopback::Down.into(),
        ops::Loopback::Addresses.into(),
        ops::Attachments::Collect.into(),
        ops::NamespaceSysctl::Set { key: "net.core.somaxconn".to_owned(), value: "500".to_owned() }.into(),
        ops::NamespaceSysctl::Check { key: "net.core.somaxconn".to_owned(), value: "500".to_owned() }.into(),
        ops::LinkSettings::Change { link: 19, settings: settings() }.into(),
        ops::LinkSettings::Check { link: 20, settings: LinkSettings::default() }.into(),
        ops::LinkSettings::Restore.into(),
        ops::Delegate::SubnetFile.into(),
        ops::Delegate::Add { config: "{}".to_owned() }.into(),
        ops::Delegate::Del.into(),
        ops::Delegate::Check.into(),
        ops::Delegate::Status.into(),
        ops::Delegate::Gc.into(),
        ops::SourceRoutes::Apply { link: 21, sources: vec![source(Some("10.1.0.1"))], table: None, hints: true }.into(),
        ops::SourceRoutes::Apply { link: 22, sources: vec![source(None)], table: Some(500), hints: false }.into(),
        ops::SourceRoutes::Check.into(),
        ops::SourceRoutes::Remove.into(),
        ops::Vrf::Join { link: 23, name: "blue".to_owned(), table: Some(10) }.into(),
        ops::Vrf::Check { name: "blue".to_owned() }.into(),
        ops::Vrf::Leave.into(),
        ops::Dhcp::Acquire.into(),
        ops::Dhcp::Check.into(),
        ops::Dhcp::Release.into(),
        ops::Dhcp::Status.into(),
    ]
}

#[test]
fn the_audit_log_keeps_its_form() {
    let mut text = String::new();
    for operation in samples() {
        let json = serde_json::to_string(&operation).unwrap();
        writeln!(text, "{} {} {json}", operation.name(), operation.lasting().name()).unwrap();
        assert_eq!(serde_json::from_str::<Operation>(&json).unwrap(), operation);
        assert!(!json.contains("null"), "what is absent has no key: {json}");
    }
    assert_eq!(text, include_str!("operations.golden"));
}

#[test]
fn every_operation_is_in_the_list() {
    let listed: BTreeSet<&str> = samples().iter().map(Operation::name).collect();
    let all: BTreeSet<&str> =
        Capability::ALL.iter().flat_map(|capability| capability.rows()).map(|row| row.name).collect();
    assert_eq!(listed, all);
}

#[test]
fn a_name_begins_with_its_capability() {
    for operation in samples() {
        let capability = operation.capability();
        let name = operation.name().strip_prefix(capability.name()).and_then(|rest| rest.strip_prefix('.'));
        assert!(name.is_some_and(|function| !function.is_empty()), "{}", operation.name());
        assert!(capability.rows().contains(operation.row()));
        assert_eq!(Capability::parse(capability.name()), Some(capability));
    }
    assert_eq!(Capability::parse("netlink"), None);
}

/// What removes an attachment's effects needs no grant on DEL. A reviewer has to see each operation that is decided otherwise.
#[test]
fn few_operations_need_less_or_more_than_others_on_del() {
    let rows = || Capability::ALL.iter().flat_map(|capability| capability.rows());
    let allowed = rows().filter(|row| row.without_grant == WithoutGrant::Allowed).map(|row| row.name);
    let removals = "masquerade.remove mac-guard.remove ipam.del port-mappings.remove firewall.remove bandwidth.remove \
                    link-settings.restore delegate.del source-routes.remove vrf.leave";
    assert_eq!(allowed.collect::<Vec<_>>().join(" "), removals);
    let other = rows().filter(|row| row.without_grant != WithoutGrant::of(row.lasting));
    let other: Vec<String> = other.map(|row| format!("{} {:?}", row.name, row.without_grant)).collect();
    let expected = [
        "link.own IfLinkMaker",
        "link.delete IfLinkMaker",
        "ipam.del Allowed",
        "leases.release IfAddressPlugin",
        "loopback.down IfNamed",
        "device.give-back IfLinkMaker",
        "delegate.del Allowed",
        "dhcp.release IfAddressPlugin",
    ];
    assert_eq!(other, expected);
}

/// `postern plan` would take a handle that the table does not list for another link.
#[test]
fn the_table_lists_every_handle() {
    for mut operation in samples() {
        let json = serde_json::to_value(&operation).unwrap();
        let named: BTreeSet<u64> = ["link", "host", "bridge", "parent"]
            .iter()
            .filter_map(|key| json.get(key).and_then(Value::as_u64))
            .collect();
        let listed: BTreeSet<u64> = operation.handles().into_iter().map(|(handle, _)| u64::from(*handle)).collect();
        assert_eq!(listed, named, "{json}");
    }
}

/// These facts decide what is opened and kept for a run.
#[test]
fn where_capabilities_act() {
    let names = |wanted: fn(Capability) -> bool| {
        let all = Capability::ALL.iter().filter(|capability| wanted(**capability));
        all.map(|capability| capability.name()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names(Capability::acts_in_container),
        "link veth addresses routes link-sysctl loopback parent macvlan vlan ipvlan dummy tap device firewall bandwidth namespace-sysctl link-settings delegate source-routes vrf dhcp"
    );
    assert_eq!(names(|capability| !capability.acts_in_kernel()), "ipam leases resolv-conf");
}
