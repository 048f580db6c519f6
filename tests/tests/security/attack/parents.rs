//! Parent links: links that policy does not grant, links in the wrong namespace, links of another attachment, and links
//! that the guest tries to change.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{rogue, withstand};
use anyhow::{Context, Result, anyhow};
use postern_tests::proof::Refusal;
use serde_json::{Value, json};
use std::time::Duration;

const FIND: &str = r#"{"op": "parent-find", "name": "wire0", "in_container": false}"#;

#[test]
fn parents_that_are_not_granted() -> Result<()> {
    let find = |name, link: &str, in_container: bool| {
        rogue(name, &format!(r#"[{{"op": "parent-find", "name": "{link}", "in_container": {in_container}}}]"#))
    };
    let inside = "[grant.parent]\nnames = [\"net1\"]\nin-container = \"true\"";
    withstand(&[
        find("a link of the operator's", "op0", false).ends(110, "parent.find on \"op0\""),
        find("a bridge", "cni0", false).ends(110, "parent.find on \"cni0\""),
        find("the link of the default route", "", false).ends(110, "on the link of the default route"),
        find("a policy's placeholder for this link", "node.default-link", false).ends(110, "on \"node.default-link\""),
        find("a link of the container", "wire0", true).ends(110, "\"wire0\" in the container"),
        find("a link of the host, where one of the container is meant", "net1", false)
            .policy(inside)
            .ends(110, "\"net1\" on the host"),
        find("another link of the container", "lo", true).policy(inside).ends(110, "parent.find on \"lo\""),
        find("a granted link that the container does not have", "net1", true)
            .policy(inside)
            .ends(999, "Link not found"),
        find("a name that no link has", "wire0/../op0", false).ends(110, "parent.find on"),
        find("a name of 200 bytes", &"w".repeat(200), false)
            .policy("[grant.parent]\nnames = [\"w*\"]")
            .ends(999, "Link not found"),
        find("without the grant", "wire0", false).policy("withdraw = [\"parent\"]").ends(110, "parent.find"),
    ])
}

#[test]
fn parents_are_not_changed() -> Result<()> {
    let with = |name, last: &str| rogue(name, &format!("[{FIND}, {last}]"));
    let own = "is not for the attachment's own link";
    withstand(&[
        with("delete it", r#"{"op": "link-delete", "link": 0}"#).ends(999, own),
        with("set it up", r#"{"op": "link-up", "link": 0}"#).ends(999, own),
        with("an address on it", r#"{"op": "addresses-add", "link": 0, "addresses": []}"#).ends(999, own),
        with("a route through it", r#"{"op": "routes-add", "link": 0, "routes": [{"dst": "0.0.0.0/0"}]}"#).ends(999, own),
        with("a sysctl of it", r#"{"op": "sysctl-set", "link": 0, "key": "ndisc_notify", "value": true}"#)
            .policy("[grant.link-sysctl]")
            .ends(999, own),
        with("make it a port", r#"{"op": "bridge-find", "name": "hostile0"}, {"op": "bridge-attach", "bridge": 1, "host": 0, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}"#)
            .ends(999, "is not for the attachment's host end"),
        with("guard it", r#"{"op": "mac-guard-ensure", "host": 0, "mac": "02:00:00:00:00:01"}"#)
            .ends(999, "is not for the attachment's host end"),
    ])
}

#[test]
fn links_that_may_not_be_stacked() -> Result<()> {
    let create = |parent: u32, mode: &str| {
        format!(
            r#"{{"op": "macvlan-create", "parent": {parent}, "mode": "{mode}", "mtu": null, "mac": null, "queue": null}}"#
        )
    };
    let steps = |name, steps: &[&str]| rogue(name, &format!("[{}]", steps.join(", ")));
    let bridge = r#"{"op": "bridge-find", "name": "hostile0"}"#;
    let of_parent = "is not for a link to stack on";
    withstand(&[
        steps("all frames of the parent", &[FIND, &create(0, "passthru")]).ends(110, "macvlan.create on \"passthru\""),
        steps("a mode that does not exist", &[FIND, &create(0, "source")]).ends(999, "malformed message"),
        steps(
            "an MTU that the network does not name",
            &[FIND, &create(0, "bridge").replace(r#""mtu": null"#, r#""mtu": 1400"#)],
        )
        .ends(110, "with MTU 1400"),
        steps("an MTU beyond the parent's", &[FIND, &create(0, "bridge").replace(r#""mtu": null"#, r#""mtu": 9000"#)])
            .policy("[grant.macvlan]\nmodes = [\"bridge\"]\nmtu = \"9000\"")
            .ends(999, "invalid MTU 9000, must be [0, master MTU(1500)]"),
        steps(
            "the broadcast address",
            &[FIND, &create(0, "bridge").replace(r#""mac": null"#, r#""mac": "ff:ff:ff:ff:ff:ff""#)],
        )
        .ends(999, "cannot assign requested address"),
        steps("on a bridge", &[bridge, &create(0, "bridge")]).ends(999, of_parent),
        steps("on the own link", &["\"veth-create\"", &create(0, "bridge")]).ends(999, of_parent),
        steps("on the host end", &["\"veth-create\"", &create(1, "bridge")]).ends(999, of_parent),
        steps("on nothing", &[&create(0, "bridge")]).ends(999, "no such handle was given out"),
        steps("on the link that stands on it", &[FIND, &create(0, "bridge"), &create(1, "bridge")])
            .ends(999, of_parent),
        steps("two", &[FIND, &create(0, "bridge"), &create(0, "bridge")]).ends(999, "has \"eth0\" already"),
        steps("beside a pair", &["\"veth-create\"", FIND, &create(2, "bridge")]).ends(999, "has \"eth0\" already"),
        steps("a pair beside it", &[FIND, &create(0, "bridge"), "\"veth-create\""]).ends(999, "already exists"),
        steps("without the grant", &[FIND, &create(0, "bridge")])
            .policy("withdraw = [\"macvlan\"]")
            .ends(110, "macvlan.create"),
        steps("on CHECK", &[FIND, &create(0, "bridge")]).on("CHECK").ends(110, "macvlan.create is not for CHECK"),
        steps("on DEL", &[FIND, &create(0, "bridge")]).on("DEL").ends(110, "macvlan.create is not for DEL"),
    ])
}

/// The gate refuses these calls before it asks the kernel. So the test also works on a kernel without such links.
#[test]
fn vlans_ipvlans_and_dummies_that_are_not_granted() -> Result<()> {
    let vlan = |parent: u32, id: u32, mtu: &str| {
        format!(r#"{{"op": "vlan-create", "parent": {parent}, "id": {id}, "mtu": {mtu}}}"#)
    };
    let ipvlan = |parent: u32, mode: &str, mtu: &str| {
        format!(r#"{{"op": "ipvlan-create", "parent": {parent}, "mode": "{mode}", "mtu": {mtu}}}"#)
    };
    let steps = |name, steps: &[&str]| rogue(name, &format!("[{}]", steps.join(", ")));
    let bridge = r#"{"op": "bridge-find", "name": "hostile0"}"#;
    let of_parent = "is not for a link to stack on";
    let all = "[grant.vlan]\nids = [\"7\"]\nmtu = \"9000\"\n[grant.ipvlan]\nmodes = [\"l2\"]\n[grant.dummy]";
    let looks = "[grant.vlan]\nids = [\"7\"]\nlook-only = \"true\"\n[grant.ipvlan]\nmodes = [\"l2\"]\nlook-only = \"true\"\n[grant.dummy]\nlook-only = \"true\"";
    withstand(&[
        steps("a VLAN without the grant", &[FIND, &vlan(0, 7, "null")]).ends(110, "vlan.create"),
        steps("an ipvlan without the grant", &[FIND, &ipvlan(0, "l2", "null")]).ends(110, "ipvlan.create"),
        steps("a dummy without the grant", &["\"dummy-create\""]).ends(110, "dummy.create"),
        steps("another VLAN", &[FIND, &vlan(0, 8, "null")]).policy(all).ends(110, "vlan.create on \"8\""),
        steps("VLAN 0", &[FIND, &vlan(0, 0, "null")]).policy(all).ends(110, "vlan.create on \"0\""),
        steps("VLAN 4095", &[FIND, &vlan(0, 4095, "null")]).policy(all).ends(110, "no policy can allow it"),
        steps("a VLAN beyond 16 bits", &[FIND, &vlan(0, 65543, "null")]).policy(all).ends(999, "malformed message"),
        steps("an MTU that the network does not name", &[FIND, &vlan(0, 7, "1400")])
            .policy(all)
            .ends(110, "with MTU 1400"),
        steps("an MTU beyond the parent's", &[FIND, &vlan(0, 7, "9000")])
            .policy(all)
            .ends(999, "invalid MTU 9000, must be [0, master MTU(1500)]"),
        steps("another mode", &[FIND, &ipvlan(0, "l3", "null")]).policy(all).ends(110, "ipvlan.create on \"l3\""),
        steps("a mode that does not exist", &[FIND, &ipvlan(0, "l4", "null")])
            .policy(all)
            .ends(999, "malformed message"),
        steps("an ipvlan's MTU", &[FIND, &ipvlan(0, "l2", "1400")]).policy(all).ends(110, "with MTU 1400"),
        steps("a VLAN of a bridge", &[bridge, &vlan(0, 7, "null")]).policy(all).ends(999, of_parent),
        steps("an ipvlan on a bridge", &[bridge, &ipvlan(0, "l2", "null")]).policy(all).ends(999, of_parent),
        steps("a VLAN of the own link", &["\"veth-create\"", &vlan(0, 7, "null")]).policy(all).ends(999, of_parent),
        steps("an ipvlan on the host end", &["\"veth-create\"", &ipvlan(1, "l2", "null")])
            .policy(all)
            .ends(999, of_parent),
        steps("a VLAN of nothing", &[&vlan(0, 7, "null")]).policy(all).ends(999, "no such handle was given out"),
        steps("a VLAN beside a pair", &["\"veth-create\"", FIND, &vlan(2, 7, "null")])
            .policy(all)
            .ends(999, "has \"eth0\" already"),
        steps("a dummy beside a pair", &["\"veth-create\"", "\"dummy-create\""])
            .policy(all)
            .ends(999, "has \"eth0\" already"),
        steps(
            "a dummy beside a macvlan",
            &[
                FIND,
                r#"{"op": "macvlan-create", "parent": 0, "mode": "bridge", "mtu": null, "mac": null, "queue": null}"#,
                "\"dummy-create\"",
            ],
        )
        .policy(all)
        .ends(999, "has \"eth0\" already"),
        steps("only to look: a VLAN", &[FIND, &vlan(0, 7, "null")]).policy(looks).ends(110, "vlan.create"),
        steps("only to look: an ipvlan", &[FIND, &ipvlan(0, "l2", "null")]).policy(looks).ends(110, "ipvlan.create"),
        steps("only to look: a dummy", &["\"dummy-create\""]).policy(looks).ends(110, "dummy.create"),
        steps("a VLAN on CHECK", &[FIND, &vlan(0, 7, "null")])
            .policy(all)
            .on("CHECK")
            .ends(110, "vlan.create is not for CHECK"),
        steps("an ipvlan on DEL", &[FIND, &ipvlan(0, "l2", "null")])
            .policy(all)
            .on("DEL")
            .ends(110, "ipvlan.create is not for DEL"),
        steps("a dummy on GC", &["\"dummy-create\""]).policy(all).on("GC").ends(110, "dummy.create is not for GC"),
    ])
}

/// The operator has granted any link. This does not include a link of another attachment.
#[test]
fn the_host_end_of_another_attachment() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("rogue", "[grant.parent]\nnames = [\"*\"]")?;
    let links: Value = serde_json::from_str(&attacked.node().sh("ip -j link show master cni0")?)?;
    let end = links.pointer("/0/ifname").and_then(Value::as_str).context("c2 has no host end")?;
    let steps = json!([{"op": "parent-find", "name": end, "in_container": false}]).to_string();
    let answer = rogue("another attachment's host end", &steps).call(&attacked)?;
    Refusal::of(&answer)?.expect(110, "is the host end of another attachment")?;
    attacked.operator_policy("rogue", "")?;
    attacked.unchanged()
}

/// After the gate looked at a parent, the link is deleted and another link gets its name. No link is stacked on the
/// other link.
#[test]
fn a_parent_replaced_between_look_and_act() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let policy = "[grant.parent]\nnames = [\"swap0\"]\n[grant.macvlan]\nmodes = [\"bridge\"]\n[grant.vlan]\nids = [\"7\"]\n[grant.ipvlan]\nmodes = [\"l2\"]";
    attacked.operator_policy("rogue", policy)?;
    attacked.look()?;
    for (create, words) in [
        (
            r#"{"op": "macvlan-create", "parent": 0, "mode": "bridge", "mtu": null, "mac": null, "queue": null}"#,
            "no such device",
        ),
        (r#"{"op": "vlan-create", "parent": 0, "id": 7, "mtu": null}"#, "link \"parent\" is gone"),
        (r#"{"op": "ipvlan-create", "parent": 0, "mode": "l2", "mtu": null}"#, "link \"parent\" is gone"),
    ] {
        attacked.node().sh("ip link add swap0 type veth peer name swap1")?;
        let find = FIND.replace("wire0", "swap0");
        let attack = rogue("replaced", &format!(r#"[{find}, {{"sleep": 1000}}, {create}]"#));
        let answer = std::thread::scope(|scope| {
            let running = scope.spawn(|| attack.call(&attacked));
            std::thread::sleep(Duration::from_millis(400));
            attacked
                .node()
                .sh("ip link del swap0; ip link add swap0 type veth peer name swap1; ip link set swap0 up")?;
            running.join().map_err(|_| anyhow!("the caller panicked"))?
        })?;
        Refusal::of(&answer)?.expect(999, words)?;
        attacked.node().sh("ip link del swap0")?;
        attacked.unchanged().context(create)?;
    }
    Ok(())
}

/// A macvlan asks for the address of its parent, or of another macvlan on the parent. The kernel refuses both requests,
/// and the other macvlan keeps its address.
#[test]
fn a_macvlan_with_the_address_of_another() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(
        "ip link set wire0 address 02:00:00:00:0b:01
         ip link add near0 link wire0 address 02:00:00:00:0b:02 type macvlan mode bridge; ip link set near0 up",
    )?;
    for (whose, mac, words) in [
        ("the parent's", "02:00:00:00:0b:01", "address already in use"),
        ("the neighbour's", "02:00:00:00:0b:02", "address already in use"),
        ("a group's", "01:00:5e:00:00:01", "cannot assign requested address"),
        ("none", "00:00:00:00:00:00", "cannot assign requested address"),
    ] {
        let create = format!(
            r#"{{"op": "macvlan-create", "parent": 0, "mode": "bridge", "mtu": null, "mac": "{mac}", "queue": null}}"#
        );
        let answer =
            rogue("address", &format!(r#"[{FIND}, {create}, {{"op": "link-up", "link": 1}}]"#)).call(&attacked)?;
        Refusal::of(&answer)?.expect(999, words).context(whose)?;
        attacked.unchanged().context(whose)?;
    }
    attacked.node().sh("ip link del near0").map(drop)
}

/// The address of a neighbour on a bridge does not belong to this attachment, even if this attachment's link is on
/// another parent.
#[test]
fn an_address_held_on_another_parent() -> Result<()> {
    let foreign = "is not an address of this attachment: neither IPAM nor prevResult gave it";
    let create = r#"{"op": "macvlan-create", "parent": 0, "mode": "bridge", "mtu": null, "mac": null, "queue": null}"#;
    let with = |name, address: &str| {
        let add = format!(r#"{{"op": "addresses-add", "link": 1, "addresses": ["{address}"]}}"#);
        rogue(name, &format!("[{FIND}, {create}, {add}]"))
    };
    withstand(&[
        with("the neighbour's lease", "10.9.0.2/24").ends(999, foreign),
        with("the bystander's address", "10.77.0.2/24").ends(999, foreign),
        with("the node's address", "192.0.2.1/24").ends(999, foreign),
    ])
}

/// Root in the container has a link whose alternative name is `eth0`. This link blocks ADD, and is not changed.
#[test]
fn a_name_that_the_container_made() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.node().sh_in("c1", "ip link add hid0 type bridge; ip link property add dev hid0 altname eth0")?;
    attacked.look()?;
    for attack in [
        rogue(
            "macvlan",
            &format!(
                r#"[{FIND}, {{"op": "macvlan-create", "parent": 0, "mode": "bridge", "mtu": null, "mac": null, "queue": null}}]"#
            ),
        ),
        rogue("dummy", r#"["dummy-create"]"#).policy("[grant.dummy]"),
        rogue("device", r#"[{"op": "device-take", "by": "name", "value": "wire1"}]"#)
            .policy("[grant.device]\nnames = [\"wire1\"]"),
    ] {
        attacked.operator_policy("rogue", attack.policy)?;
        Refusal::of(&attack.call(&attacked)?)?.expect(999, "has \"eth0\" already").context(attack.name)?;
        attacked.operator_policy("rogue", "")?;
        attacked.unchanged().context(attack.name)?;
    }
    Ok(())
}
