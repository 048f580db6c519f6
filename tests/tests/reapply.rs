//! `postern reapply`: rules that another program wiped are put back, and nothing else is changed.

mod common;

use anyhow::{Result, ensure};
use common::PRIVATE_ETC;
use postern_tests::{Answer, Call, Node, merge, plugin_bin};
use serde_json::{Value, json};

/// Returns a network with the rules of one backend.
fn config(net: &str, more: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": format!("net{net}"), "type": "bridge", "bridge": format!("br{net}"), "isGateway": true,
        "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{net}.0.0/24")}]]},
    });
    merge(&mut config, more);
    config
}

fn nftables(net: &str) -> Value {
    config(net, &json!({"ipMasqBackend": "nftables", "macspoofchk": true}))
}

fn iptables(net: &str) -> Value {
    config(net, &json!({"ipMasqBackend": "iptables"}))
}

fn call(node: &Node, verb: &str, container: &str, config: &Value) -> Result<Answer> {
    let call = Call::new(&plugin_bin()?, "bridge", verb, config.to_string());
    node.call(&call.attachment(container, &node.netns(container), "eth0"))
}

/// Runs a verb of `postern`. Returns its text and its exit status.
fn postern(node: &Node, arguments: &str) -> Result<(String, i32)> {
    let text = node.sh(&format!("{}/postern {arguments} 2>&1 && echo 0 || echo $?", plugin_bin()?.display()))?;
    let (text, status) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    Ok((text.to_owned(), status.parse()?))
}

/// Returns all rules of the node, without what the kernel counts.
fn rules(node: &Node) -> Result<String> {
    node.sh("nft -s list ruleset 2>/dev/null | sort; iptables-save | grep -v '^[#:]' | sort")
}

/// Returns what may not be changed.
fn links(node: &Node) -> Result<String> {
    // Duplicate address detection ends by itself.
    node.sh("ip -o link; ip -o addr | sed 's/ tentative//'; ip route; ls /var/lib/cni/networks/*")
}

#[test]
fn wiped_rules_are_put_back() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    let networks = [("c1", nftables("71")), ("c2", iptables("72")), ("c3", nftables("71"))];
    let mut results = Vec::new();
    for (container, config) in &networks {
        node.add_container(container)?;
        results.push(call(&node, "ADD", container, config)?.success()?);
    }
    let (before, links_before) = (rules(&node)?, links(&node)?);
    let (said, status) = postern(&node, "reapply")?;
    ensure!(status == 0 && said == "no rules are missing; attachments with all their rules: 3", "{said}");
    node.sh("nft flush ruleset")?;
    ensure!(rules(&node)?.is_empty(), "{}", rules(&node)?);
    let doctor = node.sh(&format!("{}/postern doctor --json || true", plugin_bin()?.display()))?;
    ensure!(
        doctor.contains("\"remedy\": \"postern reapply\"") || doctor.contains("\"remedy\":\"postern reapply\""),
        "{doctor}"
    );
    let (said, status) = postern(&node, "reapply --dry-run")?;
    ensure!(status == 0 && said.contains("nothing was changed") && rules(&node)?.is_empty(), "{said}");
    let (said, status) = postern(&node, "reapply --json")?;
    let report: Value = serde_json::from_str(&said)?;
    let restored = report["restored"].as_array().map(Vec::len);
    ensure!(status == 0 && restored == Some(3) && report["problems"] == json!([]), "{report}");
    ensure!(rules(&node)? == before, "{}\n---\n{before}", rules(&node)?);
    ensure!(links(&node)? == links_before, "{}\n---\n{links_before}", links(&node)?);
    let (said, _) = postern(&node, "reapply")?;
    ensure!(said.contains("attachments with all their rules: 3"), "{said}");
    let (log, _) = postern(&node, "log --json")?;
    let lines = log.lines().filter(|line| line.contains("record.reapply")).count();
    ensure!(lines == 5, "{lines}: masquerading of three, spoofing protection of two");
    for ((container, config), result) in networks.iter().zip(results) {
        let mut given = config.clone();
        merge(&mut given, &json!({"prevResult": result}));
        call(&node, "CHECK", container, &given)?.success()?;
        call(&node, "DEL", container, config)?.success()?;
    }
    ensure!(!rules(&node)?.contains("net7"), "{}", rules(&node)?);
    Ok(())
}

#[test]
fn rules_of_what_is_gone_are_not() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    for container in ["c1", "c2"] {
        node.add_container(container)?;
        call(&node, "ADD", container, &nftables("73"))?.success()?;
    }
    // The one has lost its link, the other its namespace.
    node.sh_in("c1", "ip link delete eth0")?;
    node.remove_container("c2")?;
    node.sh("nft flush ruleset")?;
    let (said, status) = postern(&node, "reapply")?;
    ensure!(status == 0 && rules(&node)?.is_empty(), "{said} {}", rules(&node)?);
    Ok(())
}

#[test]
fn a_part_that_is_missing_is_put_back_alone() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    node.add_container("c1")?;
    call(&node, "ADD", "c1", &nftables("74"))?.success()?;
    let before = rules(&node)?;
    // An operator's table stays.
    node.sh("nft add table ip own; nft add chain ip own kept; nft add rule ip own kept counter")?;
    let whole = rules(&node)?;
    node.sh("nft delete table inet cni_plugins_masquerade")?;
    let (said, status) = postern(&node, "reapply")?;
    ensure!(status == 0 && said.contains("put back: masquerading rules") && !said.contains("spoofing"), "{said}");
    ensure!(rules(&node)? == whole && whole != before, "{}\n---\n{whole}", rules(&node)?);
    Ok(())
}

/// If the kernel shows a user no rules, the answer is not that none is missing.
#[test]
fn rules_that_cannot_be_looked_at_are_no_complete_ones() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    node.add_container("c1")?;
    call(&node, "ADD", "c1", &nftables("75"))?.success()?;
    node.sh("nft flush ruleset")?;
    let blind = format!(
        "setpriv --bounding-set=-net_admin {}/postern reapply 2>&1 && echo 0 || echo $?",
        plugin_bin()?.display()
    );
    let said = node.sh(&blind)?;
    ensure!(said.contains("look at its packet filter") && said.trim_end().ends_with("\n1"), "{said}");
    ensure!(!said.contains("no rules are missing") && rules(&node)?.is_empty(), "{said}");
    Ok(())
}
