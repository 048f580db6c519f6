//! The list of rules and owners is right, and the commands in the list do remove the rules.

mod common;

use common::{addrs, key, nft, own_namespace, ruleset, soon, tool};
use postern_confine::Direct;
use postern_firewall::account::{NftRules, Tables, forward_chains, unrecorded_guards, unrecorded_masquerades};
use postern_firewall::iptables::{self, ProgramRunner};
use postern_firewall::{Nft, macguard, masquerade};

const DUAL: [&str; 2] = ["10.1.0.3/16", "fd00:1::3/64"];

#[test]
fn unrecorded_masquerades_are_found_with_the_commands_that_remove_them() {
    own_namespace();
    assert!(Nft::usable(soon()).is_some());
    let mut nft = nft();
    assert!(unrecorded_masquerades(&mut nft, &[]).unwrap().is_empty(), "there is no table");
    masquerade::nft_ensure(&mut nft, &key("known"), &addrs(&DUAL), false).unwrap();
    masquerade::nft_ensure(&mut nft, &key("unknown"), &addrs(&["10.1.0.4/16", "fd00:1::4/64"]), false).unwrap();
    let unrecorded = unrecorded_masquerades(&mut nft, &[key("known")]).unwrap();
    assert_eq!(unrecorded.len(), 1, "{unrecorded:?}");
    assert!(unrecorded[0].mark.ends_with("net: mynet, if: eth0, id: unknown"), "{}", unrecorded[0].mark);
    let addresses: Vec<_> = unrecorded[0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.1.0.4", "fd00:1::4"]);
    unrecorded[0].commands.iter().for_each(|command| drop(tool("nftables", command)));
    assert!(unrecorded_masquerades(&mut nft, &[key("known")]).unwrap().is_empty());
    assert!(masquerade::nft_check_known(&mut nft, &key("known"), &addrs(&DUAL), &[]).unwrap());
}

#[test]
fn unrecorded_guards_are_found_with_the_commands_that_remove_them() {
    own_namespace();
    let mut nft = nft();
    assert!(unrecorded_guards(&mut nft, &[]).unwrap().is_empty());
    for id in ["known-eth0", "gone-eth0", "odd$(reboot)-eth0"] {
        macguard::claim(&mut nft, id, "veth0", [2; 6], |_| false).unwrap();
    }
    // Only half of the rules are there.
    tool("nftables", "nft flush chain bridge nat PREROUTING");
    let unrecorded = unrecorded_guards(&mut nft, &["known-eth0".to_owned()]).unwrap();
    let marks: Vec<_> = unrecorded.iter().map(|marked| marked.mark.as_str()).collect();
    assert_eq!(marks, ["gone-eth0", "odd$(reboot)-eth0"]);
    assert!(unrecorded[1].commands.is_empty(), "a command with this name is not safe: {:?}", unrecorded[1].commands);
    unrecorded[0].commands.iter().for_each(|command| drop(tool("nftables", command)));
    assert!(!ruleset().contains("gone-eth0") && ruleset().contains("known-eth0"), "{}", ruleset());
}

/// A single read of all rules gives the same answers as a check for each attachment.
#[test]
fn one_look_tells_what_each_check_tells() {
    own_namespace();
    let mut nft = nft();
    let told = |nft: &mut postern_firewall::Nft| {
        let rules = NftRules::look(nft).unwrap();
        let looked = ["one", "two"].map(|id| {
            let guard = rules.guard(&format!("{id}-eth0"), "veth0", [2; 6]).unwrap();
            (rules.masquerade(&key(id), &addrs(&DUAL)).unwrap(), guard)
        });
        let checked = ["one", "two"].map(|id| {
            let guard = macguard::check_known(nft, &format!("{id}-eth0"), "veth0", [2; 6], &[]).unwrap();
            (masquerade::nft_check_known(nft, &key(id), &addrs(&DUAL), &[]).unwrap(), guard)
        });
        assert_eq!(looked, checked, "{}", ruleset());
        looked
    };
    assert_eq!(told(&mut nft), [(false, false); 2], "there is no table");
    let make = |nft: &mut postern_firewall::Nft| {
        for id in ["one", "two"] {
            masquerade::nft_ensure(nft, &key(id), &addrs(&DUAL), false).unwrap();
            macguard::claim(nft, &format!("{id}-eth0"), "veth0", [2; 6], |_| false).unwrap();
        }
    };
    for (damage, expected) in [
        ("nft list ruleset", [(true, true), (true, true)]),
        ("nft flush chain bridge nat cni-br-iface-one-eth0", [(true, false), (true, true)]),
        ("nft flush chain bridge nat cni-br-iface-two-eth0-mac", [(true, true), (true, false)]),
        ("nft add rule bridge nat cni-br-iface-two-eth0-mac accept", [(true, true), (true, false)]),
        ("nft flush chain bridge nat PREROUTING", [(true, false), (true, false)]),
        ("nft flush chain inet cni_plugins_masquerade masq_checks", [(false, true), (false, true)]),
        ("nft flush chain inet cni_plugins_masquerade postrouting", [(false, true), (false, true)]),
        // The same chain in another table does not count.
        (
            "nft add table bridge other; nft add chain bridge other PREROUTING; nft add rule bridge other PREROUTING drop",
            [(true, true), (true, true)],
        ),
    ] {
        make(&mut nft);
        tool("nftables", damage);
        assert_eq!(told(&mut nft), expected, "{damage}");
    }
}

#[test]
fn unrecorded_chains_are_found_with_the_commands_that_remove_them() {
    own_namespace();
    let runner = ProgramRunner { runner: &Direct, deadline: soon(), nft: None };
    let none = Tables::nat(&mut nft(), runner).unwrap();
    assert!(none.unrecorded(&[]).is_empty() && !none.has(&key("known"), &addrs(&DUAL)).unwrap());
    for id in ["known", "unknown"] {
        iptables::ensure_in(None, &key(id), &addrs(&DUAL), runner).unwrap();
    }
    tool("iptables", "iptables -t nat -N CNI-HOSTPORT-MASQ; iptables -t nat -N CNI-short");
    let tables = Tables::nat(&mut nft(), runner).unwrap();
    assert!(tables.has(&key("known"), &addrs(&DUAL)).unwrap());
    assert!(!tables.has(&key("other"), &addrs(&DUAL)).unwrap());
    let unrecorded = tables.unrecorded(&[key("known")]);
    assert_eq!(unrecorded.len(), 2, "one of each family: {unrecorded:?}");
    for (marked, address) in unrecorded.iter().zip(["10.1.0.3", "fd00:1::3"]) {
        assert_eq!(marked.mark, "name: \"mynet\" id: \"unknown\"");
        assert_eq!(marked.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), [address]);
        marked.commands.iter().for_each(|command| drop(tool("iptables", command)));
    }
    let tables = Tables::nat(&mut nft(), runner).unwrap();
    assert!(tables.unrecorded(&[key("known")]).is_empty() && tables.has(&key("known"), &addrs(&DUAL)).unwrap());
}

#[test]
fn chains_that_packets_are_forwarded_through_are_found() {
    own_namespace();
    assert!(forward_chains(&mut nft()).unwrap().is_empty());
    tool(
        "nftables",
        "nft add table ip filter
         nft add chain ip filter FORWARD '{ type filter hook forward priority 0; policy drop; }'
         nft add chain ip filter INPUT '{ type filter hook input priority 0; policy drop; }'
         nft add chain ip filter plain
         nft add table inet firewalld
         nft add chain inet firewalld filter_FORWARD '{ type filter hook forward priority 10; policy accept; }'",
    );
    let chains = forward_chains(&mut nft()).unwrap();
    assert_eq!(chains, [("ip filter FORWARD".to_owned(), true), ("inet firewalld filter_FORWARD".to_owned(), false)]);
}
