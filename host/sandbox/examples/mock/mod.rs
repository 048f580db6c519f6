//! The gate of both examples: it answers at once, and does nothing.

use postern_types::{Address, BridgeInfo, LeaseGrant, LinkInfo, MacvlanInfo, Operation, Reply, VethPair, ops};

/// Answers a call as if all of it were there.
pub fn reply(operation: &Operation) -> Reply {
    let veth = || VethPair { container: link(2, "eth0"), host: link(3, "vethab12cd34"), bridge: None };
    let bridge = || BridgeInfo { link: link(1, "cni0"), promisc: false };
    let macvlan = || MacvlanInfo { link: link(2, "eth0"), mode: None };
    match operation {
        Operation::Link(ops::Link::Attributes { link: 1 }) => Reply::Link(link(1, "cni0")),
        Operation::Link(ops::Link::Attributes { link: 2 }) => Reply::Link(link(2, "eth0")),
        Operation::Link(ops::Link::Attributes { link: 5 }) => Reply::Link(link(5, "wire0")),
        Operation::Link(ops::Link::Attributes { .. }) | Operation::Veth(ops::Veth::WaitRunning { .. }) => {
            Reply::Link(link(3, "vethab12cd34"))
        }
        Operation::Link(ops::Link::Own) => Reply::MaybeLink(Some(link(2, "eth0"))),
        Operation::Veth(ops::Veth::Create { .. }) => Reply::Veth(veth()),
        Operation::Veth(ops::Veth::Find) => Reply::MaybeVeth(Some(veth())),
        Operation::Bridge(ops::Bridge::Ensure { .. }) => Reply::Bridge(bridge()),
        Operation::Bridge(ops::Bridge::Find { .. }) => Reply::MaybeBridge(Some(bridge())),
        Operation::Bridge(ops::Bridge::EnsureGateways { .. } | ops::Bridge::PreviousLink) => Reply::MaybeLink(None),
        Operation::Parent(_) => Reply::Parent(link(5, "wire0")),
        Operation::Macvlan(ops::Macvlan::Create { .. }) => Reply::Macvlan(macvlan()),
        Operation::Macvlan(ops::Macvlan::Find) => Reply::MaybeMacvlan(Some(macvlan())),
        Operation::Bandwidth(ops::Bandwidth::Limit { .. }) => Reply::MaybeLink(Some(link(4, "bwpab12cd34"))),
        Operation::Loopback(ops::Loopback::Addresses) => {
            Reply::Loopback { up: true, addresses: vec![address("127.0.0.1/8"), address("::1/128")] }
        }
        Operation::Leases(ops::Leases::Reserve { .. }) => Reply::Leases(vec![LeaseGrant {
            address: "10.2.0.7/16".parse().unwrap(),
            gateway: Some("10.2.0.1".parse().unwrap()),
        }]),
        _ => Reply::Done,
    }
}

fn address(net: &str) -> Address {
    Address { net: net.parse().unwrap(), scope: 254, tentative: false }
}

fn link(handle: u32, name: &str) -> LinkInfo {
    LinkInfo {
        handle,
        name: name.to_owned(),
        mac: Some("02:00:5e:10:00:01".parse().unwrap()),
        mtu: 1500,
        kind: "veth".to_owned(),
        up: true,
        running: true,
    }
}
