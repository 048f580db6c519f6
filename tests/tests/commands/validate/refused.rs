//! On ADD, native plugins refuse each configuration that has an error according to the tables. This error is the only
//! reason: the same configuration without the error succeeds on the same node.

use anyhow::{Result, ensure};
use postern_keys::sample::Broken;
use postern_keys::{ALL, Plugin, Role, sample};
use postern_tests::kernel::has_or_skips_part;
use postern_tests::{Call, Node, flat, native_bin, skip_part};
use serde_json::{Value, json};
use std::path::Path;

/// Keys of later plugin versions, which Debian's native plugins do not read.
const NATIVE_LACKS: &[(&str, &str)] = &[("sbr", "addSourceHints"), ("sbr", "gateways")];

/// Values out of range that only our plugins refuse. Native plugins ignore these values, or fail when the
/// container is used.
const OURS_ALONE: &[(&str, &str)] = &[
    ("bridge", "ipMasqBackend"),
    ("portmap", "containerPort"),
    ("portmap", "hostIP"),
    ("portmap", "hostPort"),
    ("portmap", "protocol"),
    ("sbr", "table"),
    ("tuning", "txQLen"),
];

/// Keys whose valid value needs a network card on a PCI bus. `tests/vm/pci` has such cards.
const NEEDS_MORE: &[(&str, &str)] = &[("host-device", "pciBusID"), ("host-device", "deviceID")];

/// Keys that need VLANs of a bridge. If the kernel lacks VLANs, these keys are counted as skipped.
const NEEDS_VLANS: &[(&str, &str)] = &[("bridge", "vlan"), ("bridge", "vlanTrunk")];

/// The objects that the tables' configurations name: links of the node, a default route, flanneld's file.
const NODE: &str = "ip link add eth1 type veth peer name wire1; ip link set eth1 up; ip link set wire1 up
    ip link add eno1 address 02:00:00:00:00:01 type veth peer name wire2
    ip addr add 192.168.9.1/24 dev eth1; ip route add default via 192.168.9.254 dev eth1
    mkdir -p /run/flannel
    printf 'FLANNEL_NETWORK=10.63.0.0/16\\nFLANNEL_SUBNET=10.63.1.1/24\\nFLANNEL_MTU=1400\\nFLANNEL_IPMASQ=true\\n' > /run/flannel/subnet.env";

/// The link that the tables' `prevResult` names, for a plugin that comes after another plugin.
const CHAINED: &str =
    "ip link add veth1 address 02:00:00:00:00:09 type veth peer name eth0 address 02:00:00:00:00:02 netns c1
    ip link set veth1 up; ip -n c1 link set eth0 up; ip -n c1 addr add 10.1.2.3/24 dev eth0";

/// Returns a node where the plugin's example works.
fn node(plugin: &Plugin) -> Result<Node> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(NODE)?;
    // The chain that the example's network names for marks. Only IPv4 has the chain.
    if plugin.name == "portmap" {
        node.sh("iptables -t nat -N KUBE-MARK-MASQ")?;
    }
    if plugin.role == Role::Chained {
        node.sh(CHAINED)?;
    }
    Ok(node)
}

/// Returns a configuration that Debian's native plugin accepts and that fits the users in a test's namespace.
fn fitting(plugin: &Plugin, mut config: Value) -> Value {
    match plugin.name {
        // Debian's plugin knows no later version.
        "flannel" => config["cniVersion"] = json!("0.4.0"),
        "tap" => {
            for key in ["owner", "group"] {
                if config[key] == 1000 {
                    config[key] = json!(0);
                }
            }
        }
        // The native tuning panics on sysctls of `args` if the network names no sysctl.
        "tuning" if config.pointer("/args/cni/sysctl").is_some() => {
            config["sysctl"] = json!({"net.core.somaxconn": "400"})
        }
        _ => {}
    }
    config
}

/// Calls ADD of the native plugin. Returns the plugin's output if the plugin refuses the configuration.
fn refusal(node: &Node, native: &Path, plugin: &Plugin, config: &Value) -> Result<Option<String>> {
    let interface = if plugin.name == "loopback" { "lo" } else { "eth0" };
    let call = Call::new(native, plugin.name, "ADD", config.to_string());
    let answer = node.call(&call.attachment("c1", &node.netns("c1"), interface))?;
    Ok((answer.status != 0).then(|| format!("{} {}", flat(&answer.stdout), flat(&answer.stderr))))
}

/// Returns true if the key of this name is on the path to the error.
fn is_in(broken: &Broken, name: &str) -> bool {
    broken.path.iter().any(|step| step == name)
}

/// Returns true if native plugins accept the error, according to `OURS_ALONE` and `NATIVE_LACKS`.
fn is_excused(plugin: &Plugin, broken: &Broken) -> bool {
    let name = broken.path.iter().rev().find_map(Value::as_str).unwrap_or_default();
    let value = broken.path.iter().try_fold(&broken.config, |at, step| match step {
        Value::String(key) => at.get(key.as_str()),
        step => at.get(usize::try_from(step.as_u64()?).ok()?),
    });
    let has_type = value.is_some_and(|value| value.is_string() || value.is_i64() || value.is_u64());
    has_type && OURS_ALONE.contains(&(plugin.name, name)) && value != Some(&json!("7"))
        || NATIVE_LACKS.contains(&(plugin.name, name))
}

/// Returns the plugins that have a native counterpart and whose links the kernel has. `POSTERN_PLUGINS` selects some of
/// these plugins.
fn plugins(native: &Path) -> Result<Vec<&'static Plugin>> {
    let wanted = std::env::var("POSTERN_PLUGINS").unwrap_or_default();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.split(' ').any(|one| one == name);
    let mut plugins = Vec::new();
    for plugin in ALL.iter().filter(|plugin| native.join(plugin.name).exists() && is_wanted(plugin.name)) {
        if !["vlan", "ipvlan", "dummy", "vrf", "tap"].contains(&plugin.name) || has_or_skips_part(plugin.name)? {
            plugins.push(*plugin);
        }
    }
    Ok(plugins)
}

#[test]
fn native_plugins_refuse_what_is_called_an_error() -> Result<()> {
    let native = native_bin()?;
    let has_vlans = has_or_skips_part("bridge vlan_filtering 1")?;
    let (mut accepted, mut unsound, mut count) = (Vec::new(), Vec::new(), 0);
    let plugins = plugins(&native)?;
    for plugin in &plugins {
        // The native plugin dhcp reads almost nothing of its configuration. Its daemon reads the configuration, but
        // needs a server: see `--test dhcp` (differential.rs).
        if plugin.name == "dhcp" {
            skip_part("dhcp", "its native daemon needs a server, which the test program `dhcp` has");
            continue;
        }
        let cases: Vec<_> = sample::broken(plugin).into_iter().filter(|broken| !is_excused(plugin, broken)).collect();
        for same in cases.chunk_by(|one, next| one.sound == next.sound) {
            let Some(first) = same.first() else { continue };
            let needs = |keys: &[(&str, &str)]| keys.iter().any(|(of, key)| *of == plugin.name && is_in(first, key));
            if needs(NEEDS_VLANS) && !has_vlans {
                continue;
            }
            // All errors of a configuration share one node, unless one of them leaves a link.
            let mut here = node(plugin)?;
            for broken in same {
                count += 1;
                let refused = refusal(&here, &native, plugin, &fitting(plugin, broken.config.clone()))?;
                if refused.is_none() {
                    accepted.push(format!("{}: {:?} in {}", plugin.name, broken.path, broken.config));
                }
                let is_left = || here.sh_in("c1", "ip -o link").map(|links| links.contains("eth0"));
                if refused.is_none() || plugin.role != Role::Chained && is_left()? {
                    here = node(plugin)?;
                }
            }
            let sound = fitting(plugin, first.sound.clone());
            if let Some(why) = refusal(&here, &native, plugin, &sound)?.filter(|_| !needs(NEEDS_MORE)) {
                unsound.push(format!("{}: {sound}: {why}", plugin.name));
            }
        }
    }
    println!("{count} faults of {} plugins", plugins.len());
    ensure!(accepted.is_empty(), "native plugins accept {} of {count}:\n{}", accepted.len(), accepted.join("\n"));
    ensure!(unsound.is_empty(), "native plugins refuse correct configurations:\n{}", unsound.join("\n"));
    ensure!(count > if plugins.len() > 9 { 250 } else { 0 }, "only {count} errors were tried");
    Ok(())
}
