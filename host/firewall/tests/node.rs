//! Shared tables that nothing uses, verified with nft.

#![allow(clippy::unwrap_used, reason = "a helper outside the test functions")]

mod common;

use common::{addrs, key, nft, own_namespace, ruleset, tool};
use postern_firewall::{SharedTable, macguard, masquerade};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn both() -> [&'static SharedTable; 2] {
    [&masquerade::SHARED, &macguard::SHARED]
}

/// Makes both tables. In each table, the rules of an attachment were made and removed.
fn used_once() {
    let mut nft = nft();
    masquerade::nft_ensure(&mut nft, &key("cid1"), &addrs(&["10.1.0.2/16"]), false).unwrap();
    macguard::claim(&mut nft, "cid1-eth0", "veth0", MAC, |_| false).unwrap();
    assert_eq!(both().map(|table| table.is_unused(&mut nft).unwrap()), [false, false]);
    masquerade::nft_remove_known(&mut nft, &key("cid1"), &[]).unwrap();
    macguard::remove_unless(&mut nft, "cid1-eth0", &[], |_| false).unwrap();
}

#[test]
fn removes_what_is_empty() {
    own_namespace();
    let mut nft = nft();
    assert_eq!(both().map(|table| table.remove_if_unused(&mut nft).unwrap()), [false, false]);
    used_once();
    assert_eq!(both().map(|table| table.is_unused(&mut nft).unwrap()), [true, true]);
    assert_eq!(both().map(|table| table.remove_if_unused(&mut nft).unwrap()), [true, true]);
    assert_eq!(ruleset(), "");
    assert_eq!(both().map(ToString::to_string), ["table inet cni_plugins_masquerade", "table bridge nat"]);
}

#[test]
fn keeps_what_somebody_uses() {
    own_namespace();
    let table = "inet cni_plugins_masquerade";
    for (foreign, kept) in [
        (format!("nft add rule {table} masq_checks accept"), "table inet cni_plugins_masquerade"),
        (format!("nft add rule {table} postrouting accept"), "table inet cni_plugins_masquerade"),
        (format!("nft add chain {table} more"), "table inet cni_plugins_masquerade"),
        (format!("nft add set {table} some '{{ type ipv4_addr; }}'"), "table inet cni_plugins_masquerade"),
        ("nft add rule bridge nat PREROUTING accept".to_owned(), "table bridge nat"),
        ("nft add chain bridge nat POSTROUTING".to_owned(), "table bridge nat"),
    ] {
        let mut nft = nft();
        used_once();
        tool("nftables", &foreign);
        for table in both() {
            assert_eq!(table.remove_if_unused(&mut nft).unwrap(), table.to_string() != kept, "{foreign}");
        }
        tool("nftables", "nft flush ruleset");
    }
}
