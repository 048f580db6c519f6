//! A node that tests break, and the output of `postern ls`, `show` and `doctor` about it.

use crate::account::table::{Broken, Remedy};
use anyhow::{Context, Result, ensure};
use postern_tests::{Network, Node, copy_bin, flat, plugin_bin};
use serde_json::{Value, json};
use std::path::Path;

/// The containers: tests break the first container, and the second container has no finding.
pub const CONTAINERS: [&str; 2] = ["c1", "c2"];

/// A node with two containers and a separate catalog, so that the catalog can be broken too.
pub struct BrokenNode {
    /// The node.
    pub node: Node,
    /// The network of both containers.
    pub network: Network,
}

/// The node's CNI bin directory.
pub const BIN: &str = "/run/cni/bin";

impl BrokenNode {
    /// Makes a node whose containers are attached to this network.
    pub fn new(config: &Value) -> Result<Self> {
        let node = Node::new()?;
        node.sh(&format!("umask 022; mkdir -p /run/cni /run/conf; {}", copy_bin(&plugin_bin()?, BIN)))?;
        let mut list = config.clone();
        let plugin = list.as_object_mut().context("no object")?;
        let name = plugin.remove("name");
        let list = json!({"cniVersion": "1.1.0", "name": name, "plugins": [plugin]});
        node.sh(&format!("cat > /run/conf/net.conflist <<'END'\n{list}\nEND"))?;
        if text(config, "master") == "wire0" {
            node.sh("ip link add wire0 type veth peer name wire1; ip link set wire0 up; ip link set wire1 up")?;
        }
        let network = Network::new(&node, config)?.by(Path::new(BIN));
        for container in CONTAINERS {
            node.add_container(container)?;
            network.add(container)?;
        }
        Ok(Self { node, network })
    }

    /// Attaches a container again, as a runtime does.
    pub fn attach_again(&self, container: &str) -> Result<()> {
        self.network.call("DEL", container)?.success()?;
        self.network.add(container).map(drop)
    }

    /// Runs a script on the node, with the variables that the table's rows use.
    pub fn script(&self, script: &str) -> Result<String> {
        self.node.sh(&format!(
            "bin={BIN}; origin={}; record=$(grep -ls '\"container_id\":\"c1\"' /run/postern/attachments/* || true); \
             veth=$(sed -n '/\"effect\":\"veth\"/s/.*\"host\":\"\\([^\"]*\\)\".*/\\1/p' \"$record\" 2>/dev/null || true)\n{script}",
            plugin_bin()?.display()
        ))
    }

    /// Returns the output of a verb and its exit status, whatever the status.
    pub fn postern(&self, arguments: &str) -> Result<(String, i32)> {
        let answer = self.node.postern_of(BIN, arguments)?;
        let printed = answer.stdout + &answer.stderr;
        ensure!(
            printed.chars().all(|c| c == '\n' || !c.is_control()),
            "{arguments} prints control characters: {printed:?}"
        );
        Ok((printed, answer.status))
    }

    fn doctor(&self) -> Result<(Value, i32)> {
        let (printed, status) = self.postern(&format!("doctor --json --conf-dir /run/conf --bin {BIN}"))?;
        Ok((serde_json::from_str(&printed).with_context(|| printed.clone())?, status))
    }

    /// Returns doctor's findings, without findings about features that this kernel or this test's namespace lacks.
    pub fn findings(&self) -> Result<(Vec<Value>, i32)> {
        let (report, status) = self.doctor()?;
        let findings = report.get("findings").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok((findings.into_iter().filter(|finding| text(finding, "area") != "kernel").collect(), status))
    }

    /// Returns the state of each container.
    pub fn states(&self) -> Result<Vec<(String, String)>> {
        let (printed, status) = self.postern("ls --json")?;
        ensure!(status == 0, "ls: {printed}");
        let list: Vec<Value> = serde_json::from_str(&printed)?;
        Ok(list.iter().map(|one| (text(one, "container").to_owned(), text(one, "state").to_owned())).collect())
    }

    /// Breaks the node, and repairs it.
    pub fn row(&self, broken: &Broken) -> Result<()> {
        self.script(broken.by)?;
        if !broken.state.is_empty() {
            let states = self.states()?;
            let of =
                |name: &str| states.iter().find(|(container, _)| container == name).map(|(_, state)| state.as_str());
            // An unreadable record does not show its attachment.
            let named = if broken.state == "damaged" { "" } else { "c1" };
            ensure!(of(named) == Some(broken.state), "ls: {states:?}");
            let table = self.postern("ls")?.0;
            ensure!(table.contains(&broken.state.replace('-', " ")), "ls: {table}");
        }
        if !broken.show.is_empty() {
            let (printed, status) = self.postern("show c1")?;
            ensure!(
                status == 0 && printed.contains("DIFFERS") && flat(&printed).contains(broken.show),
                "show: {printed}"
            );
            ensure!(printed.contains("remedy"), "show has no remedy: {printed}");
        }
        let (findings, status) = self.findings()?;
        let words = |finding: &Value| format!("{}: {}", text(finding, "place"), text(finding, "what"));
        let all: Vec<String> = findings.iter().map(&words).collect();
        let found = findings
            .iter()
            .find(|finding| words(finding).contains(broken.doctor))
            .with_context(|| format!("doctor: {all:?}"))?;
        ensure!(text(found, "severity") == broken.severity, "doctor: {found}");
        ensure!(!text(found, "why").is_empty() && !text(found, "remedy").is_empty(), "doctor: {found}");
        let worst = findings.iter().map(|finding| text(finding, "severity")).min().unwrap_or_default();
        ensure!(status == if worst == "error" { 1 } else { 3 }, "doctor: status {status}: {all:?}");
        if broken.name == "a native plugin in the way" {
            self.script("cp $bin/ptp /run/kept")?;
        }
        if broken.name == "a record was damaged" {
            let remedy = text(found, "remedy");
            ensure!(remedy.find("`cat ") < remedy.find("`rm ") && remedy.contains("`cat "), "doctor: {found}");
        }
        match broken.remedy {
            Remedy::Doctor | Remedy::Native => {
                ensure!(found.get("is_command") == Some(&json!(true)), "doctor: {found}");
                let is_native = text(found, "remedy") == "postern gc --native";
                ensure!(is_native == matches!(broken.remedy, Remedy::Native), "doctor: {found}");
                // At a terminal, the command asks for a confirmation.
                let command = match text(found, "remedy") {
                    collect @ ("postern gc" | "postern gc --native") => format!("$bin/{collect} --yes"),
                    other => other.replace("postern add ", "$bin/postern add "),
                };
                self.script(&command).with_context(|| format!("remedy {command}"))?;
                self.run_further_commands()?;
            }
            Remedy::Words(script) => {
                let remedy = text(found, "remedy");
                let removes = ["rm ", "delete", "flush", "kill", "postern gc"].iter().any(|word| remedy.contains(word));
                ensure!(found.get("is_command") == Some(&json!(false)) && !removes, "doctor: {found}");
                self.script(script)?;
            }
            Remedy::Again => {}
            Remedy::Script(script) => drop(self.script(script)?),
            Remedy::Writer(script) => {
                ensure!(text(found, "remedy") == "use the version of postern that wrote the record", "doctor: {found}");
                ensure!(found.get("is_command") != Some(&json!(true)), "doctor: {found}");
                self.script(script)?;
            }
        }
        let again = match broken.remedy {
            // These defects concern all attachments.
            Remedy::Again if ["the bridge was deleted", "masquerading was flushed"].contains(&broken.name) => {
                &CONTAINERS[..]
            }
            Remedy::Again => &["c1"],
            _ if ["container-gone", "previous-boot", "incomplete", "damaged"].contains(&broken.state) => &["c1"],
            _ => &[],
        };
        if broken.name == "a native plugin in the way" {
            self.script("cmp /run/kept $bin/ptp.native")?;
        }
        self.script("[ -e /run/netns/c1 ] || ip netns add c1")?;
        for container in again {
            self.attach_again(container)?;
        }
        self.is_healthy().context("after the remedy")
    }

    /// Runs the commands that doctor prints after the first repair. For example, a link that was down also lost its
    /// routes.
    fn run_further_commands(&self) -> Result<()> {
        for _ in 0..3 {
            let findings = self.findings()?.0;
            let commands = findings.iter().filter(|finding| finding.get("is_command") == Some(&json!(true)));
            let commands: Vec<&str> = commands.map(|finding| text(finding, "remedy")).collect();
            if commands.is_empty() {
                break;
            }
            for command in commands {
                self.script(command).with_context(|| format!("remedy {command}"))?;
            }
        }
        Ok(())
    }

    /// Fails if doctor has findings, or if a container's state is not ok.
    pub fn is_healthy(&self) -> Result<()> {
        let (findings, status) = self.findings()?;
        ensure!(findings.is_empty() && status == 0, "doctor: status {status}: {findings:?}");
        let states = self.states()?;
        ensure!(states == CONTAINERS.map(|name| (name.to_owned(), "ok".to_owned())), "ls: {states:?}");
        Ok(())
    }
}

/// Returns a text of an object, or an empty text if the key is absent.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a bridged network.
pub fn bridged() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true,
        "isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}

/// Returns a routed network.
pub fn routed() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns a network of links that are stacked on a link of the node.
pub fn stacked() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "macvlan", "master": "wire0",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}
