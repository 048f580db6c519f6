//! An upgrade from the release before, and the way back, while containers are attached (docs/operating/upgrade-notes.md).
//! `tests/release-before` builds that release, and names its build in `POSTERN_BEFORE`.

use anyhow::{Context, Result, ensure};
use postern_tests::{Attachment, Network, Node, copy_bin, plugin_bin};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The two builds, and the CNI bin directory of the installation.
const BEFORE: &str = "/run/before";
const NOW: &str = "/run/now";
const BIN: &str = "/run/bin";

const PLUGINS: &str = "bridge firewall host-local portmap ptp";

/// Makes a node with an installation of the release before. The plugin `theirs` was added: its code is that of ptp.
fn node() -> Result<Node> {
    let before = PathBuf::from(std::env::var_os("POSTERN_BEFORE").context("POSTERN_BEFORE names no build")?);
    let wasm = before.join("../../wasm32-wasip2/guest/postern-ptp.wasm");
    let node = Node::new()?;
    node.sh(&format!(
        "mount -t tmpfs -o mode=755 local /usr/local; mkdir /usr/local/lib /usr/local/bin {BIN}
         {}; {}
         {BEFORE}/postern-admin install --from {BEFORE} --cni-bin {BIN} {PLUGINS}
         cp {} /run/theirs.wasm
         postern=/usr/local/lib/postern/postern
         $postern add /run/theirs.wasm --policy {BEFORE}/postern.d/ptp.toml --bin {BIN}",
        copy_bin(&before, BEFORE),
        copy_bin(&plugin_bin()?, NOW),
        wasm.display()
    ))?;
    Ok(node)
}

/// A list with records of many kinds: links, leases, rules of nftables, forwarded ports.
fn network(node: &Node) -> Result<Network> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]});
    let bridge = json!({
        "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
        "macspoofchk": true, "ipam": ipam,
    });
    let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let portmap = json!({"type": "portmap", "backend": "nftables", "runtimeConfig": ports});
    let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [bridge, portmap]});
    Ok(Network::new(node, &list)?.by(Path::new(BIN)))
}

/// Attaches a container through the added plugin, and detaches it.
fn theirs_runs(node: &Node, container: &str) -> Result<()> {
    node.add_container(container)?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.8.0.0/24"}]]});
    let config = json!({"cniVersion": "1.0.0", "name": "t", "type": "theirs", "ipam": ipam});
    Network::new(node, &config)?.by(Path::new(BIN)).add(container)?.del()
}

/// The version in use says that all attachments are in order.
fn all_are_ok(node: &Node, count: usize) -> Result<()> {
    let list = node.postern_of("/usr/local/lib/postern", "ls --json")?.json()?;
    let states: Vec<&str> = list.as_array().into_iter().flatten().filter_map(|one| one["state"].as_str()).collect();
    ensure!(states.len() == count && states.iter().all(|state| *state == "ok"), "{list:#}");
    Ok(())
}

fn attached(node: &Node, container: &str) -> Result<Attachment> {
    node.add_container(container)?;
    network(node)?.add(container)
}

#[test]
#[ignore = "tests/release-before builds the release before"]
fn attachments_live_through_an_upgrade_and_the_way_back() -> Result<()> {
    let node = node()?;
    // Only one container can have the port.
    let without_port = json!({"runtimeConfig": {"portMappings": []}});
    let old = attached(&node, "old")?;
    theirs_runs(&node, "theirs1")?;

    node.sh(&format!("{NOW}/postern-admin upgrade"))?;
    all_are_ok(&node, 1)?;
    let old = old.check()?;
    node.add_container("new")?;
    let new = network(&node)?.at_with(1, &without_port).add("new")?.check()?;
    theirs_runs(&node, "theirs2")?;
    all_are_ok(&node, 2)?;

    // The release before reads records of this version, checks and removes the attachment.
    node.sh(&format!("{NOW}/postern-admin rollback"))?;
    let version = node.postern_of("/usr/local/lib/postern", "--version")?;
    ensure!(version.status == 0, "{}", version.stderr);
    all_are_ok(&node, 2)?;
    let new = new.check()?;
    new.del()?;
    all_are_ok(&node, 1)?;
    theirs_runs(&node, "theirs3")?;

    // This version removes an attachment that the release before made.
    node.sh(&format!("{NOW}/postern-admin upgrade"))?;
    all_are_ok(&node, 1)?;
    old.check()?.del()?;
    all_are_ok(&node, 0)?;
    let left = node.sh("nft list ruleset | grep -E '10.9.0|fd00:9|8080' || true; ip -o link | grep veth || true; ls /var/lib/cni/networks/n")?;
    ensure!(!left.contains("10.9.0.") && !left.contains("veth") && !left.contains("8080"), "{left}");
    Ok(())
}
