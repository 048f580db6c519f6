//! The directories of lists and plugins that `/etc/postern/node.toml` names: every command uses them.

use anyhow::{Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Node, copy_bin, flat, plugin_bin};

const LIST: &str = r#"{"cniVersion": "1.1.0", "name": "net", "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}}]}"#;

/// Makes a node with an installation in the first of two directories; the file of ptp and the list are in the second.
fn node() -> Result<Node> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(&format!(
        "{PRIVATE_ETC}
         mount -t tmpfs -o mode=755 local /usr/local; mkdir /usr/local/lib /usr/local/bin; {}
         mkdir /run/lists /run/more /run/first /run/second; echo '{LIST}' > /run/more/10-net.conflist",
        copy_bin(&plugin_bin()?, "/run/build")
    ))?;
    settings(
        &node,
        "network-directories = [\"/run/lists\", \"/run/more\"]\nplugin-directories = [\"/run/first\", \"/run/second\"]",
    )?;
    Ok(node)
}

fn settings(node: &Node, text: &str) -> Result<()> {
    node.sh(&format!("echo '{text}' > /etc/postern/node.toml")).map(drop)
}

/// Returns the words of a command with the node's settings alone, and its exit status.
fn postern(node: &Node, words: &str) -> Result<(String, i32)> {
    let answer = node.postern_of("/usr/local/bin", words)?;
    Ok((answer.words(), answer.status))
}

#[test]
fn every_command_uses_the_nodes_directories() -> Result<()> {
    let node = node()?;
    let printed = flat(&node.sh("/run/build/postern-admin install 2>&1")?);
    ensure!(printed.contains("its plugins in /run/first"), "{printed}");
    node.sh("mv /run/first/ptp /run/second/ptp")?;
    let works = |words: &str, expected: &str| -> Result<()> {
        let (printed, status) = postern(&node, words)?;
        ensure!(status == 0 && printed.contains(expected), "{words}: {status}: {printed}");
        Ok(())
    };
    works("net add net /run/netns/c1", "10.9.0.2/24")?;
    works("net check net /run/netns/c1", "")?;
    works("net status net", "")?;
    works("net validate net", "/run/more/10-net.conflist: 0 errors")?;
    works("inspect ptp --network net", "ptp")?;
    works("plan net", "ptp")?;
    works("net gc net", "")?;
    works("gc", "")?;
    let (printed, _) = postern(&node, "doctor")?;
    ensure!(printed.contains("network lists in /run/lists and /run/more: 1"), "{printed}");
    // The file of ptp is gone from the installation's directory.
    ensure!(printed.contains("1 file of Postern was replaced or removed: gone from /run/first: ptp"), "{printed}");
    // The first directory that has the network counts, and an unknown network names both.
    node.sh("sed 's/10.9.0/10.8.0/' /run/more/10-net.conflist > /run/lists/10-net.conflist")?;
    works("net add net /run/netns/c1", "10.8.0.")?;
    let (printed, status) = postern(&node, "net add none /run/netns/c1")?;
    ensure!(status == 1 && printed.contains("\"none\" in /run/lists or /run/more"), "{printed}");
    let (printed, status) = postern(&node, "plan none")?;
    ensure!(status == 1 && printed.contains("\"none\" in /run/lists or /run/more"), "{printed}");
    // An option counts more than the settings.
    let (printed, status) = postern(&node, "net status net --conf-dir /run/none")?;
    ensure!(status == 1 && printed.contains("no net configurations found in /run/none"), "{printed}");
    Ok(())
}

#[test]
fn wrong_directories_are_refused() -> Result<()> {
    let node = node()?;
    node.sh("/run/build/postern-admin install 2>&1")?;
    for (text, words) in [
        ("plugin-directories = \"/a\"", "plugin-directories: it must be a list of directories"),
        ("plugin-directories = [\"bin\"]", "\"bin\" is no directory: it can be an absolute path"),
        ("network-directories = []", "network-directories: the list is empty"),
        ("network-dirs = [\"/a\"]", "unknown field `network-dirs`"),
    ] {
        settings(&node, text)?;
        for command in ["net status net", "net validate net", "plan net", "gc", "doctor"] {
            let (printed, status) = postern(&node, command)?;
            ensure!(status == 1 && printed.contains(words), "{text}: {command}: {status}: {printed}");
        }
        let printed = flat(&node.sh("! /run/build/postern-admin install 2>&1")?);
        ensure!(printed.contains(words), "{text}: install: {printed}");
        // Options make the settings unnecessary.
        let options = "net status net --conf-dir /run/more --cni-path /run/first";
        ensure!(postern(&node, options)?.1 == 0, "{text}: {options}");
    }
    settings(&node, "plugin-directories = [\"/run/first\", \"/run/absent\"]")?;
    let (printed, _) = postern(&node, "doctor")?;
    ensure!(printed.contains("/run/absent, which is no directory"), "{printed}");
    node.sh("chmod 777 /run/first")?;
    let (printed, status) = postern(&node, "doctor")?;
    ensure!(status == 1 && printed.contains("/run/first can be written by others"), "{printed}");
    node.sh("chmod 755 /run/first; chmod 666 /etc/postern/node.toml")?;
    let (printed, status) = postern(&node, "net status net")?;
    ensure!(status == 1 && printed.contains("node.toml can be written by others"), "{printed}");
    Ok(())
}
