//! Masquerading by iptables, with iptables-save as the witness.

#![allow(clippy::expect_used, reason = "a helper outside the test functions")]

mod common;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use common::{addrs, key, nft, own_namespace, tool};
use postern_confine::Direct;
use postern_firewall::AttachmentKey;
use postern_firewall::iptables::{
    ProgramRunner, check, ensure, list, may_exist, remove, remove_all, remove_seen, retain, usable,
};

const DUAL: [&str; 2] = ["10.1.0.3/16", "fd00:1::3/64"];

/// The rules that the native bridge plugin 1.9.1 leaves for network mynet, container cid1.
const NATIVE: [&str; 6] = [
    r#"-A POSTROUTING -s 10.1.0.3/32 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j CNI-a631aa8e1549a3b129110fd2"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 -d 10.1.0.0/16 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j ACCEPT"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 ! -d 224.0.0.0/4 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j MASQUERADE"#,
    r#"-A POSTROUTING -s fd00:1::3/128 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j CNI-a631aa8e1549a3b129110fd2"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 -d fd00:1::/64 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j ACCEPT"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 ! -d ff00::/8 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j MASQUERADE"#,
];

/// Returns a runner in this process, with some seconds for its programs.
fn soon() -> ProgramRunner<'static> {
    ProgramRunner { runner: &Direct, deadline: common::soon() }
}

/// Runs a test twice, each time in its own namespace: with iptables on nf_tables, and with legacy iptables.
fn both(test: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            own_namespace();
            test();
        });
        scope.spawn(|| {
            own_namespace();
            unshare(CloneFlags::CLONE_NEWNS).expect("unshare the mount namespace");
            // One program has many names, and acts by the name that it is called by.
            let [from, onto] = ["/usr/sbin/xtables-legacy-multi", "/usr/sbin/xtables-nft-multi"];
            mount(Some(from), onto, None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("apt-get install iptables");
            assert!(tool("iptables", "iptables --version").contains("legacy"));
            test();
        });
    });
}

/// Returns the rules of both families' `nat` tables.
fn rules() -> Vec<String> {
    let saved = tool("iptables", "iptables-save -t nat; ip6tables-save -t nat");
    saved.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect()
}

/// Counts the plugins' chains in both families' `nat` tables.
fn chains() -> usize {
    tool("iptables", "iptables-save -t nat; ip6tables-save -t nat").matches(":CNI-").count()
}

/// Runs the native plugin's own commands for one address.
fn make_native(iptables: &str, address: &str, network: &str, multicast: &str) {
    tool(
        "iptables",
        &format!(
            r#"chain=CNI-a631aa8e1549a3b129110fd2; comment='name: "mynet" id: "cid1"'
            {iptables} -t nat -N $chain --wait
            {iptables} -t nat -A $chain -d {network} -j ACCEPT -m comment --comment "$comment" --wait
            {iptables} -t nat -A $chain ! -d {multicast} -j MASQUERADE -m comment --comment "$comment" --wait
            {iptables} -t nat -A POSTROUTING -s {address} -j $chain -m comment --comment "$comment" --wait"#
        ),
    );
}

#[test]
fn is_usable() {
    both(|| {
        assert!(usable(soon()), "a program is missing, try: apt-get install iptables");
    });
}

#[test]
fn writes_what_native_writes() {
    both(|| {
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!(rules(), NATIVE);
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!(rules(), NATIVE);
        assert!(check(&key("cid1"), &addrs(&DUAL), soon()).unwrap());
        // The same questions that the native plugin asks.
        tool(
            "iptables",
            r#"chain=CNI-a631aa8e1549a3b129110fd2; comment='name: "mynet" id: "cid1"'
        iptables -t nat -C $chain -d 10.1.0.3/16 -j ACCEPT -m comment --comment "$comment" --wait
        iptables -t nat -C $chain ! -d 224.0.0.0/4 -j MASQUERADE -m comment --comment "$comment" --wait
        iptables -t nat -C POSTROUTING -s 10.1.0.3 -j $chain -m comment --comment "$comment" --wait
        ip6tables -t nat -C POSTROUTING -s fd00:1::3 -j $chain -m comment --comment "$comment" --wait"#,
        );
        assert!(remove(&key("cid1"), &addrs(&DUAL), soon()).unwrap() > 0);
        assert_eq!((rules().len(), chains()), (0, 0));
        assert_eq!(remove(&key("cid1"), &addrs(&DUAL), soon()).unwrap(), 0);
    });
}

/// Networks and containers with the same hash: each has its own rules, and removes no others.
#[test]
fn names_that_run_together() {
    let of = |network: &str, container_id: &str| AttachmentKey {
        network: network.into(),
        container_id: container_id.into(),
        ifname: "eth0".into(),
    };
    both(|| {
        let (first, second) = (of("net", "1abc"), of("net1", "abc"));
        ensure(&first, &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        let before = rules();
        ensure(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        ensure(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (6, 2), "{:?}", rules());
        assert!(check(&first, &addrs(&["10.1.0.3/16"]), soon()).unwrap());
        assert!(check(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap());
        assert!(may_exist(&mut nft(), &second).unwrap());
        remove(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        assert_eq!(rules(), before);
        ensure(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        remove(&first, &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert!(check(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap());
        // A collection of one network keeps the other network's rules.
        assert_eq!(retain("net", &[], || Ok(Vec::new()), soon()).unwrap(), Vec::<String>::new());
        assert_eq!(retain("net1", &[], || Ok(Vec::new()), soon()).unwrap(), ["abc"]);
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

/// Rules that can't have been made count as absent and as removed.
#[test]
fn names_have_limits() {
    both(|| {
        let long = key(&"c".repeat(300));
        assert!(postern_firewall::iptables::validate(&long).is_err());
        assert!(ensure(&long, &addrs(&DUAL), soon()).is_err() && !check(&long, &addrs(&DUAL), soon()).unwrap());
        assert_eq!(remove(&long, &addrs(&DUAL), soon()).unwrap(), 0);
        assert_eq!(remove_all(&long, &[], soon()).unwrap(), 0);
        assert_eq!(rules().len(), 0);
    });
}

/// A container without known addresses loses all rules, except for addresses that another attachment of it holds.
#[test]
fn addresses_of_others_are_spared() {
    both(|| {
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        ensure(&key("cid1"), &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        remove_all(&key("cid1"), &["10.1.0.4".parse().unwrap()], soon()).unwrap();
        assert!(check(&key("cid1"), &addrs(&["10.1.0.4/16"]), soon()).unwrap());
        assert!(!check(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap());
    });
}

#[test]
fn rules_of_a_native_plugin_are_taken_over() {
    both(|| {
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        make_native("ip6tables", "fd00:1::3", "fd00:1::3/64", "ff00::/8");
        assert_eq!(rules(), NATIVE);
        assert!(check(&key("cid1"), &addrs(&DUAL), soon()).unwrap());
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!(rules(), NATIVE);
        remove(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn the_chain_stays_while_another_attachment_uses_it() {
    both(|| {
        let second = AttachmentKey { ifname: "eth1".into(), ..key("cid1") };
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        let before = rules();
        ensure(&second, &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        remove(&second, &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        assert_eq!(rules(), before);
        assert!(check(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap());
        remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn a_second_network_is_accepted_before_masquerading() {
    both(|| {
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16", "10.2.0.3/16"]), soon()).unwrap();
        let rules = rules();
        let at = |text: &str| rules.iter().position(|rule| rule.contains(text)).unwrap();
        assert!(at("-d 10.2.0.0/16") < at("MASQUERADE"), "{rules:#?}");
        assert_eq!(rules.len(), 5);
    });
}

#[test]
fn foreign_references_keep_the_chain() {
    both(|| {
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        tool("iptables", "iptables -t nat -A POSTROUTING -p tcp --dport 80 -j CNI-a631aa8e1549a3b129110fd2");
        remove_all(&key("cid1"), &[], soon()).unwrap();
        assert_eq!(chains(), 1);
        tool("iptables", "iptables -t nat -F POSTROUTING");
        remove_all(&key("cid1"), &[], soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn leaked_and_old_rules_go_too() {
    both(|| {
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        tool(
            "iptables",
            r#"iptables -t nat -A POSTROUTING -s 10.1.0.3/16 -j CNI-a631aa8e1549a3b129110fd2 \
           -m comment --comment 'name: "mynet" id: "cid1"'"#,
        );
        remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
        // Another program flushed the rules: only the chain is left.
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        tool("iptables", "iptables -t nat -F");
        assert!(!check(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap());
        remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn collection_keeps_valid_and_foreign_rules() {
    both(|| {
        let other = AttachmentKey { network: "other".into(), ..key("cid9") };
        ensure(&other, &addrs(&["10.9.0.2/16"]), soon()).unwrap();
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        ensure(&key("cid2"), &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        tool("iptables", "iptables -t nat -A POSTROUTING -s 192.0.2.1 -j ACCEPT");
        assert_eq!(
            retain("mynet", &[("cid2".to_owned(), String::new())], || Ok(Vec::new()), soon()).unwrap(),
            ["cid1"]
        );
        assert!(check(&key("cid2"), &addrs(&["10.1.0.4/16"]), soon()).unwrap());
        assert!(check(&other, &addrs(&["10.9.0.2/16"]), soon()).unwrap());
        let after = rules();
        assert!(after.iter().all(|rule| !rule.contains("cid1")), "{after:#?}");
        assert!(after.iter().any(|rule| rule.contains("192.0.2.1")), "{after:#?}");
    });
}

#[test]
fn the_cheap_look_sees_the_chain() {
    own_namespace();
    assert!(!may_exist(&mut nft(), &key("cid1")).unwrap());
    ensure(&key("cid1"), &addrs(&["fd00:1::3/64"]), soon()).unwrap();
    assert!(may_exist(&mut nft(), &key("cid1")).unwrap());
    assert!(!may_exist(&mut nft(), &key("cid2")).unwrap());
    // The kernel doesn't show the content of legacy tables this way.
    tool("iptables", "iptables-legacy -t nat -S");
    assert!(may_exist(&mut nft(), &key("cid2")).unwrap());
}

#[test]
fn twenty_at_once_lose_nothing() {
    both(|| {
        std::thread::scope(|scope| {
            for number in 0..20 {
                scope.spawn(move || {
                    ensure(&key(&format!("id{number}")), &addrs(&[&format!("10.1.0.{number}/16")]), soon()).unwrap();
                });
            }
        });
        assert_eq!((rules().len(), chains()), (60, 20));
        std::thread::scope(|scope| {
            for number in 0..20 {
                scope.spawn(move || {
                    remove(&key(&format!("id{number}")), &addrs(&[&format!("10.1.0.{number}/16")]), soon()).unwrap();
                });
            }
        });
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn names_that_could_be_commands_are_refused() {
    both(|| {
        let evil = key("x\"\nCOMMIT\n*filter\n-P INPUT DROP");
        ensure(&evil, &addrs(&DUAL), soon()).unwrap_err();
        assert_eq!(remove(&evil, &addrs(&DUAL), soon()).unwrap(), 0, "nothing can have that name");
        assert_eq!(rules().len(), 0);
    });
}

#[test]
fn the_deadline_holds() {
    both(|| {
        let past = ProgramRunner { deadline: std::time::Instant::now(), ..soon() };
        let error = ensure(&key("cid1"), &addrs(&DUAL), past).unwrap_err();
        assert!(error.is_timeout(), "{error}");
    });
}

#[test]
fn rules_are_listed_with_their_owners_and_removed_one_by_one() {
    both(|| {
        assert_eq!(list(soon()).unwrap(), []);
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        make_native("ip6tables", "fd00:1::3", "fd00:1::3/64", "ff00::/8");
        ensure(&key("cid2"), &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        // Foreign rules, one of which looks similar; and a chain that no rule leads to yet.
        tool(
            "iptables",
            r#"iptables -t nat -A POSTROUTING -s 10.1.0.9 -j MASQUERADE
            iptables -t nat -N CNI-other
            iptables -t nat -A POSTROUTING -s 10.1.0.9 -m comment --comment 'name: "mynet" id: "cid9"' -j CNI-other
            iptables -t nat -N CNI-0123456789abcdef01234567"#,
        );
        let before = rules();
        let seen = list(soon()).unwrap();
        let mut told: Vec<_> =
            seen.iter().map(|seen| format!("{} {} {}", seen.source, seen.key.network, seen.key.container_id)).collect();
        told.sort();
        assert_eq!(told, ["10.1.0.3/32 mynet cid1", "10.1.0.4/32 mynet cid2", "fd00:1::3/128 mynet cid1"]);

        let (v4, others): (Vec<_>, Vec<_>) =
            seen.iter().cloned().partition(|seen| seen.source == "10.1.0.3/32".parse().unwrap());
        assert!(remove_seen(&v4, soon()).unwrap() > 0);
        let cid1 = "a631aa8e1549a3b129110fd2";
        let (ours, theirs): (Vec<_>, Vec<_>) =
            before.iter().partition(|rule| rule.contains(cid1) && !rule.contains("fd00") && !rule.contains("ff00"));
        assert_eq!((ours.len(), rules().iter().collect::<Vec<_>>()), (3, theirs), "the other family's chain stays");
        assert_eq!(list(soon()).unwrap(), others);
        assert_eq!(remove_seen(&v4, soon()).unwrap(), 0);
        remove_seen(&others, soon()).unwrap();
        assert_eq!((rules().len(), chains()), (2, 2), "those of others");
    });
}
