//! GC and STATUS, which the native plugins lack.

use anyhow::{Result, bail, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Answer, Network, Node, flat, merge, plugin_bin};
use serde_json::{Value, json};

fn network(node: &Node, plugin: &str, name: &str) -> Result<Network> {
    let (bridge, subnet) = if name == "net" { ("br9", "10.9.0.0/29") } else { ("br8", "10.8.0.0/29") };
    let net = Network::new(
        node,
        &json!({
            "name": name, "type": plugin, "ipMasq": true, "ipMasqBackend": "nftables",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]]},
        }),
    )?;
    Ok(match plugin {
        "bridge" => net.with(&json!({"bridge": bridge, "isGateway": true, "macspoofchk": true})),
        _ => net,
    })
}

/// Makes a node with a container, and a bridge network.
fn bridged() -> Result<(Node, Network)> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let net = network(&node, "bridge", "net")?;
    Ok((node, net))
}

/// Returns a runtime's GC list: interface `eth0` of these containers.
fn valid(containers: &[&str]) -> Value {
    let valid: Vec<Value> = containers.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
    json!({"cni.dev/valid-attachments": valid})
}

fn postern(node: &Node, arguments: &str) -> Result<String> {
    node.sh(&format!("{}/postern {arguments}", plugin_bin()?.display()))
}

/// Returns the numbers of the network's leases, of veth links on the node, of the network's rules, and of all records.
fn left(node: &Node, network: &str) -> Result<(usize, usize, usize, usize)> {
    let count = |script: &str| -> Result<usize> { Ok(node.sh(script)?.trim().parse()?) };
    Ok((
        count(&format!("find /var/lib/cni/networks/{network} -name '10.*' | wc -l"))?,
        count("ip -o link | grep -c ': veth' || true")?,
        count(&format!("nft list ruleset | grep -c 'net: {network},' || true"))?,
        count("ls /run/postern/attachments | wc -l")?,
    ))
}

fn collects(plugin: &str) -> Result<()> {
    let node = Node::new()?;
    let (own, other) = (network(&node, plugin, "net")?, network(&node, plugin, "other")?);
    for container in ["c1", "c2", "c3"] {
        node.add_container(container)?;
        if container == "c3" { &other } else { &own }.add(container)?;
    }
    // A lease that a native plugin or an unknown program wrote.
    node.sh("printf 'gone\\r\\neth0' > /var/lib/cni/networks/net/10.9.0.6")?;
    ensure!(left(&node, "net")? == (3, 3, 2, 3), "{:?}", left(&node, "net")?);

    own.call("GC", "")?.success()?;
    ensure!(left(&node, "net")? == (3, 3, 2, 3), "without a list: {:?}", left(&node, "net")?);

    own.call_at(0, "GC", "", &valid(&["c1"]))?.success()?;
    ensure!(left(&node, "net")? == (1, 2, 1, 2), "with c1 in the list: {:?}", left(&node, "net")?);
    own.call_at(0, "GC", "", &valid(&["c1"]))?.success()?;
    ensure!(left(&node, "net")? == (1, 2, 1, 2), "once more: {:?}", left(&node, "net")?);
    // Some runtimes set an attachment's variables for each verb.
    let with_attachment = own.request(0, "GC", "", &valid(&["c1"]))?.attachment("c1", &node.netns("c1"), "eth0");
    node.call(&with_attachment)?.success()?;
    ensure!(left(&node, "net")? == (1, 2, 1, 2), "with an attachment: {:?}", left(&node, "net")?);

    own.call_at(0, "GC", "", &json!({"cni.dev/attachments": []}))?.success()?;
    ensure!(left(&node, "net")? == (0, 1, 0, 1), "with an empty list: {:?}", left(&node, "net")?);
    ensure!(left(&node, "other")?.0 == 1, "the other network's lease is gone");
    other.attachment("c3").del()
}

/// The number of processes that a call forked, the answer, and the call's lines in the log without the keys that differ
/// from run to run.
struct Watched {
    forks: usize,
    answer: Answer,
    log: Vec<Value>,
}

/// Calls GC of bridge under strace.
fn watched(net: &Network, patch: &Value) -> Result<Watched> {
    let node = &net.node;
    node.sh("rm -f /var/log/postern/audit.jsonl")?;
    let wrapper = ["strace", "-f", "-qq", "-o", "/var/log/trace", "-e", "trace=fork,vfork,clone,clone3"];
    let answer = node.call_under(&wrapper.map(str::to_owned), &net.request(0, "GC", "", patch)?)?;
    let trace = std::fs::read_to_string(node.path("/var/log/trace"))?;
    let log = node.sh("cat /var/log/postern/audit.jsonl 2>/dev/null || true")?;
    let line = |line: &str| -> Result<Value> {
        let mut line: Value = serde_json::from_str(line)?;
        let Some(keys) = line.as_object_mut() else { bail!("no object: {line}") };
        keys.retain(|key, _| !matches!(key.as_str(), "time" | "micros"));
        // Each ADD makes new names and addresses.
        if let Some(request) = keys.get_mut("request") {
            *request = request.get("effect").or(request.get("op")).cloned().unwrap_or_default();
        }
        Ok(line)
    };
    // Threads do not count as processes. musl calls fork(2), glibc clone(2).
    let forked = |line: &&str| line.contains("SIGCHLD") && line.contains("clone") || line.contains(" fork(");
    let forks = trace.lines().filter(forked).count();
    Ok(Watched { forks, answer, log: log.lines().map(line).collect::<Result<_>>()? })
}

/// The shipped policies leave GC to the host, which forks no sandbox. The removed objects, the lines of the log and the
/// errors are the same as with guests.
#[test]
fn gc_by_the_host_is_as_by_the_guests() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    let net = network(&node, "bridge", "net")?;
    let mut unreadable = valid(&["c1"]);
    merge(&mut unreadable, &json!({"dns": 5}));
    let write =
        |plugin: &str, text: &str| std::fs::write(node.path(format!("/etc/postern/policy/{plugin}.toml")), text);
    // A policy, the runtime's configuration, and the number of sandboxes with GC by the host and by guests. An
    // unreadable configuration names no IPAM plugin. No sandbox is forked early for a delegate that policy refuses.
    for (policy, given, by_host, by_guests) in [
        ("", valid(&["c1", "c2"]), 0, 2),
        ("", valid(&["c1"]), 0, 2),
        ("withdraw = [\"ipam\"]\n", valid(&["c1"]), 0, 1),
        ("withdraw = [\"attachments\"]\n", valid(&["c1"]), 0, 2),
        ("", unreadable, 1, 1),
    ] {
        let mut seen = Vec::new();
        for (collector, sandboxes) in [("host", by_host), ("guest", by_guests)] {
            let gc = format!("gc = \"{collector}\"\n");
            write("bridge", "")?;
            write("host-local", &gc)?;
            for container in ["c1", "c2"] {
                node.add_container(container)?;
                net.add(container)?;
            }
            write("bridge", &format!("{gc}{policy}"))?;
            let Watched { forks, answer, log } = watched(&net, &given)?;
            ensure!(forks == sandboxes, "{policy}: GC by the {collector} forked {forks}: {answer:?}");
            ensure!(by_host > 0 || !log.is_empty(), "{policy}: no line in the log: {answer:?}");
            seen.push((answer.status, answer.stdout, log, left(&node, "net")?));
            write("bridge", "")?;
            for container in ["c1", "c2"] {
                net.attachment(container).del()?;
                node.remove_container(container)?;
            }
        }
        ensure!(seen.first() == seen.last(), "{policy}: by the host and by the guests: {seen:#?}");
    }
    Ok(())
}

#[test]
fn bridge_collects_its_own_network() -> Result<()> {
    collects("bridge")
}

#[test]
fn ptp_collects_its_own_network() -> Result<()> {
    collects("ptp")
}

/// A link without a host end ends with its namespace. In a living namespace, GC removes the link if the runtime's list
/// lacks the link's attachment. `CNI_NETNS` may lead to another container by now.
#[test]
fn macvlan_collects_in_containers_that_live() -> Result<()> {
    let node = Node::new()?;
    node.sh("ip link add wire0 type veth peer name wire1; ip link set wire0 up; ip link set wire1 up")?;
    let net = network(&node, "macvlan", "net")?.with(&json!({"master": "wire0", "ipMasq": null}));
    for container in ["c1", "c2", "c3", "c4", "c5"] {
        node.add_container(container)?;
        net.add(container)?;
    }
    node.remove_container("c3")?;
    node.remove_container("c4")?;
    // c4's path leads to another container, which also has a macvlan `eth0`. c5's link was renamed, and another link
    // has its name.
    node.add_container("c4")?;
    node.sh("ip link add link wire0 name mv4 type macvlan; ip link set mv4 netns c4 name eth0")?;
    node.sh_in("c5", "ip link set eth0 down; ip link set eth0 name moved; ip link add eth0 type bridge")?;
    let answer = net.call_at(0, "GC", "", &valid(&["c1"]))?;
    answer.success()?;
    let links = |container: &str| -> Result<String> {
        let links =
            node.sh_in(container, "ip -o link | sed 's/^[0-9]*: \\([^@:]*\\).*/\\1/' | grep -v '^lo$' | sort | xargs")?;
        Ok(links.trim().to_owned())
    };
    let found = [links("c1")?, links("c2")?, links("c4")?, links("c5")?];
    ensure!(found == ["eth0", "", "eth0", "eth0"], "{found:?}: {answer:?}");
    ensure!(node.sh_in("c5", "ip -d link show eth0")?.contains("bridge"), "another link was removed");
    let left = node.sh("ls /var/lib/cni/networks/net | grep -c '^10\\.'; ls /run/postern/attachments | wc -l")?;
    ensure!(left == "1\n1\n", "leases and records: {left}");
    net.attachment("c1").del()?;
    ensure!(links("c1")?.is_empty(), "DEL");
    Ok(())
}

#[test]
fn status_tells_when_no_address_is_left() -> Result<()> {
    let (node, net) = bridged()?;
    node.sh(PRIVATE_ETC)?;
    let net = net.with(&json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/30"}]]}}));
    net.call("STATUS", "")?.success()?;
    net.add("c1")?;
    // STATUS succeeds, like the native plugins' STATUS: a kubelet evicts the pods of a node whose network is not ready,
    // although these pods work.
    let words =
        "postern: an ADD to network \"net\" would fail: no IP addresses available in range set: 10.9.0.1-10.9.0.2";
    for settings in ["", "status = \"native\"", "packet-filter = \"nftables\""] {
        node.sh(&format!("echo '{settings}' > /etc/postern/node.toml"))?;
        let full = net.call("STATUS", "")?;
        ensure!(full.status == 0 && full.stdout.is_empty() && full.stderr.contains(words), "{settings}: {full:?}");
    }
    node.sh("mkdir -p /etc/cni/net.d")?;
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [net.config(0, &json!({}))?]});
    std::fs::write(node.path("/etc/cni/net.d/10-net.conflist"), list.to_string())?;
    let shown = postern(&node, "doctor || true")?;
    ensure!(flat(&shown).contains("network \"net\" has no free address left in 10.9.0.1-10.9.0.2"), "{shown}");
    node.sh("echo 'status = \"strict\"' > /etc/postern/node.toml")?;
    let full = net.call("STATUS", "")?;
    ensure!(full.status == 1 && full.stdout.contains("\"code\": 50"), "{full:?}");
    net.attachment("c1").del()?;
    net.call("STATUS", "")?.success()?;
    Ok(())
}

#[test]
fn what_an_operator_has_removed_is_in_the_log() -> Result<()> {
    let (node, net) = bridged()?;
    net.add("c1")?;
    let removed = || node.sh("grep -c '\"operation\":\"node.remove\"' /var/log/postern/audit.jsonl || true");
    postern(&node, "gc --node --yes")?;
    ensure!(removed()? == "0\n", "the bridge is in use");
    net.attachment("c1").del()?;
    let printed = postern(&node, "gc --node --forwarding --yes")?;
    let shown = printed.lines().filter(|line| line.starts_with("unused: ")).count();
    ensure!(shown > 0 && removed()?.trim() == shown.to_string(), "{printed}");
    let shown = postern(&node, "log")?;
    for object in ["kind=\"bridge\" name=\"br9\"", "kind=\"forwarding\" name=\"ipv4\""] {
        ensure!(flat(&shown).contains(object), "not {object}: {shown}");
    }
    ensure!(postern(&node, "log --denied")?.is_empty(), "the log has a refusal");
    Ok(())
}

/// GC compares a link's index with the note, because another link can get the same name.
#[test]
fn an_operators_bridge_of_the_same_name_stays() -> Result<()> {
    let (node, net) = bridged()?;
    let gc = || postern(&node, "gc --node --yes");
    for verb in ["ADD", "DEL"] {
        net.call(verb, "c1")?.success()?;
    }
    node.sh("ip link del br9; ip link add br9 type bridge; ip addr add 10.9.9.1/24 dev br9")?;
    ensure!(gc()?.contains("bridge br9 stays"), "{}", gc()?);
    node.sh("ip link show br9")?;
    // The note of a run that was killed before it noted the index.
    node.sh("sed -i 's/\"detail\":{[^}]*}/\"detail\":null/' /run/postern/node/bridge-br9*")?;
    ensure!(gc()?.contains("bridge br9 stays"), "{}", gc()?);
    node.sh("ip addr flush dev br9")?;
    ensure!(gc()?.contains("removed bridge br9"), "{}", gc()?);
    for verb in ["ADD", "DEL"] {
        net.call(verb, "c1")?.success()?;
    }
    ensure!(gc()?.contains("removed bridge br9"), "the second bridge, with its gateway's address, stays: {}", gc()?);
    Ok(())
}

/// When the kernel deletes a link, it also deletes the links stacked on it, for example an operator's macvlan on the
/// node or in a container.
#[test]
fn a_bridge_on_which_another_link_stands_stays() -> Result<()> {
    let (node, net) = bridged()?;
    node.add_container("c2")?;
    let gc = || postern(&node, "gc --node --yes");
    for verb in ["ADD", "DEL"] {
        net.call(verb, "c1")?.success()?;
    }
    // The test uses the first of these kinds that the kernel has.
    let upper = node.sh(
        "for kind in macvlan ipvlan 'vlan id 7'; do ip link add up0 link br9 type $kind 2>/dev/null && break; done
         ip -o link show up0 2>/dev/null || true",
    )?;
    if upper.is_empty() {
        eprintln!("not tested: this kernel has no link that stands on another");
        return Ok(());
    }
    ensure!(gc()?.contains("bridge br9 stays: up0 is stacked on it"), "{}", gc()?);
    node.sh("ip link set up0 netns c2")?;
    ensure!(gc()?.contains("bridge br9 stays: up0 in "), "{}", gc()?);
    node.sh("ip -n c2 link show up0; ip -n c2 link del up0")?;
    ensure!(gc()?.contains("removed bridge br9"), "{}", gc()?);
    Ok(())
}

/// Forwarding is in use while the node forwards packets of a container, with or without a record.
#[test]
fn forwarding_stays_on_while_containers_need_it() -> Result<()> {
    for (plugin, lose) in [("bridge", ":"), ("ptp", ":"), ("bridge", "rm /run/postern/attachments/*")] {
        let node = Node::new()?;
        let net = network(&node, plugin, "net")?;
        node.add_container("c1")?;
        let gc = || postern(&node, "gc --node --forwarding --yes");
        let value = || node.sh("sysctl -n net.ipv4.ip_forward");
        // Another program has switched on IPv6 forwarding.
        node.sh("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=1")?;
        net.add("c1")?;
        ensure!(value()?.trim() == "1", "{plugin}: forwarding is off after ADD");
        node.sh(lose)?;
        let printed = gc()?;
        ensure!(
            printed.contains("net.ipv4.ip_forward stays on: ") && value()?.trim() == "1",
            "{plugin}, {lose}: {printed}"
        );
        net.attachment("c1").del()?;
        let printed = gc()?;
        ensure!(
            printed.contains("removed net.ipv4.ip_forward") && value()?.trim() == "0",
            "{plugin}, {lose}: {printed}"
        );
        ensure!(
            node.sh("sysctl -n net.ipv6.conf.all.forwarding")?.trim() == "1",
            "gc switched off another program's forwarding"
        );
    }
    Ok(())
}

/// The node can be a container's router through a link of the node on the same wire, even if another plugin made the
/// container's link. A tunnel with an address makes the node a router too. The output names the links between which the
/// node may forward packets of other machines.
#[test]
fn forwarding_stays_on_while_the_node_can_be_a_router() -> Result<()> {
    let node = Node::new()?;
    for container in ["c1", "c2"] {
        node.add_container(container)?;
    }
    node.sh("ip link add par type veth peer name parp; ip link set par up; ip link set parp up
        ip link add own link par type macvlan mode bridge; ip link set own up; sysctl -qw net.ipv4.ip_forward=0")?;
    let ipam = json!({"type": "static", "addresses": [{"address": "10.77.0.5/24", "gateway": "10.77.0.1"}]});
    let far = |plugin: &str| Ok::<_, anyhow::Error>(network(&node, plugin, "far")?.with(&json!({"ipam": ipam})));
    let macvlan = far("macvlan")?.with(&json!({"master": "par"}));
    let device = far("host-device")?.with(&json!({"device": "parp"}));
    let bridge = network(&node, "bridge", "net")?;
    let gc = || postern(&node, "gc --node --forwarding --yes");
    let value = || node.sh("sysctl -n net.ipv4.ip_forward");
    let switch_on = || -> Result<()> {
        bridge.add("c1")?;
        bridge.attachment("c1").del()
    };
    for (net, link) in [(&macvlan, "own"), (&device, "par")] {
        switch_on()?;
        net.add("c2")?;
        node.sh(&format!("ip address add 10.77.0.1/24 dev {link}"))?;
        let printed = flat(&gc()?);
        let why = format!("{link} with 10.77.0.1/24 can be the router of attachment far/c2/eth0");
        ensure!(printed.contains(&why) && value()?.trim() == "1", "{link}: {printed}");
        node.sh(&format!("ip address flush dev {link}"))?;
        let printed = gc()?;
        // With host-device, the other end of the container's veth is `par`, on the node.
        let is_used = if link == "par" { "1" } else { "0" };
        ensure!(value()?.trim() == is_used, "{link}, without an address: {printed}");
        net.attachment("c2").del()?;
    }
    switch_on()?;
    node.sh("ip link add tun0 type vxlan id 5 dstport 4789; ip address add 10.88.0.1/24 dev tun0")?;
    let printed = flat(&gc()?);
    ensure!(printed.contains("tun0 is a tunnel") && value()?.trim() == "1", "{printed}");
    node.sh("ip link del tun0; ip address add 192.0.2.1/24 dev par; ip address add 198.51.100.1/24 dev own")?;
    let printed = flat(&gc()?);
    ensure!(printed.contains("this node is no router between own, par") && value()?.trim() == "0", "{printed}");
    Ok(())
}

/// A clock that was set back does not make an attachment look permanently in progress.
#[test]
fn a_clock_that_is_behind_keeps_nothing_for_ever() -> Result<()> {
    let node = Node::new()?;
    let net = network(&node, "bridge", "net")?;
    for container in ["c1", "c2"] {
        node.add_container(container)?;
        net.add(container)?;
    }
    // Dates the record as a clock that is an hour ahead would.
    node.sh("cd /run/postern/attachments; now=$(date +%s); for file in *; do [ -f $file ] && perl -pi -e 's/\\b(1[0-9]{9})([0-9]{3})\\b/($1+3600).$2/ge' $file; done")?;
    let ahead = node.sh("cd /run/postern/attachments; cat * | grep -o '[0-9]\\{13\\}' | sort | head -1")?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
    ensure!(ahead.trim().parse::<u128>()? > now, "{ahead} is not ahead of {now}");
    let listed: Value = serde_json::from_str(&postern(&node, "ls --json")?)?;
    for one in listed.as_array().into_iter().flatten() {
        ensure!(one.get("under_way") == Some(&json!(false)), "{listed:#}");
    }
    // A runtime's GC, and an operator's.
    net.call_at(0, "GC", "", &valid(&["c2"]))?.success()?;
    ensure!(left(&node, "net")? == (1, 1, 1, 1), "{:?}", left(&node, "net")?);
    node.sh("ip netns del c2; for try in $(seq 100); do ip -o link | grep -q ': veth' || break; sleep .05; done")?;
    let report: Value = serde_json::from_str(&postern(&node, "gc --json")?)?;
    ensure!(!report.to_string().contains("under way"), "{report:#}");
    Ok(())
}
