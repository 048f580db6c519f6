//! GC and STATUS, which the native plugins lack.

use anyhow::{Result, bail, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Answer, Call, Node, flat, merge, plugin_bin};
use serde_json::{Value, json};

fn config(plugin: &str, network: &str, patch: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": network, "type": plugin, "ipMasq": true, "ipMasqBackend": "nftables",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": if network == "net" { "10.9.0.0/29" } else { "10.8.0.0/29" }}]]},
    });
    if plugin == "bridge" {
        let bridge = if network == "net" { "br9" } else { "br8" };
        merge(&mut config, &json!({"bridge": bridge, "isGateway": true, "macspoofchk": true}));
    }
    merge(&mut config, patch);
    config
}

fn call(node: &Node, verb: &str, container: &str, config: &Value) -> Result<Answer> {
    let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default();
    let call = Call::new(&plugin_bin()?, plugin, verb, config.to_string());
    node.call(&match verb {
        // As containerd sends them: set, but empty.
        "GC" | "STATUS" => call.attachment("", "", ""),
        _ => call.attachment(container, &node.netns(container), "eth0"),
    })
}

/// Returns the numbers of leases, links, rules and records with a container's address or name.
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
    let (own, other) = (config(plugin, "net", &json!({})), config(plugin, "other", &json!({})));
    for container in ["c1", "c2", "c3"] {
        node.add_container(container)?;
        call(&node, "ADD", container, if container == "c3" { &other } else { &own })?.success()?;
    }
    // A lease that a native plugin, or an unknown program, has written.
    node.sh("printf 'gone\\r\\neth0' > /var/lib/cni/networks/net/10.9.0.6")?;
    ensure!(left(&node, "net")? == (3, 3, 2, 3), "{:?}", left(&node, "net")?);

    call(&node, "GC", "", &own)?.success()?;
    ensure!(left(&node, "net")? == (3, 3, 2, 3), "without a list: {:?}", left(&node, "net")?);

    let mut listed = own.clone();
    merge(&mut listed, &json!({"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}));
    call(&node, "GC", "", &listed)?.success()?;
    ensure!(left(&node, "net")? == (1, 2, 1, 2), "with c1 in the list: {:?}", left(&node, "net")?);
    call(&node, "GC", "", &listed)?.success()?;
    ensure!(left(&node, "net")? == (1, 2, 1, 2), "once more: {:?}", left(&node, "net")?);

    let mut empty = own.clone();
    merge(&mut empty, &json!({"cni.dev/attachments": []}));
    call(&node, "GC", "", &empty)?.success()?;
    ensure!(left(&node, "net")? == (0, 1, 0, 1), "with an empty list: {:?}", left(&node, "net")?);
    ensure!(left(&node, "other")?.0 == 1, "the other network's lease is gone");
    call(&node, "DEL", "c3", &other)?.success()?;
    Ok(())
}

/// The processes that a call forked, its answer, and its lines in the log without what differs from run to run.
struct Watched {
    forks: usize,
    answer: Answer,
    log: Vec<Value>,
}

/// Calls GC of bridge under strace.
fn watched(node: &Node, config: &Value) -> Result<Watched> {
    node.sh("rm -f /var/log/postern/audit.jsonl")?;
    let wrapper = ["strace", "-f", "-qq", "-o", "/var/log/trace", "-e", "trace=fork,vfork,clone,clone3"];
    let call = Call::new(&plugin_bin()?, "bridge", "GC", config.to_string()).attachment("", "", "");
    let answer = node.call_under(&wrapper.map(str::to_owned), &call)?;
    let trace = std::fs::read_to_string(node.path("/var/log/trace"))?;
    let log = node.sh("cat /var/log/postern/audit.jsonl 2>/dev/null || true")?;
    let line = |line: &str| -> Result<Value> {
        let mut line: Value = serde_json::from_str(line)?;
        let Some(keys) = line.as_object_mut() else { bail!("no object: {line}") };
        keys.retain(|key, _| !matches!(key.as_str(), "time" | "micros"));
        // Names and addresses are new ones in each ADD.
        if let Some(request) = keys.get_mut("request") {
            *request = request.get("effect").or(request.get("op")).cloned().unwrap_or_default();
        }
        Ok(line)
    };
    // A thread is no process. musl calls fork(2), glibc clone(2).
    let forked = |line: &&str| line.contains("SIGCHLD") && line.contains("clone") || line.contains(" fork(");
    let forks = trace.lines().filter(forked).count();
    Ok(Watched { forks, answer, log: log.lines().map(line).collect::<Result<_>>()? })
}

/// The shipped policies leave GC to the host: no sandbox is forked. Everything else is as with the guests: what is
/// removed, the lines of the log, and the errors.
#[test]
fn gc_by_the_host_is_as_by_the_guests() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    let config = config("bridge", "net", &json!({}));
    let listed = |valid: &[&str]| {
        let mut listed = config.clone();
        let valid: Vec<Value> = valid.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
        merge(&mut listed, &json!({"cni.dev/valid-attachments": valid}));
        listed
    };
    let unreadable = {
        let mut unreadable = listed(&["c1"]);
        merge(&mut unreadable, &json!({"dns": 5}));
        unreadable
    };
    let write =
        |plugin: &str, text: &str| std::fs::write(node.path(format!("/etc/postern/policy/{plugin}.toml")), text);
    // A policy, the runtime's configuration, and the number of sandboxes that the host forks in either way. A configuration
    // that can't be read names no IPAM plugin, and a delegate that policy refuses gets no sandbox early.
    for (policy, given, by_host, by_guests) in [
        ("", listed(&["c1", "c2"]), 0, 2),
        ("", listed(&["c1"]), 0, 2),
        ("withdraw = [\"ipam\"]\n", listed(&["c1"]), 0, 1),
        ("withdraw = [\"attachments\"]\n", listed(&["c1"]), 0, 2),
        ("", unreadable, 1, 1),
    ] {
        let mut seen = Vec::new();
        for (collector, sandboxes) in [("host", by_host), ("guest", by_guests)] {
            let gc = format!("gc = \"{collector}\"\n");
            write("bridge", "")?;
            write("host-local", &gc)?;
            for container in ["c1", "c2"] {
                node.add_container(container)?;
                call(&node, "ADD", container, &config)?.success()?;
            }
            write("bridge", &format!("{gc}{policy}"))?;
            let Watched { forks, answer, log } = watched(&node, &given)?;
            ensure!(forks == sandboxes, "{policy}: GC by the {collector} forked {forks}: {answer:?}");
            ensure!(by_host > 0 || !log.is_empty(), "{policy}: no line in the log: {answer:?}");
            seen.push((answer.status, answer.stdout, log, left(&node, "net")?));
            write("bridge", "")?;
            for container in ["c1", "c2"] {
                call(&node, "DEL", container, &config)?.success()?;
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

/// A link without a host end ends with its namespace. In a living namespace it is removed, because the runtime's list
/// doesn't contain it. The path may lead to another container by now.
#[test]
fn macvlan_collects_in_containers_that_live() -> Result<()> {
    let node = Node::new()?;
    node.sh("ip link add wire0 type veth peer name wire1; ip link set wire0 up; ip link set wire1 up")?;
    let config = config("macvlan", "net", &json!({"master": "wire0", "ipMasq": null}));
    for container in ["c1", "c2", "c3", "c4", "c5"] {
        node.add_container(container)?;
        call(&node, "ADD", container, &config)?.success()?;
    }
    node.remove_container("c3")?;
    node.remove_container("c4")?;
    // c4's path leads to another container, which has such a link too. The link of c5 was renamed, and another link has
    // its name.
    node.add_container("c4")?;
    node.sh("ip link add link wire0 name mv4 type macvlan; ip link set mv4 netns c4 name eth0")?;
    node.sh_in("c5", "ip link set eth0 down; ip link set eth0 name moved; ip link add eth0 type bridge")?;
    let valid = json!({"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]});
    let mut listed = config.clone();
    merge(&mut listed, &valid);
    let answer = call(&node, "GC", "", &listed)?;
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
    call(&node, "DEL", "c1", &config)?.success()?;
    ensure!(links("c1")?.is_empty(), "DEL");
    Ok(())
}

#[test]
fn status_tells_when_no_address_is_left() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    let config = config("bridge", "net", &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/30"}]]}}));
    call(&node, "STATUS", "", &config)?.success()?;
    node.add_container("c1")?;
    call(&node, "ADD", "c1", &config)?.success()?;
    // As natively: a kubelet evicts the pods of a node whose network is not ready, and nothing is wrong with these.
    let words =
        "postern: an ADD to network \"net\" would fail: no IP addresses available in range set: 10.9.0.1-10.9.0.2";
    for settings in ["", "status = \"native\"", "packet-filter = \"nftables\""] {
        node.sh(&format!("echo '{settings}' > /etc/postern/node.toml"))?;
        let full = call(&node, "STATUS", "", &config)?;
        ensure!(full.status == 0 && full.stdout.is_empty() && full.stderr.contains(words), "{settings}: {full:?}");
    }
    node.sh("mkdir -p /etc/cni/net.d")?;
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [config]});
    std::fs::write(node.path("/etc/cni/net.d/10-net.conflist"), list.to_string())?;
    let shown = node.sh(&format!("{}/postern doctor || true", plugin_bin()?.display()))?;
    ensure!(flat(&shown).contains("network \"net\" has no free address left in 10.9.0.1-10.9.0.2"), "{shown}");
    node.sh("echo 'status = \"strict\"' > /etc/postern/node.toml")?;
    let full = call(&node, "STATUS", "", &config)?;
    ensure!(full.status == 1 && full.stdout.contains("\"code\": 50"), "{full:?}");
    call(&node, "DEL", "c1", &config)?.success()?;
    call(&node, "STATUS", "", &config)?.success()?;
    Ok(())
}

#[test]
fn what_an_operator_has_removed_is_in_the_log() -> Result<()> {
    let node = Node::new()?;
    let config = config("bridge", "net", &json!({}));
    node.add_container("c1")?;
    call(&node, "ADD", "c1", &config)?.success()?;
    let postern = format!("{}/postern", plugin_bin()?.display());
    let removed = || node.sh("grep -c '\"operation\":\"node.remove\"' /var/log/postern/audit.jsonl || true");
    node.sh(&format!("{postern} gc --node --yes"))?;
    ensure!(removed()? == "0\n", "the bridge is in use");
    call(&node, "DEL", "c1", &config)?.success()?;
    let printed = node.sh(&format!("{postern} gc --node --forwarding --yes"))?;
    let shown = printed.lines().filter(|line| line.starts_with("unused: ")).count();
    ensure!(shown > 0 && removed()?.trim() == shown.to_string(), "{printed}");
    let shown = node.sh(&format!("{postern} log"))?;
    for object in ["kind=\"bridge\" name=\"br9\"", "kind=\"forwarding\" name=\"ipv4\""] {
        ensure!(flat(&shown).contains(object), "not {object}: {shown}");
    }
    ensure!(node.sh(&format!("{postern} log --denied"))?.is_empty(), "nothing was refused");
    Ok(())
}

/// A note also goes by the link's index: another link can get the same name.
#[test]
fn an_operators_bridge_of_the_same_name_stays() -> Result<()> {
    let node = Node::new()?;
    let config = config("bridge", "net", &json!({}));
    node.add_container("c1")?;
    let gc = || node.sh(&format!("{}/postern gc --node --yes", plugin_bin()?.display()));
    for verb in ["ADD", "DEL"] {
        call(&node, verb, "c1", &config)?.success()?;
    }
    node.sh("ip link del br9; ip link add br9 type bridge; ip addr add 10.9.9.1/24 dev br9")?;
    ensure!(gc()?.contains("bridge br9 stays"), "{}", gc()?);
    node.sh("ip link show br9")?;
    // A note of a run that was killed before it noted the index.
    node.sh("sed -i 's/\"detail\":{[^}]*}/\"detail\":null/' /run/postern/node/bridge-br9*")?;
    ensure!(gc()?.contains("bridge br9 stays"), "{}", gc()?);
    node.sh("ip addr flush dev br9")?;
    ensure!(gc()?.contains("removed bridge br9"), "{}", gc()?);
    for verb in ["ADD", "DEL"] {
        call(&node, verb, "c1", &config)?.success()?;
    }
    ensure!(gc()?.contains("removed bridge br9"), "made anew, with its gateway's address: {}", gc()?);
    Ok(())
}

/// The kernel deletes links that are stacked on a link together with it: an operator's macvlan, here or in a container.
#[test]
fn a_bridge_on_which_another_link_stands_stays() -> Result<()> {
    let node = Node::new()?;
    let config = config("bridge", "net", &json!({}));
    node.add_container("c1")?;
    node.add_container("c2")?;
    let gc = || node.sh(&format!("{}/postern gc --node --yes", plugin_bin()?.display()));
    for verb in ["ADD", "DEL"] {
        call(&node, verb, "c1", &config)?.success()?;
    }
    // The test doesn't depend on the kinds that the kernel has.
    let upper = node.sh(
        "for kind in macvlan ipvlan 'vlan id 7'; do ip link add up0 link br9 type $kind 2>/dev/null && break; done
         ip -o link show up0 2>/dev/null || true",
    )?;
    if upper.is_empty() {
        eprintln!("not looked at: this kernel has no link that stands on another");
        return Ok(());
    }
    ensure!(gc()?.contains("bridge br9 stays: up0 stands on it"), "{}", gc()?);
    node.sh("ip link set up0 netns c2")?;
    ensure!(gc()?.contains("bridge br9 stays: up0 in "), "{}", gc()?);
    node.sh("ip -n c2 link show up0; ip -n c2 link del up0")?;
    ensure!(gc()?.contains("removed bridge br9"), "{}", gc()?);
    Ok(())
}

/// Forwarding is not unused while the node forwards packets of a container, with a record or without one.
#[test]
fn forwarding_stays_on_while_containers_need_it() -> Result<()> {
    for (plugin, lose) in [("bridge", ":"), ("ptp", ":"), ("bridge", "rm /run/postern/attachments/*")] {
        let node = Node::new()?;
        let config = config(plugin, "net", &json!({}));
        node.add_container("c1")?;
        let gc = || node.sh(&format!("{}/postern gc --node --forwarding --yes", plugin_bin()?.display()));
        let value = || node.sh("sysctl -n net.ipv4.ip_forward");
        // Another one has switched IPv6's on.
        node.sh("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=1")?;
        call(&node, "ADD", "c1", &config)?.success()?;
        ensure!(value()?.trim() == "1", "{plugin}: it is not needed here");
        node.sh(lose)?;
        let printed = gc()?;
        ensure!(
            printed.contains("net.ipv4.ip_forward stays on: ") && value()?.trim() == "1",
            "{plugin}, {lose}: {printed}"
        );
        call(&node, "DEL", "c1", &config)?.success()?;
        let printed = gc()?;
        ensure!(
            printed.contains("removed net.ipv4.ip_forward") && value()?.trim() == "0",
            "{plugin}, {lose}: {printed}"
        );
        ensure!(node.sh("sysctl -n net.ipv6.conf.all.forwarding")?.trim() == "1", "it was another's");
    }
    Ok(())
}

/// The node can be the router of a container whose link it does not make: by a link of its own on the same wire. A tunnel with
/// an address makes it a router too. Links between which it may forward packets of others are told.
#[test]
fn forwarding_stays_on_while_the_node_can_be_a_router() -> Result<()> {
    let node = Node::new()?;
    for container in ["c1", "c2"] {
        node.add_container(container)?;
    }
    node.sh("ip link add par type veth peer name parp; ip link set par up; ip link set parp up
        ip link add own link par type macvlan mode bridge; ip link set own up; sysctl -qw net.ipv4.ip_forward=0")?;
    let ipam = |address: &str| json!({"type": "static", "addresses": [{"address": address, "gateway": "10.77.0.1"}]});
    let macvlan = config("macvlan", "far", &json!({"master": "par", "ipam": ipam("10.77.0.5/24")}));
    let device = config("host-device", "far", &json!({"device": "parp", "ipam": ipam("10.77.0.5/24")}));
    let bridge = config("bridge", "net", &json!({}));
    let gc = || node.sh(&format!("{}/postern gc --node --forwarding --yes", plugin_bin()?.display()));
    let value = || node.sh("sysctl -n net.ipv4.ip_forward");
    let switch_on = || -> Result<()> {
        call(&node, "ADD", "c1", &bridge)?.success()?;
        call(&node, "DEL", "c1", &bridge)?.success().map(drop)
    };
    for (config, link) in [(&macvlan, "own"), (&device, "par")] {
        switch_on()?;
        call(&node, "ADD", "c2", config)?.success()?;
        node.sh(&format!("ip address add 10.77.0.1/24 dev {link}"))?;
        let printed = flat(&gc()?);
        let why = format!("{link} with 10.77.0.1/24 can be the router of attachment far/c2/eth0");
        ensure!(printed.contains(&why) && value()?.trim() == "1", "{link}: {printed}");
        node.sh(&format!("ip address flush dev {link}"))?;
        let printed = gc()?;
        // The other end of the device's wire is on the node, and leads to the container.
        let is_used = if link == "par" { "1" } else { "0" };
        ensure!(value()?.trim() == is_used, "{link}, without an address: {printed}");
        call(&node, "DEL", "c2", config)?.success()?;
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

/// Whoever sets the clock back makes no attachment one that is always at work.
#[test]
fn a_clock_that_is_behind_keeps_nothing_for_ever() -> Result<()> {
    let node = Node::new()?;
    let config = config("bridge", "net", &json!({}));
    for container in ["c1", "c2"] {
        node.add_container(container)?;
        call(&node, "ADD", container, &config)?.success()?;
    }
    // As if it had been made by a clock that was an hour ahead.
    node.sh("cd /run/postern/attachments; now=$(date +%s); for file in *; do [ -f $file ] && perl -pi -e 's/\\b(1[0-9]{9})([0-9]{3})\\b/($1+3600).$2/ge' $file; done")?;
    let ahead = node.sh("cd /run/postern/attachments; cat * | grep -o '[0-9]\\{13\\}' | sort | head -1")?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
    ensure!(ahead.trim().parse::<u128>()? > now, "{ahead} is not ahead of {now}");
    let postern = format!("{}/postern", plugin_bin()?.display());
    let listed: Value = serde_json::from_str(&node.sh(&format!("{postern} ls --json"))?)?;
    for one in listed.as_array().into_iter().flatten() {
        ensure!(one.get("under_way") == Some(&json!(false)), "{listed:#}");
    }
    // A runtime's GC, and a person's.
    let mut valid = config.clone();
    merge(&mut valid, &json!({"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]}));
    call(&node, "GC", "", &valid)?.success()?;
    ensure!(left(&node, "net")? == (1, 1, 1, 1), "{:?}", left(&node, "net")?);
    node.sh("ip netns del c2; for try in $(seq 100); do ip -o link | grep -q ': veth' || break; sleep .05; done")?;
    let report: Value = serde_json::from_str(&node.sh(&format!("{postern} gc --json"))?)?;
    ensure!(!report.to_string().contains("under way"), "{report:#}");
    Ok(())
}
