//! Links of the node that move into a container: links that are not granted, links of others, and a link that the
//! plugin does not give back.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{rogue, withstand};
use anyhow::{Context, Result, ensure};
use postern_tests::proof::Refusal;
use serde_json::{Value, json};

const GRANTED: &str = "[grant.device]\nnames = [\"wire1\", \"cni0\", \"lo\"]";
const TAKE: &str = r#"{"op": "device-take", "by": "name", "value": "wire1"}"#;

#[test]
fn devices_that_are_not_granted() -> Result<()> {
    let take = |name, by: &str, value: &str| {
        rogue(name, &format!(r#"[{{"op": "device-take", "by": "{by}", "value": "{value}"}}]"#))
    };
    let steps = |name, steps: &[&str]| rogue(name, &format!("[{}]", steps.join(", "))).policy(GRANTED);
    withstand(&[
        take("without a grant", "name", "wire1").ends(110, "device.take"),
        take("the operator's", "name", "op0").policy(GRANTED).ends(110, "device.take on \"op0\""),
        take("by its address", "address", "02:00:00:00:00:01").policy(GRANTED).ends(110, "device.take on"),
        take("by a path", "path", "/sys/devices/virtual").policy(GRANTED).ends(110, "device.take on"),
        take("by a path that leaves its place", "path", "/sys/devices/../class")
            .policy("[grant.device]\npaths = [\"/sys/devices/../class\"]")
            .ends(999, "must be absolute and begin with /sys/devices/"),
        take("by a bus", "pci", "../../../class/net/op0").policy(GRANTED).ends(110, "device.take on"),
        take("a bridge that others use", "name", "cni0").policy(GRANTED).ends(999, "failed to move link"),
        take("the loopback", "name", "lo").policy(GRANTED).ends(999, "is no device of a driver"),
        take("a key that does not exist", "index", "3").policy(GRANTED).ends(999, "malformed message"),
        steps("two", &[TAKE, TAKE]).ends(999, "has \"eth0\" already"),
        steps("and delete it", &[TAKE, r#"{"op": "link-delete", "link": 0}"#])
            .ends(999, "it is given back, and not deleted"),
        steps("beside a pair", &["\"veth-create\"", TAKE]).ends(999, "has \"eth0\" already"),
        steps("on CHECK", &[TAKE]).on("CHECK").ends(110, "device.take is not for CHECK"),
        steps("on DEL", &[TAKE]).on("DEL").ends(110, "device.take is not for DEL"),
        steps("give back a device that was never taken", &["\"device-give-back\""]).on("DEL").ends(0, ""),
    ])
}

/// ADD moves the device into the container, and the plugin's DEL does nothing. The host moves the device back by the
/// record.
#[test]
fn a_device_that_is_left_in_the_container() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("rogue", GRANTED)?;
    let add = rogue("take it", &format!(r#"[{TAKE}, {{"print": "{{\"cniVersion\": \"1.1.0\"}}"}}]"#)).policy(GRANTED);
    let answer = add.call(&attacked)?;
    ensure!(answer.status == 0, "{answer:?}");
    ensure!(
        attacked.node().sh("ip link show dev wire1 2> /dev/null || true")?.is_empty(),
        "the device is not in the container, so this test proves nothing"
    );
    let answer = rogue("do nothing", "[]").on("DEL").call(&attacked)?;
    ensure!(answer.status == 0, "{answer:?}");
    attacked.operator_policy("rogue", "")?;
    attacked.unchanged()
}

/// The operator has granted any link. A link of another attachment is still refused.
#[test]
fn the_port_of_another_attachment() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("rogue", "[grant.device]\nnames = [\"*\"]\nports = \"true\"")?;
    let links: Value = serde_json::from_str(&attacked.node().sh("ip -j link show master cni0")?)?;
    let end = links.pointer("/0/ifname").and_then(Value::as_str).context("c2 has no host end")?;
    let steps = json!([{"op": "device-take", "by": "name", "value": end}]).to_string();
    let answer = rogue("another attachment's host end", &steps).call(&attacked)?;
    Refusal::of(&answer)?.expect(999, "belongs to another attachment")?;
    attacked.operator_policy("rogue", "")?;
    attacked.unchanged()
}
