//! Lists with native plugins, in every order, and a node that is moved either way.

use crate::firewall::place::{Place, Side, addresses, bridge_conf};
use anyhow::{Result, ensure};
use postern_tests::merge;
use postern_tests::proof::Refusal;
use serde_json::{Value, json};

/// A native plugin's addresses count if the kernel shows them in the container. An operator can name them instead.
#[test]
fn native_in_front() -> Result<()> {
    let place = Place::new()?;
    let isolated = json!({"ingressPolicy": "isolated"});
    let config = place.attach(Side::Native, "c1", 1, &isolated)?;
    place.policy("[previous]\naddresses = [\"10.8.0.0/16\"]\n")?;
    let refused = Refusal::of(&place.call(Side::Ours, "ADD", "c1", &config)?)?;
    refused.expect(110, "no record tells that a plugin before gave 10.9.1.2/24…previous = { addresses = [\"10.8.0.0/16\"], in-container = \"true\" }…/etc/postern/policy/firewall.toml")?;
    place.policy("")?;
    place.node.sh_in("c1", "ip addr del 10.9.1.2/24 dev eth0")?;
    let refused = Refusal::of(&place.call(Side::Ours, "ADD", "c1", &config)?)?;
    refused.expect(
        110,
        "gave 10.9.1.2/24 to this attachment: \"eth0\" of the container does not have it…addresses = [\"10.9.1.0/24\"]",
    )?;
    ensure!(place.rules("CNI-FORWARD")?.is_empty(), "{:?}", place.rules("CNI-FORWARD")?);
    place.node.sh_in("c1", "ip addr add 10.9.1.2/24 dev eth0; ip route add default via 10.9.1.1")?;
    place.call(Side::Ours, "ADD", "c1", &config)?.success()?;
    place.reaches("c1", "192.0.2.2")?;
    ensure!(place.rules("br1")?.len() == 6, "{:?}", place.rules("br1")?);
    for whose in [Side::Ours, Side::Native] {
        place.call(whose, "CHECK", "c1", &config)?.success()?;
    }
    place.call(Side::Ours, "DEL", "c1", &config)?.success()?;
    ensure!(place.rules("10.9.1.2/")?.is_empty(), "{:?}", place.rules("10.9.1.2/")?);
    Ok(())
}

#[test]
fn native_behind() -> Result<()> {
    let place = Place::new()?;
    let config = place.attach(Side::Ours, "c1", 1, &json!({}))?;
    place.call(Side::Native, "ADD", "c1", &config)?.success()?;
    place.reaches("c1", "192.0.2.2")?;
    place.call(Side::Native, "DEL", "c1", &config)?.success()?;
    place.del("c1", 1, &config)?;
    ensure!(place.rules("10.9.1.")?.is_empty() && place.records()?.is_empty(), "{:?}", place.rules("10.9.1.")?);
    Ok(())
}

/// Each side checks and removes what the other made, whole lists and halves of them.
#[test]
fn a_node_is_moved_either_way() -> Result<()> {
    use Side::{Native, Ours};
    for (bridge, made, removed) in
        [(Ours, Ours, Native), (Ours, Native, Ours), (Native, Native, Ours), (Native, Ours, Native)]
    {
        let place = Place::new()?;
        let config = place.attach(bridge, "c1", 1, &json!({"ingressPolicy": "same-bridge"}))?;
        place.call(made, "ADD", "c1", &config)?.success()?;
        let before = place.rules("")?;
        place.call(removed, "CHECK", "c1", &config)?.success()?;
        // A second attachment by the other side finds all that is shared.
        let second = place.attach(bridge, "c2", 1, &json!({"ingressPolicy": "same-bridge"}))?;
        place.call(removed, "ADD", "c2", &second)?.success()?;
        ensure!(place.rules("")?.len() == before.len() + 4, "{made:?} {removed:?}: {:#?}", place.rules("")?);
        place.call(made, "DEL", "c2", &second)?.success()?;
        ensure!(place.rules("")? == before, "{made:?} {removed:?}: {:#?}", place.rules("")?);
        place.call(removed, "DEL", "c1", &config)?.success()?;
        for own in addresses(&config) {
            ensure!(
                place.rules(&format!("{own}/"))?.is_empty(),
                "{bridge:?} {made:?} {removed:?}: {:?}",
                place.rules(&own)?
            );
        }
        place.del("c1", 1, &config)?;
        place.del("c2", 1, &second)?;
        ensure!(bridge == Native || place.records()?.is_empty(), "{}", place.records()?);
    }
    Ok(())
}

/// DEL without a record takes no rule of an attachment that has one, whatever `prevResult` says.
#[test]
fn a_forged_result_takes_no_neighbours_rules() -> Result<()> {
    let place = Place::new()?;
    let mine = place.add("c1", 1, &json!({}))?;
    for patch in [
        json!({"prevResult": mine.get("prevResult")}),
        json!({"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.1.2/16"}]}}),
    ] {
        let mut forged = json!({"cniVersion": "1.1.0", "name": "net1", "type": "firewall"});
        merge(&mut forged, &patch);
        place.call(Side::Ours, "DEL", "c2", &forged)?.success()?;
        ensure!(place.rules("10.9.1.2/")?.len() == 2, "{:?}", place.rules("10.9.1.")?);
    }
    let mut other = bridge_conf(1);
    merge(&mut other, &json!({"prevResult": mine.get("prevResult")}));
    place.call(Side::Ours, "DEL", "c2", &other)?.success()?;
    place.reaches("c1", "192.0.2.2")?;
    Ok(())
}

/// What a result says of the bridge is held against the kernel: a link of the node would forward nothing any more.
#[test]
fn only_the_attachments_own_bridge_is_isolated() -> Result<()> {
    let place = Place::new()?;
    place.add("c2", 2, &json!({}))?;
    let config = place.attach(Side::Ours, "c1", 1, &json!({"ingressPolicy": "isolated"}))?;
    for name in ["wan", "br2", "eth0", "nonexistent", "br1\nCOMMIT", "-j"] {
        let mut forged = config.clone();
        if let Some(first) = forged.pointer_mut("/prevResult/interfaces/0") {
            *first = json!({"name": name});
        }
        let refused = Refusal::of(&place.call(Side::Ours, "ADD", "c1", &forged)?)?;
        refused.expect(999, "as the bridge, and this attachment's host end is a port of \"br1\"")?;
        ensure!(
            place.rules("STAGE")?.is_empty() && place.rules("10.9.1.")?.is_empty(),
            "{name}: {:?}",
            place.rules("")?
        );
    }
    // The uplink as a port of a bridge, and a pair that is no port.
    place.node.sh("ip link set $(ip -o link show master br1 | sed 's/^[0-9]*: \\([^@:]*\\).*/\\1/;q') nomaster")?;
    Refusal::of(&place.call(Side::Ours, "ADD", "c1", &config)?)?.expect(999, "is no port of a bridge")?;
    Ok(())
}

#[test]
fn an_admin_chain_is_nobody_elses() -> Result<()> {
    let place = Place::new()?;
    place.node.sh("iptables -N KUBE-FORWARD; iptables -N DOCKER; iptables -N DOCKER-USER")?;
    // A program leaves these to the administrator, and others only look like a program's.
    for chain in ["DOCKER-USER", "CNI-CUSTOM"] {
        let config =
            place.attach(Side::Ours, "c1", 1, &json!({"iptablesAdminChainName": chain, "backend": "iptables"}))?;
        place.call(Side::Ours, "ADD", "c1", &config)?.success()?;
        ensure!(place.rules("CNI-FORWARD")?.iter().any(|rule| rule.ends_with(chain)), "{:?}", place.rules("")?);
        place.call(Side::Ours, "DEL", "c1", &config)?.success()?;
        place.del("c1", 1, &config)?;
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
        let config =
            place.attach(Side::Ours, "c1", 1, &json!({"iptablesAdminChainName": chain, "backend": "iptables"}))?;
        let before: Value = json!(place.rules("")?);
        Refusal::of(&place.call(Side::Ours, "ADD", "c1", &config)?)?.expect(110, "no policy can allow it")?;
        ensure!(before == json!(place.rules("")?), "{chain}: {:?}", place.rules("")?);
        place.del("c1", 1, &config)?;
    }
    Ok(())
}
