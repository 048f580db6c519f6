//! One scenario on a separate node: the required state after a run with a fault, and the ways to restore the node.

use crate::faults::fault::{Fault, TRACE, of_run, tracing, unlisted};
use crate::faults::scenarios::{MASTER, NATIVE, SCRIPT, Scenario};
use anyhow::{Context, Result, ensure};
use postern_tests::dhcp::Leases;
use postern_tests::proof::{
    PRIVATE_ETC, Refusal, collect_garbage, is_recorded, is_whole, looks_killed, picture, same_picture,
};
use postern_tests::{Answer, Call, Node, merge, plugin_bin, shipped};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The deadline of a run. A run that reaches the deadline waits for an event that can't come.
const SECONDS: u32 = 10;
/// The longest time of a run that waits for nothing. With strace, a run takes 50 ms.
const PROMPT: Duration = Duration::from_secs(5);

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The run succeeded: the fault never came, or did no harm.
    Succeeded,
    /// The run succeeded, with a message about something that it could not do.
    Complained,
    /// The run ended with an error object.
    Failed,
    /// The run ended with an error object, and a message about effects that it could not undo.
    Left,
    /// The run was killed.
    Killed,
}

/// A way to restore the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoration {
    Del,
    Gc,
    Add,
}

/// Makes a container's device, unless it exists. When a container's namespace ends, the kernel may remove the device's
/// other end only later.
fn add_device(container: &str) -> String {
    format!(
        "ip link show dev dev-{container} > /dev/null 2>&1 || {{
         tries=0
         until ip link add dev-{container} type veth peer name wire-{container} 2> /dev/null; do
           sleep .02; tries=$((tries + 1)); [ $tries -lt 500 ]; done
         ip link set dev-{container} up; ip link set wire-{container} up; }}"
    )
}

/// Adds and removes a VRF, because a namespace's first VRF leaves a routing rule.
fn had_vrf(node: &Node, scenario: &Scenario, container: &str) -> Result<()> {
    match scenario.plugin {
        "vrf" => node.sh_in(container, "ip link add probe type vrf table 9; ip link delete probe").map(drop),
        _ => Ok(()),
    }
}

/// The plugin that gives the addresses of a scenario.
fn ipam_type(scenario: &Scenario) -> &str {
    scenario.config.pointer("/ipam/type").and_then(Value::as_str).unwrap_or_default()
}

/// The ways to restore the node, used in turn.
pub const RESTORATIONS: [Restoration; 3] = [Restoration::Del, Restoration::Gc, Restoration::Add];

/// The node of one scenario; see the module. `c1` is the container of a run. On GC, `c1` stays, and `c2` is gone.
pub struct Place {
    node: Node,
    scenario: Scenario,
    verb: &'static str,
    /// The node before a run. For CHECK and GC, `c1` is attached.
    before: Value,
    /// The node with only bridge's part of the attachment, if bridge comes before the plugin.
    between: Value,
    /// The output of the last ADD.
    previous: Value,
    /// The output of bridge's last ADD for a container.
    of_bridge: BTreeMap<String, Value>,
    /// The leases of the DHCP service, if the scenario has one.
    leases: Option<Arc<Leases>>,
    /// The kinds of effect of an ADD.
    pub kinds: BTreeSet<String>,
}

impl Place {
    /// Makes a node with everything that attachments share, ready for runs of `verb`.
    pub fn new(scenario: &Scenario, verb: &'static str) -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
        ["c1", "c2"].iter().try_for_each(|container| had_vrf(&node, scenario, container))?;
        node.sh(PRIVATE_ETC)?;
        node.sh(
            "mkdir -p /run/flannel
             printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.9.0.1/24\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n' > /run/flannel/subnet.env",
        )?;
        let (directory, name) = NATIVE;
        node.sh(&format!(
            "mkdir -p {directory}/leases; cat > {directory}/{name} <<'END'\n{SCRIPT}\nEND\nchmod 755 {directory}/{name}"
        ))?;
        if ["macvlan", "vlan", "ipvlan"].contains(&scenario.plugin) {
            node.sh(&format!(
                "ip link add {MASTER} type veth peer name wire1; ip link set {MASTER} up; ip link set wire1 up"
            ))?;
        }
        // Each container has its own device.
        if scenario.plugin == "host-device" {
            ["c1", "c2"].iter().try_for_each(|container| node.sh(&add_device(container)).map(drop))?;
        }
        if scenario.joins {
            node.sh("for c in c1 c2; do ip link add tap-$c type veth peer name vm-$c; ip link set vm-$c up; done")?;
        }
        let leases = (ipam_type(scenario) == "dhcp").then(|| Leases::serve_watching(&node)).transpose()?;
        // The configuration with which `postern gc` runs a native program.
        node.sh("mkdir -p /etc/cni/net.d")?;
        std::fs::write(node.path("/etc/cni/net.d/10-net.conf"), scenario.config.to_string())?;
        let mut place = Self {
            node,
            scenario: scenario.clone(),
            verb,
            before: Value::Null,
            between: Value::Null,
            previous: Value::Null,
            of_bridge: BTreeMap::new(),
            leases,
            kinds: BTreeSet::new(),
        };
        place.policy(None)?;
        for container in ["c1", "c2"] {
            place.add(container)?;
            place.kinds = place.effects()?;
            place.call("CHECK", container)?.success().context("CHECK before any fault")?;
            place.call("DEL", container)?.success()?;
            place.bridge("DEL", container)?;
        }
        if place.scenario.bridge.is_some() {
            place.bridge("ADD", "c1")?;
            place.between = place.picture(&["c1", "c2"])?;
            place.bridge("DEL", "c1")?;
        }
        if matches!(verb, "CHECK" | "GC") {
            place.add("c1")?;
        }
        place.before = place.picture(&["c1", "c2"])?;
        Ok(place)
    }

    /// Writes the operators' policies: they allow the native program, and the number of operations in `fault`.
    fn policy(&self, fault: Option<&Fault>) -> Result<()> {
        for plugin in shipped()? {
            let mut text = match fault {
                Some(Fault::Operations { plugin: whose, allowed }) if *whose == plugin => {
                    format!("[limits]\nseconds = {SECONDS}\noperations = {allowed}\n")
                }
                _ => format!("[limits]\nseconds = {SECONDS}\n"),
            };
            if plugin == self.scenario.plugin && plugin == "bridge" {
                text.push_str("[grant.ipam]\ntypes = [\"${config.ipam.type}\"]\nnative = [\"script-ipam\"]\n");
                if self.scenario.joins {
                    text.push_str(
                        "[previous]\nnames = [\"tap-*\"]\n\
                         [grant.bridge]\nnames = [\"br9\"]\ngateways = [\"true\"]\nattach = [\"tap-*\"]\n",
                    );
                }
            }
            fs::write(self.node.path(format!("/etc/postern/policy/{plugin}.toml")), text)?;
        }
        Ok(())
    }

    fn call_under(&self, wrapper: &[String], verb: &str, container: &str) -> Result<Answer> {
        let mut config = self.scenario.config.clone();
        if matches!(verb, "CHECK" | "DEL") && self.previous.is_object() && container == "c1" {
            merge(&mut config, &json!({"prevResult": self.previous}));
        } else if verb == "CHECK" {
            // `previous` is the result of c2's ADD.
            let printed = self.previous.clone();
            merge(&mut config, &json!({"prevResult": printed}));
        }
        if verb == "ADD" && self.scenario.joins {
            let links = [json!({"name": format!("tap-{container}")})];
            merge(&mut config, &json!({"prevResult": {"cniVersion": "1.1.0", "interfaces": links}}));
        }
        if let Some(result) = self.of_bridge.get(container).filter(|_| verb == "ADD") {
            merge(&mut config, &json!({"prevResult": result}));
        }
        if self.scenario.plugin == "portmap" {
            // Each container has its own ports.
            let first = if container == "c1" { 8080 } else { 9080 };
            let mapping = |step: u16, protocol| json!({"hostPort": first + step, "containerPort": 80 + step, "protocol": protocol});
            let here = json!({"hostPort": first + 9, "containerPort": 89, "protocol": "tcp", "hostIP": "10.9.0.1"});
            let mappings = json!([mapping(0, "tcp"), mapping(1, "tcp"), mapping(2, "udp"), here]);
            merge(&mut config, &json!({"runtimeConfig": {"portMappings": mappings}}));
        }
        if self.scenario.plugin == "host-device" {
            merge(&mut config, &json!({"device": format!("dev-{container}")}));
        }
        let bin = plugin_bin()?;
        let path = format!("{}:{}", bin.display(), NATIVE.0);
        if verb == "GC" {
            merge(
                &mut config,
                &json!({"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": self.scenario.interface}]}),
            );
        }
        let call = Call::new(&bin, self.scenario.plugin, verb, config.to_string()).env("CNI_PATH", &path);
        let call = match verb {
            "GC" => call,
            _ => call.attachment(container, &self.node.netns(container), self.scenario.interface),
        };
        self.node.call_under(wrapper, &call)
    }

    fn call(&self, verb: &str, container: &str) -> Result<Answer> {
        self.call_under(&[], verb, container)
    }

    /// Makes bridge's part of the attachment, or removes it, if bridge comes before the plugin. The container always
    /// gets the same addresses.
    fn bridge(&mut self, verb: &str, container: &str) -> Result<()> {
        let Some(mut config) = self.scenario.bridge.clone() else { return Ok(()) };
        let last = container.trim_start_matches('c').parse::<u8>()? + 1;
        let ips = [format!("10.9.0.{last}"), format!("fd00:9::{last}")];
        merge(&mut config, &json!({"args": {"cni": {"ips": ips}}}));
        let bin = plugin_bin()?;
        let call = Call::new(&bin, "bridge", verb, config.to_string()).env("CNI_PATH", &bin.display().to_string());
        let result = self.node.call(&call.attachment(container, &self.node.netns(container), "eth0"))?.success();
        let result = result.with_context(|| format!("{verb} of bridge"))?;
        match verb {
            "ADD" => self.of_bridge.insert(container.to_owned(), result),
            _ => self.of_bridge.remove(container),
        };
        Ok(())
    }

    fn add(&mut self, container: &str) -> Result<()> {
        if !self.of_bridge.contains_key(container) {
            self.bridge("ADD", container)?;
        }
        self.previous = self.call("ADD", container)?.success().context("an ADD without a fault")?;
        Ok(())
    }

    fn picture(&self, containers: &[&str]) -> Result<Value> {
        let mut tree = picture(&self.node, containers)?;
        if let Some(leases) = &self.leases {
            merge(&mut tree, &json!({"leases": leases.held()}));
        }
        Ok(tree)
    }

    /// Returns the container of a run of this verb.
    fn container(&self) -> &'static str {
        if self.verb == "GC" { "c2" } else { "c1" }
    }

    /// Makes the state that a run of this verb needs.
    fn prepare(&mut self) -> Result<()> {
        match self.verb {
            "ADD" => self.bridge("ADD", "c1"),
            "DEL" => self.add("c1"),
            "GC" => {
                let kept = self.previous.clone();
                self.add("c2")?;
                self.previous = kept;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the kind and the backend of each effect in the records of attachments and of shared objects.
    fn effects(&self) -> Result<BTreeSet<String>> {
        let lines = self.node.sh("cat /run/postern/attachments/* 2>/dev/null || true")?;
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let text = |line: &Value, key| Some(line.get("effect")?.get(key)?.as_str()?.to_owned());
        let own = lines.filter_map(|line| Some(text(&line, "effect")? + &text(&line, "backend").unwrap_or_default()));
        let shared = self.node.sh("ls /run/postern/node 2>/dev/null || true")?;
        let shared = shared.lines().filter_map(|name| Some(format!("node {}", name.split('-').next()?)));
        Ok(own.chain(shared).collect())
    }

    /// Returns all faults that a run of this verb can have, by kind.
    pub fn faults(&mut self, all: bool) -> Result<[Vec<Fault>; 3]> {
        self.prepare()?;
        let log = self.node.path("/var/log/postern/audit.jsonl");
        fs::write(&log, "")?;
        self.call_under(&tracing(), self.verb, self.container())?.success()?;
        let mut operations = BTreeMap::new();
        for line in fs::read_to_string(&log)?.lines() {
            let line: Value = serde_json::from_str(line)?;
            let plugin = line.get("plugin").and_then(Value::as_str).unwrap_or_default();
            if plugin != "postern" {
                *operations.entry(plugin.to_owned()).or_default() += 1;
            }
        }
        let trace = fs::read_to_string(self.node.path(TRACE))?;
        let unlisted = unlisted(&trace);
        ensure!(unlisted.is_empty(), "the lists of `fault.rs` lack system calls: {unlisted:?}");
        if self.verb == "ADD" {
            self.call("DEL", "c1")?.success()?;
        }
        self.end_bridge()?;
        self.at_rest().context("after a run without a fault")?;
        Ok(of_run(&trace, &operations, all))
    }

    /// Removes bridge's part of the attachment under test.
    fn end_bridge(&mut self) -> Result<()> {
        if self.verb == "CHECK" { Ok(()) } else { self.bridge("DEL", self.container()) }
    }

    /// Returns the node without the part of the plugin under test.
    fn without(&self) -> &Value {
        if self.verb == "ADD" && self.scenario.bridge.is_some() { &self.between } else { &self.before }
    }

    fn at_rest(&self) -> Result<()> {
        same_picture(&self.before, &self.picture(&["c1", "c2"])?)
    }

    /// Makes one run with a fault. Before and after the run, the node is in its normal state. A slow run is repeated
    /// once: only a run that waits for something is slow again.
    pub fn run(&mut self, fault: &Fault, way: Restoration) -> Result<Outcome> {
        let (outcome, took, _) = self.run_once(fault, way)?;
        if took < PROMPT {
            return Ok(outcome);
        }
        let (outcome, took, answer) = self.run_once(fault, way)?;
        ensure!(took < PROMPT, "the run took {:.1} s, twice: {}", took.as_secs_f32(), answer.stdout.trim());
        Ok(outcome)
    }

    fn run_once(&mut self, fault: &Fault, way: Restoration) -> Result<(Outcome, Duration, Answer)> {
        self.prepare()?;
        self.policy(Some(fault))?;
        let start = Instant::now();
        let answer = self.call_under(&fault.wrapper(), self.verb, self.container())?;
        let took = start.elapsed();
        self.policy(None)?;
        let outcome = judge(fault, self.verb, &answer)?;
        self.no_address_is_free_and_used().with_context(|| format!("{outcome:?}"))?;
        self.localhost_is_guarded().with_context(|| format!("{outcome:?}"))?;
        match (self.verb, outcome) {
            ("ADD", Outcome::Succeeded | Outcome::Complained) => {
                self.previous = answer.success()?;
                ensure!(!looks_killed(&self.node, "c1")?, "`postern gc` would remove what the runtime has: {answer:?}");
                self.no_advertisement_counts(&answer)?;
                self.call("CHECK", "c1")?.success().context("CHECK after an ADD that succeeded")?;
                self.call("DEL", "c1")?.success()?;
            }
            // ADD undoes its effects before it prints the error.
            ("ADD", Outcome::Failed) => {
                same_picture(self.without(), &self.picture(&["c1", "c2"])?)
                    .with_context(|| format!("after a failed ADD ({})", answer.stdout.trim()))?;
                self.back(way)?;
            }
            // CHECK changes nothing, whatever its outcome. After success no object is left.
            ("CHECK", _) | (_, Outcome::Succeeded) => {}
            _ => self.back(way)?,
        }
        self.end_bridge()?;
        self.at_rest().with_context(|| {
            format!("{outcome:?} ({} {}), then {way:?}", answer.stdout.trim(), answer.stderr.trim())
        })?;
        self.no_lease_is_back_early().with_context(|| format!("{outcome:?}, then {way:?}"))?;
        if matches!(self.verb, "CHECK" | "GC") {
            self.call("CHECK", "c1")?.success().context("CHECK of the attachment that has to stay")?;
        }
        Ok((outcome, took, answer))
    }

    /// Two conditions hold at every instant at which a kill can stop a run. An address in the container has a lease. A
    /// port that is up has the guard that the network asks for.
    fn no_address_is_free_and_used(&self) -> Result<()> {
        if ipam_type(&self.scenario) == "static" {
            return Ok(());
        }
        let leased = self.leases.as_ref().map(|leases| leases.held()).unwrap_or_default();
        self.no_lease_is_back_early()?;
        let used = self.node.sh(
            "for c in c1 c2; do ip -n $c -o addr show dev eth0 scope global 2>/dev/null | awk -v c=$c '{print c, $4}'; done || true",
        )?;
        for (container, address) in used.lines().filter_map(|line| line.split_once(' ')) {
            let address = address.split('/').next().unwrap_or_default();
            let held = self.node.sh(&format!(
                "grep -ls {container} /var/lib/cni/networks/net/{address} {}/leases/{container} || true; \
                 ls {}/leases/{container} 2>/dev/null || true",
                NATIVE.0, NATIVE.0
            ))?;
            let is_leased = leased.get(container).is_some_and(|leased| leased == address);
            ensure!(is_leased || !held.is_empty(), "{container} has {address}, which is free");
        }
        if self.verb == "DEL" && self.scenario.config.get("macspoofchk").is_some() {
            let up = self.node.sh(
                "ip -o link show up master br9 2>/dev/null | grep -oE 'veth[0-9a-f]+|tap-c[12]' | sort -u || true",
            )?;
            let rules = self.node.sh("nft list table bridge nat 2>/dev/null || true")?;
            for port in up.lines() {
                ensure!(rules.contains(port), "port {port} is up without its guard:\n{rules}");
            }
        }
        Ok(())
    }

    /// Fails if a lease was released while a link had the address.
    fn no_lease_is_back_early(&self) -> Result<()> {
        let early = self.leases.as_ref().map(|leases| leases.given_back_early()).unwrap_or_default();
        ensure!(early.is_empty(), "the service had the lease back while a link had the address: {early:?}");
        Ok(())
    }

    /// Containers must not give the node addresses or routes by router advertisements. If the node's settings can't be
    /// written, the run names each affected link.
    fn no_advertisement_counts(&self, answer: &Answer) -> Result<()> {
        let open = "cd /proc/sys/net/ipv6/conf; grep -ls 1 br9/accept_ra veth*/accept_ra || true";
        let open = self.node.sh(open)?;
        let is_said = |file: &str| {
            let link = file.trim_end_matches("/accept_ra");
            answer.stderr.contains(&format!("postern: {link} takes router advertisements of its container: "))
        };
        ensure!(open.lines().all(is_said), "the node takes router advertisements: {open}: {answer:?}");
        Ok(())
    }

    /// At every instant, a link that delivers packets for 127.0.0.0/8 has its guard.
    fn localhost_is_guarded(&self) -> Result<()> {
        if self.scenario.plugin != "portmap" {
            return Ok(());
        }
        let open = self.node.sh("grep -l 1 /proc/sys/net/ipv4/conf/*/route_localnet || true")?;
        let guard = self.node.sh("nft list table ip postern_localnet 2>/dev/null || true")?;
        ensure!(open.is_empty() || guard.contains("127.0.0.0/8 drop"), "{open} is open without a guard:\n{guard}");
        Ok(())
    }

    /// Restores the node.
    fn back(&mut self, way: Restoration) -> Result<()> {
        let container = self.container();
        // After a kill at the run's last act, the runtime may have read the run's result.
        let whole = self.verb != "ADD" || is_whole(&self.node, container)?;
        match way {
            Restoration::Del => self.call("DEL", container)?.success().context("DEL").map(drop),
            // After a killed ADD, no leftover blocks the next ADD. After a killed DEL, the attachment may still be
            // complete.
            Restoration::Add if !whole => {
                self.add(container).context("the next ADD")?;
                self.call("CHECK", container)?.success().context("CHECK after the next ADD")?;
                self.call("DEL", container)?.success().context("DEL after the next ADD").map(drop)
            }
            Restoration::Add => {
                let answer = self.call("ADD", container)?;
                if answer.status != 0 {
                    Refusal::of(&answer)?;
                }
                self.call("DEL", container)?.success().context("DEL after another ADD").map(drop)
            }
            // GC can't remove a plugin's changes to lo.
            Restoration::Gc if self.scenario.plugin == "loopback" => self.back(Restoration::Del),
            Restoration::Gc => self.collect(container, whole),
        }
    }

    /// Runs `postern gc`, which never removes anything that a living namespace uses. If the attachment was complete,
    /// its namespace is removed first. The kernel then removes the objects in the namespace, so only DEL tests the
    /// removal of these objects.
    fn collect(&mut self, container: &str, gone: bool) -> Result<()> {
        if gone {
            self.node.remove_container(container)?;
        }
        let mut kept = collect_garbage(&self.node)?;
        // On a busy machine, the last process of an earlier run leaves the namespace late. The kernel ends the
        // namespace only when this process has left.
        let start = Instant::now();
        while gone && kept.is_empty() && is_recorded(&self.node, container)? && start.elapsed() < PROMPT {
            std::thread::sleep(Duration::from_millis(20));
            kept = collect_garbage(&self.node)?;
        }
        ensure!(gone || kept.is_empty(), "`postern gc` keeps what a killed ADD left");
        if kept.iter().any(|kept| kept == container) {
            self.call("DEL", container)?.success().context("DEL without a namespace")?;
            self.bridge("DEL", container)?;
        }
        if gone {
            self.node.add_container(container)?;
            had_vrf(&self.node, &self.scenario, container)?;
            // A virtual device ended with the namespace.
            if self.scenario.plugin == "host-device" {
                self.node.sh(&add_device(container))?;
            }
        }
        // The namespace is gone, so no part of a whole attachment is left.
        let expected = if gone { &self.before } else { self.without() };
        same_picture(&host_of(expected), &host_of(&self.picture(&["c1", "c2"])?))
            .context("after `postern gc --yes`")?;
        self.call("DEL", container)?.success().context("DEL after `postern gc`").map(drop)
    }
}

/// Returns the picture without the containers' contents.
fn host_of(picture: &Value) -> Value {
    let mut host = picture.clone();
    if let Some(map) = host.as_object_mut() {
        map.retain(|place, _| place != "c1" && place != "c2");
    }
    host
}

/// Checks that a run ended in an allowed way: with success, with one error object, or killed by its fault.
fn judge(fault: &Fault, verb: &str, answer: &Answer) -> Result<Outcome> {
    let words = answer.stderr.to_lowercase();
    ensure!(!words.contains("panicked") && !words.contains("this is a bug"), "{answer:?}");
    ensure!(!answer.stdout.contains("this is a bug"), "{answer:?}");
    match (answer.status, fault) {
        (0, _) => {
            ensure!(answer.success()?.is_object() == (verb == "ADD"), "{answer:?}");
            Ok(if words.is_empty() { Outcome::Succeeded } else { Outcome::Complained })
        }
        (1, _) => {
            Refusal::of(answer)?;
            Ok(if words.contains("could not undo") { Outcome::Left } else { Outcome::Failed })
        }
        (_, Fault::Kill { .. }) => Ok(Outcome::Killed),
        _ => anyhow::bail!("neither success nor an error object: {answer:?}"),
    }
}
