//! Masquerading by nftables, verified with nft.

mod common;

use common::{addrs, key, nft, own_namespace, ruleset, tool};
use ipnet::IpNet;
use postern_firewall::masquerade::{
    nft_check_known, nft_ensure, nft_list, nft_remove_known, nft_remove_seen, nft_retain,
};
use postern_firewall::{AttachmentKey, FirewallError, Nft};

/// The rules that the native bridge plugin 1.9.1 leaves for network mynet, container cid1, interface eth0.
const NATIVE: &str = r#"table inet cni_plugins_masquerade {
	comment "Masquerading for plugins from github.com/containernetworking/plugins"
	chain masq_checks {
		comment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet"
		ip saddr 10.1.0.2 ip daddr != 10.1.0.0/16 masquerade comment "d23676b4f2d9fe04-0b65a318f52e521b, net: mynet, if: eth0, id: cid1"
		ip6 saddr fd00:1::2 ip6 daddr != fd00:1::/64 masquerade comment "d23676b4f2d9fe04-0b65a318f52e521b, net: mynet, if: eth0, id: cid1"
	}

	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip daddr 224.0.0.0/4 return
		ip6 daddr ff00::/8 return
		goto masq_checks
	}
}
"#;

const DUAL: [&str; 2] = ["10.1.0.2/16", "fd00:1::2/64"];

/// Loads `NATIVE`, for nft 1.0.1 and later.
fn make_native() {
    tool("nftables", &format!("nft -f - <<'END'\n{NATIVE}END"));
}

/// Returns the rule set with handles. The handles show if a rule was replaced.
fn handles() -> String {
    tool("nftables", "nft -a list ruleset")
}

/// Returns the expressions as the kernel has them: the text that nft prints could hide a difference.
fn expressions() -> String {
    tool("nftables", "nft --debug=netlink list ruleset")
}

fn nft_check(nft: &mut Nft, key: &AttachmentKey, addrs: &[IpNet]) -> Result<bool, FirewallError> {
    nft_check_known(nft, key, addrs, &[])
}

fn nft_remove(nft: &mut Nft, key: &AttachmentKey) -> Result<usize, FirewallError> {
    nft_remove_known(nft, key, &[])
}

#[test]
fn writes_what_native_writes() {
    own_namespace();
    make_native();
    let native = (ruleset(), expressions());
    tool("nftables", "nft flush ruleset");
    nft_ensure(&mut nft(), &key("cid1"), &addrs(&DUAL), false).unwrap();
    assert_eq!(ruleset(), NATIVE);
    // After the flush the kernel gives higher handles. Only the handles may differ.
    let plain = |text: &str| {
        let words = |line: &str| line.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ').to_owned();
        text.lines().map(words).collect::<Vec<_>>()
    };
    assert_eq!((ruleset(), plain(&expressions())), (native.0, plain(&native.1)));
}

/// Each rule comes once, in the order of the addresses. The change is so fast that no other plugin has to wait.
#[test]
fn many_addresses_keep_their_order() {
    own_namespace();
    let mut wanted: Vec<String> = (0..600).rev().map(|at| format!("10.1.{}.{}/16", at / 250, at % 250 + 1)).collect();
    let first = addrs(&wanted.iter().step_by(2).map(String::as_str).collect::<Vec<_>>());
    nft_ensure(&mut nft(), &key("cid1"), &first, false).unwrap();
    wanted.push(wanted[0].clone());
    let addresses = addrs(&wanted.iter().map(String::as_str).collect::<Vec<_>>());
    let start = std::time::Instant::now();
    nft_ensure(&mut nft(), &key("cid1"), &addresses, false).unwrap();
    let took = start.elapsed();
    let seen: Vec<String> = ruleset()
        .lines()
        .filter_map(|line| line.split_once("ip saddr ")?.1.split(' ').next().map(str::to_owned))
        .collect();
    let mut expected = addresses[..600].to_vec();
    expected.retain(|address| !first.contains(address));
    let expected: Vec<String> = first.iter().chain(&expected).map(|address| address.addr().to_string()).collect();
    assert_eq!(seen, expected);
    assert!(took < std::time::Duration::from_millis(600), "took {took:?}");
}

#[test]
fn every_prefix_length_reads_as_itself() {
    own_namespace();
    let mut nft = nft();
    for prefix in 0..=128 {
        let mut wanted = vec![format!("fd00:1::2/{prefix}")];
        if prefix <= 32 {
            wanted.push(format!("10.255.255.2/{prefix}"));
        }
        let addresses = addrs(&wanted.iter().map(String::as_str).collect::<Vec<_>>());
        nft_ensure(&mut nft, &key("cid1"), &addresses, false).unwrap();
        assert!(nft_check(&mut nft, &key("cid1"), &addresses).unwrap(), "{wanted:?}");
        for address in &addresses {
            let network = address.trunc().to_string();
            let network = network
                .strip_suffix("/128")
                .or(network.strip_suffix("/32"))
                .filter(|_| address.prefix_len() == address.max_prefix_len())
                .map(str::to_owned)
                .unwrap_or(network);
            assert!(ruleset().contains(&format!("daddr != {network} masquerade")), "{network} in {}", ruleset());
        }
    }
}

#[test]
fn ensuring_again_changes_nothing() {
    own_namespace();
    let mut nft = nft();
    for _ in 0..2 {
        nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), false).unwrap();
    }
    let before = handles();
    // Each address counts once, even if it is given several times.
    nft_ensure(&mut nft, &key("cid1"), &addrs(&["10.1.0.2/16", "fd00:1::2/64", "10.1.0.2/16"]), false).unwrap();
    assert_eq!(handles(), before);
    assert_eq!(ruleset(), NATIVE);
}

#[test]
fn rules_of_a_native_plugin_are_taken_over() {
    own_namespace();
    make_native();
    let before = handles();
    let mut nft = nft();
    assert!(nft_check(&mut nft, &key("cid1"), &addrs(&DUAL)).unwrap());
    nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), false).unwrap();
    assert_eq!(handles(), before);
    assert_eq!(nft_remove(&mut nft, &key("cid1")).unwrap(), 2);
    assert!(!ruleset().contains("cid1"));
}

#[test]
fn a_changed_address_replaces_the_rule() {
    own_namespace();
    let mut nft = nft();
    nft_ensure(&mut nft, &key("cid1"), &addrs(&["10.1.0.9/16", "fd00:1::2/64"]), false).unwrap();
    nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), false).unwrap();
    let after = ruleset();
    assert!(!after.contains("10.1.0.9"), "{after}");
    assert_eq!(after.matches("cid1").count(), 2, "{after}");
    assert!(!nft_check(&mut nft, &key("cid1"), &addrs(&["10.1.0.9/16"])).unwrap());
}

#[test]
fn attachments_do_not_touch_each_other() {
    own_namespace();
    let mut nft = nft();
    let second = AttachmentKey { ifname: "eth1".into(), ..key("cid1") };
    nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), false).unwrap();
    let before = ruleset();
    nft_ensure(&mut nft, &second, &addrs(&["10.1.0.3/16"]), false).unwrap();
    nft_ensure(&mut nft, &key("cid2"), &addrs(&["10.1.0.4/16"]), false).unwrap();
    assert_eq!(nft_remove(&mut nft, &second).unwrap(), 1);
    assert_eq!(nft_remove(&mut nft, &key("cid2")).unwrap(), 1);
    assert_eq!(ruleset(), before);
    assert_eq!(nft_remove(&mut nft, &key("cid1")).unwrap(), 2);
    assert_eq!(nft_remove(&mut nft, &key("cid1")).unwrap(), 0);
}

#[test]
fn removing_from_nothing_is_no_error() {
    own_namespace();
    assert_eq!(nft_remove(&mut nft(), &key("cid1")).unwrap(), 0);
    assert!(!nft_check(&mut nft(), &key("cid1"), &addrs(&DUAL)).unwrap());
    assert_eq!(ruleset(), "");
}

#[test]
fn collection_keeps_valid_and_foreign_rules() {
    own_namespace();
    let mut nft = nft();
    let other = AttachmentKey { network: "other".into(), ..key("cid9") };
    nft_ensure(&mut nft, &other, &addrs(&["10.9.0.2/16"]), false).unwrap();
    for (number, container) in ["cid1", "cid2", "cid3"].into_iter().enumerate() {
        nft_ensure(&mut nft, &key(container), &addrs(&[&format!("10.1.0.{}/16", number + 2), "fd00:1::2/64"]), false)
            .unwrap();
    }
    tool("nftables", "nft add rule inet cni_plugins_masquerade masq_checks ip saddr 192.0.2.1 counter");
    let removed = nft_retain(&mut nft, "mynet", &[valid("cid2", "eth0")], || Ok(vec![valid("cid1", "eth7")])).unwrap();
    assert_eq!(removed.len(), 2, "{removed:?}");
    assert!(removed[0].ends_with("id: cid1") && removed[1].ends_with("id: cid3"), "{removed:?}");
    let after = ruleset();
    assert_eq!(after.matches("cid2").count(), 2, "{after}");
    assert_eq!(after.matches("cid9").count(), 1, "{after}");
    assert!(after.contains("192.0.2.1") && !after.contains("cid1") && !after.contains("cid3"), "{after}");
}

#[test]
fn collection_of_thousands() {
    own_namespace();
    make_native();
    tool(
        "nftables",
        // The rules are added in parts: an unprivileged nft can't enlarge its socket's buffer.
        r#"for part in 1 2 3; do
               i=0; while [ $i -lt 401 ]; do i=$((i + 1))
                   echo "add rule inet cni_plugins_masquerade masq_checks ip saddr 192.0.2.1 masquerade \
                         comment \"d23676b4f2d9fe04-$part-$i, net: mynet, if: eth0, id: $part-$i\""
               done | nft -f -
           done"#,
    );
    assert_eq!(nft_retain(&mut nft(), "mynet", &[valid("cid1", "eth0")], || Ok(Vec::new())).unwrap().len(), 1203);
    assert_eq!(ruleset(), NATIVE);
}

#[test]
fn a_flush_in_between_spares_foreign_rules() {
    own_namespace();
    let mut nft = nft();
    nft_ensure(&mut nft, &key("cid1"), &addrs(&["10.1.0.2/16"]), false).unwrap();
    // A new table starts its handles again: the foreign rule gets the handle of the attachment's earlier rule.
    tool(
        "nftables",
        "nft flush ruleset
         nft add table inet cni_plugins_masquerade
         nft add chain inet cni_plugins_masquerade masq_checks
         nft add chain inet cni_plugins_masquerade postrouting
         for i in 1 2 3 4 5 6; do nft add rule inet cni_plugins_masquerade masq_checks ip saddr 192.0.2.$i accept; done",
    );
    let before = ruleset();
    assert_eq!(nft_remove(&mut nft, &key("cid1")).unwrap(), 0);
    assert_eq!(ruleset(), before);
}

#[test]
fn rules_that_another_program_removed_come_back() {
    own_namespace();
    let mut nft = nft();
    let table = "inet cni_plugins_masquerade";
    for damage in [
        "nft flush ruleset".to_owned(),
        format!("nft flush chain {table} postrouting; nft delete chain {table} postrouting"),
        format!("nft flush chain {table} postrouting"),
        format!("nft flush table {table}"),
        format!("nft flush table {table}; nft delete chain {table} masq_checks"),
        format!("nft flush chain {table} postrouting; nft add rule {table} postrouting goto masq_checks"),
    ] {
        nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), false).unwrap();
        assert!(nft_check(&mut nft, &key("cid1"), &addrs(&DUAL)).unwrap());
        tool("nftables", &damage);
        assert!(!nft_check(&mut nft, &key("cid1"), &addrs(&DUAL)).unwrap(), "{damage}");
        nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), false).unwrap();
        let after = ruleset();
        for line in NATIVE.lines() {
            assert!(after.contains(line), "{damage}: {line} is missing in {after}");
        }
        assert!(after.find("224.0.0.0").unwrap() < after.find("goto").unwrap(), "{damage}: {after}");
    }
}

#[test]
fn a_chain_of_another_kind_is_an_error() {
    own_namespace();
    tool(
        "nftables",
        "nft add table inet cni_plugins_masquerade; nft add chain inet cni_plugins_masquerade postrouting",
    );
    let error = nft_ensure(&mut nft(), &key("cid1"), &addrs(&DUAL), false).unwrap_err();
    assert!(error.to_string().contains("it is no nat chain"), "{error}");
}

#[test]
fn long_names_are_cut_as_native_does() {
    own_namespace();
    let mut nft = nft();
    let long = key(&"c".repeat(300));
    nft_ensure(&mut nft, &long, &addrs(&DUAL), false).unwrap();
    assert!(nft_check(&mut nft, &long, &addrs(&DUAL)).unwrap());
    let comment = ruleset().lines().find_map(|line| line.split_once("comment \"d")).unwrap().1.len();
    assert_eq!(comment, 127 + 1);
    assert_eq!(nft_remove(&mut nft, &long).unwrap(), 2);
}

#[test]
fn twenty_at_once_lose_nothing() {
    own_namespace();
    let start = std::sync::Barrier::new(20);
    let start = &start;
    std::thread::scope(|scope| {
        for number in 0..20 {
            scope.spawn(move || {
                let address = addrs(&[&format!("10.1.0.{number}/16")]);
                let mut nft: Nft = nft();
                start.wait();
                nft_ensure(&mut nft, &key(&format!("id{number}")), &address, false).unwrap();
                nft_ensure(&mut nft, &key("shared"), &addrs(&["10.1.1.1/16"]), false).unwrap();
            });
        }
    });
    let after = ruleset();
    assert_eq!(after.matches("10.1.0.0/16").count(), 21, "{after}");
    assert_eq!(after.matches("goto").count(), 1, "{after}");
    assert_eq!(after.matches("224.0.0.0").count(), 1, "{after}");
    std::thread::scope(|scope| {
        for number in 0..20 {
            scope.spawn(move || {
                let mut nft = nft();
                start.wait();
                assert_eq!(nft_remove(&mut nft, &key(&format!("id{number}"))).unwrap(), 1);
            });
        }
    });
    assert_eq!(ruleset().matches("masquerade comment").count(), 1);
}

#[test]
fn the_deadline_holds() {
    own_namespace();
    let mut nft = Nft::open(std::time::Instant::now()).unwrap();
    let error = nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), false).unwrap_err();
    assert!(error.is_timeout(), "{error}");
}

fn valid(container_id: &str, ifname: &str) -> (String, String) {
    (container_id.to_owned(), ifname.to_owned())
}

#[test]
fn rules_are_listed_with_their_owners_and_removed_one_by_one() {
    own_namespace();
    let mut nft = nft();
    assert_eq!(nft_list(&mut nft).unwrap(), []);
    make_native();
    let long = key(&"x".repeat(200));
    nft_ensure(&mut nft, &long, &addrs(&["10.1.0.9/13"]), false).unwrap();
    let table = "inet cni_plugins_masquerade masq_checks";
    let comment = r#""d23676b4f2d9fe04-0b65a318f52e521b, net: mynet, if: eth0, id: cid1""#;
    let others = [
        // Rules in another form with a matching comment, and rules in the plugins' form without a matching comment.
        format!("ip saddr 10.1.0.0/24 ip daddr != 10.1.0.0/16 masquerade comment {comment}"),
        format!("ip saddr 10.1.0.4 ip daddr 10.1.0.0/16 masquerade comment {comment}"),
        format!("ip saddr 10.1.0.5 ip daddr != 10.1.0.0/16 accept comment {comment}"),
        "ip saddr 10.1.0.6 ip daddr != 10.1.0.0/16 masquerade".to_owned(),
        "ip saddr 10.1.0.7 ip daddr != 10.1.0.0/16 masquerade comment \"d23, net: mynet, if: eth0, id: cid1\""
            .to_owned(),
    ];
    for rule in &others {
        tool("nftables", &format!("nft -f - <<'END'\nadd rule {table} {rule}\nEND"));
    }
    let seen = nft_list(&mut nft).unwrap();
    let told: Vec<_> = seen.iter().map(|seen| (seen.source.to_string(), seen.whole)).collect();
    assert_eq!(told, [("10.1.0.2".into(), true), ("fd00:1::2".into(), true), ("10.1.0.9".into(), false)]);
    assert_eq!(seen[0].key, key("cid1"));
    assert!(long.container_id.starts_with(&seen[2].key.container_id));

    assert_eq!(nft_remove_seen(&mut nft, &seen[..1]).unwrap(), 1);
    assert_eq!(nft_list(&mut nft).unwrap(), seen[1..]);
    assert_eq!(nft_remove_seen(&mut nft, &seen).unwrap(), 2);
    assert_eq!(nft_remove_seen(&mut nft, &seen).unwrap(), 0);
    let left = ruleset();
    assert_eq!(left.matches("ip saddr").count(), others.len(), "{left}");
}

/// If the recorded handles still belong to the attachment, they are enough to check and to remove rules.
#[test]
fn rules_are_found_by_their_handles() {
    own_namespace();
    let mut nft = nft();
    let made = nft_ensure(&mut nft, &key("cid1"), &addrs(&DUAL), true).unwrap();
    assert_eq!(ruleset(), NATIVE);
    assert_eq!(made.len(), 2);
    assert!(nft_check_known(&mut nft, &key("cid1"), &addrs(&DUAL), &made).unwrap());
    assert!(!nft_check_known(&mut nft, &key("cid2"), &addrs(&DUAL), &made).unwrap());
    let other = nft_ensure(&mut nft, &key("cid2"), &addrs(&["10.1.0.3/16"]), true).unwrap();
    assert_eq!(nft_remove_known(&mut nft, &key("cid2"), &other).unwrap(), 1);
    assert_eq!(ruleset(), NATIVE);
    // If a rule is gone, all handles are ignored.
    assert_eq!(nft_remove_known(&mut nft, &key("cid1"), &[made[0], other[0]]).unwrap(), 2);
    // In a new table the handles start again. They now belong to another attachment.
    tool("nftables", "nft delete table inet cni_plugins_masquerade");
    let again = nft_ensure(&mut nft, &key("cid2"), &addrs(&DUAL), true).unwrap();
    let before = ruleset();
    assert!(!nft_check_known(&mut nft, &key("cid1"), &addrs(&DUAL), &again).unwrap());
    assert_eq!(nft_remove_known(&mut nft, &key("cid1"), &again).unwrap(), 0);
    assert_eq!(ruleset(), before);
}

/// The hashes alone identify the owner in a comment that was cut.
#[test]
fn collection_knows_the_valid_by_name_and_by_hash() {
    own_namespace();
    let mut nft = nft();
    let long = "x".repeat(100);
    for (number, id) in ["short", &long, "stale", "busy"].into_iter().enumerate() {
        nft_ensure(&mut nft, &key(id), &addrs(&[&format!("10.1.0.{number}/16")]), true).unwrap();
    }
    let all = |ids: &[&str]| ids.iter().map(|id| ((*id).to_owned(), "eth0".to_owned())).collect::<Vec<_>>();
    let never = || panic!("busy attachments are requested only if some attachments are not valid");
    assert!(nft_retain(&mut nft, "mynet", &all(&["short", &long, "stale", "busy"]), never).unwrap().is_empty());
    let removed = nft_retain(&mut nft, "mynet", &all(&["short", &long]), || Ok(all(&["busy"]))).unwrap();
    assert!(removed.len() == 1 && removed[0].ends_with("id: stale"), "{removed:?}");
    assert_eq!(nft_list(&mut nft).unwrap().len(), 3);
}
