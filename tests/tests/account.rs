//! A node that is broken on purpose: what `postern ls`, `show` and `doctor` say of it, and that what they say mends it.

use anyhow::{Context, Result, ensure};
use postern_tests::{Call, Node, copy_bin, flat, plugin_bin};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The containers: one that is broken, and one that nothing may be said of.
const CONTAINERS: [&str; 2] = ["c1", "c2"];

/// One way to break a node.
struct Broken {
    /// What is wrong.
    name: &'static str,
    /// How it is done: a script, with `$record` (c1's), `$veth` (its host end) and `$bin`.
    by: &'static str,
    /// The state that `ls` has for c1, and a part of what `show c1` says; empty: not looked at.
    state: &'static str,
    show: &'static str,
    /// A part of what `doctor` finds, and its severity.
    doctor: &'static str,
    severity: &'static str,
    /// What mends it; `Doctor` is the command that doctor prints.
    mend: Mend,
}

enum Mend {
    /// The command that doctor prints.
    Doctor,
    /// The same, and it is `postern gc --native`.
    Native,
    /// What it says in words: the container's DEL and ADD.
    Again,
    /// What it says in words, as a script.
    Script(&'static str),
    /// The version that wrote the record, which alone knows it: this undoes what made the record a later one's.
    Writer(&'static str),
}

const BROKEN: [Broken; 35] = [
    Broken {
        name: "the pair was deleted",
        by: "ip link delete $veth",
        state: "drift",
        show: "is gone, and with it the pair",
        doctor: "is gone, and with it the pair",
        severity: "error",
        mend: Mend::Again,
    },
    Broken {
        name: "an address was removed",
        by: "ip -n c1 address delete 10.9.0.2/24 dev eth0",
        state: "drift",
        show: "does not have 10.9.0.2/24",
        doctor: "does not have 10.9.0.2/24",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "masquerading was flushed",
        by: "nft flush chain inet cni_plugins_masquerade masq_checks",
        state: "drift",
        show: "10.9.0.2 is not masqueraded",
        doctor: "10.9.0.2 is not masqueraded",
        severity: "error",
        mend: Mend::Again,
    },
    Broken {
        name: "spoofing protection was deleted",
        by: "nft flush chain bridge nat cni-br-iface-c1-eth0-mac",
        state: "drift",
        show: "is not all there",
        doctor: "the spoofing protection of",
        severity: "error",
        mend: Mend::Again,
    },
    Broken {
        name: "a lease was removed",
        by: "rm /var/lib/cni/networks/net/10.9.0.2",
        state: "drift",
        show: "the lease of 10.9.0.2 is gone",
        doctor: "the lease of 10.9.0.2 is gone",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a lease was given to another",
        by: "printf 'c9\\r\\neth0' > /var/lib/cni/networks/net/10.9.0.2",
        state: "drift",
        show: "address 10.9.0.2 is leased to c9 eth0 too",
        doctor: "address 10.9.0.2 is leased to c9 eth0 too",
        severity: "error",
        mend: Mend::Script("printf 'c1\\r\\neth0' > /var/lib/cni/networks/net/10.9.0.2"),
    },
    Broken {
        name: "the host end was set down",
        by: "ip link set $veth down",
        state: "drift",
        show: "is down",
        doctor: "is down",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "the host end was taken from the bridge",
        by: "ip link set $veth nomaster",
        state: "drift",
        show: "is a port of no bridge",
        doctor: "is a port of no bridge",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "the bridge was deleted",
        by: "ip link delete br9",
        state: "drift",
        show: "is a port of no bridge",
        doctor: "bridge br9: Postern made it, and it is gone",
        severity: "note",
        mend: Mend::Again,
    },
    Broken {
        name: "the host end's address was changed",
        by: "ip link set $veth address 02:00:00:00:00:99",
        state: "drift",
        show: "has address 02:00:00:00:00:99, and was given",
        doctor: "has address 02:00:00:00:00:99, and was given",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "the container's address was changed",
        by: "ip -n c1 link set eth0 address 02:00:00:00:00:99",
        state: "drift",
        show: "or for another address than 02:00:00:00:00:99",
        doctor: "or for another address than 02:00:00:00:00:99",
        severity: "error",
        mend: Mend::Again,
    },
    Broken {
        name: "the namespace was deleted",
        by: "ip netns delete c1; while ip link show $veth >/dev/null 2>&1; do sleep .02; done",
        state: "container-gone",
        show: "its network namespace is gone",
        doctor: "its network namespace is gone",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a record of another boot",
        by: "sed -i 's/\"boot_id\":\"[^\"]*\"/\"boot_id\":\"another\"/' $record",
        state: "previous-boot",
        show: "before the machine was last started",
        doctor: "before the machine was last started",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "an owner was killed midway",
        by: "sed -i '/\"given\":/d' $record",
        state: "incomplete",
        show: "the ADD of bridge was killed before it ended",
        doctor: "the ADD of bridge was killed before it ended",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a record was damaged",
        by: "echo garbage > $record",
        state: "damaged",
        show: "",
        doctor: "first line can't be read",
        severity: "error",
        mend: Mend::Script("rm $(grep -ls garbage /run/postern/attachments/*)"),
    },
    Broken {
        name: "a record of a later version",
        by: "sed -i 's/\"version\":1/\"version\":2/' $record",
        state: "damaged",
        show: "",
        doctor: "format version 2",
        severity: "error",
        mend: Mend::Writer("sed -i 's/\"version\":2/\"version\":1/' /run/postern/attachments/*"),
    },
    Broken {
        name: "an effect of a later version",
        by: "sed -i 's/\"mac-guard\"/\"later\"/' $record",
        state: "drift",
        show: "an effect of the record is not known",
        doctor: "an effect of the record is not known",
        severity: "error",
        mend: Mend::Writer("sed -i 's/\"later\"/\"mac-guard\"/' /run/postern/attachments/*"),
    },
    Broken {
        name: "an effect of a later version, and the namespace was deleted",
        by: "sed -i 's/\"mac-guard\"/\"later\"/' $record
             ip netns delete c1; while ip link show $veth >/dev/null 2>&1; do sleep .02; done",
        state: "container-gone",
        show: "an effect of the record is not known",
        doctor: "its network namespace is gone",
        severity: "error",
        mend: Mend::Writer("sed -i 's/\"later\"/\"mac-guard\"/' /run/postern/attachments/*"),
    },
    Broken {
        name: "a lease of nobody",
        by: "printf 'gone\\033[2J\\r\\neth0' > /var/lib/cni/networks/net/10.9.0.77; touch -d '1 hour ago' /var/lib/cni/networks/net/10.9.0.77",
        state: "ok",
        show: "",
        doctor: "eth0, which has no record",
        severity: "warning",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a rule of nobody",
        by: "nft add rule inet cni_plugins_masquerade masq_checks ip saddr 10.9.0.78 ip daddr != 10.9.0.0/24 masquerade \
             comment '\"aaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb, net: net, if: eth0, id: gone\"'",
        state: "ok",
        show: "",
        doctor: "rules of an attachment without a record for 10.9.0.78",
        severity: "warning",
        mend: Mend::Doctor,
    },
    Broken {
        name: "spoofing protection of a native plugin whose port is gone",
        by: "nft add chain bridge nat cni-br-iface-gone-eth0
             nft add rule bridge nat PREROUTING iifname veth9 jump cni-br-iface-gone-eth0 comment '\"macspoofchk-gone-eth0\"'",
        state: "ok",
        show: "",
        doctor: "rules of an attachment without a record: gone-eth0",
        severity: "warning",
        mend: Mend::Native,
    },
    Broken {
        name: "a directory that everybody may write to",
        by: "chmod 0777 /run/postern",
        state: "",
        show: "",
        doctor: "can be written by others than its owner",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "forwarding was switched off",
        by: "echo 0 > /proc/sys/net/ipv4/ip_forward",
        state: "ok",
        show: "",
        doctor: "net.ipv4.ip_forward: is off",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a chain that drops",
        by: "nft add table ip filter; nft add chain ip filter FORWARD '{ type filter hook forward priority 0; policy drop; }'",
        state: "ok",
        show: "",
        doctor: "drops what no rule accepts, and no rule is about 10.9.0.0/24",
        severity: "warning",
        mend: Mend::Script("nft delete table ip filter"),
    },
    Broken {
        name: "code that was cut",
        by: "truncate -s -1 $bin/postern.d/ptp.cwasm",
        state: "",
        show: "",
        doctor: "is not whole",
        severity: "error",
        mend: Mend::Script("cp -a $origin/postern.d/ptp.cwasm $bin/postern.d/"),
    },
    Broken {
        name: "code that was changed",
        by: "printf x | dd of=$bin/postern.d/ptp.cwasm bs=1 seek=99 conv=notrunc 2>/dev/null",
        state: "",
        show: "",
        doctor: "was changed or swapped",
        severity: "error",
        mend: Mend::Script("cp -a $origin/postern.d/ptp.cwasm $bin/postern.d/"),
    },
    Broken {
        name: "a policy that means nothing",
        by: "echo '[grant.nonsense]' >> $bin/postern.d/ptp.toml",
        state: "",
        show: "",
        doctor: "unknown field `nonsense`",
        severity: "error",
        mend: Mend::Script("cp -a $origin/postern.d/ptp.toml $bin/postern.d/"),
    },
    Broken {
        name: "a policy that grants too little",
        by: "sed -i '1i withdraw = [\"veth\"]' $bin/postern.d/ptp.toml",
        state: "",
        show: "",
        doctor: "imports what its policy does not grant: veth",
        severity: "warning",
        mend: Mend::Script("cp -a $origin/postern.d/ptp.toml $bin/postern.d/"),
    },
    Broken {
        name: "a native plugin in the way",
        by: "cp /bin/true $bin/ptp",
        state: "",
        show: "",
        doctor: "is not Postern's file for the plugin",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a plugin's file that starts another plugin",
        by: "cp $bin/bridge $bin/ptp",
        state: "",
        show: "",
        doctor: "starts plugin \"bridge\"",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a plugin's file whose host is gone",
        by: "sed -i 's|^#!.*/postern|#!/gone/postern|' $bin/ptp",
        state: "",
        show: "",
        doctor: "starts /gone/postern, which is not there",
        severity: "error",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a plugin's file of another postern",
        by: "cp $bin/postern /run/postern-before; printf x >> /run/postern-before; mkdir /run/other; mv /run/postern-before /run/other/postern
             sed -i 's|^#!.*/postern|#!/run/other/postern|' $bin/ptp",
        state: "",
        show: "",
        doctor: "is not this postern: it starts /run/other/postern",
        severity: "warning",
        mend: Mend::Doctor,
    },
    Broken {
        name: "a list whose plugin is not there",
        by: "echo '{\"name\":\"other\",\"type\":\"absent\"}' > /run/conf/other.conf",
        state: "",
        show: "",
        doctor: "there is no plugin \"absent\"",
        severity: "error",
        mend: Mend::Script("rm /run/conf/other.conf"),
    },
    Broken {
        name: "a pipe among the lists",
        by: "mkfifo /run/conf/a.conflist",
        state: "",
        show: "",
        doctor: "is no regular file",
        severity: "warning",
        mend: Mend::Script("rm /run/conf/a.conflist"),
    },
    Broken {
        name: "leases that everybody may write",
        by: "chmod 0777 /var/lib/cni/networks/net",
        state: "",
        show: "",
        doctor: "everybody may write to it",
        severity: "error",
        mend: Mend::Doctor,
    },
];

/// A node with two containers, and a catalog of its own, so that it can be broken.
struct Patient {
    node: Node,
    bin: String,
}

impl Patient {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        let bin = "/run/cni/bin".to_owned();
        node.sh(&format!("umask 022; mkdir -p /run/cni /run/conf; {}", copy_bin(&plugin_bin()?, &bin)))?;
        let mut list = config();
        let plugin = list.as_object_mut().context("no object")?;
        let name = plugin.remove("name");
        let list = json!({"cniVersion": "1.1.0", "name": name, "plugins": [plugin]});
        node.sh(&format!("cat > /run/conf/net.conflist <<'END'\n{list}\nEND"))?;
        let patient = Self { node, bin };
        for container in CONTAINERS {
            patient.node.add_container(container)?;
            patient.call("ADD", container)?;
        }
        Ok(patient)
    }

    fn call(&self, verb: &str, container: &str) -> Result<()> {
        let call = Call::new(&PathBuf::from(&self.bin), "bridge", verb, config().to_string());
        self.node.call(&call.attachment(container, &self.node.netns(container), "eth0"))?.success().map(drop)
    }

    /// A script on the node, with the names that rows use.
    fn script(&self, script: &str) -> Result<String> {
        self.node.sh(&format!(
            "bin={}; origin={}; record=$(grep -ls '\"container_id\":\"c1\"' /run/postern/attachments/* || true); \
             veth=$(sed -n 's/.*\"host\":\"\\([^\"]*\\)\".*/\\1/p' \"$record\" 2>/dev/null || true)\n{script}",
            self.bin,
            plugin_bin()?.display()
        ))
    }

    /// What a verb prints, whatever its exit status, and that.
    fn postern(&self, arguments: &str) -> Result<(String, i64)> {
        let said = self.node.sh(&format!("rc=0; {}/postern {arguments} 2>&1 || rc=$?; echo; echo $rc", self.bin))?;
        let (said, status) = said.trim_end().rsplit_once('\n').context("no status")?;
        ensure!(said.chars().all(|c| c == '\n' || !c.is_control()), "{arguments} speaks to the terminal: {said:?}");
        Ok((said.to_owned(), status.parse()?))
    }

    fn doctor(&self) -> Result<(Value, i64)> {
        let (said, status) = self.postern(&format!("doctor --json --conf-dir /run/conf --bin {}", self.bin))?;
        Ok((serde_json::from_str(&said).with_context(|| said.clone())?, status))
    }

    /// What doctor finds, without what this kernel or this place lacks.
    fn findings(&self) -> Result<(Vec<Value>, i64)> {
        let (report, status) = self.doctor()?;
        let findings = report.get("findings").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok((findings.into_iter().filter(|finding| text(finding, "area") != "kernel").collect(), status))
    }

    /// The state of each container.
    fn states(&self) -> Result<Vec<(String, String)>> {
        let (said, status) = self.postern("ls --json")?;
        ensure!(status == 0, "ls: {said}");
        let list: Vec<Value> = serde_json::from_str(&said)?;
        Ok(list.iter().map(|one| (text(one, "container").to_owned(), text(one, "state").to_owned())).collect())
    }

    fn row(&self, broken: &Broken) -> Result<()> {
        self.script(broken.by)?;
        if !broken.state.is_empty() {
            let states = self.states()?;
            let of =
                |name: &str| states.iter().find(|(container, _)| container == name).map(|(_, state)| state.as_str());
            // A record that can't be read does not tell whose it is.
            let named = if broken.state == "damaged" { "" } else { "c1" };
            ensure!(of(named) == Some(broken.state), "ls: {states:?}");
            let table = self.postern("ls")?.0;
            ensure!(table.contains(&broken.state.replace('-', " ")), "ls: {table}");
        }
        if !broken.show.is_empty() {
            let (said, status) = self.postern("show c1")?;
            ensure!(status == 0 && said.contains("DIFFERS") && flat(&said).contains(broken.show), "show: {said}");
            ensure!(said.contains("remedy"), "show has no remedy: {said}");
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
        if broken.name == "a record was damaged" {
            let remedy = text(found, "remedy");
            ensure!(remedy.find("`cat ") < remedy.find("`rm ") && remedy.contains("`cat "), "doctor: {found}");
        }
        match broken.mend {
            Mend::Doctor | Mend::Native => {
                ensure!(found.get("is_command") == Some(&json!(true)), "doctor: {found}");
                let is_native = text(found, "remedy") == "postern gc --native";
                ensure!(is_native == matches!(broken.mend, Mend::Native), "doctor: {found}");
                // Who sits there is asked.
                let command = match text(found, "remedy") {
                    collect @ ("postern gc" | "postern gc --native") => format!("$bin/{collect} --yes"),
                    other => other.replace("postern add ", "$bin/postern add "),
                };
                self.script(&command).with_context(|| format!("remedy {command}"))?;
            }
            Mend::Again => {}
            Mend::Script(script) => drop(self.script(script)?),
            Mend::Writer(script) => {
                ensure!(text(found, "remedy") == "use the version of postern that wrote it", "doctor: {found}");
                ensure!(found.get("is_command") != Some(&json!(true)), "doctor: {found}");
                self.script(script)?;
            }
        }
        let again = match broken.mend {
            // What befell all of them.
            Mend::Again if ["the bridge was deleted", "masquerading was flushed"].contains(&broken.name) => {
                &CONTAINERS[..]
            }
            Mend::Again => &["c1"],
            _ if ["container-gone", "previous-boot", "incomplete", "damaged"].contains(&broken.state) => &["c1"],
            _ => &[],
        };
        self.script("[ -e /run/netns/c1 ] || ip netns add c1")?;
        for container in again {
            self.call("DEL", container)?;
            self.call("ADD", container)?;
        }
        self.is_healthy().context("after the remedy")
    }

    fn is_healthy(&self) -> Result<()> {
        let (findings, status) = self.findings()?;
        ensure!(findings.is_empty() && status == 0, "doctor: status {status}: {findings:?}");
        let states = self.states()?;
        ensure!(states == CONTAINERS.map(|name| (name.to_owned(), "ok".to_owned())), "ls: {states:?}");
        Ok(())
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn config() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true,
        "ipMasqBackend": "nftables", "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}

#[test]
fn what_is_broken_is_said_and_mended() -> Result<()> {
    let mut failures = Vec::new();
    for broken in &BROKEN {
        let patient = Patient::new()?;
        patient.is_healthy().context("a new node")?;
        if let Err(error) = patient.row(broken) {
            failures.push(format!("{}: {error:#}", broken.name));
        }
    }
    ensure!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), BROKEN.len(), failures.join("\n"));
    Ok(())
}

/// A namespace is found by a path that somebody else chose, and its links have names that nobody would choose.
#[test]
fn what_a_container_chooses_does_no_harm() -> Result<()> {
    let patient = Patient::new()?;
    let holder = patient.node.sh(
        "path=/run/$(printf 'x\\033[2J\\r y'); nsenter --net=/run/netns/c1 ip link add \"$(printf '\\033[2J')\" type veth
         setsid unshare --mount --propagation private sh -c '
           mkdir \"$1\"; touch \"$1/a\"; mount --bind /run/netns/c1 \"$1/a\"; umount /run/netns/c1; echo ready; exec sleep 60' sh \"$path\" \
           >/run/ready 2>/dev/null </dev/null & holder=$!
         while ! grep -q ready /run/ready; do sleep .02; done
         umount /run/netns/c1; mkfifo /run/netns/pipe; echo $holder",
    )?;
    let shown = patient.postern("show c1")?;
    let found = patient.findings()?;
    patient.node.sh(&format!("kill {holder}"))?;
    ensure!(shown.1 == 0 && shown.0.contains("c1/eth0: ok") && shown.0.contains("\\u{1b}[2J"), "{}", shown.0);
    ensure!(found == (Vec::new(), 0), "{found:?}");
    Ok(())
}
