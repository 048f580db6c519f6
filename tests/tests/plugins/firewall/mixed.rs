//! Lists with native plugins, in every order, and nodes that change from native plugins to Postern or back.

use crate::firewall::place::{Place, Side};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;
use serde_json::{Value, json};

/// A native plugin's addresses count if the kernel shows them in the container. An operator can name the addresses
/// instead.
#[test]
fn native_in_front() -> Result<()> {
    let place = Place::new()?;
    let isolated = json!({"ingressPolicy": "isolated"});
    let c1 = place.attach(Side::Native, "c1", 1, &isolated)?;
    place.policy("[previous]\naddresses = [\"10.8.0.0/16\"]\n")?;
    let refused = Refusal::of(&c1.call_at(1, "ADD")?)?;
    refused.expect(110, "no record says that an earlier plugin gave 10.9.1.2/24…previous = { addresses = [\"10.8.0.0/16\"], in-container = \"true\" }…/etc/postern/policy/firewall.toml")?;
    place.policy("")?;
    place.node.sh_in("c1", "ip addr del 10.9.1.2/24 dev eth0")?;
    let refused = Refusal::of(&c1.call_at(1, "ADD")?)?;
    refused.expect(
        110,
        "gave 10.9.1.2/24 to this attachment: \"eth0\" of the container does not have it…addresses = [\"10.9.1.0/24\"]",
    )?;
    ensure!(place.rules("CNI-FORWARD")?.is_empty(), "{:?}", place.rules("CNI-FORWARD")?);
    place.node.sh_in("c1", "ip addr add 10.9.1.2/24 dev eth0; ip route add default via 10.9.1.1")?;
    c1.call_at(1, "ADD")?.success()?;
    place.reaches("c1", "192.0.2.2")?;
    ensure!(place.rules("br1")?.len() == 6, "{:?}", place.rules("br1")?);
    for whose in [Side::Ours, Side::Native] {
        whose.of(&c1)?.call_at(1, "CHECK")?.success()?;
    }
    c1.call_at(1, "DEL")?.success()?;
    ensure!(place.rules("10.9.1.2/")?.is_empty(), "{:?}", place.rules("10.9.1.2/")?);
    Ok(())
}

#[test]
fn native_behind() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.attach(Side::Ours, "c1", 1, &json!({}))?;
    Side::Native.of(&c1)?.call_at(1, "ADD")?.success()?;
    place.reaches("c1", "192.0.2.2")?;
    Side::Native.of(&c1)?.call_at(1, "DEL")?.success()?;
    c1.del()?;
    ensure!(place.rules("10.9.1.")?.is_empty() && place.records()?.is_empty(), "{:?}", place.rules("10.9.1.")?);
    Ok(())
}

/// Each side checks and removes the other side's rules, in lists of one side and in lists of both sides.
#[test]
fn a_node_is_moved_either_way() -> Result<()> {
    use Side::{Native, Ours};
    for (bridge, made, removed) in
        [(Ours, Ours, Native), (Ours, Native, Ours), (Native, Native, Ours), (Native, Ours, Native)]
    {
        let place = Place::new()?;
        let c1 = place.attach(bridge, "c1", 1, &json!({"ingressPolicy": "same-bridge"}))?;
        made.of(&c1)?.call_at(1, "ADD")?.success()?;
        let before = place.rules("")?;
        removed.of(&c1)?.call_at(1, "CHECK")?.success()?;
        // A second attachment by the other side finds all shared objects.
        let c2 = place.attach(bridge, "c2", 1, &json!({"ingressPolicy": "same-bridge"}))?;
        removed.of(&c2)?.call_at(1, "ADD")?.success()?;
        ensure!(place.rules("")?.len() == before.len() + 4, "{made:?} {removed:?}: {:#?}", place.rules("")?);
        made.of(&c2)?.call_at(1, "DEL")?.success()?;
        ensure!(place.rules("")? == before, "{made:?} {removed:?}: {:#?}", place.rules("")?);
        removed.of(&c1)?.call_at(1, "DEL")?.success()?;
        for own in c1.bare_addresses() {
            ensure!(
                place.rules(&format!("{own}/"))?.is_empty(),
                "{bridge:?} {made:?} {removed:?}: {:?}",
                place.rules(&own)?
            );
        }
        c1.del()?;
        c2.del()?;
        ensure!(bridge == Native || place.records()?.is_empty(), "{}", place.records()?);
    }
    Ok(())
}

/// DEL without a record removes no rule of an attachment with a record, whatever `prevResult` says.
#[test]
fn a_forged_result_takes_no_neighbours_rules() -> Result<()> {
    let place = Place::new()?;
    let mine = place.add("c1", 1, &json!({}))?;
    let forged =
        |at: usize, result: &Value| mine.network.call_at(at, "DEL", "c2", &json!({"prevResult": result}))?.success();
    for result in [mine.result.clone(), json!({"cniVersion": "1.1.0", "ips": [{"address": "10.9.1.2/16"}]})] {
        forged(1, &result)?;
        ensure!(place.rules("10.9.1.2/")?.len() == 2, "{:?}", place.rules("10.9.1.")?);
    }
    forged(0, &mine.result)?;
    place.reaches("c1", "192.0.2.2")?;
    Ok(())
}

/// The result's bridge is compared with the kernel. Otherwise a forged result could stop all forwarding through a link
/// of the node.
#[test]
fn only_the_attachments_own_bridge_is_isolated() -> Result<()> {
    let place = Place::new()?;
    place.add("c2", 2, &json!({}))?;
    let c1 = place.attach(Side::Ours, "c1", 1, &json!({"ingressPolicy": "isolated"}))?;
    for name in ["wan", "br2", "eth0", "nonexistent", "br1\nCOMMIT", "-j"] {
        let mut forged = c1.clone();
        forged.result["interfaces"][0] = json!({"name": name});
        let refused = Refusal::of(&forged.call_at(1, "ADD")?)?;
        refused.expect(999, "as the bridge, and this attachment's host end is a port of \"br1\"")?;
        ensure!(
            place.rules("STAGE")?.is_empty() && place.rules("10.9.1.")?.is_empty(),
            "{name}: {:?}",
            place.rules("")?
        );
    }
    // The host end is no port of a bridge.
    place.node.sh("ip link set $(ip -o link show master br1 | sed 's/^[0-9]*: \\([^@:]*\\).*/\\1/;q') nomaster")?;
    Refusal::of(&c1.call_at(1, "ADD")?)?.expect(999, "is no port of a bridge")?;
    Ok(())
}

#[test]
fn an_admin_chain_is_nobody_elses() -> Result<()> {
    let place = Place::new()?;
    place.node.sh("iptables -N KUBE-FORWARD; iptables -N DOCKER; iptables -N DOCKER-USER")?;
    // A program reserves `DOCKER-USER` for the operator. `CNI-CUSTOM` only looks like a program's chain.
    for chain in ["DOCKER-USER", "CNI-CUSTOM"] {
        let c1 = place.attach(Side::Ours, "c1", 1, &json!({"iptablesAdminChainName": chain, "backend": "iptables"}))?;
        c1.call_at(1, "ADD")?.success()?;
        ensure!(place.rules("CNI-FORWARD")?.iter().any(|rule| rule.ends_with(chain)), "{:?}", place.rules("")?);
        c1.call_at(1, "DEL")?.success()?;
        c1.del()?;
    }
    for chain in [
        "FORWARD",
        "INPUT",
        "ACCEPT",
        "KUBE-FORWARD",
        "DOCKER",
        "CNI-FORWARD",
        "CNI-ISOLATION-STAGE-1",
        "a b",
        "x\nCOMMIT\n*nat",
        "-j",
        "twenty-nine-characters-in-all",
    ] {
        let c1 = place.attach(Side::Ours, "c1", 1, &json!({"iptablesAdminChainName": chain, "backend": "iptables"}))?;
        let before: Value = json!(place.rules("")?);
        Refusal::of(&c1.call_at(1, "ADD")?)?.expect(110, "no policy can allow it")?;
        ensure!(before == json!(place.rules("")?), "{chain}: {:?}", place.rules("")?);
        c1.del()?;
    }
    Ok(())
}
