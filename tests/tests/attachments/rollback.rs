//! The host executable was removed and installed again. Meanwhile native plugins detached and attached the same
//! containers, so the records list objects that are gone.

use anyhow::{Context, Result, ensure};
use postern_tests::{Attachment, Network, Node, native_bin, plugin_bin};
use serde_json::{Value, json};

/// Makes a node with a container that Postern attached. Native plugins then detached the container and attached it
/// again. The returned attachment has the native plugins' result, and our plugins.
fn rolled_back(lose: &str, backend: &str) -> Result<Attachment> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let config = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true,
        "ipMasqBackend": "nftables", "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    let net = Network::new(&node, &config)?;
    let native = net.clone().by(&native_bin()?);
    Attachment { network: native.clone(), ..net.add("c1")? }.del()?;
    node.sh(lose)?;
    let patch = json!({"ipMasqBackend": backend});
    let attachment = Attachment { network: net.with(&patch), ..native.with(&patch).add("c1")? };
    ensure!(records(&node)? == 1, "the native plugins changed the records");
    Ok(attachment)
}

fn records(node: &Node) -> Result<usize> {
    Ok(node.sh("ls /run/postern/attachments | wc -l")?.trim().parse()?)
}

/// Returns the attachments' own objects on the node.
fn left(node: &Node) -> Result<String> {
    node.sh("ip -o link | grep -o 'veth[0-9a-f]*' || true
         nft list ruleset | grep -E 'iifname|saddr' || true
         iptables-save -t nat | grep CNI- || true
         find /var/lib/cni/networks -name '10.*' 2>/dev/null || true")
}

/// The same namespace, or another namespace at the same path, as after a container's restart.
const NAMESPACES: [&str; 2] = [":", "ip netns del c1; ip netns add c1"];

#[test]
fn del_takes_what_the_native_plugins_made() -> Result<()> {
    for lose in NAMESPACES {
        for backend in ["nftables", "iptables"] {
            let attachment = rolled_back(lose, backend)?;
            let node = &attachment.network.node;
            for time in ["first", "second"] {
                attachment.del()?;
                ensure!(left(node)?.is_empty(), "{lose}, {backend}: left by the {time} DEL: {}", left(node)?);
            }
            ensure!(records(node)? == 0, "the record stays");
        }
    }
    Ok(())
}

/// The container is gone and no longer shows its link. The runtime's result and the record name different links.
#[test]
fn so_it_does_when_the_container_is_gone() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let attachment = rolled_back(NAMESPACES[1], backend)?;
        let node = &attachment.network.node;
        node.remove_container("c1")?;
        attachment.del()?;
        ensure!(left(node)?.is_empty() && records(node)? == 0, "{backend}: left: {}", left(node)?);
    }
    Ok(())
}

#[test]
fn check_looks_at_what_the_native_plugins_made() -> Result<()> {
    for lose in NAMESPACES {
        for backend in ["nftables", "iptables"] {
            let attachment = rolled_back(lose, backend)?;
            let node = &attachment.network.node;
            attachment.clone().check()?;
            ensure!(records(node)? == 1, "CHECK changed the records");
            node.sh_in("c1", "ip addr flush dev eth0")?;
            let previous = json!({"prevResult": attachment.result});
            let answer = attachment.network.call_at(0, "CHECK", "c1", &previous)?;
            ensure!(answer.status == 1, "CHECK overlooked the missing address");
        }
    }
    Ok(())
}

/// Living objects whose names are in an old record are not the remains of a failed ADD.
#[test]
fn neither_add_nor_gc_takes_what_lives() -> Result<()> {
    for lose in NAMESPACES {
        for (verb, spoil) in [("ADD", ":"), ("ADD", "sed -i '/\"given\"/d' /run/postern/attachments/*"), ("gc", ":")] {
            let attachment = rolled_back(lose, "nftables")?;
            let node = &attachment.network.node;
            node.sh(spoil)?;
            let before = left(node)?;
            match verb {
                "ADD" => {
                    let answer = attachment.network.call("ADD", "c1")?;
                    ensure!(answer.status == 1 && answer.stdout.contains("already exists"), "{answer:?}");
                    ensure!(left(node)? == before, "{lose}, {verb}, {spoil}: {before}became {}", left(node)?);
                }
                _ => {
                    node.sh(&format!("{}/postern gc --yes", plugin_bin()?.display()))?;
                    ensure!(left(node)? == before, "{lose}, {verb}: {before}became {}", left(node)?);
                }
            }
        }
    }
    Ok(())
}

/// The container works with another address than the record's. No advised command may restore the old address.
#[test]
fn nobody_is_told_to_change_what_lives() -> Result<()> {
    let attachment = rolled_back(NAMESPACES[0], "nftables")?;
    let node = &attachment.network.node;
    let text = node.sh(&format!("{}/postern show c1 --json", plugin_bin()?.display()))?;
    let shown: Value = serde_json::from_str(&text)?;
    let differences = shown[0]["differences"].as_array().context("differences")?;
    let is_told = |difference: &Value| difference["what"].as_str().is_some_and(|what| what.contains("anew"));
    ensure!(differences.len() == 1 && differences.iter().all(is_told), "{text}");
    ensure!(differences.iter().all(|difference| difference["is_command"] == false), "{text}");
    Ok(())
}
