//! Links of the host that an earlier result names. A link in use is not attached, and an attached link is released.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::rogue;
use anyhow::{Context, Result};

/// The widest policy: any link, from any earlier result.
const ANY: &str =
    "[previous]\nnames = [\"*\"]\n[grant.point-to-point]\n[grant.bridge]\nnames = [\"hostile*\"]\nattach = [\"*\"]";
const PREVIOUS: &str = r#""bridge-previous-link""#;
const FIND: &str = r#"{"op": "bridge-find", "name": "hostile0"}"#;
const CREATE: &str = r#"{"op": "veth-create", "mtu": null, "mac": "02:00:00:00:00:11"}"#;

fn attach(bridge: u32, host: u32) -> String {
    format!(
        r#"{{"op": "bridge-attach", "bridge": {bridge}, "host": {host}, "port": {{"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}}}"#
    )
}

fn before(links: &str) -> String {
    format!(r#"{{"prevResult": {{"cniVersion": "1.1.0", "interfaces": [{links}]}}}}"#)
}

fn withstand(prepare: &str, attacks: &[(crate::attack::Attack, &str)]) -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(prepare)?;
    for (attack, links) in attacks {
        let attack = attack.clone().with(&before(links));
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

/// Links that must be refused, even under the widest policy.
#[test]
fn links_that_are_somebodys() -> Result<()> {
    let take = |name, words| {
        let steps = format!("[{FIND}, {PREVIOUS}, {}]", attach(0, 1));
        rogue(name, &steps).policy(ANY).ends(999, words)
    };
    let prepare = r"
        ip link add dr0 type veth peer name dr1; ip link set dr0 up; ip link set dr1 up
        ip route add default dev dr0 metric 77; ip -6 route add default dev dr0 metric 77
        ip link add low0 type veth peer name low1; ip link add link low0 name up0 type macvlan
        ip link add tap0 address 02:00:00:00:00:21 type veth peer name tap1
        ip link add nat0 type veth peer name nat1; ip link set nat1 netns c2";
    withstand(
        prepare,
        &[
            (take("the operator's link", "\"op0\" has the node's address 192.0.2.1/24"), r#"{"name": "op0"}"#),
            (take("the way out of the node", "\"dr0\" has a default route of the node"), r#"{"name": "dr0"}"#),
            (take("a link that carries another", "\"low0\" carries \"up0\""), r#"{"name": "low0"}"#),
            (take("the bystander's bridge", "\"cni0\" is a bridge itself"), r#"{"name": "cni0"}"#),
            (take("the loopback link", "\"lo\" has the node's address 127.0.0.1/8"), r#"{"name": "lo"}"#),
            (take("a container's of a native plugin", "\"nat0\" belongs to another attachment"), r#"{"name": "nat0"}"#),
            (
                take("another link by that name", "but its address is 02:00:00:00:00:21"),
                r#"{"name": "tap0", "mac": "02:00:00:00:00:22"}"#,
            ),
            (take("one of several", "it is not clear which link to attach"), r#"{"name": "tap0"}, {"name": "tap1"}"#),
            (take("a link that is gone", "is gone"), r#"{"name": "tap9"}"#),
            (take("a path", "no such handle"), r#"{"name": "../tap0"}"#),
            (take("no name", "is gone"), r#"{"name": ""}"#),
        ],
    )
}

/// The host ends of other attachments, whether or not they are still ports: the records name them.
#[test]
fn host_ends_of_others() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let script = "ip -o link show master cni0 | grep -o 'veth[0-9a-f]*' | head -1";
    let port = attacked.node().sh(script)?.trim().to_owned();
    let links = before(&format!(r#"{{"name": "{port}"}}"#));
    let steps = format!("[{FIND}, {PREVIOUS}, {}]", attach(0, 1));
    let take = |words| rogue("the bystander's host end", &steps).policy(ANY).with(&links).ends(999, words);
    take("is a port of \"cni0\" already").withstood_by(&mut attacked)?;
    attacked.prepare(&format!("ip link set {port} nomaster"))?;
    take("belongs to another attachment").withstood_by(&mut attacked)
}

#[test]
fn links_that_nobody_granted() -> Result<()> {
    let steps = format!("[{FIND}, {PREVIOUS}, {}]", attach(0, 1));
    let tap = r#"{"name": "tap0"}"#;
    let word = "[grant.bridge]\nnames = [\"hostile0\"]\nattach = [\"tap*\"]";
    let other = "[previous]\nnames = [\"tap0\"]\n[grant.bridge]\nnames = [\"hostile0\"]\nattach = [\"vm*\"]";
    withstand(
        "ip link add tap0 type veth peer name tap1",
        &[
            (rogue("as shipped", &steps).ends(999, "no such handle was given out"), tap),
            (rogue("another name", &steps).policy(other).ends(999, "no such handle was given out"), tap),
            (
                rogue("with a name that no policy grants", &steps).policy(word).ends(
                    110,
                    "no record says that an earlier plugin made this link…previous = { names = [\"tap0\"] }",
                ),
                tap,
            ),
            (
                rogue("in the container", &steps).policy(ANY).ends(999, "no such handle"),
                r#"{"name": "tap0", "sandbox": "/run/netns/c1"}"#,
            ),
            (rogue("on DEL", &steps).policy(ANY).on("DEL").ends(110, "bridge.attach is not for DEL"), tap),
            (rogue("on CHECK", &steps).policy(ANY).on("CHECK").ends(110, "bridge.attach is not for CHECK"), tap),
        ],
    )
}

/// An attachment gets one port. The gate allows no other operation on the link that is this port.
#[test]
fn a_link_beside_a_pair_and_more_than_joining() -> Result<()> {
    let of = |name, list: &[&str]| rogue(name, &format!("[{}]", list.join(","))).policy(ANY);
    let required = "[previous]\nnames = [\"tap0\"]\n[grant.mac-guard]\nrequired = \"true\"\n[grant.bridge]\nnames = [\"hostile0\"]\nattach = [\"tap0\"]";
    let demanding = "[previous]\nnames = [\"tap0\"]\n[grant.bridge]\nnames = [\"hostile0\"]\nisolated = \"true\"\nattach = [\"tap0\"]";
    let (join, first, second) = (attach(1, 0), attach(0, 1), attach(3, 0));
    let tap = r#"{"name": "tap0"}"#;
    let behind = r#"{"name": "tap0"}, {"name": "eth0", "mac": "02:00:00:00:00:31", "sandbox": "/run/netns/c1"}"#;
    let guard = r#"{"op": "mac-guard-ensure", "host": 0, "mac": "02:00:00:00:00:11"}"#;
    let other = r#"{"op": "mac-guard-ensure", "host": 0, "mac": "02:00:00:00:00:12"}"#;
    let find_other = r#"{"op": "bridge-find", "name": "hostile9"}"#;
    withstand(
        "ip link add tap0 type veth peer name tap1; ip link set tap0 up; ip link set tap0 down; ip link add hostile9 type bridge",
        &[
            (
                of("a pair behind it", &[PREVIOUS, FIND, &join, CREATE])
                    .ends(999, "has joined \"hostile0\" with \"tap0\" already"),
                tap,
            ),
            (of("a pair before it", &[CREATE, PREVIOUS]).ends(999, "this attachment has a pair already"), tap),
            (
                of("a pair in between", &[PREVIOUS, CREATE, FIND, &second])
                    .ends(999, "this attachment has a pair already"),
                tap,
            ),
            (
                of("another bridge then", &[PREVIOUS, FIND, &join, find_other, &attach(2, 0)])
                    .ends(999, "has joined \"hostile0\" with \"tap0\" already"),
                tap,
            ),
            (
                of("routes and a gateway on it", &[PREVIOUS, r#"{"op": "point-to-point-ensure", "host": 0}"#])
                    .ends(999, "the handle of \"tap0\" is not for the attachment's host end"),
                tap,
            ),
            (
                of("delete it", &[PREVIOUS, r#"{"op": "link-delete", "link": 0}"#])
                    .ends(999, "the handle of \"tap0\" is not"),
                tap,
            ),
            (
                of("set it up as the own link", &[PREVIOUS, r#"{"op": "link-up", "link": 0}"#])
                    .ends(999, "the handle of \"tap0\" is not"),
                tap,
            ),
            (of("attach a bridge to it", &[FIND, PREVIOUS, &attach(1, 0)]).ends(999, "is not"), tap),
            (
                of("let it pass unguarded", &[PREVIOUS, FIND, &join])
                    .policy(required)
                    .ends(999, "left out the spoofing protection"),
                tap,
            ),
            (
                of("a guard and no port", &[PREVIOUS, guard])
                    .policy(required)
                    .ends(999, "left out the spoofing protection"),
                tap,
            ),
            (
                of("guard another address", &[PREVIOUS, FIND, &join, guard])
                    .ends(999, "is not the address of the container's end"),
                behind,
            ),
            (
                of("guard two addresses", &[PREVIOUS, guard, other])
                    .ends(999, "is not the address of the container's end"),
                tap,
            ),
            (
                of("join without isolation", &[FIND, PREVIOUS, &first])
                    .policy(demanding)
                    .ends(110, "without isolation of the port"),
                tap,
            ),
        ],
    )
}
