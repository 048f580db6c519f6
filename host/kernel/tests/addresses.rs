//! Addresses and routes against a real kernel, compared with iproute2.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use common::{ip, isolated, link, run, veth};
use ipnet::IpNet;
use nix::errno::Errno;
use postern_kernel::{Netlink, Sysctl, sysctl};
use postern_types::Route;
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn route(dst: &str) -> Route {
    Route {
        dst: net(dst),
        gateway: None,
        source: None,
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
        scope: None,
    }
}

fn via(dst: &str, gateway: &str) -> Route {
    Route { gateway: Some(gateway.parse().unwrap()), ..route(dst) }
}

/// Switches off duplicate address detection, which would take seconds.
fn without_dad(link: &str) {
    sysctl::set(&Sysctl::Ipv6Conf(link.to_owned(), "accept_dad"), "0").unwrap();
}

/// Adds an address and waits until it can be used. Even without duplicate address detection an IPv6 address is
/// tentative until a kernel thread has processed it.
fn add_usable(netlink: &Netlink, index: u32, address: &str) {
    netlink.add_address(index, net(address)).unwrap();
    let started = Instant::now();
    while netlink.addresses(index).unwrap().iter().any(|a| a.net == net(address) && a.tentative) {
        assert!(started.elapsed() < Duration::from_millis(500), "{address} is still tentative");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn ipv4_addresses_have_a_broadcast_address() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, other) = veth(&netlink, "eth0", "other");
        for (address, broadcast) in [
            ("10.1.2.3/24", Some("10.1.2.255")),
            ("192.0.2.1/30", Some("192.0.2.3")),
            ("198.51.100.1/31", None),
            ("203.0.113.9/32", None),
        ] {
            netlink.add_address(own.index, net(address)).unwrap();
            let shown = ip("-4 address show eth0");
            let entry = shown[0]["addr_info"].as_array().unwrap().last().unwrap().clone();
            assert_eq!(format!("{}/{}", entry["local"].as_str().unwrap(), entry["prefixlen"]), address);
            assert_eq!(entry.get("broadcast").and_then(Value::as_str), broadcast, "{address}");
        }
        let found = netlink.addresses(own.index).unwrap();
        let v4: Vec<_> = found.iter().map(|a| a.net.to_string()).filter(|text| !text.contains(':')).collect();
        assert_eq!(v4, ["10.1.2.3/24", "192.0.2.1/30", "198.51.100.1/31", "203.0.113.9/32"]);
        assert!(found.iter().all(|a| a.scope == if a.net.addr().is_ipv4() { 0 } else { 253 }));
        // One link is down and the other is up. There is no route to the addresses.
        let (up, _) = veth(&netlink, "eth7", "other7");
        netlink.add_address(up.index, net("10.7.0.3/24")).unwrap();
        netlink.set_up(up.index).unwrap();
        netlink.set_down(own.index).unwrap();
        for (address, has) in [
            ("192.0.2.1", true),
            ("192.0.2.3", false),
            ("192.0.2.2", false),
            ("203.0.113.9", true),
            ("10.7.0.3", true),
            ("10.7.0.255", false),
            ("10.7.0.4", false),
            ("fd00::7", false),
        ] {
            assert_eq!(netlink.has_address(address.parse().unwrap()).unwrap(), has, "{address}");
        }
        netlink.delete_link(up.index).unwrap();
        netlink.set_up(own.index).unwrap();
        without_dad("other");
        netlink.add_address(other.index, net("fd00::7/64")).unwrap();
        assert!(netlink.has_address("fd00::7".parse().unwrap()).unwrap());
        assert!(!netlink.has_address("fd00::".parse().unwrap()).unwrap());
        // The list for `other` has no address of `own`.
        assert!(netlink.addresses(other.index).unwrap().iter().all(|a| a.net.addr().is_ipv6()));

        assert!(netlink.add_address(own.index, net("10.1.2.3/24")).unwrap_err().is(Errno::EEXIST));
        netlink.delete_address(own.index, net("10.1.2.3/24")).unwrap();
        assert!(netlink.delete_address(own.index, net("10.1.2.3/24")).unwrap_err().is(Errno::EADDRNOTAVAIL));
        assert!(netlink.addresses(4711).unwrap_err().is(Errno::ENODEV));
        assert!(netlink.add_address(4711, net("10.1.2.3/24")).unwrap_err().is(Errno::ENODEV));
    });
}

#[test]
fn ipv6_addresses_are_tentative_unless_detection_is_off() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, _) = veth(&netlink, "eth0", "other");
        netlink.add_address(own.index, net("2001:db8::5/64")).unwrap();
        let find = |text: &str| netlink.addresses(own.index).unwrap().into_iter().find(|a| a.net == net(text));
        let address = find("2001:db8::5/64").unwrap();
        assert!(address.tentative && !address.dad_failed && address.scope == 0);
        assert!(netlink.add_address(own.index, net("2001:db8::5/64")).unwrap_err().is(Errno::EEXIST));

        without_dad("eth0");
        add_usable(&netlink, own.index, "2001:db8::6/64");
        assert!(!find("2001:db8::6/64").unwrap().tentative);
        netlink.delete_address(own.index, net("2001:db8::6/64")).unwrap();
        assert_eq!(find("2001:db8::6/64"), None);
    });
}

#[test]
fn the_far_end_of_a_point_to_point_address_is_not_taken_for_ours() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, _) = veth(&netlink, "tun0", "other");
        run("ip", "address add 10.9.0.1 peer 10.9.0.2/32 dev tun0");
        assert_eq!(netlink.addresses(own.index).unwrap()[0].net, net("10.9.0.1/32"));
    });
}

#[test]
fn routes_with_every_attribute() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, _) = veth(&netlink, "eth0", "other");
        without_dad("eth0");
        netlink.add_address(own.index, net("10.1.0.5/24")).unwrap();
        add_usable(&netlink, own.index, "2001:db8::5/64");

        let full_v4 = Route {
            source: Some("10.1.0.5".parse().unwrap()),
            mtu: Some(1300),
            advmss: Some(1200),
            priority: Some(77),
            scope: Some(0),
            table: Some(254),
            ..via("192.0.2.0/24", "10.1.0.1")
        };
        let full_v6 = Route {
            source: Some("2001:db8::5".parse().unwrap()),
            mtu: Some(1300),
            advmss: Some(1200),
            priority: Some(77),
            scope: Some(0),
            table: Some(254),
            ..via("2001:db8:1::/48", "2001:db8::1")
        };
        let link_scope = Route { scope: Some(253), ..route("198.51.100.7/24") };
        for wanted in [&full_v4, &full_v6, &link_scope, &via("0.0.0.0/0", "10.1.0.1"), &via("::/0", "2001:db8::1")] {
            netlink.add_route(own.index, wanted).unwrap();
        }
        let found = netlink.routes(own.index).unwrap();
        assert!(found.contains(&full_v4), "{found:#?}");
        assert!(found.contains(&full_v6), "{found:#?}");
        let to = |dst: &str| found.iter().find(|route| route.dst == net(dst)).unwrap();
        // Host bits are cut off.
        assert_eq!((to("198.51.100.0/24").scope, to("198.51.100.0/24").gateway), (Some(253), None));
        assert_eq!(to("0.0.0.0/0").gateway, Some("10.1.0.1".parse().unwrap()));
        assert_eq!((to("::/0").gateway, to("::/0").priority), (Some("2001:db8::1".parse().unwrap()), Some(1024)));
        // This is the kernel's own route for the address.
        assert_eq!((to("10.1.0.0/24").scope, to("10.1.0.0/24").source), (Some(253), Some("10.1.0.5".parse().unwrap())));

        let shown = &ip("-4 route show 192.0.2.0/24")[0];
        assert_eq!(
            (&shown["metric"], &shown["prefsrc"], &shown["protocol"]),
            (&77.into(), &"10.1.0.5".into(), &"boot".into())
        );
        assert_eq!(shown["metrics"], serde_json::json!([{"mtu": 1300, "advmss": 1200}]));
    });
}

#[test]
fn other_tables_and_other_links_are_not_listed() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, other) = veth(&netlink, "eth0", "other");
        netlink.add_address(own.index, net("10.1.0.5/24")).unwrap();
        for table in [100, 1000] {
            netlink.add_route(own.index, &Route { table: Some(table), ..via("192.0.2.0/24", "10.1.0.1") }).unwrap();
            assert_eq!(ip(&format!("route show table {table}"))[0]["gateway"], "10.1.0.1");
        }
        let listed = |index| -> Vec<String> {
            let routes = netlink.routes(index).unwrap();
            routes.iter().filter(|route| route.dst.addr().is_ipv4()).map(|route| route.dst.to_string()).collect()
        };
        assert_eq!(listed(own.index), ["10.1.0.0/24"]);
        assert!(listed(other.index).is_empty());
        assert!(netlink.routes(4711).unwrap_err().is(Errno::ENODEV));
    });
}

#[test]
fn only_the_exact_double_of_a_route_exists() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, _) = veth(&netlink, "eth0", "other");
        without_dad("eth0");
        netlink.add_address(own.index, net("10.1.0.5/24")).unwrap();
        netlink.add_address(own.index, net("2001:db8::5/64")).unwrap();
        for (dst, first, second) in [("0.0.0.0/0", "10.1.0.1", "10.1.0.2"), ("::/0", "2001:db8::1", "2001:db8::2")] {
            netlink.add_route(own.index, &via(dst, first)).unwrap();
            let error = netlink.add_route(own.index, &via(dst, first)).unwrap_err();
            assert!(error.is(Errno::EEXIST), "{error}");
            assert_eq!(error.object, format!("{dst} via {first} through link {}", own.index));
            netlink.add_route(own.index, &via(dst, second)).unwrap();
            let routes = netlink.routes(own.index).unwrap();
            let mut gateways: Vec<_> =
                routes.iter().filter(|r| r.dst == net(dst)).map(|r| r.gateway.unwrap().to_string()).collect();
            gateways.sort();
            assert_eq!(gateways, [first, second]);
        }
    });
}

#[test]
fn impossible_routes_say_why() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, _) = veth(&netlink, "eth0", "other");
        netlink.add_address(own.index, net("10.1.0.5/24")).unwrap();
        let error = netlink.add_route(own.index, &via("0.0.0.0/0", "192.0.2.1")).unwrap_err();
        assert!(error.is(Errno::ENETUNREACH), "{error}");
        assert_eq!(
            error.to_string(),
            format!(
                "add route 0.0.0.0/0 via 192.0.2.1 through link {}: network is unreachable: \
                 Nexthop has invalid gateway",
                own.index
            )
        );
        let error = netlink.add_route(own.index, &via("2001:db8::/64", "10.1.0.1")).unwrap_err();
        assert!(error.is(Errno::EINVAL) && error.message.contains("another address family"), "{error}");
        netlink.set_down(own.index).unwrap();
        assert!(netlink.add_route(own.index, &route("192.0.2.0/24")).unwrap_err().is(Errno::ENETDOWN));
        assert!(netlink.add_route(4711, &route("192.0.2.0/24")).unwrap_err().is(Errno::ENODEV));
    });
}

#[test]
fn the_connected_route_goes_alone() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, _) = veth(&netlink, "eth0", "other");
        without_dad("eth0");
        for (address, network) in [("10.1.0.5/24", "10.1.0.0/24"), ("2001:db8::5/64", "2001:db8::/64")] {
            netlink.add_address(own.index, net(address)).unwrap();
            let has = || netlink.routes(own.index).unwrap().iter().any(|route| route.dst == net(network));
            assert!(has());
            netlink.delete_connected(own.index, net(address)).unwrap();
            assert!(!has());
            let error = netlink.delete_connected(own.index, net(address)).unwrap_err();
            assert!(error.is(Errno::ESRCH) && error.object.starts_with(network), "{error}");
            assert!(netlink.addresses(own.index).unwrap().iter().any(|a| a.net == net(address)));
        }
        // ptp makes a route to the gateway on the link, and a route to the network through the gateway.
        let source = Some("10.1.0.5".parse().unwrap());
        netlink.add_route(own.index, &Route { scope: Some(253), source, ..route("10.1.0.1/32") }).unwrap();
        netlink.add_route(own.index, &Route { source, ..via("10.1.0.0/24", "10.1.0.1") }).unwrap();
        assert_eq!(link(&netlink, "eth0").index, own.index);
    });
}
