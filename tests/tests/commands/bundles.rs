//! `postern install`, `upgrade` and `rollback` with their options, and plugins that were compiled elsewhere.

use anyhow::{Result, ensure};
use postern_tests::{Network, Node, copy_bin, flat, plugin_bin};
use serde_json::json;
use std::path::Path;

/// A build, in which a test may change files.
const BUILD: &str = "/run/build";
/// Two CNI bin directories.
const BINS: [&str; 2] = ["/run/bin", "/run/other"];
/// The catalog of the installation.
const CATALOG: &str = "/usr/local/lib/postern/postern.d";

/// Makes a node with a separate `/usr/local` and a build. The component and the policy of ptp lie in `/run`.
fn node() -> Result<Node> {
    let node = Node::new()?;
    let wasm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wasm32-wasip2/guest/postern-ptp.wasm");
    node.sh(&format!(
        "mount -t tmpfs -o mode=755 local /usr/local; mkdir /usr/local/lib /usr/local/bin; {}
         cp {} /run/theirs.wasm; cp {BUILD}/postern.d/ptp.toml /run/theirs.toml",
        copy_bin(&plugin_bin()?, BUILD),
        wasm.display()
    ))?;
    Ok(node)
}

/// Returns the words of a command of the build's `postern-admin`, which has to succeed.
fn admin(node: &Node, words: &str) -> Result<String> {
    node.sh(&format!("{BUILD}/postern-admin {words} 2>&1")).map(|printed| flat(&printed))
}

/// Returns the words of a command that has to fail.
fn refused(node: &Node, words: &str) -> Result<String> {
    node.sh(&format!("! {BUILD}/postern-admin {words} 2>&1")).map(|printed| flat(&printed))
}

/// Returns the name of the version that new runs use.
fn current(node: &Node) -> Result<String> {
    node.sh("readlink /usr/local/lib/postern/current")
}

fn install(node: &Node) -> Result<String> {
    let [one, other] = BINS;
    admin(node, &format!("install --bin-dir {one} --bin-dir {other} --plugins host-local,ptp,static"))
}

/// Runs the code of the plugin `theirs`, which is ptp: attaches a container and detaches it.
fn runs(node: &Node, container: &str) -> Result<()> {
    node.add_container(container)?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]});
    let config = json!({"cniVersion": "1.0.0", "type": "theirs", "ipam": ipam});
    let net = Network::new(node, &config)?.by(Path::new("/run/bin"));
    net.add(container)?.del()?;
    Ok(())
}

#[test]
fn a_dry_run_changes_nothing() -> Result<()> {
    let node = node()?;
    let [bin, _] = BINS;
    let tree = || node.sh("find /usr/local /run/bin /run/other /run/build -printf '%p %y %m %s %l %T@\\n' 2>&1 | sort");
    node.sh(&format!("mkdir {bin}; echo native > {bin}/ptp"))?;
    let before = tree()?;
    let shown = admin(&node, &format!("install --bin-dir {bin} --plugins ptp,static --dry-run"))?;
    ensure!(shown.contains("2 files of plugins would be placed in /run/bin"), "{shown}");
    ensure!(shown.contains("kept as NAME.native: ptp") && shown.contains("nothing was changed"), "{shown}");
    ensure!(tree()? == before, "install");
    install(&node)?;
    node.sh(&format!("echo '# second' >> {BUILD}/postern.d/ptp.toml"))?;
    admin(&node, "upgrade")?;
    let before = tree()?;
    for (words, expected) in [
        ("upgrade --dry-run", "3 files of plugins would be placed in /run/other"),
        ("rollback --dry-run", "new runs would use"),
        ("uninstall --dry-run", "3 files of Postern in /run/bin; 1 native plugin is put back"),
    ] {
        let shown = admin(&node, words)?;
        ensure!(shown.contains(expected), "{words}: {shown}");
        ensure!(tree()? == before, "{words} changed a file");
    }
    Ok(())
}

#[test]
fn an_upgrade_keeps_plugins_and_directories_and_is_rolled_back() -> Result<()> {
    let node = node()?;
    ensure!(refused(&node, "upgrade")?.contains("has no installation; --prefix names another place"));
    ensure!(refused(&node, "rollback")?.contains("has no installation with versions"));
    install(&node)?;
    ensure!(refused(&node, "rollback")?.contains("has no earlier version than"), "a first version has an earlier one");
    let first = current(&node)?;
    node.sh(&format!("echo '# second' >> {BUILD}/postern.d/ptp.toml"))?;
    admin(&node, "upgrade")?;
    let second = current(&node)?;
    ensure!(first != second, "{first}");
    for bin in BINS {
        ensure!(node.sh(&format!("ls {bin}"))? == "host-local\nptp\nstatic\n");
        ensure!(node.sh(&format!("{bin}/ptp 2>&1"))?.starts_with("CNI ptp plugin"));
    }
    ensure!(node.sh(&format!("ls {CATALOG}/*.json | wc -l"))? == "3\n");
    // A rollback can be taken back.
    for expected in [&first, &second] {
        admin(&node, "rollback")?;
        ensure!(current(&node)? == *expected);
        ensure!(node.sh("/run/bin/ptp 2>&1")?.starts_with("CNI ptp plugin"));
    }
    // The version before the last installation is kept, however old it is.
    node.sh("touch -d '1 year ago' /usr/local/lib/postern/versions/*")?;
    admin(&node, "upgrade")?;
    ensure!(node.sh("ls /usr/local/lib/postern/versions | wc -l")? == "2\n");
    admin(&node, "uninstall --yes")?;
    ensure!(node.sh("ls -d /usr/local/lib/* /run/bin /run/other 2>/dev/null || true")?.is_empty());
    Ok(())
}

#[test]
fn a_plugin_that_was_compiled_elsewhere_is_added() -> Result<()> {
    let node = node()?;
    install(&node)?;
    let printed = admin(&node, "compile /run/theirs.wasm --policy /run/theirs.toml -o /run/bundle")?;
    ensure!(printed.contains("postern add /run/bundle/theirs.json"), "{printed}");
    ensure!(node.sh("ls /run/bundle")? == "theirs.cwasm\ntheirs.json\ntheirs.toml\n");
    let unknown = "compile /run/theirs.wasm --policy /run/theirs.toml --architecture riscv64 -o /run/bundle";
    ensure!(refused(&node, unknown)?.contains("does not compile for the architecture \"riscv64\""), "riscv64");
    // The installation has no compiler from here on.
    node.sh("rm /usr/local/lib/postern/current/postern-compiler")?;
    let postern =
        |words: &str| node.sh(&format!("/usr/local/bin/postern {words} 2>&1 || true")).map(|text| flat(&text));
    let missing = postern("add /run/theirs.wasm --policy /run/theirs.toml")?;
    ensure!(missing.contains("install the package postern-compiler"), "{missing}");
    for (change, words) in [
        ("echo >> /run/bundle/theirs.cwasm", "its code has another digest than its manifest"),
        (
            "sed -i 's/wasmtime-48/wasmtime-47/' /run/bundle/theirs.json",
            "its code is for another engine, \"wasmtime-47",
        ),
        ("sed -i 's/\"theirs\"/\"mine\"/' /run/bundle/theirs.json", "its manifest belongs to \"mine\""),
        ("rm /run/bundle/theirs.toml", "/run/bundle/theirs.toml: No such file"),
        ("chmod 666 /run/bundle/theirs.cwasm", "chmod go-w"),
    ] {
        node.sh(&format!("cp -a /run/bundle /run/kept; {change}"))?;
        let printed = postern("add /run/bundle/theirs.json --bin /run/bin")?;
        ensure!(printed.contains(words), "{change}: {printed}");
        ensure!(node.sh("ls /run/bin")? == "host-local\nptp\nstatic\n", "{change}");
        node.sh("rm -r /run/bundle; mv /run/kept /run/bundle")?;
    }
    let printed = postern("add /run/bundle/theirs.json --bin /run/bin")?;
    ensure!(printed.contains("theirs: placed as /run/bin/theirs"), "{printed}");
    runs(&node, "c1")
}

#[test]
fn an_upgrade_compiles_an_added_plugin_again_or_replaces_nothing() -> Result<()> {
    let node = node()?;
    install(&node)?;
    node.sh("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --bin /run/bin")?;
    admin(&node, "compile /run/theirs.wasm --policy /run/theirs.toml -o /run/bundle")?;
    // As after a change of the engine.
    let other = || node.sh(&format!("sed -i 's/wasmtime-48/wasmtime-47/' {CATALOG}/theirs.json"));
    let tree = || node.sh("find /usr/local /run/bin /run/other -printf '%p %y %m %s %l %T@\\n' | sort");
    other()?;
    let printed = admin(&node, "upgrade")?;
    ensure!(printed.contains("plugin \"theirs\" was compiled again, for wasmtime-48"), "{printed}");
    runs(&node, "c2")?;
    let ways = |printed: &str| {
        [
            "plugin \"theirs\" has code for another engine, and nothing was replaced",
            "install postern-compiler",
            "postern-admin add theirs.json",
        ]
        .iter()
        .all(|words| printed.contains(words))
    };
    // Without a compiler, and with a compiler but without the component.
    let hide = "mv /run/build/postern-compiler /run/hidden";
    let show = "mv /run/hidden /run/build/postern-compiler";
    other()?;
    node.sh(hide)?;
    let before = tree()?;
    let printed = refused(&node, "upgrade")?;
    ensure!(ways(&printed) && tree()? == before, "{printed}");
    node.sh(&format!("{show}; mv {CATALOG}/theirs.wasm /run/component"))?;
    let before = tree()?;
    let printed = refused(&node, "upgrade")?;
    ensure!(ways(&printed) && printed.contains("its component") && tree()? == before, "{printed}");
    // Another component is not taken for the plugin's own.
    node.sh(&format!("cp /run/component {CATALOG}/theirs.wasm; printf '\\0\\3\\1xy' >> {CATALOG}/theirs.wasm"))?;
    let printed = refused(&node, "upgrade")?;
    ensure!(printed.contains("is not the component of the installed plugin"), "{printed}");
    // The way out of a node without a compiler.
    node.sh(hide)?;
    admin(&node, "add /run/bundle/theirs.json")?;
    admin(&node, "upgrade")?;
    runs(&node, "c3")
}
