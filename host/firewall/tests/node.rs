//! Base objects that nothing uses, with nft as the witness.

#![allow(clippy::unwrap_used, reason = "a helper outside the test functions")]

mod common;

use common::{addrs, key, nft, own_namespace, ruleset, tool};
use postern_firewall::node::{BaseObject, remove_unused, unused};
use postern_firewall::{macguard, masquerade};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Makes both tables, each with an attachment that has come and gone.
fn used_once() {
    let mut nft = nft();
    masquerade::nft_ensure(&mut nft, &key("cid1"), &addrs(&["10.1.0.2/16"])).unwrap();
    macguard::ensure(&mut nft, "cid1-eth0", "veth0", MAC).unwrap();
    assert_eq!(unused(&mut nft).unwrap(), []);
    masquerade::nft_remove(&mut nft, &key("cid1")).unwrap();
    macguard::remove(&mut nft, "cid1-eth0").unwrap();
}

#[test]
fn removes_what_is_empty() {
    own_namespace();
    let mut nft = nft();
    let both = [BaseObject::MasqueradeTable, BaseObject::BridgeTable];
    assert_eq!(both.map(|object| remove_unused(&mut nft, object).unwrap()), [false, false]);
    used_once();
    assert_eq!(unused(&mut nft).unwrap(), both);
    assert_eq!(both.map(|object| remove_unused(&mut nft, object).unwrap()), [true, true]);
    assert_eq!(ruleset(), "");
    assert_eq!(both.map(|object| object.to_string()), ["table inet cni_plugins_masquerade", "table bridge nat"]);
}

#[test]
fn keeps_what_somebody_uses() {
    own_namespace();
    let table = "inet cni_plugins_masquerade";
    for (foreign, kept) in [
        (format!("nft add rule {table} masq_checks accept"), BaseObject::MasqueradeTable),
        (format!("nft add rule {table} postrouting accept"), BaseObject::MasqueradeTable),
        (format!("nft add chain {table} more"), BaseObject::MasqueradeTable),
        (format!("nft add set {table} some '{{ type ipv4_addr; }}'"), BaseObject::MasqueradeTable),
        ("nft add rule bridge nat PREROUTING accept".to_owned(), BaseObject::BridgeTable),
        ("nft add chain bridge nat POSTROUTING".to_owned(), BaseObject::BridgeTable),
    ] {
        let mut nft = nft();
        used_once();
        tool("nftables", &foreign);
        for object in [BaseObject::MasqueradeTable, BaseObject::BridgeTable] {
            assert_eq!(remove_unused(&mut nft, object).unwrap(), object != kept, "{foreign}");
        }
        tool("nftables", "nft flush ruleset");
    }
}
