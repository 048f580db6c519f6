//! The node: its networks, the containers in them, and the conditions that must hold whenever no run is active.

use crate::kills::worker::{State, Worker};
use anyhow::{Context, Result, ensure};
use postern_tests::kernel::has_or_skips_part;
use postern_tests::proof::{collect_garbage, has_complete_plugin, is_whole, picture};
use postern_tests::{Call, Node, merge, plugin_bin};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One network.
#[derive(Clone, Debug)]
pub struct Network {
    pub name: &'static str,
    /// The plugins with their configurations, in the order of an ADD.
    pub plugins: Vec<Plugin>,
}

/// A container, and the network that it is attached to.
#[derive(Clone, Debug)]
pub struct Container {
    pub name: String,
    /// The container's number, which selects its own port, VLAN and device.
    pub number: usize,
    pub network: Network,
}

/// The node; see the module.
pub struct TestNode {
    pub node: Node,
    pub bin: PathBuf,
    pub containers: Vec<Container>,
    /// The state of the node without attachments.
    pub before: Value,
}

/// The first of the node's ports that lead to containers.
const FIRST_PORT: usize = 8000;
/// The link on which macvlans and VLANs are stacked.
const WIRE: &str = "wire0";
/// The link on which ipvlans are stacked. A link carries macvlans or ipvlans, and never both.
const SECOND_WIRE: &str = "wire2";

/// Three of eight containers share a bridge, a range and nftables. Other containers use iptables, or pairs without a
/// bridge. Others use whole lists with port mappings, limited rates, a firewall and changed links. One of eight
/// containers is a pod of flannel. The ranges are small, so that lost addresses are noticed.
fn networks() -> [Network; 6] {
    let plugin = |name: &str, plugin, patch: Value| {
        let mut config = json!({"cniVersion": "1.1.0", "name": name, "type": plugin});
        merge(&mut config, &patch);
        (plugin, config)
    };
    let network = |name, of, patch: Value| {
        let mut all = json!({"ipMasq": true, "ipMasqBackend": "nftables"});
        merge(&mut all, &patch);
        Network { name, plugins: vec![plugin(name, of, all)] }
    };
    let list = |name, backend: &str, patch: Value| {
        let mut network = network(name, "bridge", patch);
        network.plugins.push(plugin(name, "portmap", json!({"backend": backend})));
        let limits =
            json!({"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000});
        network.plugins.push(plugin(name, "bandwidth", limits));
        network.plugins.push(plugin(name, "sbr", json!({})));
        network.plugins.push(plugin(name, "firewall", json!({"backend": "iptables", "ingressPolicy": "same-bridge"})));
        network.plugins.push(plugin(name, "tuning", json!({"mtu": 1400, "txQLen": 77})));
        network
    };
    let ipam = |subnet: &str| json!({"type": "host-local", "ranges": [[{"subnet": subnet}]]});
    [
        network(
            "net",
            "bridge",
            json!({"bridge": "br9", "isGateway": true, "ipMasqBackend": "nftables", "macspoofchk": true, "ipam": ipam("10.9.0.0/27")}),
        ),
        network(
            "tables",
            "bridge",
            json!({"bridge": "br7", "isGateway": true, "ipMasqBackend": "iptables", "ipam": ipam("10.7.0.0/29")}),
        ),
        network("pairs", "ptp", json!({"ipMasqBackend": "nftables", "ipam": ipam("10.8.0.0/29")})),
        list("ports", "nftables", json!({"bridge": "br6", "isGateway": true, "ipam": ipam("10.6.0.0/29")})),
        list(
            "ports-tables",
            "iptables",
            json!({"bridge": "br5", "isGateway": true, "ipMasqBackend": "iptables", "ipam": ipam("10.5.0.0/29")}),
        ),
        Network {
            name: "pods",
            plugins: vec![plugin(
                "pods",
                "flannel",
                json!({"delegate": {"bridge": "br4", "ipMasqBackend": "nftables"}}),
            )],
        },
    ]
}

/// A plugin with its configuration.
pub type Plugin = (&'static str, Value);

/// Returns the plugins that a verb calls, in their order.
pub fn steps(network: &Network, verb: &str) -> Vec<Plugin> {
    let mut all = network.plugins.clone();
    if verb == "DEL" {
        all.reverse();
    }
    all
}

/// Networks of links without a host end, one for each kind that this kernel has, and a network that moves devices of
/// the node.
fn links() -> Result<Vec<Network>> {
    let mut all = Vec::new();
    for (plugin, subnet, patch) in [
        ("macvlan", "10.10.0.0/28", json!({"master": WIRE, "mode": "bridge"})),
        ("host-device", "10.11.0.0/28", json!({})),
        ("ipvlan", "10.12.0.0/28", json!({"master": SECOND_WIRE, "mode": "l3"})),
        ("vlan", "10.13.0.0/28", json!({"master": WIRE})),
        ("dummy", "10.14.0.0/28", json!({})),
        ("tap", "10.16.0.0/28", json!({"multiQueue": true})),
    ] {
        if plugin == "host-device" || has_or_skips_part(plugin)? {
            let mut config = json!({"cniVersion": "1.1.0", "name": plugin, "type": plugin,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]]}});
            merge(&mut config, &patch);
            all.push(Network { name: plugin, plugins: vec![(plugin, config)] });
        }
    }
    Ok(all)
}

/// A network whose links are in a VRF of their container, behind source routing.
fn vrfs() -> Network {
    let plugin = |plugin, patch: Value| {
        let mut config = json!({"cniVersion": "1.1.0", "name": "vrfs", "type": plugin});
        merge(&mut config, &patch);
        (plugin, config)
    };
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.15.0.0/27"}]]});
    let bridge = plugin("bridge", json!({"bridge": "br3", "isGateway": true, "ipam": ipam}));
    let plugins = vec![bridge, plugin("sbr", json!({})), plugin("vrf", json!({"vrfname": "blue"}))];
    Network { name: "vrfs", plugins }
}

/// Adds and removes a VRF, because a namespace's first VRF leaves a routing rule.
fn had_vrf(node: &Node, container: &Container) -> Result<()> {
    match container.network.name {
        "vrfs" => node.sh_in(&container.name, "ip link add probe type vrf table 9; ip link delete probe").map(drop),
        _ => Ok(()),
    }
}

impl TestNode {
    /// Makes a node with this many containers in networks of bridges, pairs and whole lists.
    pub fn of_lists(count: usize) -> Result<Self> {
        let [net, tables, pairs, ports, ports_tables, pods] = networks();
        let network = |number: usize| match number % 8 {
            3 => tables.clone(),
            4 => pairs.clone(),
            5 => ports.clone(),
            6 => ports_tables.clone(),
            7 => pods.clone(),
            _ => net.clone(),
        };
        let files = "mkdir -p /run/flannel
             printf 'FLANNEL_NETWORK=10.4.0.0/16\\nFLANNEL_SUBNET=10.4.0.1/29\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=false\\n' > /run/flannel/subnet.env";
        Self::new(count, files, (0..).map(network))
    }

    /// Makes a node with this many containers in networks of links without a host end, and of devices.
    pub fn of_links(count: usize) -> Result<Self> {
        let networks = links()?;
        let script = format!(
            "ip link add {WIRE} type veth peer name wire1; ip link set {WIRE} up; ip link set wire1 up
             ip link add {SECOND_WIRE} type veth peer name wire3; ip link set {SECOND_WIRE} up; ip link set wire3 up
             for number in $(seq 0 {}); do ip link add dev$number type veth peer name end$number; done",
            count - 1
        );
        Self::new(count, &script, networks.into_iter().cycle())
    }

    /// Makes a node with this many containers in a network of VRFs.
    pub fn of_vrfs(count: usize) -> Result<Self> {
        Self::new(count, "", std::iter::repeat(vrfs()))
    }

    /// Makes a node with containers but no attachments. The node has all objects that attachments share.
    fn new(count: usize, script: &str, networks: impl Iterator<Item = Network>) -> Result<Self> {
        let container = |(number, network)| Container { name: format!("c{number}"), number, network };
        let containers: Vec<Container> = networks.take(count).enumerate().map(container).collect();
        let node = Node::new()?;
        node.sh(&format!("for number in $(seq 0 {}); do ip netns add c$number; done", count - 1))?;
        containers.iter().try_for_each(|container| had_vrf(&node, container))?;
        node.sh(script)?;
        let mut test_node = Self { node, bin: plugin_bin()?, containers, before: Value::Null };
        for container in &test_node.containers {
            test_node.run(container, "ADD", &Value::Null, &json!({}))?;
            test_node.run(container, "DEL", &Value::Null, &json!({}))?;
        }
        test_node.before = test_node.picture()?;
        Ok(test_node)
    }

    /// Makes a call of one plugin of a container's list. `previous` is the result of the earlier plugin, or of the ADD.
    /// `patch` changes the configuration.
    pub fn call(&self, of: &Plugin, verb: &str, container: &Container, previous: &Value, patch: &Value) -> Call {
        let (plugin, mut config) = of.clone();
        if previous.is_object() && matches!(verb, "ADD" | "CHECK" | "DEL") {
            merge(&mut config, &json!({"prevResult": previous}));
        }
        // A parent has each VLAN only once, and the node has each device only once.
        match plugin {
            "vlan" => merge(&mut config, &json!({"vlanId": 100 + container.number})),
            "host-device" => merge(&mut config, &json!({"device": format!("dev{}", container.number)})),
            _ => {}
        }
        if plugin == "portmap" {
            let mapping = |protocol| json!({"hostPort": FIRST_PORT + container.number, "containerPort": 80, "protocol": protocol});
            merge(&mut config, &json!({"runtimeConfig": {"portMappings": [mapping("tcp"), mapping("udp")]}}));
        }
        merge(&mut config, patch);
        let call = Call::new(&self.bin, plugin, verb, config.to_string());
        match verb {
            "GC" => call,
            _ => call.attachment(&container.name, &self.node.netns(&container.name), "eth0"),
        }
    }

    /// Calls all plugins of a container's list. Each call must succeed. Returns the result.
    pub fn run(&self, container: &Container, verb: &str, previous: &Value, patch: &Value) -> Result<Value> {
        let mut result = previous.clone();
        for plugin in steps(&container.network, verb) {
            let answer = self.node.call(&self.call(&plugin, verb, container, &result, patch))?.success()?;
            if verb == "ADD" {
                result = answer;
            }
        }
        Ok(result)
    }

    /// Returns the state of the node.
    pub fn picture(&self) -> Result<Value> {
        let names: Vec<&str> = self.containers.iter().map(|container| container.name.as_str()).collect();
        picture(&self.node, &names)
    }

    /// Returns the leases: the owner of each address, by network.
    fn leases(&self) -> Result<BTreeMap<(String, String), String>> {
        let text =
            self.node.sh("cd /var/lib/cni/networks; grep -H . */10.* | tr -d '\\r' | grep -v ':eth0$' || true")?;
        let lease = |line: &str| {
            let (place, owner) = line.split_once(':')?;
            let (network, address) = place.split_once('/')?;
            Some(((network.to_owned(), address.to_owned()), owner.to_owned()))
        };
        Ok(text.lines().filter_map(lease).collect())
    }

    /// Judges the node while no run is active. Attached containers are unharmed, and the other containers have no
    /// objects.
    pub fn judge(&self, workers: &[Worker]) -> Result<()> {
        let leases = self.leases()?;
        self.rules_serve_leases(&leases)?;
        let records = self.node.sh("cat /run/postern/attachments/* 2>/dev/null | grep '^{\"version' || true")?;
        let mut held: BTreeMap<(String, String), &str> = BTreeMap::new();
        for (container, state) in workers.iter().flat_map(Worker::states) {
            let (name, network) = (container.name.as_str(), container.network.name);
            let has = leases.iter().filter(|((of, _), owner)| of == network && *owner == name).count();
            match state {
                State::Attached(result) => {
                    let address = result.pointer("/ips/0/address").and_then(Value::as_str).unwrap_or_default();
                    let address = address.split('/').next().unwrap_or_default().to_owned();
                    let place = (network.to_owned(), address);
                    let owner = leases.get(&place).map(String::as_str);
                    ensure!(owner == Some(name), "{network}: {name} uses {}, but {owner:?} has its lease", place.1);
                    ensure!(has == 1, "{network}: {name} has {has} leases");
                    if let Some(other) = held.insert(place.clone(), name) {
                        anyhow::bail!("{network}: {} was given to {other} and to {name}", place.1);
                    }
                    self.run(container, "CHECK", result, &json!({}))
                        .with_context(|| format!("{network}: {name} was harmed"))?;
                }
                State::Absent => {
                    ensure!(has == 0, "{network}: {name} is detached, and has {has} leases");
                    let own = format!("\"container_id\":\"{name}\"");
                    ensure!(!records.contains(&own), "{network}: {name} is detached, and has a record");
                }
                State::Unknown(_) => ensure!(has <= 1, "{network}: {name} has {has} leases"),
            }
        }
        Ok(())
    }

    /// Each address that a port leads to, or that is forwarded, has a lease.
    fn rules_serve_leases(&self, leases: &BTreeMap<(String, String), String>) -> Result<()> {
        let rules = self.node.sh("nft list table ip cni_hostport | grep 'dnat to' || true
             iptables-save | grep -E '^-A CNI-(DN-|FORWARD)' | grep -E -- '-j DNAT|-s 10[^/]*/32 -j ACCEPT' || true")?;
        for line in rules.lines() {
            // The container's address is the last address in a line. A node's address may come before it.
            let mut words = line.rsplit(|c: char| !c.is_ascii_digit() && c != '.');
            let address = words.find(|word| word.starts_with("10.") && word.split('.').count() == 4);
            let address = address.with_context(|| format!("no address: {line}"))?;
            ensure!(leases.keys().any(|(_, leased)| leased == address), "{address} is free: {line}");
        }
        Ok(())
    }

    /// A port that a killed run left behind blocks no other container. One container gets all ports that were used.
    pub fn ports_are_free(&self) -> Result<()> {
        let mapping = |container: &Container| json!({"hostPort": FIRST_PORT + container.number, "containerPort": 80, "protocol": "tcp"});
        let all: Vec<Value> = self.containers.iter().map(mapping).collect();
        let patch = json!({"runtimeConfig": {"portMappings": all}});
        for name in ["ports", "ports-tables"] {
            let of_network = self.containers.iter().find(|container| container.network.name == name);
            let container = of_network.context("no container")?;
            let result = self.run(container, "ADD", &Value::Null, &patch).context("all ports")?;
            self.run(container, "DEL", &result, &patch)?;
        }
        Ok(())
    }

    /// Ends all attachments. DEL detaches attached containers. DEL and `postern gc` in turn detach containers with
    /// killed runs. Returns a summary.
    pub fn clear(&self, workers: &mut [Worker]) -> Result<String> {
        let (mut attached, mut deleted, mut gone) = (0, 0, Vec::new());
        let delete = |container: &Container, previous: &Value| -> Result<Value> {
            let deleted = self.run(container, "DEL", previous, &json!({}));
            deleted.with_context(|| format!("the last DEL of {}", container.name))
        };
        let mut collected = 0;
        for (container, state) in workers.iter_mut().flat_map(|worker| worker.containers.iter_mut()) {
            match state {
                State::Attached(result) => {
                    delete(container, result)?;
                    attached += 1;
                }
                // A virtual device would end with the namespace.
                State::Unknown(verb) if deleted > collected && container.network.name != "host-device" => {
                    let is_killed_add = *verb == "ADD" && !is_whole(&self.node, &container.name)?;
                    if is_killed_add && has_complete_plugin(&self.node, &container.name)? {
                        delete(container, &Value::Null)?;
                        *state = State::Absent;
                        deleted += 1;
                        continue;
                    }
                    // `postern gc` keeps objects that a living namespace may use.
                    if !is_killed_add {
                        self.node.remove_container(&container.name)?;
                        gone.push(container.clone());
                    }
                    collected += 1;
                }
                State::Unknown(_) => {
                    delete(container, &Value::Null)?;
                    deleted += 1;
                }
                State::Absent => {}
            }
            *state = State::Absent;
        }
        let kept = collect_garbage(&self.node)?;
        for container in &gone {
            if kept.contains(&container.name) {
                delete(container, &Value::Null)?;
            }
            self.node.add_container(&container.name)?;
            had_vrf(&self.node, container)?;
        }
        ensure!(kept.iter().all(|kept| gone.iter().any(|gone| gone.name == *kept)), "`postern gc` kept {kept:?}");
        let kept = kept.len();
        Ok(format!(
            "at the end: {attached} detached; after kills: {deleted} removed by DEL, {} by `postern gc`, {kept} by DEL without a namespace\n",
            collected - kept
        ))
    }
}
