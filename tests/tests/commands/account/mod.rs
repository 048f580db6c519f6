//! A test breaks a node in each way of [`table`]. It checks the output of `postern ls`, `show` and `doctor`, and that
//! the printed remedies succeed.

mod broken_node;
mod table;

use anyhow::{Context, Result, bail, ensure};
use broken_node::{BIN, BrokenNode, bridged, routed, stacked, text};
use postern_tests::{Network, Node, flat, native_bin};
use serde_json::{Value, json};
use table::{BROKEN, Broken, ROUTED, STACKED};

/// Breaks a node in each of these ways, and repairs it.
fn try_all(ways: &[Broken], config: &Value) -> Result<()> {
    let mut failures = Vec::new();
    for broken in ways {
        let broken_node = BrokenNode::new(config)?;
        broken_node.is_healthy().context("a new node")?;
        if let Err(error) = broken_node.row(broken) {
            failures.push(format!("{}: {error:#}", broken.name));
        }
    }
    ensure!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), ways.len(), failures.join("\n"));
    Ok(())
}

#[test]
fn what_is_broken_is_said_and_mended() -> Result<()> {
    try_all(&BROKEN, &bridged())
}

#[test]
fn what_is_broken_in_a_routed_network_is_said_and_mended() -> Result<()> {
    try_all(&ROUTED, &routed())
}

#[test]
fn what_is_broken_in_a_network_of_stacked_links_is_said_and_mended() -> Result<()> {
    try_all(&STACKED, &stacked())
}

/// Attachments of native plugins have no record. No remedy removes a part of these attachments, and `doctor`
/// finds no fault in their rules.
#[test]
fn living_containers_of_native_plugins_are_left_alone() -> Result<()> {
    let broken_node = BrokenNode::new(&bridged())?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.78.0.0/24"}]]});
    let native = json!({"cniVersion": "1.0.0", "name": "native", "type": "bridge", "bridge": "br7", "isGateway": true,
        "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true, "ipam": ipam});
    let native = Network::new(&broken_node.node, &native)?.by(&native_bin()?);
    for container in ["n1", "n2"] {
        broken_node.node.add_container(container)?;
        native.add(container)?;
    }
    // These commands stand for another native program, which makes an attachment and sets the container's end down.
    broken_node.node.sh("ip link add veth0123abcd type veth peer name eth1 netns n1; ip link set veth0123abcd up
         for try in $(seq 200); do ip link show veth0123abcd | grep -q 'state [A-Z]*DOWN' && break; sleep .02; done")?;
    broken_node.node.sh("find /var/lib/cni/networks/native -type f -exec touch -d '1 hour ago' {} +")?;
    let picture = || {
        broken_node.node.sh("nft list table bridge nat; nft list table inet cni_plugins_masquerade; ip -o link; ls /var/lib/cni/networks/native")
    };
    let before = picture()?;
    let (findings, _) = broken_node.findings()?;
    let commands: Vec<&Value> =
        findings.iter().filter(|finding| finding.get("is_command") == Some(&json!(true))).collect();
    ensure!(commands.is_empty(), "doctor has a remedy against living attachments: {commands:?}");
    ensure!(findings.iter().all(|finding| text(finding, "area") != "rules"), "{findings:?}");
    let pair = findings
        .iter()
        .find(|finding| text(finding, "place") == "veth0123abcd")
        .with_context(|| format!("{findings:?}"))?;
    ensure!(
        text(pair, "what").contains("its other end, eth1, is down") && !text(pair, "remedy").contains("delete"),
        "{pair}"
    );
    // One container is gone. Only its rules are a finding, and the remedy leaves the other container's rules.
    broken_node.node.remove_container("n2")?;
    let (findings, _) = broken_node.findings()?;
    let rules: Vec<&Value> = findings.iter().filter(|finding| text(finding, "area") == "rules").collect();
    ensure!(rules.iter().any(|finding| text(finding, "what").contains("n2-eth0, whose port")), "{findings:?}");
    ensure!(!rules.iter().any(|finding| text(finding, "what").contains("n1")), "{rules:?}");
    broken_node.script("$bin/postern gc --native --yes || true")?;
    let after = picture()?;
    for part in before.lines().filter(|line| line.contains("n1-eth0") || line.contains("id: n1")) {
        ensure!(after.contains(part.trim()), "{part} is gone:\n{after}");
    }
    Ok(())
}

/// An unwritable log is a fault of the node, and of no attachment. `ls` lists the same attachments, and prints a
/// message for people.
#[test]
fn what_keeps_runs_from_writing_is_said_by_ls() -> Result<()> {
    let broken_node = BrokenNode::new(&bridged())?;
    broken_node.node.sh("rm /var/log/postern/audit.jsonl; ln -s /dev/null /var/log/postern/audit.jsonl")?;
    let (printed, status) = broken_node.postern("ls")?;
    ensure!(status == 0 && flat(&printed).contains("/var/log/postern/audit.jsonl can't be written"), "{printed}");
    ensure!(flat(&printed).contains("`postern doctor` shows the remedy"), "{printed}");
    let list = broken_node.node.postern_of(BIN, "ls --json")?.success()?;
    let states: Vec<&str> = list.as_array().into_iter().flatten().map(|one| text(one, "state")).collect();
    ensure!(states == ["ok", "ok"], "{list}");
    Ok(())
}

/// A run that hangs keeps its attachment's record locked. `postern` reports the process, its start time and its verb.
#[test]
fn a_run_that_hangs_is_told_with_its_process() -> Result<()> {
    let broken_node = BrokenNode::new(&bridged())?;
    // The DEL waits for the lock of the leases, which another program keeps.
    let pids = broken_node.node.sh(&format!(
        "cat > /run/hang <<'END'\n{}\nEND
         flock /var/lib/cni/networks/net/lock sleep 100 >/dev/null 2>&1 </dev/null & echo $!
         while flock -n /var/lib/cni/networks/net/lock true; do sleep .02; done
         CNI_COMMAND=DEL CNI_CONTAINERID=c1 CNI_NETNS=/run/netns/c1 CNI_IFNAME=eth0 CNI_PATH={BIN} {BIN}/bridge </run/hang >/run/out 2>&1 &
         echo $!; until grep -q ending /run/postern/attachments/*; do sleep .02; done",
        bridged()
    ))?;
    let pids: Vec<&str> = pids.split_whitespace().collect();
    let [keeper, run] = pids.as_slice() else { bail!("{pids:?}") };
    let soon = broken_node.states()?;
    ensure!(soon.iter().all(|(_, state)| state != "stuck"), "a run that has just begun is called stuck: {soon:?}");
    std::thread::sleep(std::time::Duration::from_secs(31));
    let states = broken_node.states()?;
    ensure!(states == [("c1".to_owned(), "stuck".to_owned()), ("c2".to_owned(), "ok".to_owned())], "{states:?}");
    let (shown, _) = broken_node.postern("show c1")?;
    let told = format!("its DEL does not end: its record is locked by process {run} (DEL bridge), started at ");
    ensure!(flat(&shown).contains(&told) && shown.contains("net/c1/eth0: stuck"), "{shown}");
    let (findings, status) = broken_node.findings()?;
    let of = |place: &str| findings.iter().find(|finding| text(finding, "place").contains(place));
    let (Some(stuck), Some(lock)) = (of("net/c1/eth0"), of("/networks/net/lock")) else { bail!("{findings:?}") };
    ensure!(status == 1 && text(stuck, "what").contains(&told), "{stuck}");
    ensure!(text(stuck, "remedy") == format!("kill -KILL {run}"), "{stuck}");
    ensure!(text(lock, "what").contains(&format!("process {keeper} (flock)")), "{lock}");
    // `postern` does not know how long a foreign program has had a lock. The program may work normally.
    ensure!(
        text(lock, "remedy").contains(&format!("`ps -fp {keeper}")) && text(lock, "severity") == "warning",
        "{lock}"
    );
    ensure!(lock.get("is_command") != Some(&json!(true)), "{lock}");
    for command in [text(stuck, "remedy"), &format!("kill -KILL $(cat /proc/{keeper}/task/{keeper}/children) {keeper}")]
    {
        broken_node.node.sh(command)?;
    }
    // The killed run leaves the same state as a killed DEL. A killed process that no parent has waited for is a zombie.
    broken_node.node.sh(&format!("while grep -q '^State:.[^Z]' /proc/{run}/status 2>/dev/null; do sleep .02; done"))?;
    broken_node.script("$bin/postern gc --yes")?;
    let states = broken_node.states()?;
    ensure!(states == [("c2".to_owned(), "ok".to_owned())], "{states:?}");
    Ok(())
}

/// Another user chose the path that leads to the namespace, and the namespace's links have hostile names.
#[test]
fn what_a_container_chooses_does_no_harm() -> Result<()> {
    let broken_node = BrokenNode::new(&bridged())?;
    let holder = broken_node.node.sh(
        "path=/run/$(printf 'x\\033[2J\\r y'); nsenter --net=/run/netns/c1 ip link add \"$(printf '\\033[2J')\" type veth
         setsid unshare --mount --propagation private sh -c '
           mkdir \"$1\"; touch \"$1/a\"; mount --bind /run/netns/c1 \"$1/a\"; umount --lazy /run/netns/c1; echo ready; exec sleep 60' sh \"$path\" \
           >/run/ready 2>/dev/null </dev/null & holder=$!
         while ! grep -q ready /run/ready; do sleep .02; done
         umount --lazy /run/netns/c1; mkfifo /run/netns/pipe; echo $holder",
    )?;
    let shown = broken_node.postern("show c1")?;
    let found = broken_node.findings()?;
    broken_node.node.sh(&format!("kill {holder}"))?;
    ensure!(shown.1 == 0 && shown.0.contains("c1/eth0: ok") && shown.0.contains("\\u{1b}[2J"), "{}", shown.0);
    ensure!(found == (Vec::new(), 0), "{found:?}");
    Ok(())
}

/// Root in a container can make any number of addresses and routes. `doctor` reports no finding and no command.
#[test]
fn any_number_of_addresses_is_no_finding() -> Result<()> {
    let broken_node = BrokenNode::new(&bridged())?;
    broken_node.node.sh_in(
        "c1",
        r#"seq 17 | awk '{ link = "many" $1; print "link add " link " type ifb"; print "link set " link " up"
             for (n = 0; n < 1000; n++) print "addr add 172." 16 + $1 "." int(n / 256) "." n % 256 "/32 dev " link
             for (n = 0; n < 1000; n++) print "route add 172." 48 + $1 "." int(n / 256) "." n % 256 "/32 dev " link
           }' > /run/many; ip -batch /run/many; test "$(ip -4 -o addr | wc -l)" -gt 17000"#,
    )?;
    let found = broken_node.findings()?;
    ensure!(found == (Vec::new(), 0), "{found:?}");
    let shown = broken_node.postern("show c1")?;
    ensure!(shown.1 == 0 && shown.0.contains("c1/eth0: ok"), "{}", shown.0);
    Ok(())
}

/// `doctor` compares the network's settings for its ports with the ports' present state.
#[test]
fn a_port_that_is_not_isolated_any_more() -> Result<()> {
    let mut config = bridged();
    config["portIsolation"] = json!(true);
    let broken_node = BrokenNode::new(&config)?;
    let (findings, _) = broken_node.findings()?;
    ensure!(findings.is_empty(), "a new node: {findings:?}");
    broken_node.script("ip link set $veth type bridge_slave isolated off")?;
    let (findings, status) = broken_node.findings()?;
    let [found] = findings.as_slice() else { bail!("{findings:?}") };
    ensure!(text(found, "place") == "net/c1/eth0" && text(found, "severity") == "error" && status == 1, "{found}");
    ensure!(text(found, "what").ends_with("is without isolation, but the network demands otherwise"), "{found}");
    broken_node.attach_again("c1")?;
    let (findings, _) = broken_node.findings()?;
    ensure!(findings.is_empty(), "after a new ADD: {findings:?}");
    Ok(())
}

/// `doctor` and `plan` know that VLANs on a bridge without filtering separate nothing.
#[test]
fn a_bridge_that_filters_no_vlans() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let list = json!({"cniVersion": "1.0.0", "name": "tagged", "plugins": [
        {"type": "bridge", "bridge": "br7", "vlan": 100, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}}
    ]});
    node.sh("mkdir -p /run/net.d; ip link add br7 type bridge")?;
    std::fs::write(node.path("/run/net.d/10-tagged.conflist"), list.to_string())?;
    let doctor = || node.postern("doctor --conf-dir /run/net.d --json");
    let report = doctor()?.json()?;
    let findings = report.get("findings").and_then(Value::as_array).context("no findings")?;
    let found = findings.iter().find(|finding| text(finding, "what").contains("does not filter VLANs"));
    let found = found.with_context(|| format!("doctor finds nothing: {report}"))?;
    let remedy = text(found, "remedy");
    ensure!(text(found, "severity") == "error" && text(found, "place") == "br7", "{found}");
    ensure!(remedy == "ip link set br7 type bridge vlan_filtering 1", "{remedy}");
    let plan = node.postern(&format!("plan /run/net.d/10-tagged.conflist --netns {}", node.netns("c1")))?;
    ensure!(plan.words().contains("does not filter VLANs") && plan.status == 1, "{plan:?}");
    // A bridge that doesn't exist yet is no defect.
    node.sh("ip link del br7")?;
    let printed = doctor()?;
    ensure!(printed.json()?.is_object() && !printed.stdout.contains("does not filter VLANs"), "{printed:?}");
    Ok(())
}
