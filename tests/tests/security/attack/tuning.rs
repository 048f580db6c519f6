//! Sysctls of the node, sysctls of other links, and sysctls in the operator's name. Attributes that no link can have,
//! or that are another container's. A forged file of the native plugin.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, attack, honest, withstand};
use anyhow::{Context, Result, ensure};
use postern_tests::proof::Refusal;
use serde_json::{Value, json};

const ANY: &str = "[grant.link]\n[grant.namespace-sysctl]\nkeys = [\"net.*\"]\n[grant.link-settings]\n\
    macs = [\"02:00:00:00:00:01\"]\nmtu = [\"1400\"]\ndirectories = [\"/var/lib/hostile\"]";

/// Makes an attack by the sandbox process of a chained plugin, with one operation.
fn behind(name: &'static str, operation: &Value, patch: &Value) -> Attack {
    let mut steps = json!({"type": "chained", "rogue": [{"call": operation}], "dataDir": "/var/lib/hostile",
        "prevResult": {"cniVersion": "1.1.0"}});
    postern_tests::merge(&mut steps, patch);
    attack(name, "chained", steps).policy(ANY)
}

/// Sets a sysctl that the network lists, or does not list.
fn set(name: &'static str, key: &str, value: &str, is_listed: bool) -> Attack {
    let listed =
        if is_listed { json!({"sysctl": {key: value}}) } else { json!({"sysctl": {"net.core.somaxconn": "1"}}) };
    behind(name, &json!({"op": "namespace-sysctl-set", "key": key, "value": value}), &listed)
}

/// Changes attributes of the attachment's link. The first step looks up the link.
fn change(name: &'static str, settings: &Value) -> Attack {
    let steps = json!({"rogue": [{"call": {"op": "link-own"}}, {"call": {"op": "link-settings-change", "link": 0, "settings": settings}}]});
    behind(name, &json!(null), &steps)
}

#[test]
fn sysctls_are_those_that_the_network_lists_and_the_namespace_has() -> Result<()> {
    let unlisted = "configuration does not list";
    let long = "1".repeat(5000);
    withstand(&[
        set("a key that is not listed", "net.ipv4.ip_forward", "1", false).ends(999, unlisted),
        set("a listed key with another value", "net.core.somaxconn", "2", false).ends(999, unlisted),
        set("a setting of the kernel", "kernel.hostname", "x", true).ends(110, "no policy can allow it"),
        set("up and down again", "net/../kernel/hostname", "x", true).ends(999, "invalid net sysctl key"),
        set("up, by dots", "net.../kernel/hostname", "x", true).ends(999, "invalid net sysctl key"),
        set("from the root", "/net/ipv4/ip_forward", "1", true).ends(110, "no policy can allow it"),
        set("an empty part", "net..ipv4.ip_forward", "1", true).ends(999, "invalid net sysctl key"),
        set("a NUL byte in the key", "net.ipv4.ip_forward\u{0}x", "1", true).ends(999, "invalid net sysctl key"),
        set("a directory", "net.ipv4", "1", true).ends(999, "is a directory"),
        set("what all namespaces share", "net.core.rmem_max", "1", true).ends(999, "for itself"),
        set("connections of the node", "net.netfilter.nf_conntrack_max", "1", true).ends(999, ""),
        set("a switch of the node", "net.netfilter.nf_hooks_lwtunnel", "1", true).ends(999, "for itself"),
        set("another link", "net.ipv4.conf.eth9.arp_filter", "1", true).ends(110, "other-links = \"true\""),
        set("a value with a NUL", "net.ipv4.ip_forward", "1\u{0}", true).ends(999, "no control characters"),
        set("a value with a newline", "net.ipv4.ip_forward", "1\nx", true).ends(999, "no control characters"),
        set("a value beyond a page", "net.ipv4.ip_forward", &long, true).ends(999, "no control characters"),
        set("a value that the kernel refuses", "net.ipv4.ip_forward", "x", true).ends(999, "invalid argument"),
        set("outside of ADD", "net.ipv4.ip_forward", "1", true).on("CHECK").ends(110, "is not for CHECK"),
        set("a key that policy keeps", "net.ipv4.ip_forward", "1", true)
            .policy("[grant.namespace-sysctl]\nkeys = [\"net.core.*\"]")
            .ends(110, "keys = [\"net.core.*\", \"net.ipv4.ip_forward\"]"),
        set("without the grant", "net.ipv4.ip_forward", "1", true)
            .policy("withdraw = []")
            .ends(110, "policy does not allow plugin \"chained\" namespace-sysctl.set"),
        set("a key of that name by IFNAME", "net.IFNAME.x", "1", true).ends(999, "no such file"),
    ])?;
    let shipped = |name, key: &str| {
        honest(name, "tuning", "{}")
            .with(&json!({"sysctl": {key: "1"}, "prevResult": {"cniVersion": "1.1.0"}}).to_string())
    };
    withstand(&[
        shipped("tuning: of the kernel", "kernel.hostname").ends(110, ""),
        shipped("tuning: another link", "net.ipv4.conf.eth9.arp_filter").ends(110, "other-links"),
        shipped("tuning: up the tree", "net/../x").ends(999, "invalid net sysctl key"),
    ])
}

/// The container has a link whose attributes can be changed.
#[test]
fn attributes_are_those_that_policy_has_and_a_link_can_have() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare("ip -n c1 link show dev eth0 > /dev/null 2>&1 || ip -n c1 link add eth0 type veth peer name far0; ip -n c1 link set eth0 up")?;
    let mac = "02:00:00:00:00:01";
    for attack in [
        change("a group's address", &json!({"mac": "01:00:00:00:00:01"})).policy(
            "[grant.link]\n[grant.link-settings]\nmacs = [\"01:00:00:00:00:01\"]\ndirectories = [\"/var/lib/hostile\"]",
        ).ends(999, "is the address of a group"),
        change("no address", &json!({"mac": "00:00:00:00:00:00"})).policy(
            "[grant.link]\n[grant.link-settings]\nmacs = [\"00:00:00:00:00:00\"]\ndirectories = [\"/var/lib/hostile\"]",
        ).ends(999, "is all zeros"),
        change("a neighbour's address", &json!({"mac": "02:00:00:00:77:02"})).ends(110, "with address 02:00:00:00:77:02"),
        change("another MTU", &json!({"mtu": 68})).ends(110, "with MTU 68"),
        change("an MTU that no link can have", &json!({"mtu": 67})).ends(110, "with MTU 67"),
        change("frames of others", &json!({"promisc": true})).ends(110, "promisc = [\"true\"]"),
        change("multicast frames of others", &json!({"allmulti": true})).ends(110, "allmulti = [\"true\"]"),
        change("a queue without end", &json!({"tx-queue-length": 4294967295_u32})).ends(110, "with queue length"),
        change("files elsewhere", &json!({"mac": mac})).with(r#"{"dataDir": "/etc"}"#).ends(110, "directories"),
        change("files in a relative directory", &json!({"mac": mac})).with(r#"{"dataDir": "x"}"#).ends(110, "no policy can allow it"),
        change("files up the tree", &json!({"mac": mac})).with(r#"{"dataDir": "/var/lib/hostile/../../../etc"}"#).ends(110, "directories"),
        change("files in a directory of the system", &json!({"mac": mac})).with(r#"{"dataDir": "/var/lib"}"#).policy(
            "[grant.link]\n[grant.link-settings]\nmacs = [\"02:00:00:00:00:01\"]\ndirectories = [\"/var/lib\"]",
        ).ends(999, "directory of the system"),
        behind("a handle that was not given out", &json!({"op": "link-settings-change", "link": 7, "settings": {"mtu": 1400}}), &json!({}))
            .ends(999, "no such handle"),
        behind("outside of ADD", &json!({"op": "link-settings-change", "link": 0, "settings": {"mtu": 1400}}), &json!({}))
            .on("CHECK")
            .ends(110, "is not for CHECK"),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

/// The port has spoofing protection. An address that only policy names is refused, because the protection would let
/// this address pass.
#[test]
fn protection_follows_to_no_address_that_policy_alone_names() -> Result<()> {
    let attacked = AttackedNode::new()?;
    let mut bridge = crate::attack::base();
    let patch = json!({"type": "bridge", "bridge": "hostile0", "macspoofchk": true, "ipam": {}});
    postern_tests::merge(&mut bridge, &patch);
    attacked.plugin("bridge", "ADD", &bridge)?.success()?;
    attacked.operator_policy("chained", ANY)?;
    // The record gets a section that has ended. Nothing else changes.
    let state = || attacked.node().sh("nft list table bridge nat; ip -n c1 link show dev eth0");
    let before = state()?;
    let settings = json!({"mac": "02:00:00:00:00:01"});
    for (name, patch) in [
        ("nobody names it", json!({})),
        ("the configuration names another", json!({"mac": "02:00:00:00:00:02"})),
        ("prevResult names it", json!({"prevResult": {"interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01"}]}})),
    ] {
        let answer = change(name, &settings).with(&patch.to_string()).call(&attacked)?;
        Refusal::of(&answer)?.expect(999, "does not change to this address").context(name)?;
        ensure!(state()? == before, "{name}: {}", state()?);
    }
    let named = change("the configuration names it", &settings).with(&settings.to_string());
    named.call(&attacked)?.success()?;
    ensure!(state()?.matches("02:00:00:00:00:01").count() == 2, "{}", state()?);
    Ok(())
}
