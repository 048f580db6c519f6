//! Limits of the rate: links of others, rates that the network does not configure, queueing disciplines of others.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, rogue, withstand};
use anyhow::{Context, Result};

const POLICY: &str = "[grant.bandwidth]\n[grant.veth]\n[grant.link]";
/// The widest policy: any link of the host, from any earlier result.
const ANY: &str = "[previous]\nnames = [\"*\"]\n[grant.bandwidth]\n[grant.veth]\n[grant.link]";
const CREATE: &str = r#"{"op": "veth-create", "mtu": null, "mac": "02:00:00:00:00:11"}"#;
const BOTH: &str = r#"{"ingressRate": 8000, "ingressBurst": 16000, "egressRate": 80, "egressBurst": 160}"#;
const LIMIT: &str =
    r#"{"op": "bandwidth-limit", "ingress": {"rate": 8000, "burst": 16000}, "egress": {"rate": 80, "burst": 160}}"#;

fn limit(name: &'static str, ingress: &str, egress: &str) -> Attack {
    let limit = format!(r#"{{"op": "bandwidth-limit", "ingress": {ingress}, "egress": {egress}}}"#);
    rogue(name, &format!("[{CREATE}, {limit}]")).with(BOTH).policy(POLICY)
}

#[test]
fn only_the_configured_rates_can_be_set() -> Result<()> {
    let other = "the configuration of this call has other limits";
    let (ingress, egress) = (r#"{"rate": 8000, "burst": 16000}"#, r#"{"rate": 80, "burst": 160}"#);
    withstand(&[
        limit("what the network says", ingress, egress).ends(0, ""),
        limit("a higher rate", r#"{"rate": 9000, "burst": 16000}"#, egress).ends(999, other),
        limit("a larger burst", ingress, r#"{"rate": 80, "burst": 34359738352}"#).ends(999, other),
        limit("one direction only", ingress, "null").ends(999, other),
        limit("no direction", "null", "null").ends(999, other),
        limit("rate 0", r#"{"rate": 0, "burst": 16000}"#, egress).ends(999, other),
        limit("a burst above all bounds", r#"{"rate": 8000, "burst": 18446744073709551615}"#, egress).ends(999, other),
        limit("rates exchanged", egress, ingress).ends(999, other),
        limit("where nothing is limited", "null", "null")
            .with(r#"{"ingressRate": null, "ingressBurst": null, "egressRate": null, "egressBurst": null}"#)
            .ends(999, other),
        limit("a rate that the native plugin can't set", r#"{"rate": 7, "burst": 16000}"#, "null")
            .with(r#"{"ingressRate": 7, "egressRate": null, "egressBurst": null}"#)
            .ends(999, "each must be at least 8, one byte"),
        rogue("on DEL", &format!("[{LIMIT}]"))
            .with(BOTH)
            .policy(POLICY)
            .on("DEL")
            .ends(110, "bandwidth.limit is not for DEL"),
        rogue("on CHECK", &format!("[{LIMIT}]"))
            .with(BOTH)
            .policy(POLICY)
            .on("CHECK")
            .ends(110, "bandwidth.limit is not for CHECK"),
        rogue("without a grant", &format!("[{CREATE}, {LIMIT}]"))
            .with(BOTH)
            .policy("[grant.veth]")
            .ends(110, "bandwidth.limit"),
    ])
}

/// `prevResult` and the container's link can point to other links. Only the attachment's own host end is limited.
#[test]
fn links_of_others_are_not_limited() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(
        r"
        ip link add out0 type veth peer name out1; ip link set out0 up; ip link set out1 up
        ip -n c1 link add eth0 type veth peer name eth1
        ip link add nat0 type veth peer name nat1 netns c2; ip link set nat0 up",
    )?;
    let bare = |name: &'static str| rogue(name, &format!("[{LIMIT}]")).with(BOTH).policy(ANY);
    let named = |name: &'static str, link: &str| {
        let before = format!(r#"{{"prevResult": {{"cniVersion": "1.1.0", "interfaces": [{{"name": "{link}"}}]}}}}"#);
        bare(name).with(&before).ends(999, "container interface eth0 has no veth peer in the host's namespace")
    };
    for attack in [
        bare("no host end at all").ends(999, "container interface eth0 has no veth peer"),
        named("the operator's link", "op0"),
        named("a pair of the node", "out0"),
        named("the bystander's bridge", "cni0"),
        named("another container's host end", "nat0"),
        named("the loopback link", "lo"),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

/// A pair of a native plugin counts only if three conditions hold: policy allows it, `prevResult` names it, and both
/// ends agree.
#[test]
fn a_native_pair_needs_the_operators_word() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(
        "ip link add nat1 type veth peer name eth0 netns c1; ip link set nat1 up; ip -n c1 link set eth0 up",
    )?;
    let bare = |name: &'static str| rogue(name, &format!("[{LIMIT}]")).with(BOTH).policy(ANY);
    let nat1 = r#"{"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "nat1"}]}}"#;
    for attack in [
        bare("a pair that nobody names").ends(999, "no veth peer of container interface found in host ns"),
        bare("with another link's name")
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "op0"}]}}"#)
            .ends(999, "no veth peer of container interface found in host ns"),
        bare("in a sandbox")
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "nat1", "sandbox": "/x"}]}}"#)
            .ends(999, "no veth peer of container interface found in host ns"),
        bare("without the operator's word").policy(POLICY).with(nat1).ends(110, "names = [\"nat1\"]"),
        bare("with all three conditions").with(nat1).ends(0, ""),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

/// The operator's settings on a link stay, whatever a guest asks for.
#[test]
fn queueing_disciplines_of_others_stay() -> Result<()> {
    for (set, kind) in [
        ("tc qdisc add dev nat1 root handle 1: tbf rate 8kbit burst 2000 latency 25ms", "(tbf)"),
        ("tc qdisc add dev nat1 root handle 9: htb", "(htb)"),
        ("tc qdisc add dev nat1 ingress", "(ingress)"),
        ("tc qdisc add dev nat1 clsact", "(clsact)"),
    ] {
        let mut attacked = AttackedNode::new()?;
        attacked.prepare(&format!("ip link add nat1 type veth peer name eth0 netns c1; ip link set nat1 up; {set}"))?;
        let attack = rogue("of the operator", &format!("[{LIMIT}]"))
            .with(BOTH)
            .policy(ANY)
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "nat1"}]}}"#)
            .ends(999, "\"nat1\" has a qdisc already");
        attack.withstood_by(&mut attacked).context(kind)?;
        let shown = attacked.node().sh("tc qdisc show dev nat1")?;
        anyhow::ensure!(shown.contains(kind.trim_matches(['(', ')'])), "{kind} is gone: {shown}");
    }
    Ok(())
}
