//! macvlan, vlan, ipvlan, dummy and tap on a node: traffic between containers, links that share one parent, plans,
//! accounts and GC, and changes of such links by other programs. Many kernels lack some of these links, so
//! `tests/vm/kernel` also runs this test in a virtual machine.

#![allow(clippy::indexing_slicing, reason = "absent keys of a JSON object are null")]

use anyhow::{Context, Result, ensure};
use postern_tests::kernel::{has_or_skips, has_or_skips_part};
use postern_tests::proof::{Refusal, each};
use postern_tests::{Names, Network, Node, compare, merge, plugin_bin};
use serde_json::{Value, json};

/// A node with containers. Its link `uplink` leads to another node, `out`.
struct Place {
    node: Node,
}

impl Place {
    fn new(containers: &[&str]) -> Result<Self> {
        let node = Node::new()?;
        containers.iter().chain(&["out"]).try_for_each(|container| node.add_container(container))?;
        node.sh(
            "ip link add uplink address 02:00:00:00:ee:01 type veth peer name wan netns out; ip link set uplink up
             ip addr add 10.9.0.254/24 dev uplink; ip link add spare type veth peer name spare-end
             ip link set spare up; ip link set spare-end up; ip route add default via 10.9.0.253",
        )?;
        node.sh_in("out", "ip link set lo up; ip link set wan up")?;
        Ok(Self { node })
    }

    /// Returns a network of this plugin with one address, and the usual configuration changed by this patch.
    fn net(&self, plugin: &str, name: &str, address: &str, patch: &Value) -> Result<Network> {
        let ipam = json!({"type": "static", "addresses": [{"address": address}]});
        Ok(Network::new(&self.node, &config(plugin, name, patch))?.with(&json!({"ipam": ipam})))
    }

    /// Fails unless `to` answers as expected.
    fn ping(&self, from: &str, to: &str, answers: bool) -> Result<()> {
        let tries = if answers { "1 2 3 4 5" } else { "1 2" };
        let script = format!(
            "for t in {tries}; do ping -c 1 -W 1 {to} > /dev/null 2>&1 && {{ echo yes; exit; }}; sleep .1; done; echo no"
        );
        let answered = self.node.sh_in(from, &script)? == "yes\n";
        ensure!(answered == answers, "{from} to {to}: answered is {answered}");
        Ok(())
    }

    /// Runs `postern` with these arguments, and returns its output.
    fn postern(&self, arguments: &str) -> Result<String> {
        let postern = plugin_bin()?.join("postern");
        self.node.sh(&format!("{} {arguments} || [ $? -le 1 ]", postern.display()))
    }

    /// Returns the state of the node, without its files.
    fn snapshot(&self, containers: &[&str]) -> Result<Value> {
        let mut tree = self.node.snapshot(containers, &mut Names::new(""))?;
        tree["files"] = Value::Null;
        Ok(tree)
    }

    /// Fails unless the node is as in a snapshot of the same containers.
    fn is_as(&self, before: &Value, containers: &[&str]) -> Result<()> {
        let left: Vec<String> = compare(before, &self.snapshot(containers)?).iter().map(ToString::to_string).collect();
        ensure!(left.is_empty(), "{}", left.join("\n"));
        Ok(())
    }

    /// Returns the link `eth0` of a container, with its kind's attributes.
    fn own(&self, container: &str) -> Result<Value> {
        let [shown]: [Value; 1] = serde_json::from_str(&self.node.sh_in(container, "ip -j -d link show dev eth0")?)?;
        Ok(shown)
    }
}

fn has_parent(plugin: &str) -> bool {
    !["dummy", "tap"].contains(&plugin)
}

fn config(plugin: &str, network: &str, patch: &Value) -> Value {
    let mut config = json!({"name": network, "type": plugin});
    if has_parent(plugin) {
        merge(&mut config, &json!({"master": "uplink"}));
    }
    merge(&mut config, patch);
    config
}

fn refused(net: &Network, container: &str, code: u64, words: &str) -> Result<()> {
    Refusal::of(&net.call("ADD", container)?)?.expect(code, words)
}

/// Calls DEL without the result of the ADD.
fn del(net: &Network, container: &str) -> Result<()> {
    net.attachment(container).del()
}

/// For a master that looks like an attachment's host end, STATUS reads all records, after the gate has confined itself.
#[test]
fn status_takes_a_master_with_a_distant_end_or_a_bridge() -> Result<()> {
    let place = Place::new(&["c1"])?;
    place.node.sh("ip link add br7 type bridge; ip link set spare master br7")?;
    let status = |plugin: &str, master: &str| {
        let net = Network::new(&place.node, &json!({"type": plugin, "master": master, "mode": "bridge"}))?;
        net.call("STATUS", "")?.success().with_context(|| format!("STATUS of {plugin} on {master}"))
    };
    for with_record in [false, true] {
        if with_record {
            Network::new(&place.node, &json!({"type": "macvlan", "master": "uplink"}))?.add("c1")?;
        }
        for master in ["uplink", "spare"] {
            status("macvlan", master)?;
        }
    }
    Ok(())
}

#[test]
fn vlans_of_one_parent_are_apart() -> Result<()> {
    if !has_or_skips("vlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1", "c2", "c3"])?;
    place.node.sh_in(
        "out",
        "for id in 5 6; do ip link add link wan name wan.$id type vlan id $id; ip link set wan.$id up
         ip addr add 10.$id.0.1/16 dev wan.$id; done",
    )?;
    let in_vlan = |id: u32, address: &str| place.net("vlan", &format!("v{id}"), address, &json!({"vlanId": id}));
    let (one, two) = (in_vlan(5, "10.5.0.2/8")?, in_vlan(6, "10.6.0.2/8")?);
    one.add("c1")?;
    two.add("c2")?;
    // Each container reaches its VLAN on the wire, but not the other VLAN, although the VLANs' networks overlap.
    place.ping("c1", "10.5.0.1", true)?;
    place.ping("c2", "10.6.0.1", true)?;
    place.ping("c1", "10.6.0.2", false)?;
    place.ping("c2", "10.5.0.2", false)?;
    // Frames on the wire have the tag, so the untagged network does not reach the container.
    place.node.sh_in("out", "ip addr add 10.5.0.9/32 dev wan; ip route add 10.5.0.2/32 dev wan src 10.5.0.9")?;
    place.ping("out", "10.5.0.2", false)?;
    place.node.sh_in("out", "ip route del 10.5.0.2/32 dev wan; ip addr del 10.5.0.9/32 dev wan")?;
    // If a container has a VLAN of the parent, no other container gets it.
    refused(
        &in_vlan(5, "10.5.0.3/8")?,
        "c3",
        999,
        "failed to create vlan: file exists: VLAN 5 of \"uplink\" is in use, a container has it",
    )?;
    place.node.sh("ip link add link uplink name uplink.7 type vlan id 7")?;
    refused(&in_vlan(7, "10.7.0.3/8")?, "c3", 999, "VLAN 7 of \"uplink\" is in use, \"uplink.7\" has it")?;
    // The same VLAN number of another parent is another VLAN.
    in_vlan(5, "10.5.0.3/8")?.with(&json!({"master": "spare"})).add("c3")?;
    place.ping("c1", "10.5.0.3", false)?;
    for (container, net) in [("c1", &one), ("c2", &two), ("c3", &one)] {
        del(net, container)?;
    }
    one.add("c3")?;
    place.ping("c3", "10.5.0.1", true)?;
    del(&one, "c3")
}

/// Root in the container moves the attachment's link to namespace `nested`. The VLAN is in use, so DEL holds it and
/// says so.
#[test]
fn a_vlan_that_was_moved_below_is_held() -> Result<()> {
    if !has_or_skips("vlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1", "c2", "nested"])?;
    let vlan = place.net("vlan", "v5", "10.5.0.2/24", &json!({"vlanId": 5}))?;
    vlan.add("c1")?;
    place.node.sh(&format!("nsenter --net={} ip link set eth0 netns nested", place.node.netns("c1")))?;
    let answer = vlan.call("DEL", "c1")?;
    ensure!(
        answer.status == 0 && answer.stderr.contains("VLAN 5 of uplink is held: root in the container has moved"),
        "{answer:?}"
    );
    let listed = place.postern("ls --json")?;
    ensure!(listed.contains("\"state\": \"held\"") && listed.contains("VLAN 5 of uplink"), "{listed}");
    ensure!(place.postern("doctor")?.contains("VLAN 5 of uplink"), "doctor is silent");
    refused(
        &vlan,
        "c2",
        999,
        "VLAN 5 of \"uplink\" is in use, eth0 of container c1 had this VLAN, and the VLAN is held",
    )?;
    place.node.sh_in("nested", "ip link del eth0")?;
    place.postern("gc --yes")?;
    ensure!(place.postern("ls --json")?.trim() == "[]", "the VLAN is still held");
    vlan.add("c2")?;
    del(&vlan, "c2")
}

/// Root in the container has moved a macvlan or ipvlan. DEL succeeds, and says that the link may still be on the wire.
#[test]
fn a_macvlan_that_was_moved_below_is_told() -> Result<()> {
    for kind in ["macvlan", "ipvlan"] {
        if !has_or_skips_part(kind)? {
            continue;
        }
        let place = Place::new(&["c1", "nested"])?;
        let network = place.net(kind, kind, "10.9.0.2/24", &json!({}))?;
        network.add("c1")?;
        let answer = network.call("DEL", "c1")?;
        ensure!(answer.status == 0 && !answer.stderr.contains("not in the container"), "{answer:?}");
        network.add("c1")?;
        place.node.sh(&format!("nsenter --net={} ip link set eth0 netns nested", place.node.netns("c1")))?;
        let answer = network.call("DEL", "c1")?;
        ensure!(answer.status == 0 && answer.stderr.contains("has deleted or moved the link"), "{answer:?}");
    }
    Ok(())
}

/// A container with a fixed address ends and comes back at once, as in a restart. The kernel removes the old link a
/// little later.
#[test]
fn a_macvlan_with_a_fixed_address_comes_back_at_once() -> Result<()> {
    if !has_or_skips("macvlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1", "ended"])?;
    let mac = "02:00:00:00:0c:01";
    let fixed_mac = json!({"runtimeConfig": {"mac": mac}, "capabilities": {"mac": true}, "mac": mac});
    let network = place.net("macvlan", "m", "10.9.0.2/24", &fixed_mac)?;
    // A link that the kernel has not removed yet.
    place.node.sh(&format!(
        "ip link add dead0 link uplink netns {} address 02:00:00:00:0c:01 type macvlan mode bridge",
        place.node.netns("ended")
    ))?;
    place.node.sh_in("ended", "ip link set dead0 up; (sleep .5; ip link del dead0) > /dev/null 2>&1 &")?;
    network.add("c1")?;
    del(&network, "c1")
}

/// The wire leads to `out`. The mode decides whether a container reaches its sibling. In every mode the container
/// reaches `out`, but not its own node.
#[test]
fn macvlans_of_one_parent_reach_what_their_mode_says() -> Result<()> {
    if !has_or_skips("macvlan")? {
        return Ok(());
    }
    each(
        [("bridge", true), ("private", false), ("vepa", false)],
        |(mode, _)| (*mode).to_owned(),
        |(mode, siblings)| {
            let place = Place::new(&["c1", "c2"])?;
            place.node.sh_in("out", "ip addr add 10.8.0.1/24 dev wan")?;
            let on = |address: &str| place.net("macvlan", "m", address, &json!({"mode": mode}));
            on("10.8.0.2/24")?.add("c1")?;
            on("10.8.0.3/24")?.add("c2")?;
            for container in ["c1", "c2"] {
                place.ping(container, "10.8.0.1", true)?;
            }
            place.ping("c1", "10.8.0.3", *siblings)?;
            place.ping("c2", "10.8.0.2", *siblings)?;
            place.node.sh("ip addr add 10.8.0.254/24 dev uplink")?;
            place.ping("c1", "10.8.0.254", false)?;
            del(&on("10.8.0.2/24")?, "c1")?;
            place.ping("c2", "10.8.0.1", true)?;
            del(&on("10.8.0.3/24")?, "c2")
        },
    )
}

/// In mode "vepa", a switch that sends frames back connects the siblings. In mode "private" they stay separate.
#[test]
fn a_switch_that_sends_frames_back_joins_only_vepa() -> Result<()> {
    if !has_or_skips("macvlan")? {
        return Ok(());
    }
    each(
        [("private", false), ("vepa", true)],
        |(mode, _)| (*mode).to_owned(),
        |(mode, joined)| {
            let place = Place::new(&["c1", "c2"])?;
            place.node.sh_in(
                "out",
                "ip link add turn type bridge; ip link set wan master turn; bridge link set dev wan hairpin on; ip link set turn up",
            )?;
            let on = |address: &str| place.net("macvlan", "m", address, &json!({"mode": mode}));
            on("10.8.0.2/24")?.add("c1")?;
            on("10.8.0.3/24")?.add("c2")?;
            place.ping("c1", "10.8.0.3", *joined)
        },
    )
}

/// The container has the frames and the address of the link below. After DEL the node has them again.
#[test]
fn passthru_takes_the_whole_link() -> Result<()> {
    if !has_or_skips("macvlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1", "c2"])?;
    place.node.sh_in("out", "ip addr add 10.8.0.1/24 dev wan")?;
    let whole = place.net("macvlan", "m", "10.8.0.2/24", &json!({"mode": "passthru"}))?;
    let before = place.node.sh("ip -j -d link show dev uplink")?;
    whole.add("c1")?;
    ensure!(place.own("c1")?["address"] == "02:00:00:00:ee:01", "{}", place.own("c1")?);
    place.ping("c1", "10.8.0.1", true)?;
    // The kernel accepts no second macvlan on this link, in any mode.
    for mode in ["passthru", "bridge", "private", "vepa"] {
        let second = place.net("macvlan", "m2", "10.8.0.3/24", &json!({"mode": mode}))?;
        refused(&second, "c2", 999, "failed to create macvlan: invalid argument")?;
    }
    // Root in the container changes the address, which is also the address of the link below. DEL restores the address.
    place.node.sh_in(
        "c1",
        "ip link set eth0 down; ip link set eth0 address 02:00:00:00:ee:66; ip link set eth0 up promisc on",
    )?;
    ensure!(
        place.node.sh("ip -o link show dev uplink")?.contains("02:00:00:00:ee:66"),
        "the link below has not changed, so this test proves nothing"
    );
    del(&whole, "c1")?;
    let after = place.node.sh("ip -j -d link show dev uplink")?;
    ensure!(before == after, "{before}\n{after}");
    // A link with other links on it can't be taken in mode "passthru".
    let shared = place.net("macvlan", "m", "10.8.0.2/24", &json!({}))?;
    shared.add("c1")?;
    refused(&whole, "c2", 999, "failed to create macvlan: invalid argument")?;
    del(&shared, "c1")
}

#[test]
fn ipvlans_of_one_parent_reach_each_other() -> Result<()> {
    if !has_or_skips("ipvlan")? {
        return Ok(());
    }
    each(
        ["l2", "l3", "l3s"],
        |mode| (*mode).to_owned(),
        |mode| {
            let place = Place::new(&["c1", "c2", "c3"])?;
            let on = |address: &str| place.net("ipvlan", "i", address, &json!({"mode": mode}));
            on("10.8.0.2/24")?.add("c1")?;
            on("10.8.0.3/24")?.add("c2")?;
            place.ping("c1", "10.8.0.3", true)?;
            place.ping("c2", "10.8.0.2", true)?;
            place.node.sh_in("out", "ip addr add 10.8.0.1/24 dev wan")?;
            if *mode == "l2" {
                place.ping("c1", "10.8.0.1", true)?;
            } else {
                // In modes l3 and l3s the parent routes. The other node and the parent's namespace need a route.
                place.node.sh_in("out", "ip addr del 10.8.0.1/24 dev wan; ip addr add 10.9.0.253/24 dev wan; ip route add 10.8.0.0/24 via 10.9.0.254 || true; ip neigh replace 10.8.0.2 lladdr 02:00:00:00:ee:01 dev wan")?;
            }
            // All ipvlans have the address of their parent.
            let shown = place.own("c1")?;
            ensure!(
                shown["address"] == "02:00:00:00:ee:01" && shown["linkinfo"]["info_data"]["mode"] == *mode,
                "{shown}"
            );
            // Another mode would change the mode of all links on the parent. ADD refuses another mode, whoever owns the
            // other links.
            let other = if *mode == "l3" { "l2" } else { "l3" };
            let mixed = on("10.8.0.4/24")?.with(&json!({"mode": other}));
            refused(
                &mixed,
                "c3",
                999,
                &format!(
                    "\"uplink\" has a link in mode {mode}, and a link in mode {other} would change the mode of eth0 of container c"
                ),
            )?;
            let shown = place.own("c1")?;
            ensure!(shown["linkinfo"]["info_data"]["mode"] == *mode, "the refused ADD changed the mode: {shown}");
            place.ping("c1", "10.8.0.3", true)?;
            del(&on("10.8.0.2/24")?, "c1")?;
            del(&on("10.8.0.3/24")?, "c2")?;
            // When no ipvlan is left, the other mode is free.
            mixed.add("c3")?;
            del(&mixed, "c3")
        },
    )
}

#[test]
fn an_operators_ipvlan_decides_the_mode() -> Result<()> {
    if !has_or_skips("ipvlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1"])?;
    place.node.sh("ip link add link uplink name ipvl0 type ipvlan mode l3s")?;
    let l2 = place.net("ipvlan", "i", "10.8.0.2/24", &json!({}))?;
    refused(
        &l2,
        "c1",
        999,
        "\"uplink\" has a link in mode l3s, and a link in mode l2 would change the mode of \"ipvl0\"",
    )?;
    // If the master is an ipvlan, the kernel makes the new link a sibling of this ipvlan.
    refused(&l2.clone().with(&json!({"master": "ipvl0"})), "c1", 999, "has a link in mode l3s")?;
    l2.clone().with(&json!({"master": "ipvl0", "mode": "l3s"})).add("c1")?;
    let shown = place.node.sh("ip -d link show dev ipvl0")?;
    ensure!(shown.contains("mode l3s"), "{shown}");
    del(&l2, "c1")
}

/// A container's ipvlan on an operator's ipvlan shares the lowest link with all other ipvlans. The record must name
/// the lowest link: after the operator's ipvlan is deleted, only the record shows the lowest link.
#[test]
fn an_ipvlan_on_an_ipvlan_keeps_the_mode_of_the_lowest_link() -> Result<()> {
    if !has_or_skips("ipvlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1", "c2"])?;
    place.node.sh("ip link add link uplink name ipvl0 type ipvlan mode l2")?;
    let upper = place.net("ipvlan", "upper", "10.8.0.2/24", &json!({"master": "ipvl0"}))?;
    upper.add("c1")?;
    place.node.sh("ip link delete ipvl0")?;
    let lower = place.net("ipvlan", "lower", "10.8.0.3/24", &json!({"mode": "l3"}))?;
    refused(
        &lower,
        "c2",
        999,
        "\"uplink\" has a link in mode l2, and a link in mode l3 would change the mode of eth0 of container c1",
    )?;
    let shown = place.own("c1")?;
    ensure!(shown["linkinfo"]["info_data"]["mode"] == "l2", "the refused ADD changed the mode: {shown}");
    del(&upper, "c1")?;
    lower.add("c2")?;
    del(&lower, "c2")
}

/// The lower ipvlan is the container's own. After the DEL of the lower ipvlan, only the upper ipvlan is on the lowest
/// link.
#[test]
fn an_ipvlan_on_the_containers_ipvlan_keeps_the_mode_of_the_lowest_link() -> Result<()> {
    if !has_or_skips("ipvlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1", "c2"])?;
    let first = place.net("ipvlan", "first", "10.8.0.2/24", &json!({}))?.interface("net1");
    first.add("c1")?;
    place.node.sh_in("c1", "ip link set net1 up")?;
    let upper = place.net("ipvlan", "upper", "10.8.0.3/24", &json!({"master": "net1", "linkInContainer": true}))?;
    upper.add("c1")?;
    del(&first, "c1")?;
    let lower = place.net("ipvlan", "lower", "10.8.0.4/24", &json!({"mode": "l3"}))?;
    refused(
        &lower,
        "c2",
        999,
        "\"uplink\" has a link in mode l2, and a link in mode l3 would change the mode of eth0 of container c1",
    )?;
    del(&upper, "c1")?;
    lower.add("c2")?;
    del(&lower, "c2")
}

/// ipvlan follows a plugin whose result names the master. Policy has to name the master too, and the addresses.
#[test]
fn an_ipvlan_behind_another_plugin() -> Result<()> {
    if !has_or_skips("ipvlan")? {
        return Ok(());
    }
    let place = Place::new(&["c1"])?;
    place.node.sh(postern_tests::proof::PRIVATE_ETC)?;
    let previous = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "spare"}],
        "ips": [{"address": "10.8.0.7/24", "interface": 0}], "routes": [{"dst": "10.5.0.0/16"}]});
    let net = Network::new(&place.node, &json!({"type": "ipvlan", "name": "chained", "prevResult": previous}))?;
    refused(&net, "c1", 110, "parent.find on \"spare\"")?;
    let policy = "[grant.parent]\nnames = [\"${config.master | node.default-link}\", \"spare\"]\n[previous]\naddresses = [\"10.8.0.0/24\"]\n";
    std::fs::write(place.node.path("/etc/postern/policy/ipvlan.toml"), policy)?;
    let c1 = net.add("c1")?;
    let result = &c1.result;
    ensure!(result["ips"] == json!([{"address": "10.8.0.7/24", "interface": 0}]), "{result}");
    ensure!(
        result["routes"] == json!([{"dst": "10.5.0.0/16"}]) && result["interfaces"][0]["name"] == "eth0",
        "{result}"
    );
    let routes = place.node.sh_in("c1", "ip -o -4 addr show dev eth0; ip route")?;
    ensure!(routes.contains("10.8.0.7/24") && routes.contains("10.5.0.0/16 dev eth0"), "{routes}");
    c1.check()?;
    del(&net, "c1")?;
    ensure!(!place.node.sh_in("c1", "ip -o link")?.contains("eth0"), "the link stays");
    Ok(())
}

#[test]
fn a_dummy_is_reached_from_its_own_container_only() -> Result<()> {
    if !has_or_skips("dummy")? {
        return Ok(());
    }
    let place = Place::new(&["c1", "c2"])?;
    let dummy = |address: &str| place.net("dummy", "d", address, &json!({}));
    place.node.sh_in("c1", "ip link set lo up")?;
    dummy("10.8.0.2/24")?.add("c1")?;
    dummy("10.8.0.3/24")?.add("c2")?;
    place.ping("c1", "10.8.0.2", true)?;
    place.ping("c1", "10.8.0.3", false)?;
    place.ping("out", "10.8.0.2", false)?;
    del(&dummy("10.8.0.2/24")?, "c1")?;
    del(&dummy("10.8.0.3/24")?, "c2")
}

/// Returns a working network for each plugin.
fn networks() -> Result<Vec<Value>> {
    let mut networks = Vec::new();
    let leased = json!({"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.8.0.0/24"}]]}});
    for (plugin, patch) in [
        ("macvlan", json!({"mode": "vepa", "mtu": 1400})),
        ("vlan", json!({"vlanId": 5, "mtu": 1400})),
        ("ipvlan", json!({"mode": "l3"})),
        ("dummy", json!({})),
        ("tap", json!({"owner": 0, "mtu": 1400})),
    ] {
        if has_or_skips_part(plugin)? {
            let mut network = config(plugin, &format!("net-{plugin}"), &patch);
            merge(&mut network, &leased);
            networks.push(network);
        }
    }
    Ok(networks)
}

/// A plan lists the operation that makes the link, and the log of ADD has this operation too.
#[test]
fn plans_foretell_them() -> Result<()> {
    each(
        networks()?,
        |config| config["type"].to_string(),
        |config| {
            let place = Place::new(&["c1"])?;
            std::fs::write(place.node.path("/run/net.conf"), config.to_string())?;
            let plan: Value = serde_json::from_str(
                &place.postern("plan /run/net.conf --container c1 --netns /run/netns/c1 --json")?,
            )?;
            ensure!(plan["denied"].as_array().is_none_or(Vec::is_empty), "{plan:#}");
            let plugin = config["type"].as_str().unwrap_or_default();
            let words = plan.to_string();
            ensure!(words.contains(&format!("{plugin}.create")), "{plan:#}");
            let net = Network::new(&place.node, config)?;
            net.add("c1")?;
            let log = place.postern("log --json")?;
            ensure!(log.contains(&format!("{plugin}.create")), "{log}");
            del(&net, "c1")
        },
    )
}

/// `show` and `doctor` report a changed link, or a parent that is down.
#[test]
fn accounts_know_them() -> Result<()> {
    each(
        networks()?,
        |config| config["type"].to_string(),
        |config| {
            let place = Place::new(&["c1"])?;
            let plugin = config["type"].as_str().unwrap_or_default();
            let net = Network::new(&place.node, config)?;
            net.add("c1")?;
            let show = place.postern("show c1")?;
            let words = match plugin {
                "macvlan" => "eth0 on uplink, up, mode vepa",
                "vlan" => "eth0 on uplink, up, VLAN 5",
                "ipvlan" => "eth0 on uplink, up, mode l3",
                _ => "eth0",
            };
            ensure!(show.contains(words) && show.contains(plugin), "{show}");
            ensure!(place.postern("ls")?.contains("ok"), "{}", place.postern("ls")?);
            if has_parent(plugin) {
                place.node.sh("ip link set uplink down")?;
                let doctor = place.postern("doctor")?;
                ensure!(doctor.contains("uplink, the lower link of eth0, is down"), "{doctor}");
                place.node.sh("ip link set uplink up")?;
            }
            if plugin == "ipvlan" {
                place.node.sh("ip link add link uplink name ipvl0 type ipvlan mode l2")?;
                let show = place.postern("show c1")?;
                ensure!(show.contains("eth0 is in mode l2, and was made in mode l3"), "{show}");
                place.node.sh("ip link delete ipvl0")?;
            }
            place.node.sh_in("c1", "ip link delete eth0; ip link add eth0 type bridge")?;
            let show = place.postern("show c1")?;
            ensure!(show.contains(&format!("eth0 in the container is no {plugin}")), "{show}");
            // Root in the container deletes the link. DEL still removes the attachment.
            place.node.sh_in("c1", "ip link delete eth0")?;
            del(&net, "c1")?;
            ensure!(!place.postern("ls")?.contains("c1"), "a record is left");
            Ok(())
        },
    )
}

/// GC by the runtime and by an operator: in living containers, and in containers that are gone.
#[test]
fn collections_remove_them() -> Result<()> {
    each(
        networks()?,
        |config| config["type"].to_string(),
        |config| {
            let place = Place::new(&["c1", "c2", "c3"])?;
            let before = place.snapshot(&["c1"])?;
            let net = Network::new(&place.node, config)?;
            net.add("c1")?;
            // A parent has each VLAN only once.
            let plain = config["type"] != "vlan";
            if plain {
                net.add("c2")?;
                net.add("c3")?;
                place.node.remove_container("c3")?;
            }
            let keep = json!([{"containerID": "c2", "ifname": "eth0"}]);
            net.call_at(0, "GC", "c1", &json!({"cni.dev/valid-attachments": keep}))?.success()?;
            ensure!(!place.node.sh_in("c1", "ip -o link")?.contains("eth0"), "the link of c1 stays");
            let kept = place.node.sh_in("c2", "ip -o link")?;
            ensure!(kept.contains("eth0") == plain, "{kept}");
            if plain {
                place.node.remove_container("c2")?;
                place.postern("gc --yes")?;
            }
            place.is_as(&before, &["c1"])
        },
    )
}

/// An ADD that fails after it made the link leaves nothing. A second ADD does not change the first ADD's link.
#[test]
fn failures_leave_what_was_there() -> Result<()> {
    each(
        networks()?,
        |config| config["type"].to_string(),
        |config| {
            let place = Place::new(&["c1"])?;
            let before = place.snapshot(&["c1"])?;
            let net = Network::new(&place.node, config)?;
            let bad = json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.77.0.1"}]}});
            ensure!(net.call_at(0, "ADD", "c1", &bad)?.status == 1, "an unreachable gateway is accepted");
            place.is_as(&before, &["c1"])?;
            net.add("c1")?;
            let up = place.node.sh_in("c1", "ip -o link show dev eth0")?;
            ensure!(net.call("ADD", "c1")?.status == 1, "a second ADD succeeded");
            ensure!(place.node.sh_in("c1", "ip -o link show dev eth0")? == up, "the second ADD changed the link");
            // Root in the container renamed the link. The record identifies the link by its index.
            place.node.sh_in("c1", "ip link set eth0 down; ip link set eth0 name other0")?;
            let refusal = Refusal::of(&net.call("ADD", "c1")?)?;
            ensure!(refusal.text.contains("has a") && refusal.text.contains("\"other0\""), "{refusal:?}");
            del(&net, "c1")?;
            let links = place.node.sh_in("c1", "ip -o link")?;
            ensure!(!links.contains("other0") && !links.contains("eth0"), "{links}");
            Ok(())
        },
    )
}
