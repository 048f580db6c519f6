//! The attacker chooses the order of the steps of a DEL. A released address can get another owner at once, and a port
//! without its guard can send any frame.

use crate::attack::attacked_node::{AttackedNode, good};
use crate::attack::endings::orders;
use anyhow::{Context, Result, ensure};
use postern_tests::proof::test_bin;
use postern_tests::{Network, Node, merge};
use serde_json::{Value, json};
use std::path::Path;

/// Runs DEL by the hostile plugin, killed after a second.
fn killed_del(attacked: &AttackedNode, config: &Value) -> Result<()> {
    let call = attacked.request("hostile", "DEL", config.to_string())?;
    let wrapper = ["timeout", "-s", "KILL", "1"].map(str::to_owned);
    let answer = attacked.node().call_under(&wrapper, &call)?;
    ensure!(answer.status != 0 && answer.stdout.is_empty(), "the DEL was not killed: {answer:?}");
    Ok(())
}

/// Returns the address of a result, without its prefix length.
fn address(result: &Value) -> Result<String> {
    let address = result.pointer("/ips/0/address").and_then(Value::as_str).context("no address")?;
    Ok(address.split('/').next().unwrap_or_default().to_owned())
}

/// Returns the parts of an attachment that use its address, and true if another attachment can get the address.
fn of(attacked: &AttackedNode, address: &str) -> Result<(String, bool)> {
    let script = format!(
        "ip -n c1 -o addr show dev eth0 2>/dev/null | grep -F ' {address}/' || true
         nft list ruleset | grep -F '{address}' || true"
    );
    let free = attacked.node().sh(&format!("[ -e /var/lib/hostile/net/{address} ] || echo free"))?;
    Ok((attacked.node().sh(&script)?, !free.is_empty()))
}

#[test]
fn an_address_is_given_back_when_nothing_uses_it() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    // The plugin has enough time, so it is killed and not stopped by its deadline.
    attacked.operator_policy("hostile", "[limits]\nseconds = 60")?;
    attacked.look()?;
    crate::attack::each(
        ["release-and-loop", "lease-and-loop"],
        |behaviour| (*behaviour).to_owned(),
        |behaviour| {
            let added = attacked.plugin("hostile", "ADD", &good())?.success()?;
            let address = address(&added)?;
            let (used, free) = of(&attacked, &address)?;
            ensure!(
                used.lines().count() >= 2 && !free,
                "ADD's address is not used or not leased, so this test proves nothing: {used} {free}"
            );
            killed_del(&attacked, &orders(behaviour, json!({"on": "DEL"})))?;
            let (used, free) = of(&attacked, &address)?;
            attacked.plugin("hostile", "DEL", &good())?.success()?;
            ensure!(free, "DEL did not release the address, so this test proves nothing");
            ensure!(used.is_empty(), "the address is free, and still used: {used}");
            attacked.unchanged()
        },
    )?;
    // After a trap, the host removes the effects that the record lists.
    let added = attacked.plugin("hostile", "ADD", &good())?.success()?;
    attacked.plugin("hostile", "DEL", &orders("release-and-trap", json!({"on": "DEL"})))?.success()?;
    ensure!(of(&attacked, &address(&added)?)? == (String::new(), true), "objects are left after a trap");
    attacked.unchanged()
}

/// A chained plugin that makes no link asks for a denied operation and fails. The host then continues the DEL instead
/// of the plugin.
#[test]
fn nor_is_an_address_free_after_a_refusal() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(&format!(
        "cp -r {} /run/chain; sed -i '/grant.veth/d' /run/chain/postern.d/rogue.toml",
        test_bin()?.display()
    ))?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let network = Network::new(&node, &json!({"type": "bridge", "bridge": "br9", "ipam": ipam}))?;
    network.clone().by(&test_bin()?).add("c1")?;
    let steps = json!([
        {"say": {"call": {"op": "resolv-conf-read"}}},
        {"say": {"finished": {"stdout": "", "status": 1}}},
    ]);
    let rogue = network.with(&json!({"type": "rogue", "on": "DEL", "rogue": steps}));
    rogue.by(Path::new("/run/chain")).call("DEL", "c1")?;
    let free = node.sh("[ -e /var/lib/cni/networks/net/10.9.0.2 ] || echo free")?;
    let used = node.sh_in("c1", "ip -o addr show dev eth0 2> /dev/null || true")?;
    ensure!(free.is_empty() || !used.contains("10.9.0.2/"), "the address is free, and still used: {used}");
    Ok(())
}

/// If an object can't be removed, its address stays taken.
#[test]
fn an_address_is_kept_while_something_uses_it() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let added = attacked.plugin("hostile", "ADD", &good())?.success()?;
    let address = address(&added)?;
    let call = attacked.request("hostile", "DEL", orders("release-and-trap", json!({"on": "DEL"})).to_string())?;
    // The kernel removes no rule and no link.
    let wrapper = ["strace", "-qq", "-f", "-o", "/dev/null", "-e", "inject=sendmsg,sendto:error=ENOBUFS:when=12+"];
    let answer = attacked.node().call_under(&wrapper.map(str::to_owned), &call)?;
    let (used, free) = of(&attacked, &address)?;
    attacked.plugin("hostile", "DEL", &good())?.success()?;
    ensure!(used.is_empty() || !free, "{answer:?}: the address is free, and still used: {used}");
    attacked.unchanged()
}

/// The port is down before its guard is removed. bridge made the attachment, and the hostile plugin runs the DEL.
#[test]
fn a_port_is_down_before_its_guard_goes() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("hostile", "[limits]\nseconds = 60")?;
    let mut config = crate::attack::base();
    merge(&mut config, &json!({"type": "bridge", "bridge": "hostile0", "macspoofchk": true}));
    // This attachment makes the node objects of a first port on a bridge.
    attacked.plugin("bridge", "ADD", &config)?.success()?;
    attacked.plugin("bridge", "DEL", &config)?.success()?;
    attacked.look()?;
    let added = attacked.plugin("bridge", "ADD", &config)?.success()?;
    let port = added.pointer("/interfaces/1/name").and_then(Value::as_str).context("no port")?.to_owned();
    let guards = format!("nft list table bridge nat | grep -c '{port}' || true");
    let up = format!("ip -o link show dev {port} up master hostile0");
    ensure!(
        attacked.node().sh(&guards)?.trim() != "0" && !attacked.node().sh(&up)?.is_empty(),
        "the port is not up with a guard"
    );
    killed_del(&attacked, &orders("unguard-and-loop", json!({"on": "DEL", "macspoofchk": true})))?;
    let (guards, up) = (attacked.node().sh(&guards)?, attacked.node().sh(&up)?);
    attacked.plugin("bridge", "DEL", &config)?.success()?;
    ensure!(guards.trim() == "0", "DEL did not remove the guard, so this test proves nothing");
    ensure!(up.is_empty(), "the port is up without its guard: {up}");
    attacked.unchanged()
}

/// A native plugin's attachment has no record. DEL finds the port in the guard's rules, and sets the port down first.
#[test]
fn so_it_is_without_a_record() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("hostile", "[limits]\nseconds = 60")?;
    let mut config = crate::attack::base();
    merge(&mut config, &json!({"type": "bridge", "bridge": "hostile0", "macspoofchk": true}));
    attacked.plugin("bridge", "ADD", &config)?.success()?;
    attacked.plugin("bridge", "DEL", &config)?.success()?;
    attacked.look()?;
    let added = attacked.plugin("bridge", "ADD", &config)?.success()?;
    let address = address(&added)?;
    let port = added.pointer("/interfaces/1/name").and_then(Value::as_str).context("no port")?.to_owned();
    attacked.node().sh("rm $(grep -l '\"container_id\":\"c1\"' /run/postern/attachments/*)")?;
    killed_del(&attacked, &orders("unguard-and-loop", json!({"on": "DEL", "macspoofchk": true})))?;
    let up = attacked.node().sh(&format!("ip -o link show dev {port} up master hostile0"))?;
    ensure!(up.is_empty(), "the port is up without its guard: {up}");
    // DEL did not delete the link, so it does not release the address.
    killed_del(&attacked, &orders("release-and-loop", json!({"on": "DEL"})))?;
    let (used, free) = of(&attacked, &address)?;
    ensure!(!free && !used.is_empty(), "the address is free: {used}");
    attacked.plugin("bridge", "DEL", &config)?.success()?;
    attacked.unchanged()
}

/// A native plugin's macvlan has no record and no host end. Its address is kept while the link exists. A macvlan
/// that root stacked on a link of the container does not keep the address.
#[test]
fn nor_is_it_given_back_while_a_link_without_a_host_end_is_there() -> Result<()> {
    let lookalikes = "ip link add lone1 type veth peer name lone2; ip link add link lone1 name eth0 type macvlan";
    let native = "ip -n c1 link del eth0 2> /dev/null || true
        ip link add lone1 type veth peer name lone2
        ip link add link lone1 name made0 type macvlan
        ip link set made0 netns c1 name eth0";
    for (make, inside, kept) in [(native, ":", true), (":", lookalikes, false)] {
        let attacked = AttackedNode::new()?;
        let added = attacked.plugin("hostile", "ADD", &good())?.success()?;
        let address = address(&added)?;
        attacked.node().sh("rm /run/postern/attachments/*")?;
        attacked.node().sh_in("c1", "ip link del eth0")?;
        attacked.node().sh(make)?;
        attacked.node().sh_in("c1", inside)?;
        attacked.node().sh_in("c1", &format!("ip link set eth0 up; ip addr add {address}/24 dev eth0"))?;
        attacked.operator_policy("hostile", "[limits]\nseconds = 60")?;
        killed_del(&attacked, &orders("release-and-loop", json!({"on": "DEL"})))?;
        let (used, free) = of(&attacked, &address)?;
        ensure!(used.contains(&address), "the link has no address, so this test proves nothing: {used}");
        ensure!(free != kept, "{make} {inside}: free: {free}, used: {used}");
    }
    Ok(())
}
