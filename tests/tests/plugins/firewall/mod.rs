//! firewall after a bridge plugin, on a node that forwards nothing by default: real traffic, DEL and CHECK in every
//! state, mixed lists, and rules of a bridge.

mod daemon;
mod mixed;
mod place;

use anyhow::{Context, Result, ensure};
use place::{Place, Side};
use postern_tests::merge;
use postern_tests::proof::Refusal;
use serde_json::json;

#[test]
fn a_container_reaches_out_and_is_not_reached() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.attach(Side::Ours, "c1", 1, &json!({}))?;
    for to in ["192.0.2.2", "2001:db8::2"] {
        place.is_cut_off("c1", to)?;
    }
    c1.call_at(1, "ADD")?.success()?;
    for to in ["192.0.2.2", "2001:db8::2"] {
        place.reaches("c1", to)?;
    }
    for own in c1.bare_addresses() {
        place.is_cut_off("out", &own)?;
        ensure!(place.rules(&own)?.len() == 2, "{:?}", place.rules(&own)?);
    }
    c1.call_at(1, "CHECK")?.success()?;
    c1.del()?;
    for own in c1.bare_addresses() {
        ensure!(place.rules(&own)?.is_empty(), "{:?}", place.rules(&own)?);
    }
    ensure!(place.records()?.is_empty(), "{}", place.records()?);
    c1.del()
}

/// The operator's rules come first.
#[test]
fn an_administrator_can_block_a_flow() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.add("c1", 1, &json!({"iptablesAdminChainName": "SITE-RULES"}))?;
    place.reaches("c1", "192.0.2.2")?;
    place.node.sh("iptables -A SITE-RULES -d 192.0.2.2 -j DROP")?;
    place.is_cut_off("c1", "192.0.2.2")?;
    place.reaches("c1", "2001:db8::2")?;
    c1.del()
}

#[test]
fn check_says_what_is_missing() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.add("c1", 1, &json!({"ingressPolicy": "isolated"}))?;
    let own = c1.bare_addresses();
    let check = || c1.call_at(1, "CHECK");
    check()?.success()?;
    let stage = "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)";
    for (spec, expected) in [
        (format!("CNI-FORWARD -s {}/32 -j ACCEPT", own[0]), "expected rule [-s …/32 -j ACCEPT] not found"),
        (
            "FORWARD -m comment --comment 'CNI firewall plugin rules' -j CNI-FORWARD".to_owned(),
            "expected FORWARD rule [-m comment --comment CNI firewall plugin rules -j CNI-FORWARD] not found",
        ),
        (
            "CNI-FORWARD -m comment --comment 'CNI firewall plugin admin overrides' -j CNI-ADMIN".to_owned(),
            "expected CNI-FORWARD rule […-j CNI-ADMIN] not found",
        ),
        (format!("CNI-ISOLATION-STAGE-2 -o br1 -m comment --comment '{stage}' -j DROP"), "-o br1…DROP] not found"),
    ] {
        place.node.sh(&format!("iptables-save -t filter > /run/saved; iptables -D {spec}"))?;
        Refusal::of(&check()?)?.expect(999, expected)?;
        place.node.sh("iptables-restore < /run/saved")?;
        check()?.success()?;
    }
    // If the isolation rule did not come first, accepted addresses would be reachable from everywhere.
    place.node.sh(&format!(
        "iptables -D FORWARD -m comment --comment '{stage}' -j CNI-ISOLATION-STAGE-1
         iptables -A FORWARD -m comment --comment '{stage}' -j CNI-ISOLATION-STAGE-1"
    ))?;
    Refusal::of(&check()?)?.expect(999, "bridge br1 is not isolated")
}

/// The node forwards all packets except packets that the network's `ingressPolicy` forbids.
#[test]
fn bridges_are_isolated_as_the_network_says() -> Result<()> {
    for (policy, same, other) in [("open", true, true), ("same-bridge", true, false), ("isolated", false, false)] {
        let place = Place::new()?;
        // The packet filter also sees frames between ports of a bridge, as on nodes with br_netfilter.
        let filtered = place.node.sh("sysctl -qw net.bridge.bridge-nf-call-iptables=1").is_ok();
        let patch = json!({"ingressPolicy": policy});
        let one = place.add("c1", 1, &patch)?;
        let two = place.add("c2", 1, &patch)?;
        let three = place.add("c3", 2, &patch)?;
        place.node.sh("iptables -P FORWARD ACCEPT")?;
        let (near, far) = (&two.bare_addresses()[0], &three.bare_addresses()[0]);
        if filtered {
            place.is_reached("c1", near, same).context(policy)?;
        }
        place.is_reached("c1", far, other).context(policy)?;
        place.reaches("c1", "192.0.2.2")?;
        place.reaches("c1", "10.9.1.1")?;
        one.call_at(1, "CHECK")?.success()?;
        // The isolation belongs to the bridge, and stays after each DEL.
        two.del()?;
        place.is_reached("c1", far, other).context("after a DEL")?;
        one.del()?;
        three.del()?;
        ensure!(place.rules("br1")?.is_empty() == (policy == "open"), "{:?}", place.rules("br1")?);
    }
    Ok(())
}

/// DEL needs no `prevResult` to remove the rules: below 0.4.0, or if the runtime has lost `prevResult`. The native DEL
/// needs `prevResult`.
#[test]
fn del_goes_by_the_record() -> Result<()> {
    let place = Place::new()?;
    for patch in [
        json!({"prevResult": null}),
        json!({"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.1.77/24"}]}}),
        json!({"backend": "x", "iptablesAdminChainName": "KUBE-X"}),
        json!({"ingressPolicy": "nonsense"}),
    ] {
        let c1 = place.add("c1", 1, &json!({"iptablesAdminChainName": "MINE"}))?;
        let own = c1.bare_addresses();
        place.node.sh("iptables -A CNI-FORWARD -s 10.9.1.77 -j ACCEPT")?;
        let mut config = json!({"prevResult": c1.result});
        merge(&mut config, &patch);
        c1.network.call_at(1, "DEL", "c1", &config)?.success()?;
        for own in own {
            ensure!(place.rules(&own)?.is_empty(), "{patch}: {:?}", place.rules(&own)?);
        }
        ensure!(place.rules("10.9.1.77")?.len() == 1, "{patch}: another address's rule is gone");
        place.node.sh("iptables -D CNI-FORWARD -s 10.9.1.77 -j ACCEPT")?;
        c1.del()?;
        ensure!(place.records()?.is_empty(), "{}", place.records()?);
    }
    Ok(())
}

#[test]
fn a_failed_add_leaves_nothing() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.attach(Side::Ours, "c1", 1, &json!({"ingressPolicy": "nonsense"}))?;
    Refusal::of(&c1.call_at(1, "ADD")?)?.expect(999, "unknown ingress policy: \"nonsense\"")?;
    ensure!(place.rules("10.9.1.")?.is_empty(), "{:?}", place.rules("10.9.1.")?);
    Ok(())
}

/// Garbage collection by the runtime, and by an operator.
#[test]
fn collections_go_by_the_record() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.add("c1", 1, &json!({}))?;
    let collect = |valid| c1.network.call_at(1, "GC", "", &json!({"cni.dev/valid-attachments": valid}))?.success();
    collect(json!([{"containerID": "c1", "ifname": "eth0"}]))?;
    ensure!(place.rules(&c1.bare_addresses()[0])?.len() == 2, "a valid attachment's rules are gone");
    collect(json!([]))?;
    ensure!(place.rules("10.9.1.")?.is_empty() && place.records()?.is_empty(), "{:?}", place.rules("10.9.1.")?);
    Ok(())
}

#[test]
fn show_tells_of_the_rules() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.add("c1", 1, &json!({}))?;
    let own = &c1.bare_addresses()[0];
    let postern = postern_tests::plugin_bin()?.join("postern");
    let shown = || place.node.sh(&format!("{} show c1 || true", postern.display()));
    let said = shown()?;
    ensure!(said.contains(&format!("{own} by iptables")) && !said.contains("is not forwarded"), "{said}");
    place.node.sh("iptables -F CNI-FORWARD")?;
    let said = shown()?;
    ensure!(said.contains(&format!("{own} is not forwarded: iptables no longer has it")), "{said}");
    Ok(())
}

/// Other programs remove rules, for example with `nft flush ruleset`.
#[test]
fn what_another_program_wiped_is_put_back() -> Result<()> {
    let place = Place::new()?;
    let postern = postern_tests::plugin_bin()?.join("postern");
    let c1 = place.add("c1", 1, &json!({"ingressPolicy": "same-bridge", "iptablesAdminChainName": "MINE"}))?;
    let before = place.rules("")?;
    for wiped in ["nft flush ruleset", "iptables -F; ip6tables -F", "iptables -F CNI-ISOLATION-STAGE-2"] {
        place.node.sh(wiped)?;
        ensure!(place.rules("")? != before, "{wiped}: no rule is gone");
        place.node.sh(&format!("{} reapply", postern.display()))?;
        ensure!(place.rules("")? == before, "{wiped}: {:#?}", place.rules("")?);
    }
    c1.call_at(1, "CHECK")?.success()?;
    c1.del()
}

/// `postern gc --node` removes a bridge's rules only if no attachment is on the bridge.
#[test]
fn the_isolation_goes_with_gc_of_the_node() -> Result<()> {
    let place = Place::new()?;
    let postern = postern_tests::plugin_bin()?.join("postern");
    let gc = || place.node.sh(&format!("{} gc --node --yes", postern.display()));
    let c1 = place.add("c1", 1, &json!({"ingressPolicy": "isolated"}))?;
    ensure!(gc()?.contains("isolation of bridge br1 stays: a record lists this isolation"), "{}", gc()?);
    c1.call_at(1, "DEL")?.success()?;
    ensure!(gc()?.contains("isolation of bridge br1 stays: veth"), "{}", gc()?);
    ensure!(place.rules("br1")?.len() == 6, "{:?}", place.rules("br1")?);
    c1.del()?;
    let said = gc()?;
    ensure!(said.contains("removed isolation of bridge br1") && said.contains("removed bridge br1"), "{said}");
    ensure!(place.rules("br1")?.is_empty(), "{:?}", place.rules("br1")?);
    Ok(())
}
