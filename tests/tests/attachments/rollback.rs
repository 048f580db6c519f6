//! A host executable that was removed and installed again. Meanwhile native plugins have detached and attached the same
//! containers, and the records list objects that are gone.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Call, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::path::Path;

fn config(backend: &str) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
        "ipMasqBackend": backend, "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}

struct Place {
    node: Node,
    /// The runtime's last result.
    result: Value,
}

impl Place {
    /// Makes a node attached by Postern, then detached and attached again by the native plugins.
    fn new(lose: &str, backend: &str) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        let mut place = Self { node, result: Value::Null };
        place.result = place.call(&plugin_bin()?, "ADD", &config("nftables"))?.success()?;
        let del = place.request(&native_bin()?, "DEL", &config("nftables"));
        place.node.delete(&del)?;
        place.node.sh(lose)?;
        place.result = Value::Null;
        place.result = place.call(&native_bin()?, "ADD", &config(backend))?.success()?;
        ensure!(place.records()? == 1, "the native plugins know nothing of records");
        Ok(place)
    }

    fn request(&self, bin: &Path, verb: &str, config: &Value) -> Call {
        let mut config = config.clone();
        if !self.result.is_null() {
            merge(&mut config, &json!({"prevResult": self.result}));
        }
        Call::new(bin, "bridge", verb, config.to_string()).attachment("c1", &self.node.netns("c1"), "eth0")
    }

    fn call(&self, bin: &Path, verb: &str, config: &Value) -> Result<Answer> {
        self.node.call(&self.request(bin, verb, config))
    }

    fn records(&self) -> Result<usize> {
        Ok(self.node.sh("ls /run/postern/attachments | wc -l")?.trim().parse()?)
    }

    /// Returns the objects on the node, without those that attachments share.
    fn left(&self) -> Result<String> {
        self.node.sh("ip -o link | grep -o 'veth[0-9a-f]*' || true
             nft list ruleset | grep -E 'iifname|saddr' || true
             iptables-save -t nat | grep CNI- || true
             find /var/lib/cni/networks -name '10.*' 2>/dev/null || true")
    }
}

/// The same namespace, or another one at the same path, as for a container that was started again.
const NAMESPACES: [&str; 2] = [":", "ip netns del c1; ip netns add c1"];

#[test]
fn del_takes_what_the_native_plugins_made() -> Result<()> {
    for lose in NAMESPACES {
        for backend in ["nftables", "iptables"] {
            let place = Place::new(lose, backend)?;
            for time in ["first", "second"] {
                place.call(&plugin_bin()?, "DEL", &config(backend))?.success()?;
                ensure!(place.left()?.is_empty(), "{lose}, {backend}: left by the {time} DEL: {}", place.left()?);
            }
            ensure!(place.records()? == 0, "the record stays");
        }
    }
    Ok(())
}

/// A container that is gone by then shows no more of its link; the runtime's result names another one than the record.
#[test]
fn so_it_does_when_the_container_is_gone() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let place = Place::new(NAMESPACES[1], backend)?;
        place.node.remove_container("c1")?;
        place.call(&plugin_bin()?, "DEL", &config(backend))?.success()?;
        ensure!(place.left()?.is_empty() && place.records()? == 0, "{backend}: left: {}", place.left()?);
    }
    Ok(())
}

#[test]
fn check_looks_at_what_the_native_plugins_made() -> Result<()> {
    for lose in NAMESPACES {
        for backend in ["nftables", "iptables"] {
            let place = Place::new(lose, backend)?;
            place.call(&plugin_bin()?, "CHECK", &config(backend))?.success()?;
            ensure!(place.records()? == 1, "CHECK changes nothing");
            place.node.sh_in("c1", "ip addr flush dev eth0")?;
            ensure!(place.call(&plugin_bin()?, "CHECK", &config(backend))?.status == 1, "an address is missing");
        }
    }
    Ok(())
}

/// Living objects with the names in an old record are not the rest of a failed ADD.
#[test]
fn neither_add_nor_gc_takes_what_lives() -> Result<()> {
    for lose in NAMESPACES {
        for (verb, spoil) in [("ADD", ":"), ("ADD", "sed -i '/\"given\"/d' /run/postern/attachments/*"), ("gc", ":")] {
            let place = Place::new(lose, "nftables")?;
            place.node.sh(spoil)?;
            let before = place.left()?;
            match verb {
                "ADD" => {
                    let fresh = Place { result: Value::Null, ..place };
                    let answer = fresh.call(&plugin_bin()?, "ADD", &config("nftables"))?;
                    ensure!(answer.status == 1 && answer.stdout.contains("already exists"), "{answer:?}");
                    ensure!(fresh.left()? == before, "{lose}, {verb}, {spoil}: {before}became {}", fresh.left()?);
                }
                _ => {
                    place.node.sh(&format!("{}/postern gc --yes", plugin_bin()?.display()))?;
                    ensure!(place.left()? == before, "{lose}, {verb}: {before}became {}", place.left()?);
                }
            }
        }
    }
    Ok(())
}

/// The container has another address than the record, and works: no command may restore the old one.
#[test]
fn nobody_is_told_to_change_what_lives() -> Result<()> {
    let place = Place::new(NAMESPACES[0], "nftables")?;
    let text = place.node.sh(&format!("{}/postern show c1 --json", plugin_bin()?.display()))?;
    let shown: Value = serde_json::from_str(&text)?;
    let differences = shown[0]["differences"].as_array().context("differences")?;
    let is_told = |difference: &Value| difference["what"].as_str().is_some_and(|what| what.contains("anew"));
    ensure!(differences.len() == 1 && differences.iter().all(is_told), "{text}");
    ensure!(differences.iter().all(|difference| difference["is_command"] == false), "{text}");
    Ok(())
}
