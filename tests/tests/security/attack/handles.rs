//! Handles: numbers that were not given out, handles of another kind of object, and handles of deleted objects.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{rogue, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;

#[test]
fn forged_handles() -> Result<()> {
    let never = "no such handle was given out";
    withstand(&[
        rogue("a handle before any was given out", r#"[{"op": "link-up", "link": 0}]"#).ends(999, never),
        rogue(
            "the number of the earlier run's host end",
            r#"[{"op": "mac-guard-ensure", "host": 1, "mac": "02:00:00:00:00:01"}]"#,
        )
        .ends(999, never),
        rogue("the next handle", r#"["veth-create", {"op": "link-up", "link": 2}]"#).ends(999, never),
        rogue("the greatest handle", r#"["veth-create", {"op": "link-attributes", "link": 4294967295}]"#)
            .ends(999, never),
        rogue("a handle beyond 32 bits", r#"[{"op": "link-up", "link": 4294967296}]"#).ends(999, "malformed message"),
        rogue("a negative handle", r#"[{"op": "link-up", "link": -1}]"#).ends(999, "malformed message"),
        rogue("a handle that is a name", r#"[{"op": "link-delete", "link": "cni0"}]"#).ends(999, "malformed message"),
    ])
}

#[test]
fn handles_of_another_kind() -> Result<()> {
    let own = "is not for the attachment's own link";
    let end = "is not for the attachment's host end";
    let of = |name, last: &str| {
        rogue(name, &format!(r#"["veth-create", {{"op": "bridge-find", "name": "hostile0"}}, {last}]"#))
    };
    withstand(&[
        of("set the host end up as if it were the container's", r#"{"op": "link-up", "link": 1}"#).ends(999, own),
        of("delete a bridge", r#"{"op": "link-delete", "link": 2}"#).ends(999, own),
        of("delete the host end", r#"{"op": "link-delete", "link": 1}"#).ends(999, own),
        of("an address on a bridge", r#"{"op": "addresses-add", "link": 2, "addresses": []}"#).ends(999, own),
        of("a route through a bridge", r#"{"op": "routes-add", "link": 2, "routes": [{"dst": "0.0.0.0/0"}]}"#).ends(999, own),
        of("routes of the host end", r#"{"op": "routes-list", "link": 1}"#).ends(999, own),
        of("ask for a route of the host end", r#"{"op": "routes-has", "link": 1, "routes": [{"dst": "0.0.0.0/0"}]}"#).ends(999, own),
        of("ask for an address of a bridge", r#"{"op": "addresses-has", "link": 2, "addresses": ["10.9.0.1/24"]}"#).ends(999, own),
        of("a sysctl of a bridge", r#"{"op": "sysctl-set", "link": 2, "key": "arp_notify", "value": true}"#)
            .policy("[grant.link-sysctl]")
            .ends(999, own),
        of("attach a bridge to itself", r#"{"op": "bridge-attach", "bridge": 2, "host": 2, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}"#)
            .ends(999, end),
        of("attach the container's end", r#"{"op": "bridge-attach", "bridge": 2, "host": 0, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}"#)
            .ends(999, end),
        of("attach to a host end", r#"{"op": "bridge-attach", "bridge": 1, "host": 1, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}"#)
            .ends(999, "is not for a granted bridge"),
        of("guard a bridge", r#"{"op": "mac-guard-ensure", "host": 2, "mac": "02:00:00:00:00:01"}"#).ends(999, end),
        of("route to a bridge", r#"{"op": "point-to-point-ensure", "host": 2}"#).policy("[grant.point-to-point]").ends(999, end),
        of("gateways on the own link", r#"{"op": "bridge-ensure-gateways", "bridge": 0, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}, "force": false}"#)
            .ends(999, "gateways are only for the port with which this attachment joined the bridge"),
    ])
}

#[test]
fn handles_of_what_is_gone() -> Result<()> {
    let gone =
        |name, last: &str| rogue(name, &format!(r#"["veth-create", {{"op": "link-delete", "link": 0}}, {last}]"#));
    withstand(&[
        gone("set up a link that was deleted", r#"{"op": "link-up", "link": 0}"#).ends(999, "no such device"),
        gone("look at a link that was deleted", r#"{"op": "link-attributes", "link": 0}"#)
            .ends(999, "link \"eth0\" is gone"),
        gone("wait for a host end that was deleted", r#"{"op": "veth-wait-running", "host": 1}"#).ends(999, "is gone"),
        gone(
            "route through a link that was deleted",
            r#"{"op": "routes-add", "link": 0, "routes": [{"dst": "0.0.0.0/0"}]}"#,
        )
        .ends(999, "no such device"),
        gone("two pairs, one after the other", r#""veth-create", {"op": "link-up", "link": 0}"#)
            .ends(999, "no such device"),
        rogue("two pairs at a time", r#"["veth-create", "veth-create"]"#).ends(999, "already exists"),
    ])
}

/// While a plugin runs, root in the container replaces the plugin's link by another link.
#[test]
fn a_link_replaced_by_the_containers_root() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let attack = rogue("replaced", r#"["veth-create", {"sleep": 1000}, {"op": "link-up", "link": 0}]"#);
    let replace = "ip link del eth0; ip link add eth0 type bridge";
    let answer = attack.call_while(&attacked, "veth.create", || attacked.node().sh_in("c1", replace))?;
    Refusal::of(&answer)?.expect(999, "no such device")?;
    let link = attacked.node().sh_in("c1", "ip -d link show eth0; ip link del eth0")?;
    ensure!(link.contains("bridge") && link.contains("state DOWN"), "the other link was changed: {link}");
    attacked.unchanged()
}
