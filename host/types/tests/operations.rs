//! What the audit log has of each operation: its name, and its `request` with the keys in their order. Scripts read that.

#![allow(clippy::unwrap_used, reason = "a test's own samples")]

use postern_types::{Backend, LeaseRange, LinkSysctl, Operation as Op, PortSpec, Route};
use std::fmt::Write;

fn samples() -> Vec<Op> {
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
    let open = LeaseRange { subnet: "fd00::/64".parse().unwrap(), start: None, end: None, gateway: None };
    vec![
        Op::LinkOwn,
        Op::LinkAttributes { link: 1 },
        Op::LinkUp { link: 2 },
        Op::LinkDelete { link: 3 },
        Op::VethCreate { mtu: None, mac: None },
        Op::VethCreate { mtu: Some(1400), mac: Some(mac) },
        Op::VethFind,
        Op::VethWaitRunning { host: 4 },
        Op::AddressesAdd { link: 5, addresses: nets() },
        Op::AddressesList { link: 6 },
        Op::AddressesSettle { link: 7 },
        Op::RoutesAdd { link: 8, routes: vec![full, bare] },
        Op::RoutesRemoveConnected { link: 9, networks: nets() },
        Op::RoutesList { link: 10 },
        Op::SysctlSet { link: 11, key: LinkSysctl::AcceptDad, value: true },
        Op::SysctlSet { link: 11, key: LinkSysctl::EnhancedDad, value: false },
        Op::SysctlSet { link: 11, key: LinkSysctl::ArpNotify, value: true },
        Op::SysctlSet { link: 11, key: LinkSysctl::KeepAddrOnDown, value: true },
        Op::SysctlSet { link: 11, key: LinkSysctl::DisableIpv6, value: true },
        Op::BridgeEnsure { name: "cni0".to_owned(), mtu: None, vlan_filtering: false, promisc: true },
        Op::BridgeEnsure { name: "a\"b".to_owned(), mtu: Some(9000), vlan_filtering: true, promisc: false },
        Op::BridgeFind { name: "cni0".to_owned() },
        Op::BridgeAttach { bridge: 12, host: 13, port: port() },
        Op::BridgeAttach { bridge: 12, host: 13, port: PortSpec::default() },
        Op::BridgeEnsureGateways { bridge: 14, port: port(), force: true },
        Op::PointToPointEnsure { host: 15 },
        Op::ForwardingEnable,
        Op::MasqueradeEnsure { backend: None },
        Op::MasqueradeEnsure { backend: Some(Backend::Nftables) },
        Op::MasqueradeCheck { backend: Some(Backend::Iptables) },
        Op::MasqueradeRemove,
        Op::MacGuardEnsure { host: 16, mac },
        Op::MacGuardCheck { host: 17, mac },
        Op::MacGuardRemove,
        Op::IpamAdd,
        Op::IpamDel,
        Op::IpamCheck,
        Op::IpamStatus,
        Op::IpamGc,
        Op::LeasesReserve {
            sets: vec![vec![range.clone(), open.clone()], vec![]],
            requested: vec!["10.1.0.11".parse().unwrap()],
        },
        Op::LeasesHeld,
        Op::LeasesRelease,
        Op::LeasesRetain,
        Op::LeasesAvailable { sets: vec![vec![range], vec![open]] },
        Op::ResolvConfRead,
        Op::LoopbackUp,
        Op::LoopbackDown,
        Op::LoopbackAddresses,
        Op::AttachmentsCollect,
    ]
}

#[test]
fn the_audit_log_keeps_its_form() {
    let mut text = String::new();
    for operation in samples() {
        let json = serde_json::to_string(&operation).unwrap();
        writeln!(text, "{} {json}", operation.name()).unwrap();
        assert_eq!(serde_json::from_str::<Op>(&json).unwrap(), operation);
    }
    let golden = include_str!("operations.golden");
    assert_eq!(text, golden);
}
