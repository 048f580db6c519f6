//! `postern plan` predicts the operations of an ADD, in the same order and with the same verdicts. It changes nothing.

#![allow(clippy::indexing_slicing, reason = "absent keys of a JSON object are null")]

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, test_bin};
use postern_tests::{Answer, Names, Network, Node, compare, flat, merge, plugin_bin};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The node's files, with their times. A plan must not change them.
const FILES: &str =
    "find /run /var/lib /var/log /etc/postern -printf '%p %y %m %U %s %T@ %C@\\n' 2>/dev/null | sort; nft list ruleset";

/// Placeholders for link-layer addresses and names that the host chooses.
const UNKNOWN: &str = "XX:XX:XX:XX:XX:XX";
const HOST_END: &str = "vethXXXXXXXX";

struct Place {
    node: Node,
}

impl Place {
    fn new(containers: &[&str]) -> Result<Self> {
        let node = Node::new()?;
        containers.iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        Ok(Self { node })
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.node.path(path);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Runs `postern plan` of a network as user `nobody` in a separate user namespace, without any privilege. Fails if
    /// anything on the node changed.
    fn plan(&self, network: &Value, arguments: &[&str]) -> Result<Answer> {
        self.plan_of(&plugin_bin()?, network, arguments)
    }

    /// Runs `postern plan` like [`Place::plan`], with the postern in another directory.
    fn plan_of(&self, bin: &Path, network: &Value, arguments: &[&str]) -> Result<Answer> {
        self.write("/run/plan.conflist", &network.to_string())?;
        let before = self.looks()?;
        let mut command = Command::new("unshare");
        let unprivileged = "[ $(id -u) != 0 ] && grep -q 'CapEff:.0*$' /proc/self/status && exec \"$@\"";
        command.args(["--user", "--", "sh", "-c", unprivileged, "sh"]);
        command.arg(bin.join("postern")).args(["plan", "/run/plan.conflist"]).args(arguments);
        let printed = self.node.answer(command.args(["--cni-path", "/run/native"]), None)?;
        let after = self.looks()?;
        ensure!(before.0 == after.0, "plan changed files: {printed:?}\n{}\n{}", before.0, after.0);
        let changes = compare(&before.1, &after.1);
        ensure!(changes.is_empty(), "plan changed the node: {printed:?}\n{changes:?}");
        Ok(printed)
    }

    fn looks(&self) -> Result<(String, Value)> {
        Ok((self.node.sh(FILES)?, self.node.snapshot(&["c1", "c2"], &mut Names::new(""))?))
    }

    /// Returns the plan as an object.
    fn object(&self, network: &Value, arguments: &[&str]) -> Result<(i32, Value)> {
        self.object_of(&plugin_bin()?, network, arguments)
    }

    fn object_of(&self, bin: &Path, network: &Value, arguments: &[&str]) -> Result<(i32, Value)> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let printed = self.plan_of(bin, network, &arguments)?;
        Ok((printed.status, printed.json()?))
    }

    /// Makes a real ADD of the first plugin, as a runtime does. Returns its answer, and its lines of the audit log.
    fn add(&self, network: &Value, container: &str, ifname: &str, args: &str) -> Result<(Answer, Vec<Value>)> {
        let log = self.node.path("/var/log/postern/audit.jsonl");
        let old = std::fs::read_to_string(&log).unwrap_or_default().len();
        let add = Network::new(&self.node, network)?.interface(ifname).request(0, "ADD", container, &json!({}))?;
        let answer = self.node.call(&add.env("CNI_ARGS", args))?;
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = text.get(old..).unwrap_or_default().lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok((answer, lines))
    }
}

fn network(version: &str, plugin: Value) -> Value {
    json!({"cniVersion": version, "name": "net", "plugins": [plugin]})
}

fn bridge(patch: Value) -> Value {
    let mut plugin = json!({
        "type": "bridge", "bridge": "br9",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    });
    merge(&mut plugin, &patch);
    network("1.0.0", plugin)
}

fn ptp(patch: Value) -> Value {
    let Value::Object(mut plugin) = bridge(patch)["plugins"][0].clone() else { return Value::Null };
    plugin.remove("bridge");
    plugin.insert("type".to_owned(), "ptp".into());
    network("1.0.0", Value::Object(plugin))
}

fn macvlan(patch: Value) -> Value {
    let Value::Object(mut plugin) = ptp(patch)["plugins"][0].clone() else { return Value::Null };
    plugin.insert("type".to_owned(), "macvlan".into());
    network("1.0.0", Value::Object(plugin))
}

fn device(patch: Value) -> Value {
    let Value::Object(mut plugin) = ptp(patch)["plugins"][0].clone() else { return Value::Null };
    plugin.insert("type".to_owned(), "host-device".into());
    network("1.0.0", Value::Object(plugin))
}

/// A parent link with the default route through it.
const WIRE: &str = "ip link add wire0 type veth peer name wire1; ip link set wire0 up; ip link set wire1 up
    ip address add 10.6.0.1/24 dev wire0; ip route add default via 10.6.0.2";

fn dual() -> Value {
    json!({
        "type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    })
}

fn fixed() -> Value {
    json!({"type": "static", "ranges": null, "addresses": [{"address": "10.9.0.77/24", "gateway": "10.9.0.1"}]})
}

/// Returns the operations of a plan in the order of the audit log. The log has a delegation after the delegate's
/// operations.
fn as_logged(plan: &Value) -> Vec<Value> {
    let mut logged = Vec::new();
    let mut open: Vec<Value> = Vec::new();
    let operations =
        plan["plugins"].as_array().into_iter().flatten().flat_map(|plugin| plugin["operations"].as_array());
    for operation in operations.flatten() {
        while open.last().is_some_and(|last| last["depth"].as_u64() >= operation["depth"].as_u64()) {
            logged.extend(open.pop());
        }
        open.push(operation.clone());
    }
    logged.extend(open.into_iter().rev());
    logged
}

/// Returns the part of an operation that plan and log have in common.
fn common_part(operation: &Value, decision: &str, result: &str) -> Value {
    let mut request = operation["request"].clone();
    // The host chooses these values.
    if operation["operation"].as_str().is_some_and(|name| name.starts_with("mac-guard")) {
        request["mac"] = UNKNOWN.into();
    }
    json!([
        operation["plugin"],
        operation["operation"],
        request,
        operation[decision],
        operation["rule"],
        operation["from"],
        real_name(&operation[result]),
    ])
}

/// Returns a result without the host's random choices. Masks only values that the plan masks.
fn masked(result: &Value, plan: &Value) -> Value {
    let mut result = result.clone();
    let interfaces = result.get_mut("interfaces").and_then(Value::as_array_mut);
    for (at, interface) in interfaces.into_iter().flatten().enumerate() {
        let foretold = &plan["interfaces"][at];
        if foretold["mac"] == UNKNOWN {
            interface["mac"] = UNKNOWN.into();
        }
        if foretold["name"] == HOST_END && interface["name"].as_str().is_some_and(|name| name.starts_with("veth")) {
            interface["name"] = HOST_END.into();
        }
    }
    result
}

/// Cases: name, network, interface name, `CNI_ARGS`.
fn foretold() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let bare = json!({"type": "bridge", "bridge": "br9"});
    vec![
        ("layer 2", network("1.0.0", bare), "eth0", ""),
        ("bridge", bridge(json!({})), "eth0", ""),
        ("gateway", bridge(json!({"isGateway": true, "mtu": 1400})), "eth0", ""),
        (
            "masquerade",
            bridge(json!({"isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "hairpinMode": true})),
            "eth0",
            "",
        ),
        ("iptables", bridge(json!({"ipMasq": true, "ipMasqBackend": "iptables"})), "eth0", ""),
        ("spoofing", bridge(json!({"macspoofchk": true, "portIsolation": true, "enabledad": true})), "eth0", ""),
        (
            "dual",
            bridge(
                json!({"ipam": dual(), "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}),
            ),
            "net1",
            "",
        ),
        ("address", bridge(json!({"promiscMode": true})), "eth0", "IgnoreUnknown=1;MAC=02:11:22:33:44:55"),
        ("static", bridge(json!({"ipam": fixed(), "isGateway": true})), "eth0", ""),
        ("resolver", bridge(json!({"ipam": {"resolvConf": "/run/resolv.conf"}})), "eth0", ""),
        ("ptp", ptp(json!({"ipMasq": true, "ipMasqBackend": "nftables"})), "eth0", ""),
        ("ptp dual", ptp(json!({"ipam": dual(), "mtu": 1300})), "eth0", ""),
        ("ptp static", ptp(json!({"ipam": fixed()})), "eth0", ""),
        ("macvlan", macvlan(json!({})), "eth0", ""),
        (
            "macvlan dual",
            macvlan(json!({"ipam": dual(), "master": "wire1", "mode": "private", "mtu": 1400})),
            "net0",
            "",
        ),
        ("macvlan queue", macvlan(json!({"bcqueuelen": 500})), "eth0", ""),
        ("macvlan passthru", macvlan(json!({"master": "wire1", "mode": "passthru"})), "eth0", ""),
        ("macvlan without addresses", macvlan(json!({"ipam": null})), "eth0", ""),
        ("device", device(json!({"device": "wire1"})), "eth0", ""),
        ("device dual", device(json!({"device": "wire1", "ipam": dual()})), "net0", ""),
        ("device without addresses", device(json!({"device": "wire1", "ipam": null})), "eth0", ""),
        ("loopback", network("1.0.0", json!({"type": "loopback"})), "lo", ""),
        ("host-local", network("1.1.0", json!({"type": "host-local", "ipam": dual()})), "eth0", ""),
        ("static alone", network("0.4.0", json!({"type": "static", "ipam": fixed()})), "eth0", ""),
    ]
}

#[test]
fn it_foretells_what_an_add_does() -> Result<()> {
    let mut failures = Vec::new();
    for (name, network, ifname, args) in foretold() {
        if let Err(error) = plan_matches_run(&network, ifname, args) {
            failures.push(format!("{name}: {error:#}"));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Returns a message with a placeholder for the host end's name.
fn real_name(message: &Value) -> Value {
    let text = message.as_str().unwrap_or_default();
    let Some(at) = text.find("veth") else { return message.clone() };
    let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + HOST_END.len()..).unwrap_or_default());
    format!("{before}{HOST_END}{after}").into()
}

/// Compares plan and ADD for two containers. For the second container, bridge, leases and forwarding already exist.
fn plan_matches_run(network: &Value, ifname: &str, args: &str) -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    place.node.sh(WIRE)?;
    for container in ["c1", "c2"] {
        place.node.sh_in(
            container,
            "ip link add wire2 type veth peer name wire3; ip link set wire2 up; ip link set wire3 up",
        )?;
    }
    place.write("/run/resolv.conf", "nameserver 192.0.2.53\nsearch example.org\n")?;
    // In mode passthru a parent can have only one link.
    let is_only_one = network["plugins"][0]["mode"] == "passthru";
    for container in ["c1", "c2"].into_iter().take(if is_only_one { 1 } else { 2 }) {
        let netns = place.node.netns(container);
        let arguments = ["--container", container, "--netns", &netns, "--ifname", ifname, "--args", args];
        let (status, plan) = place.object(network, &arguments)?;
        let (answer, lines) = place.add(network, container, ifname, args)?;
        let planned: Vec<Value> = as_logged(&plan).iter().map(|line| common_part(line, "verdict", "outcome")).collect();
        // The host's own undo lines do not belong to a plugin.
        let asked = lines.iter().filter(|line| line["plugin"] != "postern");
        let logged: Vec<Value> = asked.map(|line| common_part(line, "decision", "result")).collect();
        ensure!(planned == logged, "{container}: planned\n{planned:#?}\nlogged\n{logged:#?}");
        let result: Value = serde_json::from_str(&answer.stdout)?;
        ensure!(answer.status == status, "{container}: planned {status}, really {answer:?}");
        if status != 0 {
            // The same address is routed to two containers. The kernel's route leads to the first container.
            let error = &plan["plugins"][0]["error"];
            ensure!(container == "c2" && real_name(&result["msg"]) == error["msg"], "{error}, really {answer:?}");
            continue;
        }
        let (real, planned) = (masked(&result, &plan["result"]), &plan["result"]);
        ensure!(real == *planned, "{container}: result\n{planned:#}\nreally\n{real:#}");
        ensure!(plan["allowed"] == true && plan["plugins"][0]["error"].is_null(), "{plan:#}");
    }
    Ok(())
}

/// Returns the operation of this name.
fn operation<'a>(plan: &'a Value, name: &str) -> Result<&'a Value> {
    let all = plan["plugins"].as_array().into_iter().flatten().flat_map(|plugin| plugin["operations"].as_array());
    all.flatten().find(|operation| operation["operation"] == name).with_context(|| format!("no {name}: {plan:#}"))
}

#[test]
fn a_device_that_the_node_needs_is_not_to_be_taken() -> Result<()> {
    let place = Place::new(&["c1"])?;
    place.node.sh(&format!("{WIRE}; ip link add br9 type bridge; ip link set wire1 master br9"))?;
    let netns = place.node.netns("c1");
    for (name, key) in [("wire0", "default-link = \"true\""), ("wire1", "ports = \"true\"")] {
        let (status, plan) =
            place.object(&device(json!({"device": name})), &["--container", "c1", "--netns", &netns])?;
        let missing = operation(&plan, "device.take")?["missing"].as_str().unwrap_or_default().to_owned();
        ensure!(status != 0 && plan["allowed"] == false && missing.contains(key), "{name}: {status} {plan:#}");
    }
    Ok(())
}

#[test]
fn it_says_what_is_there_already() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    let network = bridge(json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables"}));
    let shared = ["bridge.ensure", "bridge.ensure-gateways", "forwarding.enable"];
    let (_, plan) = place.object(&network, &[])?;
    for name in shared {
        let operation = operation(&plan, name)?;
        ensure!(operation["changes"] == true && operation["lasting"] == "node", "{operation}");
    }
    ensure!(
        operation(&plan, "leases.reserve")?["words"] == "take 10.9.0.2/24, in /var/lib/cni/networks/net",
        "{plan:#}"
    );
    let (answer, _) = place.add(&network, "c1", "eth0", "")?;
    ensure!(answer.status == 0, "{answer:?}");
    let (_, plan) = place.object(&network, &[])?;
    for name in shared {
        ensure!(operation(&plan, name)?["changes"] == false, "{}", operation(&plan, name)?);
    }
    ensure!(operation(&plan, "masquerade.ensure")?["changes"] == true, "{plan:#}");
    ensure!(
        operation(&plan, "leases.reserve")?["words"] == "take 10.9.0.3/24, in /var/lib/cni/networks/net",
        "{plan:#}"
    );

    let Answer { status, stdout: text, stderr } = place.plan(&network, &[])?;
    ensure!(status == 0 && stderr.is_empty(), "{stderr}");
    for words in [
        "interface eth0, to network net (CNI 1.0.0), as this node is now; nothing is changed",
        "bridge  sha256:",
        "postern.d/bridge.toml",
        "   1  make bridge br9 if it is missing, and set it up",
        "[node object, exists already; bridge.names, shipped]",
        "make a veth pair: eth0 in the container, vethXXXXXXXX on the host",
        "   4  have addresses given by host-local",
        "          host-local  sha256:",
        "   5      take 10.9.0.3/24, in /var/lib/cni/networks/net",
        "[attachment, would be made; leases.ranges, shipped]",
        "put gateway 10.9.0.1/24 on bridge br9",
        "switch IPv4 forwarding on",
        "masquerade 10.9.0.3/24 towards other networks, by nftables",
        "policy allows all ",
    ] {
        ensure!(flat(&text).contains(&flat(words)), "not \"{words}\":\n{text}");
    }
    Ok(())
}

#[test]
fn what_policy_denies_is_shown_all_at_once() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    place.write("/etc/postern/policy/bridge.toml", "withdraw = [\"mac-guard\", \"masquerade\"]\n")?;
    place.write(
        "/etc/postern/policy/host-local.toml",
        "[grant.leases]\ndirectories = [\"/var/lib/cni/networks\"]\nranges = [\"10.0.0.0/16\"]\n",
    )?;
    let network = bridge(json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}));
    let (status, plan) = place.object(&network, &["--container", "c1"])?;
    ensure!(status == 3 && plan["allowed"] == false, "status {status}: {plan:#}");
    let logged = as_logged(&plan);
    let denied: Vec<_> = logged.iter().filter(|operation| operation["verdict"] == "deny").collect();
    let names: Vec<_> = denied.iter().map(|operation| operation["operation"].as_str().unwrap_or_default()).collect();
    ensure!(names == ["mac-guard.ensure", "leases.reserve", "masquerade.ensure"], "{names:?}");
    for (operation, line) in denied.iter().zip([
        "`withdraw = [\"masquerade\"]` in /etc/postern/policy/bridge.toml",
        "ranges = [\"10.0.0.0/16\", \"10.9.0.0/24\"] }` in /etc/postern/policy/host-local.toml",
        "`withdraw = [\"mac-guard\"]` in /etc/postern/policy/bridge.toml",
    ]) {
        ensure!(operation["missing"].as_str().is_some_and(|missing| missing.contains(line)), "not {line}: {operation}");
        ensure!(operation["rule"].is_null() && operation["outcome"] == "ok", "{operation}");
    }
    // The plan continues after a refusal, as if policy allowed the operation.
    ensure!(plan["result"]["ips"][0]["address"] == "10.9.0.2/24", "{plan:#}");
    let origin = |name: &str| Ok::<_, anyhow::Error>(operation(&plan, name)?["from"].clone());
    ensure!(origin("bridge.ensure")? == "shipped", "{plan:#}");

    // The real ADD ends at the first refused operation, with the same message.
    let (answer, lines) = place.add(&network, "c1", "eth0", "")?;
    let refused = lines.iter().find(|line| line["decision"] == "deny").context("the log has no refusal")?;
    ensure!(answer.status == 1 && refused["operation"] == "mac-guard.ensure", "{answer:?} {refused}");
    let missing = denied[0]["missing"].as_str().unwrap_or_default();
    ensure!(answer.stdout.replace('\\', "").contains(missing), "not {missing}: {answer:?}");

    let Answer { status, stdout: text, .. } = place.plan(&network, &[])?;
    let text = flat(&text);
    ensure!(status == 3 && text.matches("DENIED]").count() == 3, "{text}");
    let last = text.split("policy refuses 3 of ").nth(1).unwrap_or_default();
    ensure!(last.ends_with("would fail at mac-guard.ensure of bridge, and be undone"), "{text}");
    Ok(())
}

#[test]
fn a_plugin_that_fails_ends_the_plan_with_its_error() -> Result<()> {
    let one =
        json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.9", "rangeEnd": "10.9.0.9"}]]}});
    let place = Place::new(&["c1", "c2"])?;
    ensure!(place.add(&bridge(one.clone()), "c1", "eth0", "")?.0.status == 0, "the first address");
    place.node.sh(
        "ip link add op0 type veth peer name op1; ip link add br8 type bridge; ip addr add 192.0.2.1/24 dev br8; ip link set br8 up",
    )?;
    for (network, arguments) in [
        (bridge(one), vec!["--container", "c2"]),
        (bridge(json!({"promiscMode": true, "hairpinMode": true})), vec!["--container", "c2"]),
        (bridge(json!({"ipam": {"ranges": [[{"subnet": "10.9.0.1/24"}]]}})), vec!["--container", "c2"]),
        // Existing objects on the node block these ADDs.
        (bridge(json!({"bridge": "op0"})), vec!["--container", "c2"]),
        (bridge(json!({"bridge": "br8", "isGateway": true})), vec!["--container", "c2"]),
        (network("9.9.9", json!({"type": "bridge"})), vec!["--container", "c2"]),
        (macvlan(json!({"master": "wire9"})), vec!["--container", "c2"]),
        (macvlan(json!({})), vec!["--container", "c2"]),
        (macvlan(json!({"master": "op0", "mtu": 1501})), vec!["--container", "c2"]),
        (macvlan(json!({"master": "op0", "mode": "open"})), vec!["--container", "c2"]),
        (macvlan(json!({"master": "op0", "linkInContainer": true})), vec!["--container", "c2"]),
    ] {
        let (status, plan) = place.object(&network, &arguments)?;
        let error = &plan["plugins"][0]["error"];
        ensure!(status == 1 && plan["result"].is_null() && plan["allowed"] == true, "status {status}: {plan:#}");
        let (answer, _) = place.add(&network, "c2", "eth0", "")?;
        let real: Value = serde_json::from_str(&answer.stdout)?;
        for key in ["code", "msg"] {
            ensure!(error[key] == real[key], "planned {error}, really {real}");
        }
        let Answer { status, stdout: text, .. } = place.plan(&network, &arguments)?;
        ensure!(
            status == 1 && flat(&text).contains("an ADD would fail in ") && flat(&text).ends_with(", and be undone"),
            "{text}"
        );
    }
    Ok(())
}

/// A run refuses a subnet that covers the node's own addresses, or whose file others could change. The plan reports the
/// same error.
#[test]
fn subnets_that_a_run_refuses() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    place.node.sh(
        "ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up
         ip addr add 192.0.2.1/24 dev up0; ip addr add 2001:db8:7::1/64 dev up1 nodad
         ip route add default via 192.0.2.254; ip -6 route add default dev up1; mkdir -p /run/flannel /run/open; chmod 777 /run/open
         for of in good:10.9.0.1/24 lo:127.8.0.0/24 node:192.0.2.0/24; do
           printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=%s\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n' ${of#*:} > /run/flannel/${of%%:*}; done
         sed 's,FLANNEL_SUBNET=.*,FLANNEL_IPV6_SUBNET=2001:db8:7::/64,; s,FLANNEL_NETWORK=.*,FLANNEL_IPV6_NETWORK=2001:db8::/32,' /run/flannel/good > /run/flannel/node6
         cp /run/flannel/good /run/open/subnet.env; cp /run/flannel/good /run/flannel/written; chmod 666 /run/flannel/written",
    )?;
    for (file, words) in [
        ("/run/flannel/lo", "covers 127.0.0.1, an address of loopback"),
        ("/run/flannel/node", "covers 192.0.2.1, an address of the default route's link"),
        // Each IP version has its own default route.
        ("/run/flannel/node6", "covers 2001:db8:7::1, an address of the default route's link"),
        ("/run/open/subnet.env", "/run/open can be written by others"),
        ("/run/flannel/written", "can be written by others"),
        ("/run/flannel/none", "no such file or directory"),
        ("/run/flannel/good", ""),
    ] {
        let network = network("1.0.0", json!({"type": "flannel", "subnetFile": file, "delegate": {"bridge": "br9"}}));
        let (status, plan) = place.object(&network, &["--container", "c2"])?;
        let error = &plan["plugins"][0]["error"];
        let (answer, _) = place.add(&network, "c2", "eth0", "")?;
        if words.is_empty() {
            ensure!(status == 0 && error.is_null() && answer.status == 0, "status {status}: {plan:#} {answer:?}");
            continue;
        }
        ensure!(error["msg"].to_string().contains(words), "{file}: {plan:#}");
        let real: Value = serde_json::from_str(&answer.stdout)?;
        ensure!(status == 1 && error["code"] == real["code"] && error["msg"] == real["msg"], "{error} {real}");
    }
    Ok(())
}

/// If a delegate needs more operations than the caller has left, the operation is refused, and the caller gets an
/// error. If the caller itself needs more operations, the caller is stopped. A plan does the same. If no handle is left
/// for an object, the object is not made.
#[test]
fn what_a_run_may_use_up_ends_a_plan_as_it_ends_the_run() -> Result<()> {
    let network = bridge(json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables"}));
    for (key, from) in [("operations", 1), ("handles", 0)] {
        let place = Place::new(&["c1", "c2"])?;
        let mut failures = 0;
        for most in from..99 {
            place.write("/etc/postern/policy/bridge.toml", &format!("[limits]\n{key} = {most}\n"))?;
            let (status, plan) = place.object(&network, &["--container", "c2"])?;
            let (answer, _) = place.add(&network, "c2", "eth0", "")?;
            if answer.status == 0 {
                ensure!(status == 0, "{key} = {most}: ADD succeeds, but the plan fails: {plan:#}");
                break;
            }
            failures += 1;
            let (planned, real): (&Value, Value) =
                (&plan["plugins"][0]["error"], serde_json::from_str(&answer.stdout)?);
            for part in ["code", "msg"] {
                ensure!(
                    planned[part] == real_name(&real[part]) || planned[part] == real[part],
                    "{key} = {most}: planned {planned}, really {real}"
                );
            }
        }
        ensure!(failures > 1 && failures < 90, "{key}: {failures} failures");
    }
    Ok(())
}

#[test]
fn a_chain_with_a_native_plugin() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    let mut list = bridge(json!({"capabilities": {"mac": true, "ips": false}}));
    if let Some(plugins) = list["plugins"].as_array_mut() {
        plugins.push(json!({"type": "of-others", "capabilities": {"portMappings": true}}));
        plugins.push(json!({"type": "loopback"}));
    }
    place.write("/run/native/of-others", "a native program")?;
    let given = r#"{"mac": "02:aa:bb:cc:dd:ee", "ips": ["10.9.0.44/24"], "portMappings": []}"#;
    let (status, plan) = place.object(&list, &["--capability-args", given])?;
    ensure!(status == 0, "{plan:#}");
    let plugins = plan["plugins"].as_array().context("plugins")?;
    let natives: Vec<_> = plugins.iter().map(|plugin| plugin["native"].as_bool()).collect();
    ensure!(natives == [Some(false), Some(true), Some(false)], "{plan:#}");
    ensure!(plugins[1]["digest"].is_null() && plugins[1]["operations"] == json!([]), "{plan:#}");
    // The plugin gets only the data for capabilities that its entry declares.
    ensure!(plan["result"]["interfaces"][2]["mac"] == "02:aa:bb:cc:dd:ee", "{plan:#}");
    ensure!(plan["result"]["ips"][0]["address"] == "10.9.0.2/24", "{plan:#}");
    // The plan skips the native plugin, so loopback passes on the result from before the native plugin.
    ensure!(plan["result"]["interfaces"].as_array().is_some_and(|all| all.len() >= 3), "{plan:#}");

    let (status, plan) = place.object(&list, &["--plugin", "bridge"])?;
    ensure!(status == 0 && plan["plugins"].as_array().is_some_and(|all| all.len() == 1), "{plan:#}");
    let Answer { status, stderr, .. } = place.plan(&list, &["--plugin", "tuning"])?;
    ensure!(status == 1 && flat(&stderr).contains("only bridge, of-others, loopback"), "{stderr}");
    let text = place.plan(&list, &[])?.stdout;
    let text = flat(&text);
    ensure!(text.contains("of-others: a native plugin, not in Postern's catalog: the plan"), "{text}");
    Ok(())
}

/// A plan does not run native plugins, so later plugins miss what a native plugin makes. ADD would succeed, so the plan
/// reports no failure.
#[test]
fn what_follows_a_native_program_is_no_failure() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    place.write("/run/native/calico", "a native program")?;
    let list = |plugins: Value| json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins});
    let given = r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}"#;
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    // The native program comes first, and makes the link.
    for next in [portmap.clone(), json!({"type": "tuning", "mtu": 1400}), json!({"type": "sbr"})] {
        let network = list(json!([{"type": "calico"}, next, {"type": "bandwidth"}]));
        let (status, plan) = place.object(&network, &["--capability-args", given])?;
        ensure!(status == 0 && plan["result"].is_null() && plan["plugins"][1]["error"].is_null(), "{plan:#}");
        ensure!(plan["notes"].to_string().contains("calico is a native program, which plan does not run"), "{plan:#}");
        let Answer { status, stdout: text, .. } = place.plan(&network, &["--capability-args", given])?;
        let text = flat(&text);
        ensure!(status == 0 && !text.contains("FAIL") && !text.contains("would fail"), "{status}: {text}");
        ensure!(text.contains("and of later plugins is unknown"), "{text}");
    }
    // A native plugin in the middle may make what the next plugin needs. The plan says what is missing without the
    // native plugin.
    let mut behind = bridge(json!({}));
    if let Some(plugins) = behind["plugins"].as_array_mut() {
        plugins.extend([json!({"type": "calico"}), json!({"type": "vrf", "vrfname": ""})]);
    }
    let (status, plan) = place.object(&behind, &[])?;
    ensure!(status == 0 && plan["plugins"][2]["error"].is_null(), "{plan:#}");
    ensure!(plan["notes"].to_string().contains("without its effects, vrf fails ("), "{plan:#}");
    // A plugin's own failure and a refusal by policy are still reported.
    let (status, plan) = place.object(&list(json!([portmap])), &["--capability-args", given])?;
    ensure!(status == 1 && !plan["plugins"][0]["error"].is_null(), "{plan:#}");
    place.write("/etc/postern/policy/bridge.toml", "[grant.bridge]\nnames = [\"other\"]\n")?;
    let mut refused = bridge(json!({}));
    if let Some(plugins) = refused["plugins"].as_array_mut() {
        plugins.insert(0, json!({"type": "calico"}));
    }
    let (status, plan) = place.object(&refused, &[])?;
    ensure!(status == 3 && operation(&plan, "bridge.ensure")?["verdict"] == "deny", "{plan:#}");
    Ok(())
}

/// The plan assumes the native plugin's work in the container, but takes the node's own addresses from the node.
#[test]
fn addresses_behind_a_native_plugin() -> Result<()> {
    let place = Place::new(&[])?;
    place.node.sh("ip link add op0 type veth peer name op1; ip addr add 10.6.0.1/24 dev op0; ip link set op0 up")?;
    let plan = |address: &str| {
        place.object(
            &json!({"cniVersion": "1.0.0", "name": "net", "type": "portmap", "backend": "nftables",
                "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
                "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/plan"}],
                    "ips": [{"address": address, "interface": 0}]}}),
            &[],
        )
    };
    let (status, allowed) = plan("10.7.0.2/24")?;
    ensure!(status == 0, "{status}: {allowed:#}");
    let (status, refused) = plan("10.6.0.1/24")?;
    ensure!(status == 1 && refused.to_string().contains("10.6.0.1"), "{status}: {refused:#}");
    Ok(())
}

#[test]
fn a_native_ipam_program_is_not_run() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    place.write("/run/native/whereabouts", "a native program")?;
    let network = bridge(json!({"ipam": {"type": "whereabouts"}}));
    let (status, plan) = place.object(&network, &[])?;
    let add = operation(&plan, "ipam.add")?;
    ensure!(status == 3 && add["verdict"] == "deny", "{plan:#}");
    ensure!(
        add["missing"].as_str().is_some_and(|line| line.contains("native = [\"whereabouts\"] }` in /etc/postern")),
        "{add}"
    );
    let operator = "[grant.ipam]\ntypes = [\"whereabouts\"]\nnative = [\"whereabouts\"]\n";
    place.write("/etc/postern/policy/bridge.toml", operator)?;
    let (status, plan) = place.object(&network, &[])?;
    // ADD would work, so the plan reports no failure. The plan ends at the native program, and says so.
    ensure!(status == 0 && operation(&plan, "ipam.add")?["verdict"] == "allow", "{plan:#}");
    ensure!(plan["plugins"][0]["error"].is_null() && plan["result"].is_null(), "{plan:#}");
    ensure!(plan["notes"].to_string().contains("which plan does not run: the rest of the plan is unknown"), "{plan:#}");
    let text = place.plan(&network, &[])?.stdout;
    ensure!(!text.contains("FAILS") && flat(&text).contains("which plan does not run"), "{text}");
    Ok(())
}

/// `plan` finds a network by its name, like the other commands for networks. A symbolic link to a plugin's file
/// counts as the plugin, because the kernel starts the linked file.
#[test]
fn a_network_is_found_by_its_name() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    let network = bridge(json!({"type": "cnv-bridge"}));
    place.node.sh("mkdir -p /etc/cni/net.d /run/nets /run/native")?;
    place.write("/run/nets/10-net.conflist", &network.to_string())?;
    let bin = plugin_bin()?;
    place.node.sh(&format!("ln -s {}/bridge /run/native/cnv-bridge", bin.display()))?;
    let name = network["name"].as_str().context("name")?;
    let postern = format!("{}/postern", bin.display());
    for (arguments, words) in [
        (format!("{name} --conf-dir /run/nets"), "make bridge"),
        (format!("{name} --conf-dir /run/nets"), "cnv-bridge sha256:"),
        (format!("{name} --conf-dir /run/native"), "there is no network"),
        ("nit --conf-dir /run/nets".to_owned(), "there is no network \"nit\" in /run/nets"),
    ] {
        let printed = place.node.postern(&format!("plan --cni-path /run/native {arguments}"))?;
        ensure!(printed.words().contains(words) && (printed.status == 0) != words.starts_with("there"), "{printed:?}");
    }
    let printed = place.node.sh(&format!(
        "export NETCONFPATH=/run/nets; {postern} plan {name} --cni-path /run/native --json
         {postern} inspect bridge --name cnv-bridge --network {name}; {postern} learn bridge --name cnv-bridge --network {name}"
    ))?;
    ensure!(
        printed.contains(r#""native": false"#) && printed.contains("with the values of /run/nets/10-net.conflist"),
        "{printed}"
    );
    ensure!(printed.contains("# verified"), "{printed}");
    Ok(())
}

#[test]
fn a_namespace_is_looked_into_where_that_is_allowed() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    let network = bridge(json!({}));
    place.write("/run/plan.conflist", &network.to_string())?;
    place.node.sh_in("c1", "ip link add eth0 type veth peer name other")?;
    let netns = place.node.netns("c1");
    // User `nobody` may not enter the namespace. The plan says that it treats the namespace as empty.
    let Answer { status, stdout: text, .. } = place.plan(&network, &["--netns", &netns])?;
    ensure!(status == 0 && flat(&text).contains("is taken as an empty namespace: "), "status {status}: {text}");
    let Answer { status, stdout: text, .. } = place.plan(&network, &["--netns", "/run/netns/none"])?;
    ensure!(
        status == 0
            && flat(&text).contains("/run/netns/none is taken as an empty namespace: the path does not exist yet"),
        "{text}"
    );
    // A master may exist in the container. The plan says that this user can't look for the master, and that root could.
    place.node.sh_in("c1", "ip link add net1 type veth peer name net2")?;
    let inside = macvlan(json!({"master": "net1", "linkInContainer": true}));
    let Answer { status, stdout: text, .. } = place.plan(&inside, &["--netns", &netns])?;
    let text = flat(&text);
    ensure!(
        status == 1 && text.contains("failed to lookup master \"net1\": this user can't look into the container: "),
        "status {status}: {text}"
    );
    ensure!(text.ends_with("run `postern plan` as root") && !text.contains("Link not found"), "{text}");
    place.write("/run/plan.conflist", &inside.to_string())?;
    place.node.postern(&format!("plan /run/plan.conflist --netns {netns} --ifname eth1"))?.printed()?;
    // A user who may enter the namespace sees the link that blocks ADD.
    place.write("/run/plan.conflist", &network.to_string())?;
    let before = place.looks()?;
    let plan = |netns: &str| -> Result<(i32, String)> {
        let answer = place.node.postern(&format!("plan /run/plan.conflist --netns {netns}"))?;
        Ok((answer.status, answer.words()))
    };
    let (status, text) = plan(&netns)?;
    ensure!(status == 1 && text.contains("peer provided (\"vethXXXXXXXX\") already exists"), "status {status}: {text}");
    let (status, text) = plan("/proc/self/ns/net")?;
    ensure!(status == 1 && !text.contains("the runtime would get"), "status {status}: {text}");
    let after = place.looks()?;
    ensure!(before.0 == after.0 && compare(&before.1, &after.1).is_empty(), "plan changed the node");
    Ok(())
}

/// A plugin asks for any operations in any order, under a policy with a large limit. The plan changes nothing.
#[test]
fn a_hostile_plugin_gets_no_further_than_the_simulation() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    place.node.sh(
        "ip link add hostile0 type bridge; ip link add op0 type veth peer name op1; ip addr add 192.0.2.1/24 dev op0",
    )?;
    place.write("/etc/postern/policy/hostile.toml", "[limits]\nseconds = 20\noperations = 4000\n")?;
    let ipam = json!({"type": "host-local", "subnet": "10.9.0.0/24"});
    let mut asked = 0;
    for seed in 0..12 {
        let sequence = format!("{seed} 300");
        let hostile = network("1.0.0", json!({"type": "hostile", "sequence": sequence, "make": true, "ipam": ipam}));
        let (status, plan) = place.object_of(&test_bin()?, &hostile, &[])?;
        ensure!([0, 1, 3].contains(&status), "seed {seed}: status {status}");
        asked += as_logged(&plan).len();
    }
    ensure!(asked > 1000, "only {asked} operations were asked for");
    place.write("/etc/postern/policy/hostile.toml", "[limits]\nseconds = 1\noperations = 10\n")?;
    for (behaviour, words) in [("loop", "ran past its deadline"), ("ask", "asked for more than 10 operations")] {
        let (behaviour, sequence) = if behaviour == "ask" { ("", "1 300") } else { (behaviour, "") };
        let hostile =
            network("1.0.0", json!({"type": "hostile", "hostile": behaviour, "sequence": sequence, "ipam": ipam}));
        let (_, plan) = place.object_of(&test_bin()?, &hostile, &[])?;
        let message = plan["plugins"][0]["error"]["msg"].as_str().unwrap_or_default();
        ensure!(message.contains(words), "{message}");
    }
    Ok(())
}

/// A plan shows a note's length. A delegate has no note in a plan either, because its section would be the caller's.
#[test]
fn notes_are_planned_as_they_are_kept() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    place.write("/etc/postern/policy/hostile.toml", "[grant.notes]")?;
    let ipam = json!({"type": "host-local", "subnet": "10.9.0.0/24"});
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [
        {"type": "bridge", "bridge": "br9", "ipam": ipam},
        {"type": "remember", "args": {"cni": {"labels": [{"key": "app", "value": "web"}]}}},
    ]});
    let (status, plan) = place.object_of(&test_bin()?, &list, &[])?;
    let text = plan.to_string();
    ensure!(status == 0 && text.contains("keep a note of 7 bytes for the attachment"), "{status}: {plan:#}");
    ensure!(!text.contains("app=web"), "{plan:#}");
    let delegate =
        network("1.0.0", json!({"type": "bridge", "bridge": "br9", "hostile": "note", "ipam": {"type": "hostile"}}));
    let (status, plan) = place.object_of(&test_bin()?, &delegate, &[])?;
    let words = "\\\"hostile\\\" runs for another plugin here, and has no section of its own";
    ensure!(status == 1 && plan.to_string().contains(words), "{status}: {plan:#}");
    Ok(())
}

#[test]
fn what_makes_no_sense_is_an_error() -> Result<()> {
    let place = Place::new(&["c1", "c2"])?;
    for (list, arguments, words) in [
        (json!({"name": "n"}), vec![], "has no \"type\""),
        (json!({"name": "n", "plugins": {}}), vec![], "is no list"),
        (bridge(json!({})), vec!["--capability-args", "[]"], "--capability-args"),
        (bridge(json!({})), vec!["--container", "../x"], "invalid characters"),
        (bridge(json!({})), vec!["--ifname", "a/b"], "interface name"),
    ] {
        let Answer { status, stdout, stderr } = place.plan(&list, &arguments)?;
        ensure!(status == 1 && stdout.is_empty() && stderr.contains(words), "{status} {stdout} {stderr}");
    }
    // The plugin refuses the network's name, in a plan as in a run.
    let (status, plan) = place.object(&json!({"name": "a b", "plugins": [{"type": "loopback"}]}), &[])?;
    ensure!(status == 1 && plan["plugins"][0]["error"]["code"] == 7, "{plan:#}");
    Ok(())
}
