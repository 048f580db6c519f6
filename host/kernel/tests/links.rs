//! Links, bridges and ports against a real kernel, compared with iproute2.

mod common;

use common::{Container, ip, isolated, link, run, veth};
use nix::errno::Errno;
use postern_kernel::{InnerLinkKind, InnerSpec, LinkUse, Namespace, Netlink, VethSpec, Worker, random_mac};
use postern_types::MacvlanMode;
use std::thread::sleep;
use std::time::{Duration, Instant};

const MAC: [u8; 6] = [0x02, 0, 0x5e, 0x10, 0, 1];
const PEER_MAC: [u8; 6] = [0x02, 0, 0x5e, 0x10, 0, 2];

#[test]
fn a_macvlan_is_born_in_the_container_and_gets_its_name_there() {
    isolated(|| {
        let host = Netlink::open().unwrap();
        let container = Container::new();
        let worker = Worker::start(&container.namespace, || Ok(())).unwrap();
        let inside = worker.netlink().unwrap();
        // A link of the host has the future name of the container's link.
        run("ip", "link add eth0 type veth peer name wire1");
        let parent = link(&host, "eth0");
        let kind = |mode, queue| InnerLinkKind::Macvlan { parent: parent.index, mode, queue };
        let spec = InnerSpec {
            name: "temporary0",
            kind: kind(MacvlanMode::Vepa, Some(2000)),
            mtu: Some(1400),
            mac: Some(MAC),
            namespace: Some(container.namespace.fd()),
        };
        host.create_inner(&spec).unwrap();
        let made = link(inside, "temporary0");
        inside.rename(made.index, &"eth0".into()).unwrap();
        let own = link(inside, "eth0");
        assert_eq!((own.kind.as_str(), own.macvlan_mode), ("macvlan", Some(MacvlanMode::Vepa)));
        assert_eq!((own.mac, own.mtu, own.up, own.index), (Some(MAC), 1400, false, made.index));
        assert_eq!((own.peer_index, own.peer_netnsid.is_some()), (Some(parent.index), true));
        assert_eq!(host.link_by_name("temporary0").unwrap(), None);
        run("ip", "link property add dev eth0 altname uplink-of-the-node altname up0");
        for name in ["eth0", "up0", "uplink-of-the-node"] {
            assert_eq!(host.link_by_any_name(name).unwrap().map(|link| link.index), Some(parent.index), "{name}");
        }
        for name in ["", "uplink-of-another-node", &"x".repeat(127), &"x".repeat(128), "uplink\0of-the-node"] {
            assert_eq!(host.link_by_any_name(name).unwrap(), None, "{name}");
        }
        // The kernel refuses a taken name, an impossible name, and a parent that accepts no further links.
        host.create_inner(&spec).unwrap();
        let second = link(inside, "temporary0");
        assert!(inside.rename(second.index, &"eth0".into()).unwrap_err().is(Errno::EEXIST));
        assert!(inside.rename(second.index, &"a/b".into()).is_err());
        assert!(inside.delete_link(second.index).unwrap() && inside.delete_link(own.index).unwrap());
        let passthru = InnerSpec { kind: kind(MacvlanMode::Passthru, None), mac: None, mtu: None, ..spec };
        host.create_inner(&passthru).unwrap();
        assert_eq!(link(inside, "temporary0").mac, parent.mac);
        assert!(host.create_inner(&InnerSpec { name: "temporary1", ..passthru }).unwrap_err().is(Errno::EINVAL));
    });
}

#[test]
fn one_message_makes_a_veth_across_namespaces() {
    isolated(|| {
        let host = Netlink::open().unwrap();
        let here = Namespace::current().unwrap();
        let container = Container::new();
        let worker = Worker::start(&container.namespace, || Ok(())).unwrap();
        let inside = worker.netlink().unwrap();
        let spec = VethSpec {
            name: "eth0",
            mtu: Some(1400),
            mac: Some(MAC),
            peer_name: "veth0a1b2c3d",
            peer_mac: PEER_MAC,
            peer_ns: here.fd(),
        };
        inside.create_veth(&spec).unwrap();

        let (own, peer) = (link(inside, "eth0"), link(&host, "veth0a1b2c3d"));
        assert_eq!((own.mac, own.mtu, own.kind.as_str(), own.up), (Some(MAC), 1400, "veth", false));
        assert_eq!((peer.mac, peer.mtu, peer.kind.as_str(), peer.up), (Some(PEER_MAC), 1400, "veth", false));
        assert_eq!((own.peer_index, peer.peer_index), (Some(peer.index), Some(own.index)));
        assert!(own.peer_netnsid.is_some() && peer.peer_netnsid.is_some());
        assert_eq!(host.namespace_number(container.namespace.fd()).unwrap(), peer.peer_netnsid);
        assert_eq!(inside.namespace_number(here.fd()).unwrap(), own.peer_netnsid);
        assert_eq!(host.namespace_number(Container::new().namespace.fd()).unwrap(), None);
        assert_eq!(host.link_by_name("eth0").unwrap(), None);
        let shown = ip("link show veth0a1b2c3d");
        assert_eq!((&shown[0]["num_tx_queues"], &shown[0]["num_rx_queues"]), (&1.into(), &1.into()));
        assert_eq!(shown[0]["address"], "02:00:5e:10:00:02");

        // Either existing name gives the same error.
        let error = inside.create_veth(&VethSpec { peer_name: "veth99999999", ..spec }).unwrap_err();
        assert!(error.is(Errno::EEXIST), "{error}");
        let error = inside.create_veth(&VethSpec { name: "eth1", ..spec }).unwrap_err();
        assert!(error.is(Errno::EEXIST), "{error}");
        assert_eq!(inside.link_by_name("eth1").unwrap(), None);

        assert_eq!((peer.operstate, peer.running), ("down", false));
        host.set_up(peer.index).unwrap();
        let peer = link(&host, "veth0a1b2c3d");
        assert!(peer.up && !peer.running, "{peer:?}");
        inside.set_up(own.index).unwrap();
        // A kernel thread reports the carrier.
        let started = Instant::now();
        while !link(&host, "veth0a1b2c3d").running {
            assert!(started.elapsed() < Duration::from_secs(2), "{:?}", link(&host, "veth0a1b2c3d"));
            sleep(Duration::from_millis(1));
        }
        assert_eq!(link(&host, "veth0a1b2c3d").operstate, "up");

        assert!(inside.delete_link(own.index).unwrap());
        assert!(!inside.delete_link(own.index).unwrap());
        assert_eq!(host.link_by_index(peer.index).unwrap(), None);
        assert!(!host.delete_link(0).unwrap());
    });
}

#[test]
fn a_veth_is_as_the_kernel_makes_it_if_nothing_is_asked_for() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let (own, peer) = veth(&netlink, "a", "b");
        assert_eq!((own.mtu, peer.mtu), (1500, 1500));
        assert_eq!(own.mac.map(|mac| mac[0] & 3), Some(2));
        assert_eq!(own.peer_netnsid, None);
    });
}

#[test]
fn bad_names_and_addresses_are_refused() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let here = Namespace::current().unwrap();
        let spec =
            VethSpec { name: "a", mtu: None, mac: None, peer_name: "b", peer_mac: random_mac(), peer_ns: here.fd() };
        for bad in ["", "a/b", "eth%d", "name-of-16-bytes", &"x".repeat(70_000)] {
            assert!(netlink.create_veth(&VethSpec { name: bad, ..spec }).unwrap_err().is(Errno::EINVAL));
            assert!(netlink.create_veth(&VethSpec { peer_name: bad, ..spec }).unwrap_err().is(Errno::EINVAL));
            assert!(netlink.create_bridge(bad, None, false).unwrap_err().is(Errno::EINVAL));
            assert_eq!(netlink.link_by_name(bad).unwrap(), None);
        }
        let multicast = VethSpec { mac: Some([1; 6]), ..spec };
        let error = netlink.create_veth(&multicast).unwrap_err();
        assert!(error.errno.is_some() && error.object == "a and b", "{error}");
        // The kernel explains this error.
        let error = netlink.create_bridge("br0", Some(70_000), false).unwrap_err();
        assert_eq!(error.to_string(), "create bridge br0: invalid argument: mtu greater than device maximum");
        assert_eq!(netlink.links().unwrap().len(), 1);
    });
}

#[test]
fn the_loopback_link_is_found_by_name_index_and_in_the_list() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let lo = link(&netlink, "lo");
        assert_eq!((lo.index, lo.mac, lo.kind.as_str(), lo.up), (1, Some([0; 6]), "", false));
        assert_eq!(netlink.link_by_index(1).unwrap().unwrap(), lo);
        assert_eq!(netlink.links().unwrap(), [lo]);
        netlink.set_up(1).unwrap();
        let lo = link(&netlink, "lo");
        assert!(lo.up && lo.operstate == "unknown");
        netlink.set_down(1).unwrap();
        assert!(!link(&netlink, "lo").up);
        assert_eq!(netlink.link_by_index(4711).unwrap(), None);
        assert_eq!(netlink.link_by_index(0).unwrap(), None);
        assert!(netlink.set_up(4711).unwrap_err().is(Errno::ENODEV));
        assert!(netlink.delete_link(1).unwrap_err().is(Errno::EOPNOTSUPP));
    });
}

#[test]
fn a_bridge_is_created_once() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        assert!(netlink.create_bridge("cni0", Some(1400), false).unwrap());
        assert!(!netlink.create_bridge("cni0", Some(1500), false).unwrap());
        let bridge = link(&netlink, "cni0");
        assert_eq!((bridge.kind.as_str(), bridge.mtu, bridge.up, bridge.promisc), ("bridge", 1400, false, false));
        netlink.set_up(bridge.index).unwrap();
        netlink.set_promisc(bridge.index, true).unwrap();
        netlink.set_mac(bridge.index, MAC).unwrap();
        let bridge = link(&netlink, "cni0");
        assert_eq!((bridge.up, bridge.promisc, bridge.mac), (true, true, Some(MAC)));
        netlink.set_promisc(bridge.index, false).unwrap();
        assert!(!link(&netlink, "cni0").promisc);
        assert!(netlink.set_mac(bridge.index, [1; 6]).unwrap_err().is(Errno::EADDRNOTAVAIL));
        run("ip", "link set cni0 alias hello");
        run("ip", "link property add dev cni0 altname another-name");
        assert_eq!(link(&netlink, "cni0").alias, Some("hello".into()));
        assert_eq!(link(&netlink, "another-name").name, "cni0");
    });
}

#[test]
fn a_port_is_attached_with_its_flags() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        netlink.create_bridge("br0", None, false).unwrap();
        let bridge = link(&netlink, "br0").index;
        let (port, other) = veth(&netlink, "port", "other");
        for (hairpin, isolated) in [(true, false), (false, true), (true, true), (false, false)] {
            netlink.attach_port(port.index, bridge, hairpin, isolated).unwrap();
            let shown = &ip("link show port")[0];
            assert_eq!(shown["master"], "br0");
            let data = &shown["linkinfo"]["info_slave_data"];
            assert_eq!((&data["hairpin"], &data["isolated"]), (&hairpin.into(), &isolated.into()));
            assert_eq!(link(&netlink, "port").master, Some(bridge));
        }
        let error = netlink.attach_port(port.index, other.index, true, true).unwrap_err();
        assert!(error.is(Errno::EINVAL) || error.is(Errno::EOPNOTSUPP), "{error}");
        // The answer to the second message of a failed batch must not be read as the answer to the next request.
        let error = netlink.attach_port(other.index, 4711, true, true).unwrap_err();
        assert!(error.errno.is_some(), "{error}");
        assert_eq!(link(&netlink, "other").master, None);
        assert!(netlink.attach_port(4711, bridge, true, true).unwrap_err().is(Errno::ENODEV));
        netlink.set_master(other.index, Some(bridge)).unwrap();
        assert_eq!(link(&netlink, "other").master, Some(bridge));
        netlink.set_master(other.index, None).unwrap();
        assert_eq!(link(&netlink, "other").master, None);
    });
}

/// On a kernel without VLAN filtering all VLAN operations must report `EOPNOTSUPP`; with VLAN filtering they must work.
#[test]
fn vlans_of_a_port() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let filtering = match netlink.create_bridge("br0", None, true) {
            Ok(created) => created,
            Err(error) => {
                assert!(error.is(Errno::EOPNOTSUPP), "{error}");
                netlink.create_bridge("br0", None, false).unwrap();
                false
            }
        };
        let bridge = link(&netlink, "br0").index;
        let (port, _) = veth(&netlink, "port", "other");
        netlink.attach_port(port.index, bridge, false, false).unwrap();
        if !filtering {
            for error in [
                netlink.add_vlan(port.index, 100, true, true).unwrap_err(),
                netlink.port_vlans(port.index).map(drop).unwrap_err(),
            ] {
                assert!(error.is(Errno::EOPNOTSUPP), "{error}");
            }
            return;
        }
        let vlans = || netlink.port_vlans(port.index).unwrap().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(vlans(), [1]);
        netlink.delete_vlan(port.index, 1).unwrap();
        netlink.add_vlan(port.index, 100, true, true).unwrap();
        for vid in [200, 201, 202, 4094] {
            netlink.add_vlan(port.index, vid, false, false).unwrap();
        }
        assert_eq!(vlans(), [100, 200, 201, 202, 4094]);
        let shown = run("bridge", "-j vlan show dev port");
        assert!(shown.contains(r#"{"vlan":100,"flags":["PVID","Egress Untagged"]}"#), "{shown}");
        assert!(netlink.add_vlan(port.index, 4095, false, false).unwrap_err().is(Errno::EINVAL));
        assert!(netlink.delete_vlan(port.index, 5).unwrap_err().is(Errno::ENOENT));
    });
}

/// The namespace has more links than one datagram holds.
#[test]
fn long_lists_are_complete() {
    isolated(|| {
        let netlink = Netlink::open().unwrap();
        let here = Namespace::current().unwrap();
        for number in 0..100 {
            let (name, peer_name) = (format!("a{number}"), format!("b{number}"));
            let peer_mac = random_mac();
            let spec =
                VethSpec { name: &name, mtu: None, mac: None, peer_name: &peer_name, peer_mac, peer_ns: here.fd() };
            netlink.create_veth(&spec).unwrap();
        }
        let links = netlink.links().unwrap();
        assert_eq!(links.len(), 201);
        assert!((0..100).all(|number| links.iter().any(|link| link.name == format!("b{number}"))));
    });
}

/// Each look at a device makes a throw-away link on the device for a moment. Other looks must not count this link as a
/// use.
#[test]
fn looks_at_one_device_at_once_find_no_use() {
    isolated(|| {
        let host = Netlink::open().unwrap();
        let (device, _) = veth(&host, "dev1", "wire1");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let own = Netlink::open().unwrap();
                    for _ in 0..20 {
                        assert_eq!(own.uses_from_elsewhere(&device, &[]).unwrap(), []);
                    }
                });
            }
        });
        assert_eq!(host.links().unwrap().len(), 3, "a throw-away link is left");
        // A macvlan that stays is found.
        run("ip", "link add up1 link dev1 type macvlan mode bridge");
        let container = Container::new();
        let up = link(&host, "up1").index;
        host.hand_over(up, container.namespace.fd(), &"up1".into(), &"".into()).unwrap();
        assert_eq!(host.uses_from_elsewhere(&device, &[]).unwrap(), [LinkUse::Macvlan]);
    });
}
