//! DEL of a container without a record. The namespace's path now leads to another, living container: the process number
//! was reused, or another namespace is mounted on the file. Objects in the other container's records stay, and DEL
//! succeeds.

use anyhow::{Result, ensure};
use postern_tests::tour::legs;
use postern_tests::{Answer, Network, Node, kernel, native_bin, plugin_bin, shipped};
use serde_json::{Value, json};
use std::path::Path;

/// Shows the state of a container or node, without counters and values that the kernel changes a little later.
const STATE: &str =
    "{ ip addr; ip rule; ip route show table all; ip -6 route show table all; ip qdisc 2> /dev/null || true
    cat /proc/sys/net/core/somaxconn; nft list ruleset 2> /dev/null || true; } | grep -v -e _lft -e fe80 -e multicast |
    sed -E 's/counter packets [0-9]+ bytes [0-9]+//; s/,LOWER_UP|NO-CARRIER,| state [A-Z]+| tentative| linkdown//g'";

fn state(node: &Node, container: &str) -> Result<String> {
    Ok(node.sh(STATE)? + &node.sh_in(container, STATE)?)
}

/// Calls DEL of the container `gone`, with the path of the container `c1`.
fn strayed(net: &Network, at: usize, patch: &Value) -> Result<Answer> {
    net.node.call(&net.request(at, "DEL", "gone", patch)?.attachment("gone", &net.node.netns("c1"), "eth0"))
}

/// Every shipped plugin, on each network of `tour`. Only loopback leaves no record: see `letting_go`. The runtime has
/// no result, or the living container's result.
#[test]
fn what_a_living_container_has_stays() -> Result<()> {
    let bin = plugin_bin()?;
    let mut tried = 0;
    for plugin in shipped()?.into_iter().filter(|plugin| plugin != "loopback") {
        for leg in legs(&plugin)? {
            let mut result = Value::Null;
            leg.walk(&bin, |node, verb, call| {
                if verb == "DEL" {
                    // The native tuning's file about container `gone`.
                    node.sh("mkdir -p /run/cni/tuning; echo '{\"mtu\":1280}' > /run/cni/tuning/gone_eth0.json")?;
                    for given in [Value::Null, result.clone()] {
                        let net = Network::new(node, &leg.config)?;
                        let before = state(node, "c1")?;
                        let answer = strayed(&net, 0, &json!({"prevResult": given}))?;
                        ensure!(answer.status == 0 && answer.stdout.is_empty(), "{}: {answer:?}", leg.name);
                        let after = state(node, "c1")?;
                        ensure!(before == after, "{}: {before}\nthen {after}\n{answer:?}", leg.name);
                    }
                    tried += 1;
                }
                let answer = node.call(call)?;
                ensure!(answer.status == 0, "{} {verb}: {answer:?}", leg.name);
                if verb == "ADD" {
                    result = serde_json::from_str(&answer.stdout)?;
                }
                Ok(answer)
            })?;
        }
    }
    ensure!(tried >= 13, "only {tried} networks were tried");
    Ok(())
}

/// A native plugin made the living container's link. One of our plugins, later in the list, has a record of the
/// container.
#[test]
fn so_does_a_link_behind_which_we_have_a_record() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let plugins = json!([
        {"type": "bridge", "bridge": "br9", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}},
        {"type": "tuning", "mtu": 1400},
        {"type": "firewall", "backend": "iptables"},
    ]);
    let net = Network::new(&node, &json!({"cniVersion": "1.0.0", "plugins": plugins}))?;
    let mut attachment = net.clone().at_by(0, &native_bin()?).add("c1")?;
    // According to the runtime's last result, container `gone` had the same address.
    let before = state(&node, "c1")?;
    ensure!(before.contains("ip saddr 10.9.0.2"), "no rule: {before}");
    let answer = strayed(&net, 2, &json!({"prevResult": attachment.result}))?;
    ensure!(answer.status == 0 && state(&node, "c1")? == before, "{answer:?}");
    let answer = strayed(&net, 0, &json!({}))?;
    ensure!(answer.status == 0 && state(&node, "c1")? == before, "{answer:?}");
    ensure!(answer.stderr.contains("leads to the container of net/c1/eth0, by its record"), "{answer:?}");
    // The container's own DEL removes the link.
    attachment.network = net;
    attachment.del()?;
    ensure!(node.sh_in("c1", "ip link")?.lines().count() == 2, "{}", node.sh_in("c1", "ip link")?);
    Ok(())
}

/// The container's record is from before a rollback. The recorded link is gone, and native plugins attached the
/// container again.
#[test]
fn so_it_does_after_a_rollback() -> Result<()> {
    let node = Node::new()?;
    let plugins = json!([
        {"type": "bridge", "bridge": "br9", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}},
        {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "mtu": 1400},
    ]);
    let net = Network::new(&node, &json!({"cniVersion": "1.0.0", "plugins": plugins}))?;
    let attach = |bin: &Path, container: &str| {
        node.add_container(container)?;
        net.clone().by(bin).add(container)
    };
    attach(&plugin_bin()?, "gone")?;
    node.remove_container("gone")?;
    node.sh("rm -rf /var/lib/cni/networks")?;
    let result = attach(&native_bin()?, "gone")?.result;
    node.remove_container("gone")?;
    attach(&plugin_bin()?, "c1")?;
    let before = state(&node, "c1")?;
    for at in (0..net.len()).rev() {
        let answer = strayed(&net, at, &json!({"prevResult": result}))?;
        let after = state(&node, "c1")?;
        ensure!(answer.status == 0 && before == after, "plugin {at}: {before}\nthen {after}\n{answer:?}");
    }
    Ok(())
}

/// Devices of every kind, including kinds that do not show that they came from the node.
#[test]
fn so_does_a_device_of_any_kind() -> Result<()> {
    for (kind, make) in [
        ("veth", "ip link add dev1 type veth peer name wire1"),
        ("macvlan", "ip link add wire1 type veth peer name wire2; ip link add dev1 link wire1 type macvlan"),
        ("ifb", "ip link add dev1 type ifb"),
        ("tuntap", "ip tuntap add dev1 mode tap"),
    ] {
        if !kernel::has_or_skips_part(if kind == "tuntap" { "tap" } else { kind })? {
            continue;
        }
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(make)?;
        let net = Network::new(&node, &json!({"cniVersion": "1.0.0", "type": "host-device", "device": "dev1"}))?;
        net.add("c1")?;
        let before = state(&node, "c1")?;
        let answer = strayed(&net, 0, &json!({}))?;
        ensure!(answer.status == 0 && state(&node, "c1")? == before, "{kind}: {answer:?}");
        ensure!(answer.stderr.contains("leads to the container of net/c1/eth0, by its record"), "{kind}: {answer:?}");
        // An attachment of another network in the same container does not count as another container.
        net.call_at(0, "DEL", "c1", &json!({"name": "other"}))?.success()?;
        net.attachment("c1").del()?;
        node.sh("ip link show dev dev1")?;
    }
    Ok(())
}

/// Root in the container swaps the names of two links. A record lists one link under another interface. This link is
/// not taken for a node's device that a native plugin moved.
#[test]
fn a_link_of_another_interface_is_no_device_that_goes_home() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh("ip link add dev1 type veth peer name wire1")?;
    let network = |name: &str, plugins: &Value| -> Result<Network> {
        let list = json!({"cniVersion": "1.0.0", "name": name, "plugins": plugins});
        Ok(Network::new(&node, &list)?.interface(name))
    };
    let device = json!([{"type": "host-device", "device": "dev1"}, {"type": "tuning", "mtu": 1400}]);
    let device = network("eth0", &device)?;
    device.clone().at_by(0, &native_bin()?).add("c1")?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    network("net1", &json!([{"type": "bridge", "bridge": "br9", "ipam": ipam}]))?.add("c1")?;
    node.sh_in(
        "c1",
        "ip link set eth0 down; ip link set net1 down; ip link set eth0 name other; ip link set net1 name eth0
         ip link set other name net1; ip link set eth0 alias dev1",
    )?;
    let answer = device.call("DEL", "c1")?;
    let there = node.sh_in("c1", "ip -o link show dev eth0; ip -o link show dev net1")?;
    ensure!(there.contains("alias dev1"), "the other interface's link is gone: {there}\n{answer:?}");
    ensure!(answer.status == 0 && answer.stderr.contains("a record lists it for another attachment"), "{answer:?}");
    Ok(())
}
