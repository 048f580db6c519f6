//! Bridge VLAN filtering (`vlan`, `vlanTrunk`, `preserveDefaultVlan`, the VLAN gateway), compared with the output of
//! `bridge vlan show`. Many kernels lack VLAN filtering, so `tests/vm/kernel` also runs this test in a virtual machine.

#![allow(clippy::indexing_slicing, reason = "absent keys of a JSON object are null")]

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{Refusal, each};
use postern_tests::{Network, Node, plugin_bin, skip};
use serde_json::{Value, json};
use std::fmt::Debug;

/// A bridge network with changed keys, on a node with containers.
struct Place {
    node: Node,
    net: Network,
}

/// A network, and its expected VLANs. Ports are written `1 2p 3pu`: VLAN 1 is tagged, 2 is the port's own VLAN, 3 is
/// the port's own VLAN and leaves untagged.
struct Case {
    change: Value,
    /// VLANs of the container's port.
    port: &'static str,
    /// The gateway's link, and the VLANs of its port.
    gateway: Option<(&'static str, &'static str)>,
}

fn case(change: Value, port: &'static str, gateway: Option<(&'static str, &'static str)>) -> Case {
    Case { change, port, gateway }
}

#[test]
fn ports_are_in_the_vlans_of_their_network() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let trunk = json!([{"id": 7}, {"minID": 20, "maxID": 22}, {"minID": 21, "maxID": 23, "id": 9}]);
    let cases = [
        case(json!({"vlan": 100}), "100pu", None),
        case(json!({"vlan": 100, "ipam": {"type": ""}}), "100pu", None),
        case(json!({"vlan": 100, "preserveDefaultVlan": true}), "1u 100pu", None),
        case(json!({"vlanTrunk": trunk}), "1pu 7 9 20-23", None),
        case(json!({"vlan": 100, "vlanTrunk": [{"id": 101}]}), "100pu 101", None),
        case(json!({"vlanTrunk": [{"id": 7}], "preserveDefaultVlan": true}), "1pu 7", None),
        case(json!({"vlanTrunk": []}), "1pu", None),
        case(json!({"vlan": 100, "isGateway": true}), "100pu", Some(("br0.100", "100pu"))),
        case(
            json!({"vlan": 100, "isDefaultGateway": true, "preserveDefaultVlan": true}),
            "1u 100pu",
            Some(("br0.100", "1u 100pu")),
        ),
        case(json!({"vlan": 4094}), "4094pu", None),
    ];
    each(cases, |case| case.change.to_string(), attached)
}

/// Attaches two containers, compares the VLANs, checks, and detaches.
fn attached(case: &Case) -> Result<()> {
    let place = Place::new(&case.change, &["c1", "c2"])?;
    let foretold = place.plan()?;
    let c1 = place.net.add("c1")?;
    let result = c1.result.clone();
    same("operations that the plan foretold", foretold, place.asked()?)?;
    let [bridge] = place.json::<[Value; 1]>("ip -j -d link show dev br0")?;
    same("filtering of the bridge", &json!(1), &bridge["linkinfo"]["info_data"]["vlan_filtering"])?;
    let port = result["interfaces"][1]["name"].as_str().context("no host end")?;
    same("VLANs of the port", case.port, &place.vlans(port)?)?;
    let address = c1.bare_addresses().first().cloned();
    if let Some((link, vlans)) = case.gateway {
        same("fourth interface", link, result["interfaces"][3]["name"].as_str().unwrap_or_default())?;
        let [shown] = place.json::<[Value; 1]>(&format!("ip -j addr show dev {link}"))?;
        same("hardware address of the gateway's link", &shown["address"], &result["interfaces"][3]["mac"])?;
        same("address of the gateway", "10.9.0.1", shown["addr_info"][0]["local"].as_str().unwrap_or_default())?;
        same("addresses of the bridge", "", place.node.sh("ip -o -4 addr show dev br0")?.trim())?;
        // `ip -j link` names the other end of a pair in the same namespace.
        let [pair] = place.json::<[Value; 1]>(&format!("ip -j link show dev {link}"))?;
        same("VLANs of the gateway's port", vlans, &place.vlans(pair["link"].as_str().context("no pair")?)?)?;
        place.ping("c1", "10.9.0.1", true)?;
    }
    let c1 = if address.is_some() { c1.check()? } else { c1 };
    // A second attachment uses the same gateway.
    place.net.add("c2").context("the second ADD")?;
    if case.gateway.is_some() {
        same("ports of the bridge", 3, place.ports()?)?;
        place.ping("c2", &address.context("no address")?, true)?;
    }
    place.net.call("DEL", "c2")?.success().context("the second DEL")?;
    c1.del()?;
    same("ports that are left", usize::from(case.gateway.is_some()), place.ports()?)
}

#[test]
fn impossible_vlans_are_refused() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let cases = [(json!({"vlan": 4095}), "4095"), (json!({"vlanTrunk": [{"minID": 5}]}), "minID and maxID")];
    each(
        cases,
        |(change, _)| change.to_string(),
        |(change, words)| {
            let place = Place::new(change, &["c1"])?;
            let refusal = Refusal::of(&place.net.call("ADD", "c1")?)?;
            ensure!(refusal.text.to_lowercase().contains(&words.to_lowercase()), "{refusal:?}");
            place.net.call("DEL", "c1")?.success().map(drop)
        },
    )
}

/// A bridge that was made without filtering does not separate VLANs.
#[test]
fn a_bridge_without_filtering_is_refused_until_it_filters() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new(&json!({"vlan": 100}), &["c1"])?;
    place.node.sh("ip link add br0 type bridge")?;
    let remedy = "ip link set br0 type bridge vlan_filtering 1";
    let refusal = Refusal::of(&place.net.call("ADD", "c1")?)?;
    ensure!(refusal.text.contains(remedy), "{refusal:?}");
    same("ports", 0, place.ports()?)?;
    let plan = place.node.sh(&format!("if {}; then exit 9; else [ $? = 1 ]; fi", place.plan_command("")?))?;
    ensure!(plan.contains("does not filter VLANs"), "{plan}");
    // For networks without VLANs, this bridge works like any other.
    let without = place.net.clone().with(&json!({"vlan": null, "vlanTrunk": []}));
    without.add("c1").context("ADD without VLANs")?;
    without.call("DEL", "c1")?.success()?;
    place.node.sh(remedy)?;
    let result = place.net.add("c1").context("ADD after the remedy")?.result;
    same("VLANs of the port", "100pu", &place.vlans(result["interfaces"][1]["name"].as_str().unwrap_or_default())?)
}

/// A port was moved to another VLAN, or lost its own VLAN.
#[test]
fn doctor_finds_a_port_in_another_vlan() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new(&json!({"vlan": 100}), &["c1"])?;
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [place.net.config(0, &json!({}))?]});
    place.node.sh("mkdir -p /run/lists")?;
    std::fs::write(place.node.path("/run/lists/net.conflist"), list.to_string())?;
    let result = place.net.add("c1").context("ADD")?.result;
    let port = result["interfaces"][1]["name"].as_str().context("no host end")?;
    let found = || -> Result<Vec<String>> {
        let doctor = format!("{}/postern doctor --json --conf-dir /run/lists || true", plugin_bin()?.display());
        let printed: Value = place.json(&doctor)?;
        let findings = printed["findings"].as_array().cloned().unwrap_or_default();
        let of_ports = findings.iter().filter(|finding| finding["area"] == "ports");
        Ok(of_ports.map(|finding| finding["what"].as_str().unwrap_or_default().to_owned()).collect())
    };
    same("findings", Vec::<String>::new(), found()?)?;
    place.node.sh(&format!("bridge vlan add dev {port} vid 7"))?;
    let in_7 = format!("its port {port} is in VLAN 7 too, but the network demands otherwise");
    same("findings in VLAN 7 too", vec![in_7], found()?)?;
    place.node.sh(&format!("bridge vlan del dev {port} vid 7; bridge vlan del dev {port} vid 100"))?;
    let in_none = format!("its port {port} is in no access VLAN, but the network demands otherwise");
    same("findings in no VLAN", vec![in_none], found()?)
}

#[test]
fn vlans_of_one_bridge_do_not_reach_each_other() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new(&json!({"vlan": 100}), &["c1", "c2", "c3"])?;
    let address = place.net.add("c1")?.bare_addresses().concat();
    place.net.add("c2")?;
    place.net.clone().with(&json!({"vlan": 200})).add("c3")?;
    place.ping("c2", &address, true)?;
    place.ping("c3", &address, false)
}

/// Returns true if this kernel filters VLANs. Otherwise prints a message.
fn is_here() -> Result<bool> {
    let node = Node::new()?;
    let here = node.sh("ip link add probe type bridge vlan_filtering 1 2>/dev/null && echo yes || true")? == "yes\n";
    if !here {
        skip("this kernel has no bridge VLAN filtering");
    }
    Ok(here)
}

fn same<T: PartialEq + Debug>(what: &str, wanted: T, found: T) -> Result<()> {
    ensure!(wanted == found, "{what}: {found:?} instead of {wanted:?}");
    Ok(())
}

impl Place {
    fn new(change: &Value, containers: &[&str]) -> Result<Self> {
        let node = Node::new()?;
        containers.iter().try_for_each(|container| node.add_container(container))?;
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
        let config = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br0", "ipam": ipam});
        Ok(Self { net: Network::new(&node, &config)?.with(change), node })
    }

    /// Returns the shell command of a plan for `c1`.
    fn plan_command(&self, options: &str) -> Result<String> {
        std::fs::write(self.node.path("/run/network"), self.net.config(0, &json!({}))?.to_string())?;
        let postern = plugin_bin()?.join("postern");
        Ok(format!("{} plan /run/network --container c1 --netns /run/netns/c1 {options}", postern.display()))
    }

    /// Returns the operations that bridge would ask for.
    fn plan(&self) -> Result<Vec<[Value; 2]>> {
        let plan: Value = self.json(&self.plan_command("--json")?)?;
        let operations = plan["plugins"][0]["operations"].as_array().cloned().unwrap_or_default();
        let own = operations.into_iter().filter(|operation| operation["plugin"] == "bridge");
        Ok(own.map(|operation| [operation["request"].clone(), operation["outcome"].clone()]).collect())
    }

    /// Returns the operations that bridge has asked for.
    fn asked(&self) -> Result<Vec<[Value; 2]>> {
        let log = self.node.sh("cat /var/log/postern/audit.jsonl")?;
        let lines = log.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let own = lines.into_iter().filter(|line| line["plugin"] == "bridge");
        Ok(own.map(|line| [line["request"].clone(), line["result"].clone()]).collect())
    }

    /// Returns a port's VLANs, as [`Case`] writes them.
    fn vlans(&self, port: &str) -> Result<String> {
        let shown: Vec<Value> = self.json(&format!("bridge -j -compressvlans vlan show dev {port}"))?;
        let vlans = shown.iter().filter_map(|link| link["vlans"].as_array()).flatten().map(|vlan| {
            let has = |flag: &str| vlan["flags"].as_array().is_some_and(|flags| flags.iter().any(|one| one == flag));
            let end = vlan["vlanEnd"].as_u64().map(|end| format!("-{end}")).unwrap_or_default();
            let own = if has("PVID") { "p" } else { "" };
            let untagged = if has("Egress Untagged") { "u" } else { "" };
            format!("{}{end}{own}{untagged}", vlan["vlan"])
        });
        Ok(vlans.collect::<Vec<_>>().join(" "))
    }

    fn ports(&self) -> Result<usize> {
        Ok(self.node.sh("ip -o link show master br0 2>/dev/null || true")?.lines().count())
    }

    fn ping(&self, container: &str, address: &str, answers: bool) -> Result<()> {
        let seconds = if answers { 3 } else { 1 };
        let script = format!("busybox ping -c1 -W{seconds} {address} >/dev/null && echo answer || echo silence");
        let wanted = if answers { "answer\n" } else { "silence\n" };
        same(&format!("ping of {address} from {container}"), wanted, &self.node.sh_in(container, &script)?)
    }

    fn json<T: serde::de::DeserializeOwned>(&self, command: &str) -> Result<T> {
        let text = self.node.sh(command)?;
        serde_json::from_str(&text).with_context(|| format!("{command}: {text}"))
    }
}
