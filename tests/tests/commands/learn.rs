//! `postern learn` prints the policy that the networks need, and leaves nothing on the node.

use anyhow::{Context, Result, ensure};
use postern_tests::kernel::has_or_skips_part;
use postern_tests::{Answer, Node, flat, plugin_bin};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Two networks whose bridges have different names. The second network masquerades.
const PLAIN: &str = r#"{"cniVersion": "0.4.0", "name": "plain", "type": "bridge", "bridge": "br7", "isGateway": true,
    "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}}"#;
const MASQUERADED: &str = r#"{"cniVersion": "1.1.0", "name": "net", "plugins": [
    {"type": "bridge", "bridge": "br8", "ipMasq": true, "isGateway": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.8.0.0/24"}]]}},
    {"type": "portmap"}]}"#;

/// Makes a node with these files in `/run`.
fn node_with(networks: &[(&str, &str)]) -> Result<Node> {
    let node = Node::new()?;
    for (name, text) in networks {
        std::fs::write(node.path(format!("/run/{name}")), text)?;
    }
    Ok(node)
}

/// Returns the output of `postern learn`, which must succeed.
fn learn(node: &Node, arguments: &str) -> Result<String> {
    let answer = node.postern(&format!("learn {arguments}"))?;
    answer.printed().map(str::to_owned).with_context(|| arguments.to_owned())
}

/// Returns the lines of a policy without comments and blank lines.
fn lines(policy: &str) -> Vec<&str> {
    policy.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn two_networks_of_a_bridge() -> Result<()> {
    let node = node_with(&[("plain.conf", PLAIN), ("net.conflist", MASQUERADED)])?;
    let before = node.sh("ip -o link; find /run /var/lib /var/log; nft list ruleset")?;
    let stdout = learn(&node, "bridge --network /run/plain.conf /run/net.conflist")?;
    let learned = lines(&stdout);
    for line in [
        "[grant.link]",
        "[grant.veth]",
        "[grant.addresses]",
        "[grant.routes]",
        "[grant.bridge]",
        "names = [\"${config.bridge | cni0}\"]",
        "[grant.forwarding]",
        "[grant.masquerade]",
        "backends = [\"${config.ipMasqBackend | any}\"]",
        "[grant.ipam]",
        "types = [\"${config.ipam.type}\"]",
        "[grant.attachments]",
    ] {
        ensure!(learned.contains(&line), "not `{line}`:\n{stdout}");
    }
    for absent in ["[grant.mac-guard]", "native", "promisc", "vlan =", "[result]", "force-address", "trunk"] {
        ensure!(!learned.iter().any(|line| line.contains(absent)), "`{absent}`:\n{stdout}");
    }
    for comment in [
        "Needed by /run/net.conflist.\n[grant.masquerade]",
        "#   mac-guard: check, ensure, remove",
        "# verified: the same runs succeed under this policy",
        "/run/net.conflist: STATUS, ADD, CHECK, GC, DEL",
        "/run/plain.conf: ADD, CHECK, DEL",
    ] {
        ensure!(stdout.contains(comment), "not \"{comment}\":\n{stdout}");
    }
    let after = node.sh("ip -o link; find /run /var/lib /var/log; nft list ruleset")?;
    ensure!(before == after, "learning changed the node:\n{before}\n{after}");

    // `inspect` accepts the printed policy, which grants less than the imports.
    std::fs::write(node.path("/run/learned.toml"), &stdout)?;
    let inspected = node.postern("inspect bridge --policy /run/learned.toml")?;
    ensure!(matches!(inspected.status, 0 | 3), "{inspected:?}");
    let inspected = inspected.stdout;
    ensure!(inspected.contains("DISAGREE: imported, but granted by nothing: mac-guard"), "{inspected}");
    Ok(())
}

#[test]
fn a_master_that_one_network_names_and_another_leaves_to_the_default_route() -> Result<()> {
    let named = r#"{"cniVersion": "1.0.0", "name": "named", "type": "macvlan", "master": "eth1", "mode": "private", "mtu": 1400,
        "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}}"#;
    let left = r#"{"cniVersion": "1.0.0", "name": "left", "type": "macvlan"}"#;
    let node = node_with(&[("named.conf", named), ("left.conf", left)])?;
    let stdout = learn(&node, "macvlan --network /run/named.conf /run/left.conf")?;
    let learned = lines(&stdout);
    for line in [
        "[grant.parent]",
        "names = [\"${config.master | node.default-link}\"]",
        "[grant.macvlan]",
        "modes = [\"${config.mode | bridge}\"]",
        "mtu = \"${config.mtu | 0}\"",
        "[grant.link]",
    ] {
        ensure!(learned.contains(&line), "not `{line}`:\n{stdout}");
    }
    for absent in ["in-container", "[grant.veth]", "passthru"] {
        ensure!(!learned.iter().any(|line| line.contains(absent)), "`{absent}`:\n{stdout}");
    }
    Ok(())
}

/// `postern learn` grants a link exactly as its network describes it.
#[test]
fn links_without_a_host_end_are_what_their_networks_name() -> Result<()> {
    let ipam = r#""ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}"#;
    for (plugin, keys, granted, absent) in [
        (
            "vlan",
            r#""master": "eth1", "vlanId": 7, "mtu": 1400,"#,
            ["[grant.parent]", "[grant.vlan]", "ids = [\"${config.vlanId | 0}\"]", "mtu = \"${config.mtu | 0}\""]
                .as_slice(),
            ["in-container", "[grant.veth]", "[grant.ipvlan]", "[grant.macvlan]"].as_slice(),
        ),
        (
            "ipvlan",
            r#""master": "eth1", "mode": "l3s","#,
            &[
                "[grant.parent]",
                "names = [\"${config.master | node.default-link}\"]",
                "[grant.ipvlan]",
                "modes = [\"${config.mode | l2}\"]",
            ],
            &["in-container", "[grant.veth]", "[grant.vlan]", "[grant.macvlan]"],
        ),
        (
            "macvlan",
            r#""master": "net1", "linkInContainer": true,"#,
            &[
                "[grant.parent]",
                "names = [\"${config.master | node.default-link}\"]",
                "in-container = \"${config.linkInContainer | false}\"",
                "[grant.macvlan]",
                "modes = [\"${config.mode | bridge}\"]",
            ],
            &["[grant.veth]", "passthru", "[grant.vlan]"],
        ),
        ("dummy", "", &["[grant.dummy]", "[grant.addresses]"], &["[grant.parent]", "[grant.veth]", "[grant.vlan]"]),
    ] {
        if !has_or_skips_part(plugin)? {
            continue;
        }
        let network = format!(r#"{{"cniVersion": "1.1.0", "name": "net", "type": "{plugin}", {keys} {ipam}}}"#);
        let node = node_with(&[("net.conf", &network)])?;
        let stdout = learn(&node, &format!("{plugin} --network /run/net.conf"))?;
        let learned = lines(&stdout);
        for line in granted {
            ensure!(learned.contains(line), "{plugin}: not `{line}`:\n{stdout}");
        }
        for absent in absent {
            ensure!(!learned.iter().any(|line| line.contains(absent)), "{plugin}: `{absent}`:\n{stdout}");
        }
        ensure!(stdout.contains("# verified: the same runs succeed under this policy"), "{plugin}:\n{stdout}");
    }
    Ok(())
}

/// The rehearsal's node has the objects of a native plugin: bridge, pair, and the addresses in the container.
#[test]
fn behind_a_native_plugin_the_container_has_the_addresses() -> Result<()> {
    let behind = r#""prevResult": {"cniVersion": "1.0.0",
        "interfaces": [{"name": "cni9"}, {"name": "veth9", "mac": "02:00:00:00:00:09"}, {"name": "net1", "sandbox": "/run/netns/other"}],
        "ips": [{"address": "10.7.0.2/24", "interface": 2}, {"address": "fd00:7::2/64", "interface": 2}]}"#;
    let mapped = format!(
        r#"{{"cniVersion": "1.0.0", "name": "net", "type": "portmap", "backend": "nftables",
        "runtimeConfig": {{"portMappings": [{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}]}}, {behind}}}"#
    );
    let isolated = format!(
        r#"{{"cniVersion": "1.0.0", "name": "net", "type": "firewall", "ingressPolicy": "isolated", {behind}}}"#
    );
    let node = node_with(&[("mapped.conf", &mapped), ("isolated.conf", &isolated)])?;
    for (plugin, network, lines_of) in [
        ("portmap", "/run/mapped.conf", ["[grant.port-mappings]", "ports = [\"8080\"]"]),
        ("firewall", "/run/isolated.conf", ["[grant.firewall]", "ingress = [\"${config.ingressPolicy | open}\"]"]),
    ] {
        let stdout = learn(&node, &format!("{plugin} --network {network}"))?;
        let learned = lines(&stdout);
        for line in lines_of.into_iter().chain(["[previous]", "in-container = \"true\""]) {
            ensure!(learned.contains(&line), "not `{line}`:\n{stdout}");
        }
        ensure!(!stdout.contains("10.7.0") && !stdout.contains("addresses ="), "{stdout}");
    }
    Ok(())
}

#[test]
fn a_device_that_a_network_names() -> Result<()> {
    let named = r#"{"cniVersion": "1.0.0", "name": "named", "type": "host-device", "device": "eno7",
        "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}}"#;
    let by_address =
        r#"{"cniVersion": "1.0.0", "name": "address", "type": "host-device", "hwaddr": "02:00:00:00:00:07"}"#;
    let node = node_with(&[("named.conf", named), ("address.conf", by_address)])?;
    let stdout = learn(&node, "host-device --network /run/named.conf /run/address.conf")?;
    let learned = lines(&stdout);
    for line in ["[grant.device]", "names = [\"${config.device}\"]", "addresses = [\"${config.hwaddr}\"]"] {
        ensure!(learned.contains(&line), "not `{line}`:\n{stdout}");
    }
    for absent in ["paths", "ids", "default-link", "ports", "eno7"] {
        ensure!(!learned.iter().any(|line| line.starts_with(absent)), "`{absent}`:\n{stdout}");
    }
    Ok(())
}

#[test]
fn names_that_follow_no_key_stay_literal() -> Result<()> {
    let host_local = r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge",
        "ipam": {"type": "host-local", "subnet": "10.9.0.0/24", "dataDir": "/somewhere/leases"}}"#;
    let node = node_with(&[("net.conf", host_local)])?;
    let stdout = learn(&node, "host-local --json --network /run/net.conf")?;
    let report: Value = serde_json::from_str(&stdout)?;
    ensure!(report["verified"] == true, "{stdout}");
    let policy = report["policy"].as_str().context("policy")?;
    let expected = [
        "[grant.leases]",
        "directories = [\"${config.ipam.dataDir | /var/lib/cni/networks}\"]",
        "ranges = [\"${config.ipam}\"]",
    ];
    ensure!(lines(policy) == expected, "{policy}");
    ensure!(report["unused"]["resolv-conf"][0] == "read", "{stdout}");
    ensure!(!PathBuf::from("/somewhere").exists(), "learn wrote to the node");
    Ok(())
}

#[test]
fn an_ipam_plugin_that_leases_nothing() -> Result<()> {
    let fixed = r#"{"cniVersion": "1.0.0", "name": "net", "type": "static",
        "ipam": {"type": "static", "addresses": [{"address": "10.9.0.5/24", "gateway": "10.9.0.1"}]}}"#;
    let node = node_with(&[("net.conf", fixed)])?;
    let stdout = learn(&node, "static --network /run/net.conf")?;
    let expected = [
        "[result]",
        "addresses = [\"${config.ipam.addresses.*.address}\"]",
        "gateways = [\"${config.ipam.addresses.*.address} via ${config.ipam.addresses.*.gateway}\"]",
    ];
    ensure!(lines(&stdout) == expected, "{stdout}");
    Ok(())
}

#[test]
fn a_plugin_that_fails_is_reported() -> Result<()> {
    let broken = PLAIN.replace("host-local", "absent-ipam");
    let node = node_with(&[("broken.conf", &broken)])?;
    let Answer { status, stdout, stderr } = node.postern("learn bridge --network /run/broken.conf")?;
    ensure!(status == 1, "status {status}: {stdout}{stderr}");
    ensure!(stdout.contains("ADD FAILED: ") && stdout.contains("absent-ipam"), "{stdout}");
    ensure!(stdout.contains("[grant.bridge]") && stdout.contains("# NOT VERIFIED"), "{stdout}");
    Ok(())
}

#[test]
fn a_component_that_is_not_installed() -> Result<()> {
    let node = node_with(&[("net.conflist", MASQUERADED)])?;
    let target = std::env::var("CARGO_TARGET_DIR")
        .map_or_else(|_| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let wasm = target.join("wasm32-wasip2/guest/postern-bridge.wasm");
    let wasm = wasm.to_str().context("path")?;
    let Answer { status, stderr, .. } = node.postern(&format!("learn {wasm} --network /run/net.conflist"))?;
    ensure!(status == 1 && stderr.contains("--name"), "status {status}: {stderr}");
    let stdout = learn(&node, &format!("{wasm} --name bridge --network /run/net.conflist"))?;
    ensure!(stdout.contains("# verified"), "{stdout}");
    Ok(())
}

#[test]
fn without_namespaces_it_says_so() -> Result<()> {
    let node = node_with(&[("plain.conf", PLAIN)])?;
    // The limit applies to the new user namespace. The node's limit stays.
    let none = "exec unshare --user --map-root-user sh -ec 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' sh \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-ec", none, "sh"]).arg(plugin_bin()?.join("postern"));
    command.args(["learn", "bridge", "--network", "/run/plain.conf"]);
    let Answer { status, stdout, stderr } = node.answer(&mut command, None)?;
    ensure!(status == 1 && stdout.is_empty(), "status {status}: {stdout}{stderr}");
    for words in ["namespaces of its own, and the kernel refuses them here", "user.max_user_namespaces"] {
        ensure!(flat(&stderr).contains(words), "not \"{words}\": {stderr}");
    }
    Ok(())
}

/// The namespaces of a rehearsal map only one user, and have no bridge `br7`. The rehearsal uses this one user, and
/// makes the bridge.
#[test]
fn a_tap_of_a_user_in_a_bridge() -> Result<()> {
    if !postern_tests::kernel::has_or_skips("tap")? {
        return Ok(());
    }
    let network = r#"{"cniVersion": "1.1.0", "name": "taps", "type": "tap", "owner": 1000, "group": 1001, "bridge": "br7",
        "multiQueue": true, "mtu": 1400, "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}}"#;
    let node = node_with(&[("taps.conf", network)])?;
    let stdout = learn(&node, "tap --network /run/taps.conf")?;
    let learned = lines(&stdout);
    for line in [
        "[grant.tap]",
        "mtu = \"${config.mtu | 0}\"",
        "owners = [\"${config.owner}\"]",
        "groups = [\"${config.group}\"]",
        "multi-queue = \"${config.multiQueue | false}\"",
        "bridges = [\"${config.bridge}\"]",
    ] {
        ensure!(learned.contains(&line), "not `{line}`:\n{stdout}");
    }
    let plain = r#"{"cniVersion": "1.1.0", "name": "taps", "type": "tap"}"#;
    let node = node_with(&[("taps.conf", plain)])?;
    let stdout = learn(&node, "tap --network /run/taps.conf")?;
    let learned = lines(&stdout);
    ensure!(learned.contains(&"[grant.tap]") && !stdout.contains("owners ="), "more than needed:\n{stdout}");
    Ok(())
}
