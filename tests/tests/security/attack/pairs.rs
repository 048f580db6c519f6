//! An attachment has one living pair, and the gate checks this pair for the properties that policy requires. The tests
//! are sequences of operations by the plugin and by root in the container. Each single operation is allowed.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{rogue, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;

/// Spoofing protection is required. The plugin's own policy file grants the bridge.
const REQUIRED: &str = "[grant.mac-guard]\nrequired = \"true\"";

const CREATE: &str = r#"{"op": "veth-create", "mtu": null, "mac": "02:00:00:00:00:11"}"#;
const FIND: &str = r#"{"op": "bridge-find", "name": "hostile0"}"#;
const DELETE: &str = r#"{"op": "link-delete", "link": 0}"#;
const PAUSE: &str = r#"{"sleep": 900}"#;
const LEFT_OUT: &str = "left out the spoofing protection that this network asks for; …[grant.mac-guard] required";

/// Handles: 0 and 1 are the pair, 2 is the bridge, and 3 and 4 are the next pair.
fn attach(host: u32) -> String {
    format!(
        r#"{{"op": "bridge-attach", "bridge": 2, "host": {host}, "port": {{"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}}}"#
    )
}

fn guard(host: u32) -> String {
    format!(r#"{{"op": "mac-guard-ensure", "host": {host}, "mac": "02:00:00:00:00:11"}}"#)
}

fn steps(steps: &[&str]) -> String {
    format!("[{}]", steps.join(","))
}

#[test]
fn protection_of_a_port_that_is_not_there() -> Result<()> {
    let of = |name, list: &[&str]| rogue(name, &steps(list)).policy(REQUIRED);
    let (first, second) = (attach(1), attach(4));
    let (guarded, again) = (guard(1), guard(4));
    withstand(&[
        of("a guarded port", &[CREATE, FIND, &first, &guarded]).ends(0, ""),
        of("guarded before it is a port", &[CREATE, FIND, &guarded, &first]).ends(0, ""),
        of("a guarded port, and another in its place", &[CREATE, FIND, &first, &guarded, DELETE, CREATE, &second])
            .ends(999, LEFT_OUT),
        of("another pair in its place with the same address", &[CREATE, FIND, &guarded, DELETE, CREATE, &second])
            .ends(999, LEFT_OUT),
        of(
            "another pair in its place, also guarded",
            &[CREATE, FIND, &first, &guarded, DELETE, CREATE, &second, &again],
        )
        .ends(0, ""),
        of("a guard and no pair", &[CREATE, FIND, &first, &guarded, DELETE]).ends(999, LEFT_OUT),
        of("a guard that is taken away", &[CREATE, FIND, &first, &guarded, r#""mac-guard-remove""#])
            .ends(999, LEFT_OUT),
        of("a guard of what is no port", &[CREATE, &guarded])
            .ends(999, "outside of a bridge, where the spoofing protection has no effect"),
        of("guard a pair that is gone", &[CREATE, FIND, DELETE, &guarded]).ends(999, "is gone"),
        of("guard the pair before the last", &[CREATE, FIND, DELETE, CREATE, &second, &guarded]).ends(999, "is gone"),
        of("guard with another pair's address", &[CREATE, FIND, DELETE, r#""veth-create""#, &second, &again])
            .ends(999, "is not the address of the container's end"),
    ])
}

/// Runs the steps. While they pause after operation `after`, root in the container runs the script.
fn meanwhile(attacked: &AttackedNode, list: &[&str], after: &str, script: &str) -> Result<postern_tests::Answer> {
    attacked.operator_policy("rogue", REQUIRED)?;
    let attack = rogue("meanwhile", &steps(list));
    let answer = attack.call_while(attacked, after, || attacked.node().sh_in("c1", script))?;
    attacked.operator_policy("rogue", "")?;
    Ok(answer)
}

/// Root in the container renames its link, so the name is free. The attachment still gets no second port.
#[test]
fn a_link_that_root_renames_makes_no_room_for_another() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let (first, second, guarded) = (attach(1), attach(4), guard(1));
    let answer = meanwhile(
        &attacked,
        &[CREATE, FIND, &first, &guarded, PAUSE, CREATE, &second],
        "mac-guard.ensure",
        "ip link set eth0 down; ip link set eth0 name x1",
    )?;
    Refusal::of(&answer)?.expect(999, "veth.create: this attachment has a pair already…run DEL first")?;
    attacked.unchanged()
}

/// Root in the container moves its link to another namespace, so only the record knows it. The attachment still gets no
/// second pair.
#[test]
fn a_link_that_root_moves_away_makes_no_room_for_another() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let answer = meanwhile(
        &attacked,
        &[CREATE, FIND, PAUSE, CREATE],
        "veth.create",
        "unshare -n sleep 3 & until [ $(readlink /proc/$!/ns/net) != $(readlink /proc/$$/ns/net) ]; do sleep .01; done
         ip link set eth0 netns $!",
    )?;
    Refusal::of(&answer)?.expect(999, "veth.create: this attachment has a pair already")?;
    attacked.unchanged()
}

/// Root deletes the guarded pair. The next pair doesn't count as guarded.
#[test]
fn a_pair_that_root_deletes_takes_its_guard_with_it() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let (first, second, guarded) = (attach(1), attach(4), guard(1));
    let list = [CREATE, FIND, &first, &guarded, PAUSE, CREATE, &second];
    let answer = meanwhile(&attacked, &list, "mac-guard.ensure", "ip link del eth0")?;
    Refusal::of(&answer)?.expect(999, LEFT_OUT)?;
    attacked.unchanged()
}

/// The kernel's rules count, not the record's.
#[test]
fn rules_that_somebody_removed_are_missed() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let (first, guarded) = (attach(1), guard(1));
    attacked.operator_policy("rogue", REQUIRED)?;
    let attack = rogue("meanwhile", &steps(&[CREATE, FIND, &first, &guarded, PAUSE]));
    let flush = "nft flush chain bridge nat cni-br-iface-c1-eth0-mac";
    let answer = attack.call_while(&attacked, "mac-guard.ensure", || attacked.node().sh(flush))?;
    attacked.operator_policy("rogue", "")?;
    Refusal::of(&answer)?.expect(999, LEFT_OUT)?;
    attacked.unchanged()
}

/// A second ADD without a DEL in between removes nothing of the first ADD, and gets no handle to the first ADD's port.
#[test]
fn a_second_add_leaves_the_firsts_alone() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let (first, guarded) = (attach(1), guard(1));
    attacked.operator_policy("rogue", REQUIRED)?;
    rogue("first", &steps(&[CREATE, FIND, &first, &guarded])).call(&attacked)?.success()?;
    attacked.look()?;
    for (list, words) in [
        (vec![r#""mac-guard-remove""#], "an earlier ADD made the spoofing protection of this attachment"),
        (vec![r#""link-own""#, DELETE], "an earlier ADD made the pair of this attachment"),
        (vec![r#""veth-find""#, FIND, &first], "is not for the attachment's host end"),
        (vec![r#""veth-find""#, FIND, &guarded], "is not for the attachment's host end"),
        (vec![CREATE], "already exists"),
    ] {
        let answer = rogue("again", &steps(&list)).call(&attacked)?;
        Refusal::of(&answer)?.expect(999, words)?;
        attacked.unchanged()?;
    }
    // DEL goes by the record, so it removes a renamed link too.
    attacked.node().sh_in("c1", "ip link set eth0 down; ip link set eth0 name x1")?;
    Refusal::of(&rogue("renamed", &steps(&[CREATE])).call(&attacked)?)?.expect(999, "has a pair already")?;
    attacked.plugin("rogue", "DEL", &rogue("", "[]").config)?.success()?;
    let left = attacked.node().sh("ls /run/postern/attachments | wc -l; nft list table bridge nat")?;
    ensure!(left.starts_with("2\n") && !left.contains("c1-eth0"), "{left}");
    Ok(())
}
