//! The MAC check of bridge ports, verified with nft.

mod common;

use common::{nft, own_namespace, ruleset, tool};
use postern_firewall::macguard::{
    GuardedPort, ID_MAX, check_known, claim, list, own_id, remove_unless, remove_unused, validate,
};
use postern_firewall::{FirewallError, Nft};

const ID: &str = "cid1-eth0";
const PORT: &str = "veth5760e373";
const MAC: [u8; 6] = [0xc6, 0x72, 0xeb, 0x70, 0x3f, 0x85];

/// The rules that the native bridge plugin 1.9.1 leaves for container cid1, interface eth0.
const NATIVE: &str = r#"table bridge nat {
	chain PREROUTING {
		type filter hook prerouting priority dstnat; policy accept;
		iifname "veth5760e373" jump cni-br-iface-cid1-eth0 comment "macspoofchk-cid1-eth0"
	}

	chain cni-br-iface-cid1-eth0 {
		jump cni-br-iface-cid1-eth0-mac comment "macspoofchk-cid1-eth0"
	}

	chain cni-br-iface-cid1-eth0-mac {
		ether saddr c6:72:eb:70:3f:85 return comment "macspoofchk-cid1-eth0"
		drop comment "macspoofchk-cid1-eth0"
	}
}
"#;

/// The objects that stay when the last attachment goes.
const BASE: &str = "table bridge nat {\n\tchain PREROUTING {\n\t\ttype filter hook prerouting priority dstnat; policy accept;\n\t}\n}\n";

fn ensure(nft: &mut Nft, id: &str, port: &str, mac: [u8; 6]) -> Result<(), FirewallError> {
    claim(nft, id, port, mac, |_| false).map(drop)
}

fn check(nft: &mut Nft, id: &str, port: &str, mac: [u8; 6]) -> Result<bool, FirewallError> {
    check_known(nft, id, port, mac, &[])
}

fn remove(nft: &mut Nft, id: &str) -> Result<bool, FirewallError> {
    remove_unless(nft, id, &[], |_| false)
}

/// Loads `NATIVE`. nft prints the priority as a name, and can't read this name in the bridge family.
fn make_native() {
    let text = NATIVE.replace("priority dstnat", "priority -300");
    tool("nftables", &format!("nft -f - <<'END'\n{text}END"));
}

fn handles() -> String {
    tool("nftables", "nft -a list ruleset")
}

fn expressions() -> String {
    tool("nftables", "nft --debug=netlink list ruleset")
}

#[test]
fn writes_what_native_writes() {
    own_namespace();
    make_native();
    let native = (ruleset(), expressions());
    tool("nftables", "nft flush ruleset");
    ensure(&mut nft(), ID, PORT, MAC).unwrap();
    assert_eq!(ruleset(), NATIVE);
    let plain = |text: &str| {
        let words = |line: &str| line.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ').to_owned();
        text.lines().map(words).collect::<Vec<_>>()
    };
    // A rule's first line has the chain's name and a number. `plain` removes the number. Chains are in the order of
    // their creation.
    assert_eq!((ruleset(), plain(&expressions())), (native.0, plain(&native.1)));
}

#[test]
fn ensuring_again_changes_nothing() {
    own_namespace();
    make_native();
    let before = handles();
    let mut nft = nft();
    assert!(check(&mut nft, ID, PORT, MAC).unwrap());
    ensure(&mut nft, ID, PORT, MAC).unwrap();
    assert_eq!(handles(), before);
}

#[test]
fn another_mac_or_port_replaces_the_rules() {
    own_namespace();
    let mut nft = nft();
    ensure(&mut nft, ID, "veth0", [2, 0, 0, 0, 0, 1]).unwrap();
    assert!(!check(&mut nft, ID, PORT, MAC).unwrap());
    ensure(&mut nft, ID, PORT, [2, 0, 0, 0, 0, 1]).unwrap();
    assert!(!check(&mut nft, ID, PORT, MAC).unwrap());
    ensure(&mut nft, ID, PORT, MAC).unwrap();
    assert!(check(&mut nft, ID, PORT, MAC).unwrap());
    assert_eq!(ruleset(), NATIVE);
}

#[test]
fn removes_its_own_and_native_rules_only() {
    own_namespace();
    let mut nft = nft();
    make_native();
    tool("nftables", "nft add rule bridge nat PREROUTING iifname foreign0 accept");
    ensure(&mut nft, "cid2-eth0", "veth2", MAC).unwrap();
    assert!(remove(&mut nft, ID).unwrap());
    assert!(!remove(&mut nft, ID).unwrap());
    assert!(check(&mut nft, "cid2-eth0", "veth2", MAC).unwrap());
    assert!(remove(&mut nft, "cid2-eth0").unwrap());
    let after = ruleset();
    assert!(after.contains("foreign0") && !after.contains("cni-br-iface"), "{after}");
}

#[test]
fn removing_from_nothing_is_no_error() {
    own_namespace();
    assert!(!remove(&mut nft(), ID).unwrap());
    assert!(!check(&mut nft(), ID, PORT, MAC).unwrap());
    assert_eq!(ruleset(), "");
}

#[test]
fn a_partial_state_is_completed_and_removed() {
    own_namespace();
    let mut nft = nft();
    for damage in [
        "nft flush chain bridge nat PREROUTING",
        "nft flush chain bridge nat cni-br-iface-cid1-eth0-mac",
        "nft flush chain bridge nat cni-br-iface-cid1-eth0; nft delete chain bridge nat cni-br-iface-cid1-eth0-mac",
        "nft insert rule bridge nat cni-br-iface-cid1-eth0 accept",
        "nft flush ruleset",
    ] {
        for repair in [true, false] {
            ensure(&mut nft, ID, PORT, MAC).unwrap();
            tool("nftables", &format!("{damage}; nft add table bridge nat"));
            assert!(!check(&mut nft, ID, PORT, MAC).unwrap(), "{damage}");
            if repair {
                ensure(&mut nft, ID, PORT, MAC).unwrap();
                assert!(check(&mut nft, ID, PORT, MAC).unwrap(), "{damage}");
            }
            remove(&mut nft, ID).unwrap();
            assert!(!ruleset().contains("cid1"), "{damage}: {}", ruleset());
        }
    }
}

#[test]
fn a_foreign_reference_keeps_the_chain_and_says_so() {
    own_namespace();
    let mut nft = nft();
    ensure(&mut nft, ID, PORT, MAC).unwrap();
    tool("nftables", "nft add rule bridge nat PREROUTING iifname foreign0 jump cni-br-iface-cid1-eth0");
    let before = ruleset();
    let error = remove(&mut nft, ID).unwrap_err();
    assert_eq!(error.errno, Some(nix::errno::Errno::EBUSY as i32), "{error}");
    assert!(error.to_string().contains("cni-br-iface-cid1-eth0"), "{error}");
    assert_eq!(ruleset(), before, "all or nothing");
}

#[test]
fn names_have_limits() {
    own_namespace();
    let mut nft = nft();
    let longest = "i".repeat(ID_MAX);
    ensure(&mut nft, &longest, PORT, MAC).unwrap();
    assert!(check(&mut nft, &longest, PORT, MAC).unwrap());
    assert!(remove(&mut nft, &longest).unwrap());
    let before = ruleset();
    for (id, port) in [(&*"i".repeat(ID_MAX + 1), PORT), ("", PORT), (ID, ""), (ID, "sixteen-bytes-xx")] {
        ensure(&mut nft, id, port, MAC).unwrap_err();
    }
    // Rules with an impossible name count as removed and as absent.
    let impossible = "i".repeat(ID_MAX + 1);
    assert!(validate(&longest).is_ok() && validate(&impossible).is_err() && validate("").is_err());
    assert!(!remove(&mut nft, &impossible).unwrap() && !check(&mut nft, &impossible, PORT, MAC).unwrap());
    assert!(!remove_unused(&mut nft, &impossible, |_| false).unwrap());
    assert_eq!(ruleset(), before);
}

/// Two attachments have the same ID, or the second chain of one attachment has the name of the other's first chain.
#[test]
fn names_that_run_together() {
    own_namespace();
    let mut nft = nft();
    let all = |_: &str| true;
    for (first, second) in [("c-eth0", "c-eth0-mac"), ("c-eth0-mac", "c-eth0"), ("a-b-c", "a-b-c")] {
        assert!(claim(&mut nft, first, "veth1", MAC, all).unwrap().is_some());
        let before = ruleset();
        assert!(claim(&mut nft, second, "veth2", MAC, all).unwrap().is_none(), "{first} has the name");
        assert_eq!(ruleset(), before);
        let own = own_id("net", "c", second);
        assert!(claim(&mut nft, &own, "veth2", MAC, all).unwrap().is_some());
        assert!(check(&mut nft, first, "veth1", MAC).unwrap() && check(&mut nft, &own, "veth2", MAC).unwrap());
        // A removal for the second attachment, which did not get the name, removes no rule of the first.
        let both = ruleset();
        assert!(!remove_unless(&mut nft, second, &[], |port| port == "veth1").unwrap());
        assert_eq!(ruleset(), both);
        assert!(remove(&mut nft, &own).unwrap());
        assert_eq!(ruleset(), before);
        // The first attachment is made again, and nothing changes. When the first attachment's port is gone, the name
        // is free.
        assert!(claim(&mut nft, first, "veth1", MAC, all).unwrap().is_some());
        assert_eq!(ruleset(), before);
        assert!(claim(&mut nft, second, "veth2", MAC, |port| port != "veth1").unwrap().is_some());
        assert!(check(&mut nft, second, "veth2", MAC).unwrap());
        // A chain that stays keeps the chains that it leads to, and not the chains that lead to it.
        remove_unless(&mut nft, first, &[], |port| port == "veth2").unwrap();
        assert!(check(&mut nft, second, "veth2", MAC).unwrap(), "{}", ruleset());
        remove(&mut nft, second).unwrap();
        remove(&mut nft, first).unwrap();
        assert_eq!(ruleset(), BASE, "{first} {second}");
    }
}

/// A rule set that was just made counts as complete only until another program changes a rule.
#[test]
fn what_others_change_is_looked_at_again() {
    own_namespace();
    let mut nft = nft();
    assert!(claim(&mut nft, ID, PORT, MAC, |_| true).unwrap().is_some());
    assert!(check(&mut nft, ID, PORT, MAC).unwrap());
    // A change of this connection and a harmless change of another program leave the rule set complete.
    ensure(&mut nft, "cid2-eth0", "veth2", MAC).unwrap();
    assert!(check(&mut nft, ID, PORT, MAC).unwrap() && !check(&mut nft, ID, "veth2", MAC).unwrap());
    tool("nftables", "nft add table inet other");
    assert!(check(&mut nft, ID, PORT, MAC).unwrap());
    for damage in ["nft flush chain bridge nat PREROUTING", "nft flush chain bridge nat cni-br-iface-cid1-eth0-mac"] {
        ensure(&mut nft, ID, PORT, MAC).unwrap();
        tool("nftables", damage);
        assert!(!check(&mut nft, ID, PORT, MAC).unwrap(), "{damage}");
        // A later change of this connection does not hide the other program's change.
        ensure(&mut nft, "cid3-eth0", "veth3", MAC).unwrap();
        assert!(!check(&mut nft, ID, PORT, MAC).unwrap(), "{damage}");
    }
    ensure(&mut nft, ID, PORT, MAC).unwrap();
    remove(&mut nft, ID).unwrap();
    assert!(!check(&mut nft, ID, PORT, MAC).unwrap());
}

/// Two guards share a chain, as an older version left them. The guards can be removed in any order.
#[test]
fn a_shared_chain_keeps_nobody_from_removing() {
    own_namespace();
    let mut nft = nft();
    for order in [["c-eth0", "c-eth0-mac"], ["c-eth0-mac", "c-eth0"]] {
        ensure(&mut nft, "c-eth0", "veth1", MAC).unwrap();
        ensure(&mut nft, "c-eth0-mac", "veth2", MAC).unwrap();
        for id in order {
            remove(&mut nft, id).unwrap();
        }
        assert!(!ruleset().contains("iifname"), "{}", ruleset());
        tool("nftables", "nft flush ruleset");
    }
}

#[test]
fn twenty_at_once_lose_nothing() {
    own_namespace();
    let start = &std::sync::Barrier::new(20);
    std::thread::scope(|scope| {
        for number in 0..20 {
            scope.spawn(move || {
                let mut nft = nft();
                start.wait();
                ensure(&mut nft, &format!("c{number}-eth0"), &format!("veth{number}"), MAC).unwrap();
            });
        }
    });
    let after = ruleset();
    assert_eq!(after.matches("iifname").count(), 20, "{after}");
    assert_eq!(after.matches("drop").count(), 20, "{after}");
    std::thread::scope(|scope| {
        for number in 0..20 {
            scope.spawn(move || {
                let mut nft = nft();
                start.wait();
                assert!(remove(&mut nft, &format!("c{number}-eth0")).unwrap());
            });
        }
    });
    assert_eq!(ruleset(), BASE);
}

#[test]
fn ports_are_listed_and_those_that_are_gone_lose_their_guard() {
    own_namespace();
    let mut nft = nft();
    assert_eq!(list(&mut nft).unwrap(), []);
    make_native();
    ensure(&mut nft, "cid2-eth0", "veth2", MAC).unwrap();
    // A rule of another kind with such a comment is not a guarded port.
    tool("nftables", "nft add rule bridge nat PREROUTING ether type ip accept comment macspoofchk-cid3-eth0");
    let port = |id: &str, ifname: &str| GuardedPort { id: id.into(), ifname: ifname.into() };
    assert_eq!(list(&mut nft).unwrap(), [port(ID, PORT), port("cid2-eth0", "veth2")]);

    let before = ruleset();
    assert!(!remove_unused(&mut nft, ID, |ifname| ifname == PORT).unwrap());
    assert!(!remove_unused(&mut nft, "cid3-eth0", |_| false).unwrap(), "a rule that can't be read");
    assert!(!remove_unused(&mut nft, "cid4-eth0", |_| false).unwrap(), "no rule at all");
    assert_eq!(ruleset(), before);
    assert!(remove_unused(&mut nft, ID, |ifname| ifname == "veth2").unwrap());
    assert_eq!(list(&mut nft).unwrap(), [port("cid2-eth0", "veth2")]);
    assert!(check(&mut nft, "cid2-eth0", "veth2", MAC).unwrap() && !ruleset().contains(ID));

    // The same attachment is made again, on another port. The native plugin leaves the old rule, so both rules are the
    // attachment's.
    tool(
        "nftables",
        "nft insert rule bridge nat PREROUTING iifname old jump cni-br-iface-cid2-eth0 comment macspoofchk-cid2-eth0",
    );
    assert_eq!(list(&mut nft).unwrap().len(), 2);
    assert!(!remove_unused(&mut nft, "cid2-eth0", |ifname| ifname == "veth2").unwrap());
    assert!(remove_unused(&mut nft, "cid2-eth0", |_| false).unwrap());
    tool("nftables", "nft flush chain bridge nat PREROUTING");
    assert_eq!(ruleset(), BASE);
}

/// The recorded handle is enough to check and to remove a guard, if the handle still belongs to the guard.
#[test]
fn a_guard_is_found_by_its_handle() {
    own_namespace();
    let mut nft = nft();
    let none = |_: &str| false;
    let first = claim(&mut nft, "c1-eth0", "veth1", MAC, none).unwrap().unwrap();
    assert_eq!(first.len(), 1);
    assert_eq!(claim(&mut nft, "c1-eth0", "veth1", MAC, none).unwrap(), Some(Vec::new()), "the guard exists");
    assert!(check_known(&mut nft, "c1-eth0", "veth1", MAC, &first).unwrap());
    assert!(!check_known(&mut nft, "c1-eth0", "veth1", [9; 6], &first).unwrap());
    let before = ruleset();
    let second = claim(&mut nft, "c2-eth0", "veth2", MAC, none).unwrap().unwrap();
    assert!(remove_unless(&mut nft, "c2-eth0", &second, none).unwrap());
    assert_eq!(ruleset(), before);
    // Another rule leads to the chain. The kernel's count shows this rule; the handle does not.
    let both =
        "add rule bridge nat PREROUTING iifname \"veth9\" jump cni-br-iface-c1-eth0 comment \"macspoofchk-c1-eth0\"";
    tool("nftables", &format!("nft '{both}'"));
    assert!(remove_unless(&mut nft, "c1-eth0", &first, |port| port == "veth9").unwrap());
    let left = ruleset();
    assert!(
        left.contains("veth9") && !left.contains("veth1") && left.contains("chain cni-br-iface-c1-eth0-mac"),
        "{left}"
    );
    // The handles of a new table start again. The recorded handle now belongs to another guard.
    tool("nftables", "nft delete table bridge nat");
    let other = claim(&mut nft, "c3-eth0", "veth3", MAC, none).unwrap().unwrap();
    let before = ruleset();
    assert!(!check_known(&mut nft, "c1-eth0", "veth1", MAC, &other).unwrap());
    assert!(!remove_unless(&mut nft, "c1-eth0", &other, none).unwrap());
    assert_eq!(ruleset(), before);
}
