//! The lease that an acknowledgement gives.

use super::lab::{ADDRESS, Lab};
use super::reply::Reply;
use crate::{Event, Lease, Outcome};

/// Returns the lease that a server gives with these options to a network with this `ipam`.
fn lease(ipam: &str, change: impl Fn(Reply) -> Reply) -> Lease {
    let mut lab = Lab::with(ipam, "");
    lab.on(Event::Start { previous: None });
    lab.reply(&Reply::offer(ADDRESS));
    match lab.reply(&change(Reply::ack(ADDRESS))).outcome {
        Some(Outcome::Bound { lease, probe: true }) => lease,
        other => panic!("{other:?}"),
    }
}

fn plain(change: impl Fn(Reply) -> Reply) -> Lease {
    lease("{}", change)
}

/// Returns the routes as `DESTINATION via GATEWAY`, with scope and priority where they are set.
fn routes(lease: &Lease) -> Vec<String> {
    let route = |route: &crate::LeaseRoute| {
        let via = route.gw.map(|gw| format!(" via {gw}")).unwrap_or_default();
        let scope = route.scope.map(|scope| format!(" scope {scope}")).unwrap_or_default();
        let priority = route.priority.map(|priority| format!(" priority {priority}")).unwrap_or_default();
        format!("{}{via}{scope}{priority}", route.dst)
    };
    lease.routes.iter().map(route).collect()
}

#[test]
fn address_and_gateway() {
    let lease = plain(|ack| ack.raw(3, &[10, 5, 0, 1, 10, 5, 0, 2]));
    assert_eq!(lease.addresses.len(), 1);
    assert_eq!(lease.addresses[0].address.to_string(), "10.5.0.50/24");
    assert_eq!(lease.addresses[0].gateway.unwrap().to_string(), "10.5.0.1", "the first router");
    assert_eq!(lease.server.unwrap().to_string(), "10.5.0.1");
    assert_eq!((lease.seconds, lease.t1, lease.t2), (120, 60, 102));
    assert_eq!(routes(&lease), ["0.0.0.0/0 via 10.5.0.1"]);
}

#[test]
fn no_router_no_gateway() {
    for lease in [plain(|ack| ack), plain(|ack| ack.raw(3, &[0; 4])), plain(|ack| ack.raw(3, &[10, 5, 0]))] {
        assert_eq!((lease.addresses[0].gateway, routes(&lease)), (None, vec![]));
    }
}

#[test]
fn classless_routes_win() {
    let classless = [16, 10, 8, 10, 5, 0, 2, 0, 10, 5, 0, 3, 24, 10, 9, 1, 0, 0, 0, 0];
    let lease = plain(|ack| ack.raw(3, &[10, 5, 0, 1]).raw(33, &[10, 7, 0, 0, 10, 5, 0, 4]).raw(121, &classless));
    assert_eq!(routes(&lease), ["10.8.0.0/16 via 10.5.0.2", "0.0.0.0/0 via 10.5.0.3", "10.9.1.0/24 scope 253"]);
    assert_eq!(lease.addresses[0].gateway.unwrap().to_string(), "10.5.0.1", "the gateway still comes from option 3");
}

#[test]
fn static_routes_have_their_class_and_the_default_route_follows() {
    let statics =
        [10, 7, 1, 2, 10, 5, 0, 4, 172, 16, 3, 4, 10, 5, 0, 5, 192, 168, 9, 9, 10, 5, 0, 6, 0, 0, 0, 0, 10, 5, 0, 7];
    let lease = plain(|ack| ack.raw(3, &[10, 5, 0, 1]).raw(33, &statics));
    let expected = [
        "10.0.0.0/8 via 10.5.0.4",
        "172.16.0.0/16 via 10.5.0.5",
        "192.168.9.0/24 via 10.5.0.6",
        "0.0.0.0/0 via 10.5.0.1",
    ];
    assert_eq!(routes(&lease), expected);
}

#[test]
fn classless_routes_with_an_error_count_as_absent() {
    for classless in [
        &[33, 10, 8, 0, 0, 0, 10, 5, 0, 2][..],
        &[16, 10, 8, 10, 5, 0, 2, 33, 10],
        &[16, 10, 8, 10, 5, 0, 2, 24, 10, 9],
        &[16, 10, 8, 10, 5, 0],
        &[16],
        &[],
    ] {
        let lease = plain(|ack| ack.raw(3, &[10, 5, 0, 1]).raw(121, classless));
        assert_eq!(routes(&lease), ["0.0.0.0/0 via 10.5.0.1"], "{classless:?}");
    }
}

#[test]
fn destinations_have_no_host_bits() {
    let lease = plain(|ack| ack.raw(121, &[12, 10, 255, 10, 5, 0, 2]));
    assert_eq!(routes(&lease), ["10.240.0.0/12 via 10.5.0.2"]);
}

#[test]
fn two_hundred_classless_routes_are_one_option() {
    let many: Vec<u8> = (0..200).flat_map(|n| [24, 10, 8, n, 10, 5, 0, 2]).collect();
    let lease = plain(|ack| ack.raw(121, &many));
    assert_eq!((lease.routes.len(), routes(&lease).last().unwrap().as_str()), (200, "10.8.199.0/24 via 10.5.0.2"));
}

#[test]
fn the_priority_is_that_of_all_routes() {
    let ack = |ack: Reply| ack.raw(3, &[10, 5, 0, 1]).raw(33, &[10, 7, 1, 2, 10, 5, 0, 4]);
    let expected = ["10.0.0.0/8 via 10.5.0.4 priority 7", "0.0.0.0/0 via 10.5.0.1 priority 7"];
    assert_eq!(routes(&lease(r#"{"priority":7}"#, ack)), expected);
}

/// The names `a.example`, and `b.example` with a pointer to the second label of `a.example`.
const SEARCH: [u8; 15] = *b"\x01a\x07example\0\x01b\xc0\x02";

#[test]
fn name_resolution_and_mtu_are_there_where_they_are_requested() {
    let ack = |ack: Reply| {
        ack.raw(6, &[10, 5, 0, 1, 127, 0, 0, 1, 0, 0, 0, 0, 224, 0, 0, 1, 10, 5, 0, 2])
            .raw(15, b"example.org\0")
            .raw(119, &SEARCH)
            .raw(26, &1400_u16.to_be_bytes())
    };
    let none = plain(ack);
    assert!(none.dns.is_empty() && none.mtu.is_none());
    let all = lease(r#"{"request":[{"option":"6"},{"option":"15"},{"option":"26"},{"option":"119"}]}"#, ack);
    let servers: Vec<_> = all.dns.nameservers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.5.0.1", "10.5.0.2"]);
    assert_eq!((all.dns.domain.as_deref(), all.mtu), (Some("example.org"), Some(1400)));
    assert_eq!(all.dns.search, ["a.example", "b.example"]);
    assert!(lease(r#"{"request":[{"option":"6"}]}"#, ack).dns.domain.is_none());
}

#[test]
fn what_could_be_another_line_of_resolv_conf_is_no_domain() {
    let conf = r#"{"request":[{"option":"15"},{"option":"119"},{"option":"26"}]}"#;
    let long = [b'a'; 64];
    for domain in
        [&b"a.example\nnameserver 6.6.6.6"[..], b"a b", b"a..b", b".", b"", b"\0", b"\xff\xfe", b"a\x1b[2J", &long]
    {
        let found = lease(conf, |ack| ack.raw(15, domain)).dns.domain;
        assert_eq!(found, None, "{domain:?}");
    }
    let search = b"\x0ca\nnameserver\x07example\0\x01b\x07example\0";
    assert_eq!(lease(conf, |ack| ack.raw(119, search)).dns.search, ["b.example"]);
    // A pointer to itself, and a pointer to nowhere.
    for search in [&b"\xc0\x00"[..], b"\xc0\xff", b"\x3fabc"] {
        assert!(lease(conf, |ack| ack.raw(119, search)).dns.search.is_empty(), "{search:?}");
    }
    for mtu in [&[0, 67][..], &[5], &[0, 0, 5, 120]] {
        assert_eq!(lease(conf, |ack| ack.raw(26, mtu)).mtu, None, "{mtu:?}");
    }
}

#[test]
fn lease_times() {
    for (change, expected) in [
        (Reply::without(Reply::ack(ADDRESS), 51), (3600, 1800, 3060)),
        (Reply::ack(ADDRESS).number(58, 0), (120, 60, 102)),
        (Reply::ack(ADDRESS).number(58, 30).number(59, 90), (120, 30, 90)),
        (Reply::ack(ADDRESS).number(59, 1000).number(58, 1000), (120, 60, 102)),
        (Reply::ack(ADDRESS).raw(58, &[1]).raw(59, &[0, 0, 0, 30, 0]), (120, 60, 102)),
        (Reply::ack(ADDRESS).number(51, u32::MAX).number(58, 10), (u32::MAX, u32::MAX, u32::MAX)),
    ] {
        let lease = plain(|_| change.clone());
        assert_eq!((lease.seconds, lease.t1, lease.t2), expected, "{change:?}");
    }
}

#[test]
fn without_a_subnet_mask_the_lease_is_given_back() {
    for mask in [&[][..], &[255, 255, 255], &[255, 0, 255, 0], &[0, 0, 0, 0], &[255, 255, 255, 0, 0]] {
        let mut lab = Lab::new();
        lab.on(Event::Start { previous: None });
        lab.reply(&Reply::offer(ADDRESS).without(1));
        let output = lab.reply(&Reply::ack(ADDRESS).raw(1, mask));
        let Some(Outcome::Failed { reason }) = &output.outcome else { panic!("{mask:?}: {output:?}") };
        assert!(reason.starts_with("DHCP option Subnet Mask not found in DHCPACK"), "{reason}");
        let sent = super::lab::one(&output);
        assert_eq!(
            (sent.kind, sent.server().unwrap().to_string().as_str()),
            (dhcproto::v4::MessageType::Release, "10.5.0.1")
        );
        assert_eq!(output.wake_ms, None);
    }
}
