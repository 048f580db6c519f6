//! The simulation starts from the objects of a real node.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use ipnet::IpNet;
use postern_sim::{Kernel, Place};
use postern_types::{Address, BridgeInfo, ErrorCode, Handle, LinkInfo, Mac, PortSpec, Route, VethPair, ops};

fn info(name: &str, kind: &str, last: u8) -> LinkInfo {
    LinkInfo {
        handle: 0,
        name: name.to_owned(),
        mac: Some(Mac([6, 0, 0, 0, 0, last])),
        mtu: 1400,
        kind: kind.to_owned(),
        up: true,
        running: true,
    }
}

fn address(net: &str) -> Address {
    Address { net: net.parse().unwrap(), scope: 0, tentative: false }
}

fn route(dst: &str) -> Route {
    Route {
        dst: dst.parse().unwrap(),
        gateway: None,
        source: None,
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
        scope: None,
    }
}

/// Returns a node with bridge `br0`, and an attachment whose address came from a delegate outside of the simulation.
fn node() -> Kernel {
    let mut kernel = Kernel { host_end_name: Some("vethX".to_owned()), ..Kernel::default() };
    kernel.seed_link(Place::Host, info("br0", "bridge", 1), Vec::new());
    kernel.attachment = vec![("10.1.0.2/24".parse().unwrap(), Some([10, 1, 0, 1].into()))];
    kernel
}

fn pair(kernel: &mut Kernel) -> VethPair {
    kernel.call(&ops::Veth::Create { mtu: None, mac: None }.into()).unwrap().read().unwrap()
}

fn bridge(kernel: &mut Kernel) -> (Handle, Option<Mac>) {
    let ensure =
        ops::Bridge::Ensure { name: "br0".to_owned(), mtu: None, vlan_filtering: false, promisc: false }.into();
    let bridge: BridgeInfo = kernel.call(&ensure).unwrap().read().unwrap();
    (bridge.link.handle, bridge.link.mac)
}

#[test]
fn a_link_stays_what_it_was_found_as() {
    let mut kernel = node();
    let before = kernel.clone();
    let (handle, mac) = bridge(&mut kernel);
    kernel.log.clear();
    assert_eq!(kernel, before, "finding a bridge that is up changes nothing");
    assert_eq!(mac, Some(Mac([6, 0, 0, 0, 0, 1])));
    let pair = pair(&mut kernel);
    assert_eq!(pair.host.name, "vethX");
    let port = PortSpec::default();
    let host = pair.host.handle;
    kernel.call(&ops::Bridge::Attach { bridge: handle, host, port: port.clone() }.into()).unwrap();
    assert_ne!(bridge(&mut kernel).1, mac, "a port lends the bridge another address");
    kernel.call(&ops::Bridge::EnsureGateways { bridge: handle, port, force: false }.into()).unwrap();
    assert_eq!(bridge(&mut kernel).1, mac, "pinning restores the bridge's own address");
    let bridge = kernel.find(Place::Host, "br0").unwrap();
    assert_eq!(bridge.addresses, [address("10.1.0.1/24")]);
}

#[test]
fn addresses_that_it_was_told_are_the_attachments_own() {
    let mut kernel = node();
    let link = pair(&mut kernel).container.handle;
    let mut add = |net: &str| {
        let addresses: Vec<IpNet> = vec![net.parse().unwrap()];
        kernel.call(&ops::Addresses::Add { link, addresses }.into()).map(drop).map_err(|error| error.code)
    };
    assert_eq!(add("10.1.0.3/24"), Err(ErrorCode::InvalidArgument));
    assert_eq!(add("10.1.0.2/24"), Ok(()));
    kernel.call(&ops::Link::Up { link }.into()).unwrap();
    let mut from = |source: [u8; 4]| {
        let routes = vec![Route { source: Some(source.into()), ..route("10.7.0.0/24") }];
        kernel.call(&ops::Routes::Add { link, routes }.into()).map(drop).map_err(|error| error.code)
    };
    assert_eq!(from([10, 1, 0, 3]), Err(ErrorCode::InvalidArgument));
    assert_eq!(from([10, 1, 0, 2]), Ok(()));
}

#[test]
fn a_guard_is_for_the_containers_own_address() {
    let mut kernel = node();
    let pair = pair(&mut kernel);
    let (host, other) = (pair.host.handle, pair.host.mac.unwrap());
    let mut guard =
        |mac| kernel.call(&ops::MacGuard::Ensure { host, mac }.into()).map(drop).map_err(|error| error.code);
    assert_eq!(guard(other), Err(ErrorCode::InvalidArgument));
    assert_eq!(guard(pair.container.mac.unwrap()), Ok(()));
}

#[test]
fn what_the_node_has_is_not_routed_into_a_container() {
    let ensure = |seed: &dyn Fn(&mut Kernel)| {
        let mut kernel = node();
        seed(&mut kernel);
        let host = pair(&mut kernel).host.handle;
        kernel.call(&ops::PointToPoint::Ensure { host }.into()).map(drop).map_err(|error| (error.code, error.message))
    };
    assert_eq!(ensure(&|_| {}), Ok(()));
    let (code, message) = ensure(&|kernel| {
        kernel.seed_link(Place::Host, info("eth9", "", 2), vec![address("10.1.0.2/16")]);
    })
    .unwrap_err();
    assert!(code == ErrorCode::Exists && message.contains("10.1.0.2 is an address of this host"), "{message}");
    let (code, message) = ensure(&|kernel| {
        let other = kernel.seed_link(Place::Host, info("vethother", "veth", 3), Vec::new());
        kernel.links.get_mut(&other).unwrap().routes.push(route("10.1.0.2/32"));
    })
    .unwrap_err();
    assert!(code == ErrorCode::Exists && message.contains("'10.1.0.2/32 dev vethX': file exists"), "{message}");
}
