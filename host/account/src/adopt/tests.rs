//! Tests of the decision whether an object is a leftover, and of the match of names with attachments.

use super::cache::Cache;
use super::judge::{Cached, Claim, Facts, Names, Verdict, YOUNG, judge};
use super::live::Live;
use super::{Kind, Reason};
use postern_state::Header;
use std::path::PathBuf;
use std::time::Duration;

const OLD: Duration = Duration::from_secs(3600);

fn facts(live: &[&str]) -> Facts {
    Facts { live: Some(Live::plain(live)), links: ["lo", "veth1"].map(str::to_owned).into() }
}

fn claim(kind: Kind) -> Claim<'static> {
    let guard = kind == Kind::MacGuard;
    Claim {
        kind,
        addresses: if guard { vec![] } else { vec!["10.9.0.2/32".parse().unwrap()] },
        ports: if guard { vec!["veth2"] } else { vec![] },
        age: (kind == Kind::Lease).then_some(OLD),
        recorded: false,
        cached: Cached::Gone,
    }
}

const BY_ADDRESS: [Kind; 6] = [
    Kind::Lease,
    Kind::MasqueradeNftables,
    Kind::MasqueradeIptables,
    Kind::ForwardNftables,
    Kind::ForwardIptables,
    Kind::Forwarding,
];

#[test]
fn what_goes_by_an_address_is_left_over_only_if_nothing_speaks_for_it() {
    let (alone, unclear) = (facts(&["10.9.0.1", "fd00::2"]), Cached::Unclear("no JSON".to_owned()));
    for kind in BY_ADDRESS {
        let fresh = claim(kind);
        assert_eq!(judge(&fresh, &alone), Verdict::Leftover(Reason::NoNamespace), "{kind:?}");
        assert_eq!(judge(&fresh, &facts(&["10.9.0.1", "10.9.0.2"])), Verdict::InUse, "{kind:?}: an address is alive");
        let blind = Facts { live: None, ..alone.clone() };
        for cached in [Cached::Gone, Cached::Alive, unclear.clone()] {
            for recorded in [false, true] {
                let claim = Claim { cached: cached.clone(), recorded, ..fresh.clone() };
                // An object of Postern is never a leftover, whatever the other facts.
                let wanted = if recorded { Verdict::InUse } else { Verdict::Unknown };
                assert_eq!(judge(&claim, &blind), wanted, "{claim:?} without a view of all namespaces");
                let wanted = match cached {
                    _ if recorded => Verdict::InUse,
                    Cached::Gone => Verdict::Leftover(Reason::NoNamespace),
                    Cached::Alive => Verdict::InUse,
                    Cached::Unclear(ref why) => Verdict::Stays(why.clone()),
                };
                assert_eq!(judge(&claim, &alone), wanted, "{claim:?}");
                assert_eq!(judge(&claim, &facts(&["10.9.0.2"])), Verdict::InUse, "{claim:?} with a live address");
            }
        }
        assert_eq!(judge(&Claim { addresses: vec![], ..fresh }, &alone), Verdict::InUse, "{kind:?} of no address");
    }
}

#[test]
fn an_ifb_is_left_over_if_no_link_is_redirected_to_it() {
    let ifb = |ports: Vec<&'static str>| Claim { addresses: vec![], ports, ..claim(Kind::Ifb) };
    let blind = Facts { live: None, ..facts(&[]) };
    for facts in [facts(&[]), blind] {
        assert_eq!(judge(&ifb(vec![]), &facts), Verdict::Leftover(Reason::NoRedirect));
        assert_eq!(judge(&ifb(vec!["veth1"]), &facts), Verdict::InUse);
        assert_eq!(judge(&Claim { recorded: true, ..ifb(vec![]) }, &facts), Verdict::InUse);
    }
}

#[test]
fn a_young_lease_stays() {
    let of_age = |age| judge(&Claim { age: Some(age), ..claim(Kind::Lease) }, &facts(&[]));
    assert!(matches!(of_age(Duration::ZERO), Verdict::Stays(why) if why.contains("0 s old")));
    assert!(matches!(of_age(YOUNG - Duration::from_secs(1)), Verdict::Stays(_)));
    assert_eq!(of_age(YOUNG), Verdict::Leftover(Reason::NoNamespace));
}

#[test]
fn a_rule_for_a_network_is_in_use_with_any_of_its_addresses() {
    let of_network = Claim { addresses: vec!["10.9.0.0/24".parse().unwrap()], ..claim(Kind::MasqueradeIptables) };
    assert_eq!(judge(&of_network, &facts(&["10.9.0.77"])), Verdict::InUse);
    assert_eq!(judge(&of_network, &facts(&["10.9.1.77"])), Verdict::Leftover(Reason::NoNamespace));
}

#[test]
fn spoofing_protection_goes_with_its_ports_alone() {
    let guard = claim(Kind::MacGuard);
    for live in [Some(Live::default()), None] {
        let facts = Facts { live, ..facts(&[]) };
        assert_eq!(judge(&guard, &facts), Verdict::Leftover(Reason::NoPort));
        assert_eq!(judge(&Claim { recorded: true, ..guard.clone() }, &facts), Verdict::InUse);
        for ports in [vec!["veth1"], vec!["veth2", "veth1"], vec![]] {
            assert_eq!(judge(&Claim { ports, ..guard.clone() }, &facts), Verdict::InUse);
        }
    }
}

fn names<'a>(container: &'a str, cut: bool, ifname: Option<&'static str>) -> Names<'a> {
    Names { network: Some("net"), container, cut, ifname }
}

#[test]
fn names_are_compared_as_far_as_they_tell() {
    let header = |network: &str, container_id: &str, ifname: &str| Header {
        network: network.into(),
        container_id: container_id.into(),
        ifname: ifname.into(),
        boot_id: String::new(),
        host_netns_cookie: 0,
        netns_cookie: None,
        netns_path: String::new(),
        created: 0,
    };
    for (names, header, same) in [
        (names("c1", false, Some("eth0")), header("net", "c1", "eth0"), true),
        (names("c1", false, Some("eth0")), header("net", "c1", "eth1"), false),
        (names("c1", false, Some("eth0")), header("other", "c1", "eth0"), false),
        (names("c1", false, Some("eth0")), header("net", "c11", "eth0"), false),
        (names("c1", false, None), header("net", "c1", "eth1"), true),
        (names("c1", true, Some("eth0")), header("net", "c11", "eth0"), true),
        (names("c1", true, Some("eth0")), header("net", "d1", "eth0"), false),
    ] {
        assert_eq!(names.are_of(&header), same, "{names:?} {header:?}");
    }
    for (names, entry, same) in [
        (names("c1", false, Some("eth0")), "net-c1-eth0", true),
        (names("c1", false, Some("eth0")), "net-c1-eth01", false),
        (names("c1", false, Some("eth0")), "net-c11-eth0", false),
        (names("c1", false, Some("eth0")), "net2-c1-eth0", false),
        (names("c1", false, None), "net-c1-eth1", true),
        (names("c1", false, None), "net-c11-eth1", false),
        (names("c1", true, Some("eth0")), "net-c11-eth0", true),
        (names("c1", true, Some("eth0")), "net-c11-eth1", false),
        (names("c1", true, Some("eth0")), "net-d1-eth0", false),
    ] {
        assert_eq!(names.are_of_entry(entry), same, "{names:?} {entry}");
    }
}

/// A cache with one entry.
fn cache(name: &str, entry: &str) -> (PathBuf, Cache) {
    let directory = std::env::temp_dir().join(format!("postern-adopt-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("net-c1-eth0"), entry).unwrap();
    let cache = Cache::open(&directory).unwrap();
    (directory, cache)
}

#[test]
fn an_entry_counts_as_long_as_its_namespace_is_there() {
    let own = names("c1", false, Some("eth0"));
    for (name, entry, wanted) in [
        ("alive", r#"{"kind":"cniCacheV1","netns":"/proc/self/ns/net"}"#, Some(Cached::Alive)),
        ("gone", r#"{"kind":"cniCacheV1","netns":"/run/netns/no-such-namespace"}"#, Some(Cached::Gone)),
        ("none", r#"{"kind":"cniCacheV1","netns":""}"#, None),
        ("legacy", r#"{"ips":[]}"#, None),
        // A power cut leaves an empty file.
        ("empty", "", None),
    ] {
        let (directory, cache) = cache(name, entry);
        match (cache.of(&own), wanted) {
            (Cached::Unclear(why), None) => {
                assert!(why.contains("net-c1-eth0") && why.contains("remove that file"), "{why}")
            }
            (cached, wanted) => assert_eq!(Some(cached), wanted, "{entry}"),
        }
        assert_eq!(cache.of(&names("c2", false, Some("eth0"))), Cached::Gone, "another's");
        std::fs::remove_dir_all(directory).unwrap();
    }
    let none = Cache::open(&std::env::temp_dir().join("postern-adopt-no-such-directory")).unwrap();
    assert_eq!(none.of(&own), Cached::Gone);
}
