//! The node: three networks, the containers in them, and the conditions that must hold whenever no run is active.

use crate::common::{collect_garbage, is_whole, picture};
use crate::worker::{State, Worker};
use anyhow::{Context, Result, ensure};
use postern_tests::{Call, Node, merge, plugin_bin};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One network.
#[derive(Clone, Debug)]
pub struct Network {
    pub name: &'static str,
    pub plugin: &'static str,
    pub config: Value,
}

/// A container, and the network that it is attached to.
#[derive(Clone, Debug)]
pub struct Container {
    pub name: String,
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

/// Three of five containers share a bridge, a range and nftables. The others add iptables, and pairs without a bridge,
/// at the same time. The ranges are small, so that lost addresses are noticed.
fn networks() -> [Network; 3] {
    let network = |name, plugin, patch: Value| {
        let mut config =
            json!({"cniVersion": "1.1.0", "name": name, "type": plugin, "ipMasq": true, "ipMasqBackend": "nftables"});
        merge(&mut config, &patch);
        Network { name, plugin, config }
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
    ]
}

impl TestNode {
    /// Makes a node with this many containers, without attachments, and with all objects that attachments share.
    pub fn new(count: usize) -> Result<Self> {
        let [net, tables, pairs] = networks();
        let containers: Vec<Container> = (0..count)
            .map(|number| Container {
                name: format!("c{number}"),
                network: match number % 5 {
                    3 => tables.clone(),
                    4 => pairs.clone(),
                    _ => net.clone(),
                },
            })
            .collect();
        let node = Node::new()?;
        node.sh(&format!("for number in $(seq 0 {}); do ip netns add c$number; done", count - 1))?;
        let mut test_node = Self { node, bin: plugin_bin()?, containers, before: Value::Null };
        for container in &test_node.containers {
            for verb in ["ADD", "DEL"] {
                test_node.node.call(&test_node.call(verb, container, &Value::Null, &json!({})))?.success()?;
            }
        }
        test_node.before = test_node.picture()?;
        Ok(test_node)
    }

    /// Makes a call for a container. `previous` is the output of its ADD, `patch` the change to its configuration.
    pub fn call(&self, verb: &str, container: &Container, previous: &Value, patch: &Value) -> Call {
        let Network { plugin, config, .. } = &container.network;
        let mut config = config.clone();
        if previous.is_object() && matches!(verb, "CHECK" | "DEL") {
            merge(&mut config, &json!({"prevResult": previous}));
        }
        merge(&mut config, patch);
        let call = Call::new(&self.bin, plugin, verb, config.to_string());
        match verb {
            "GC" => call,
            _ => call.attachment(&container.name, &self.node.netns(&container.name), "eth0"),
        }
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

    /// Judges the node while no run is active. No attached container was harmed, and others have no objects.
    pub fn judge(&self, workers: &[Worker]) -> Result<()> {
        let leases = self.leases()?;
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
                    ensure!(owner == Some(name), "{network}: {} is {name}'s, and leased to {owner:?}", place.1);
                    ensure!(has == 1, "{network}: {name} has {has} leases");
                    if let Some(other) = held.insert(place.clone(), name) {
                        anyhow::bail!("{network}: {} was given to {other} and to {name}", place.1);
                    }
                    let check = self.call("CHECK", container, result, &json!({}));
                    self.node.call(&check)?.success().with_context(|| format!("{network}: {name} was harmed"))?;
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

    /// Removes everything: attached containers by DEL, those with killed runs by DEL or by `postern gc`, in turn.
    /// Returns a summary.
    pub fn clear(&self, workers: &mut [Worker]) -> Result<String> {
        let (mut attached, mut deleted, mut gone) = (0, 0, Vec::new());
        let delete = |container: &Container, previous: &Value| -> Result<Value> {
            let call = self.call("DEL", container, previous, &json!({}));
            self.node.call(&call)?.success().with_context(|| format!("the last DEL of {}", container.name))
        };
        let mut collected = 0;
        for (container, state) in workers.iter_mut().flat_map(|worker| worker.containers.iter_mut()) {
            match state {
                State::Attached(result) => {
                    delete(container, result)?;
                    attached += 1;
                }
                State::Unknown(verb) if deleted > collected => {
                    // Objects that a living namespace may be using are kept.
                    if *verb != "ADD" || is_whole(&self.node, &container.name)? {
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
        }
        ensure!(kept.iter().all(|kept| gone.iter().any(|gone| gone.name == *kept)), "`postern gc` kept {kept:?}");
        let kept = kept.len();
        Ok(format!(
            "in the end {attached} detached, {deleted} killed ones removed by DEL, {} by `postern gc`, {kept} by DEL without a namespace\n",
            collected - kept
        ))
    }
}
