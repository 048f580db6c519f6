//! Leftovers of native plugins are found by their names and removed. Objects in use stay.

use anyhow::{Context, Result, ensure};
use postern_tests::{Attachment, Names, Network, Node, compare, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Returns a configuration with addresses that no other test's node has: `number` is unique. The search for leftovers
/// covers the namespaces of all tests.
fn config(number: u8, backend: &str) -> Value {
    let ranges = [format!("10.77.{number}.0/24"), format!("fd00:77:{number}::/64")];
    let ranges = ranges.map(|subnet| json!([{"subnet": subnet}]));
    json!({
        "cniVersion": "1.0.0", "name": "native", "type": "bridge", "bridge": "br7", "isGateway": true, "ipMasq": true,
        "ipMasqBackend": backend, "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": ranges},
    })
}

/// Makes a node with a network of native plugins. The plugins have made the bridge and all tables, for a container that
/// was removed.
fn used(number: u8, backend: &str, patch: &Value) -> Result<(Node, Network)> {
    let node = Node::new()?;
    let net = Network::new(&node, &config(number, backend))?.with(patch).by(&native_bin()?);
    attach(&net, "c0")?;
    net.attachment("c0").del()?;
    node.remove_container("c0")?;
    // Some DELs of native plugins leave objects.
    node.sh("for chain in $(iptables-save -t nat | sed -n 's/^:\\(CNI-[^ ]*\\).*/\\1/p'); do iptables -t nat -F $chain; iptables -t nat -X $chain; done")?;
    Ok((node, net))
}

/// Adds a container and attaches it.
fn attach(net: &Network, container: &str) -> Result<Attachment> {
    net.node.add_container(container)?;
    net.add(container)
}

/// Makes all leases so old that no ADD can still be in progress.
fn age(node: &Node) -> Result<()> {
    node.sh("find /var/lib/cni/networks -type f -exec touch -d '1 hour ago' {} +").map(drop)
}

/// Returns the leftovers found by a user who can look at all namespaces; see `src/bin/adopt.rs`.
fn adopt(node: &Node, arguments: &str) -> Result<Vec<String>> {
    let told = node.sh(&format!("{} {arguments}", env!("CARGO_BIN_EXE_postern-adopt")))?;
    let mut lines: Vec<String> = told.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

/// Returns the output of `postern gc` for scripts, and its exit status. `run_by` precedes `postern` on the command
/// line.
fn gc(node: &Node, run_by: &str, arguments: &str) -> Result<(Value, Option<i32>)> {
    let script = format!("{run_by} {}/postern gc --json {arguments}", plugin_bin()?.display());
    let output = node.command("sh").args(["-c", &script]).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let printed = serde_json::from_str(&printed).with_context(|| format!("{output:?}"))?;
    Ok((printed, output.status.code()))
}

/// Returns a snapshot of the node and of the container `alive`.
fn picture(node: &Node) -> Result<Value> {
    let mut tree = node.snapshot(&["alive"], &mut Names::new(""))?;
    // host-local's round robin continues, as intended.
    if let Some(files) = tree.get_mut("files").and_then(Value::as_object_mut) {
        files.retain(|path, _| !path.contains("last_reserved_ip"));
    }
    Ok(tree)
}

fn found(number: u8, backend: &str, plugin: &str) -> Result<()> {
    let (node, net) = used(number, backend, &json!({"type": plugin}))?;
    attach(&net, "alive")?;
    age(&node)?;
    ensure!(adopt(&node, "find")?.is_empty(), "an object in use was reported as a leftover");
    let before = picture(&node)?;

    attach(&net, "dead")?;
    node.remove_container("dead")?;
    let young = adopt(&node, "find")?;
    ensure!(young.iter().filter(|line| line.contains("stays: the lease is")).count() == 2, "{young:?}");
    age(&node)?;

    let mut wanted = vec![
        "lease native/dead/eth0: no live namespace has its address".to_owned(),
        "lease native/dead/eth0: no live namespace has its address".to_owned(),
    ];
    if plugin == "bridge" {
        wanted.push("mac-guard ?/dead/eth0: its bridge port is gone".to_owned());
    }
    let ifname = if backend == "iptables" { "?" } else { "eth0" };
    let rule = format!("masquerade-{backend} native/dead/{ifname}: no live namespace has its address");
    wanted.extend([rule.clone(), rule]);
    ensure!(adopt(&node, "find")? == wanted, "{:?}", adopt(&node, "find")?);
    ensure!(adopt(&node, "remove")? == wanted, "`remove` did not report what `find` had shown");
    ensure!(adopt(&node, "find")?.is_empty(), "{:?}", adopt(&node, "find")?);

    let mismatches = compare(&before, &picture(&node)?);
    ensure!(mismatches.is_empty(), "{mismatches:?}");
    let log = node.sh(&format!("{}/postern log --container dead", plugin_bin()?.display()))?;
    ensure!(log.matches("native.remove").count() == wanted.len(), "{log}");
    net.attachment("alive").del()
}

#[test]
fn of_bridge_with_nftables() -> Result<()> {
    found(1, "nftables", "bridge")
}

#[test]
fn of_bridge_with_iptables() -> Result<()> {
    found(2, "iptables", "bridge")
}

#[test]
fn of_ptp_with_nftables() -> Result<()> {
    found(3, "nftables", "ptp")
}

#[test]
fn of_ptp_with_iptables() -> Result<()> {
    found(4, "iptables", "ptp")
}

/// A tap in a container ends with the container. The native tap plugin leaves its leases on the node.
#[test]
fn of_tap() -> Result<()> {
    if !postern_tests::kernel::has_or_skips("tap")? {
        return Ok(());
    }
    let node = Node::new()?;
    let net = Network::new(&node, &config(14, "nftables"))?.by(&native_bin()?).with(
        &json!({"name": "native-tap", "type": "tap", "owner": 0, "group": 0, "bridge": null, "ipMasq": null, "macspoofchk": null}),
    );
    attach(&net, "alive")?;
    age(&node)?;
    ensure!(adopt(&node, "find")?.is_empty(), "an object in use was reported as a leftover");
    let before = picture(&node)?;
    attach(&net, "dead")?;
    node.remove_container("dead")?;
    age(&node)?;
    let lease = "lease native-tap/dead/eth0: no live namespace has its address";
    ensure!(adopt(&node, "find")? == [lease, lease], "{:?}", adopt(&node, "find")?);
    adopt(&node, "remove")?;
    let mismatches = compare(&before, &picture(&node)?);
    ensure!(mismatches.is_empty(), "{mismatches:?}");
    ensure!(node.sh_in("alive", "ip -o link")?.contains("eth0"), "the living container's tap is gone");
    net.attachment("alive").del()
}

/// Returns a list of bridge, portmap and firewall.
fn whole(node: &Node, bridge: &Value, port: u16) -> Result<Network> {
    let mapping = |protocol| json!({"hostPort": port, "containerPort": 80, "protocol": protocol});
    let portmap = json!({"type": "portmap", "backend": bridge["ipMasqBackend"],
        "runtimeConfig": {"portMappings": [mapping("tcp"), mapping("udp")]}});
    let plugins = json!([bridge, portmap, {"type": "firewall", "backend": "iptables"}]);
    Network::new(node, &json!({"cniVersion": "1.0.0", "name": bridge["name"], "plugins": plugins}))
}

/// The search finds forwards and firewall rules of native plugins. The rules of living containers, of attachments with
/// a record, of kube-proxy and of an operator stay.
fn forwards(number: u8, backend: &str) -> Result<()> {
    let (node, net) = used(number, backend, &json!({}))?;
    let bridge = net.config(0, &json!({}))?;
    attach(&whole(&node, &bridge, 8080)?.by(&native_bin()?), "alive")?;
    let ranges = [[json!({"subnet": format!("10.78.{number}.0/24")})]];
    let own = net.config(0, &json!({"name": "ours", "bridge": "br8", "ipam": {"ranges": ranges}}))?;
    attach(&whole(&node, &own, 8081)?, "ours")?;
    node.remove_container("ours")?;
    let nobody = format!("10.77.{number}.99");
    node.sh(&format!(
        "iptables -t nat -N KUBE-SEP-1; iptables -t nat -A KUBE-SEP-1 -p tcp -j DNAT --to-destination {nobody}:80
         iptables -t nat -N OPERATOR; iptables -t nat -A OPERATOR -p tcp --dport 77 -j DNAT --to-destination {nobody}:80
         iptables -A CNI-ADMIN -s {nobody} -j ACCEPT; iptables -A FORWARD -d {nobody} -j ACCEPT
         nft add table ip operator; nft add chain ip operator hostports; nft add rule ip operator hostports tcp dport 77 dnat to {nobody}:80"
    ))?;
    if backend == "nftables" {
        node.sh(&format!("nft add rule ip cni_hostport hostports tcp dport 7777 dnat to {nobody}:80"))?;
    }
    age(&node)?;
    ensure!(adopt(&node, "find")?.is_empty(), "{:?}", adopt(&node, "find")?);
    let before = picture(&node)?;
    attach(&whole(&node, &bridge, 8082)?.by(&native_bin()?), "dead")?;
    let doctor = || node.sh(&format!("{}/postern doctor --json || true", plugin_bin()?.display()));
    node.remove_container("dead")?;
    age(&node)?;
    let said = doctor()?;
    let found: Value = serde_json::from_str(&said)?;
    let leads = |finding: &&Value| finding.to_string().contains(&format!("lead traffic to 10.77.{number}.4"));
    let finding = found.get("findings").and_then(Value::as_array).into_iter().flatten().find(leads);
    ensure!(finding.is_some(), "{said}");
    let shown = adopt(&node, "find")?;
    let count = |kind: &str| shown.iter().filter(|line| line.starts_with(&format!("{kind} "))).count();
    let forwards = if backend == "nftables" { count("forward-nftables") } else { count("forward-iptables") };
    // For each IP version: two ports with masquerading, or one chain.
    ensure!(forwards >= 2 && count("forwarding") == 2 && count("lease") == 2, "{shown:#?}");
    ensure!(
        shown.iter().all(|line| line.ends_with("no live namespace has its address") || line.contains("mac-guard")),
        "{shown:#?}"
    );
    ensure!(adopt(&node, "remove")? == shown, "`remove` did not report what `find` had shown");
    ensure!(adopt(&node, "find")?.is_empty(), "{:?}", adopt(&node, "find")?);
    let mismatches = compare(&before, &picture(&node)?);
    ensure!(mismatches.is_empty(), "{mismatches:?}");
    let log = node.sh("grep native.remove /var/log/postern/audit.jsonl")?;
    let at = |kind: &str| log.find(&format!("\"kind\":\"{kind}\"")).unwrap_or_default();
    ensure!(
        at(&format!("forward-{backend}")) < at("lease"),
        "an address was free before its forwards were removed: {log}"
    );
    Ok(())
}

#[test]
fn of_portmap_and_firewall_with_nftables() -> Result<()> {
    forwards(11, "nftables")
}

#[test]
fn of_portmap_and_firewall_with_iptables() -> Result<()> {
    forwards(12, "iptables")
}

/// The search finds links that limit rates. The links of living containers, of containers with a record, of an
/// unfinished ADD and of an operator stay.
#[test]
fn of_bandwidth() -> Result<()> {
    let (node, net) = used(13, "nftables", &json!({}))?;
    let limits = json!({"type": "bandwidth",
        "ingressRate": 800_000, "ingressBurst": 800_000, "egressRate": 800_000, "egressBurst": 800_000});
    let limited = |patch: &Value| {
        let bridge = net.config(0, patch)?;
        Network::new(&node, &json!({"cniVersion": "1.0.0", "name": bridge["name"], "plugins": [bridge, limits]}))
    };
    let native = limited(&json!({}))?.by(&native_bin()?);
    attach(&native, "alive")?;
    let ranges = [[json!({"subnet": "10.78.13.0/24"})]];
    attach(&limited(&json!({"name": "ours", "bridge": "br8", "ipam": {"ranges": ranges}}))?, "ours")?;
    node.sh(
        "for name in bwp0123456789ab operator0 bwp0123456789ax; do ip link add $name type ifb; ip link set $name up; done
         for name in operator0 bwp0123456789ax; do tc qdisc add dev $name root tbf rate 1mbit burst 10kb limit 10kb; done
         for link in $(ip -o link show type veth master br8 | sed 's/^[0-9]*: \\([^@]*\\)@.*/\\1/'); do tc qdisc del dev $link ingress; done",
    )?;
    age(&node)?;
    ensure!(adopt(&node, "find")?.is_empty(), "{:?}", adopt(&node, "find")?);
    let before = picture(&node)?;
    attach(&native, "dead")?;
    node.remove_container("dead")?;
    age(&node)?;
    let shown = adopt(&node, "find")?;
    let ifbs: Vec<&String> = shown.iter().filter(|line| line.starts_with("ifb ")).collect();
    ensure!(ifbs == ["ifb ?/?/?: no link is redirected to it"], "{shown:#?}");
    ensure!(adopt(&node, "remove")? == shown, "`remove` did not report what `find` had shown");
    ensure!(adopt(&node, "find")?.is_empty(), "{:?}", adopt(&node, "find")?);
    let mismatches = compare(&before, &picture(&node)?);
    ensure!(mismatches.is_empty(), "{mismatches:?}");
    Ok(())
}

#[test]
fn an_address_that_only_the_runtime_knows_of_stays() -> Result<()> {
    let (node, net) = used(5, "nftables", &json!({}))?;
    attach(&net, "vm")?;
    age(&node)?;
    // A virtual machine keeps its address inside. The link in the namespace has no address.
    node.sh_in("vm", "ip address flush dev eth0 scope global")?;
    ensure!(adopt(&node, "find")?.len() == 4, "{:?}", adopt(&node, "find")?);
    node.sh("mkdir -p /var/lib/cni/results")?;
    let entry = |text: &str| node.sh(&format!("echo '{text}' > /var/lib/cni/results/native-vm-eth0"));
    entry(
        r#"{"kind":"cniCacheV1","containerId":"vm","ifName":"eth0","networkName":"native","netns":"/run/netns/vm"}"#,
    )?;
    ensure!(adopt(&node, "remove")?.is_empty(), "{:?}", adopt(&node, "find")?);
    entry("")?;
    let told = adopt(&node, "remove")?;
    ensure!(told.len() == 4 && told.iter().all(|line| line.contains("native-vm-eth0 doesn't tell")), "{told:?}");
    node.remove_container("vm")?;
    entry(r#"{"kind":"cniCacheV1","netns":"/run/netns/vm"}"#)?;
    ensure!(adopt(&node, "remove")?.len() == 5, "an object stays though the namespace is gone");
    ensure!(adopt(&node, "find")?.is_empty());
    Ok(())
}

/// Root in a container can give its links any address. If only such an address keeps a lease, `find` names the link and
/// its namespace. An operator then sees which container keeps the lease.
#[test]
fn an_address_in_a_strange_place_keeps_a_lease_and_is_named() -> Result<()> {
    let (node, net) = used(18, "nftables", &json!({"ipMasq": false, "macspoofchk": false}))?;
    attach(&net, "dead")?;
    node.remove_container("dead")?;
    attach(&net, "c1")?;
    age(&node)?;
    ensure!(adopt(&node, "find")?.len() == 2, "{:?}", adopt(&node, "find")?);
    // `lo` gets all addresses of the range.
    let script =
        "for i in $(seq 2 250); do echo \"address add 10.77.18.$i/32 dev lo\"; done > /run/range; ip -batch /run/range";
    node.sh_in("c1", script)?;
    let told = adopt(&node, "find")?;
    let names =
        |place: &str| told.iter().filter(|line| line.contains(" stays: 10.77.18.") && line.contains(place)).count();
    ensure!(names("is on \"lo\", which is like no attachment's link, in the namespace /") == 1, "{told:?}");
    ensure!(told.len() == 4, "not 4 lines: two for c1's leases, two for the dead container's: {told:?}");
    // The range moves to `eth0`, where an attachment has only one or two addresses.
    node.sh_in(
        "c1",
        &format!("ip address flush dev lo; sed -i s/lo$/eth0/ /run/range; {}", "ip -force -batch /run/range || true"),
    )?;
    let told = adopt(&node, "find")?;
    ensure!(told.iter().any(|line| line.contains("\"eth0\", which has 2")), "{told:?}");
    node.sh_in("c1", "ip -4 address flush dev eth0")?;
    ensure!(adopt(&node, "remove")?.len() >= 2 && adopt(&node, "find")?.iter().all(|line| !line.contains("dead")));
    Ok(())
}

/// A container can have many namespaces, each with few addresses on usual links. Leases that these addresses keep are
/// named too.
#[test]
fn many_small_namespaces_hide_no_leftovers() -> Result<()> {
    let (node, net) = used(
        19,
        "nftables",
        &json!({"ipMasq": false, "macspoofchk": false, "ipam": {"ranges": [[{"subnet": "10.77.19.0/24"}]]}}),
    )?;
    for number in 0..8 {
        attach(&net, &format!("dead{number}"))?;
        node.remove_container(&format!("dead{number}"))?;
    }
    attach(&net, "c1")?;
    age(&node)?;
    ensure!(adopt(&node, "find")?.len() == 8, "{:?}", adopt(&node, "find")?);
    // Two addresses in each of four namespaces, on links like those of attachments.
    let mut nested: Vec<_> = (0..4)
        .map(|number| {
            let script = "ip link add eth0 type veth peer name x && ip link add link eth0 name m type macvlan &&
                ip address add 10.77.19.$1/32 dev m && ip address add 10.77.19.$(($1 + 1))/32 dev m && echo ready && exec cat";
            let first = (3 + 2 * number).to_string();
            node.command_in("c1", "unshare").args(["--net", "sh", "-c", script, "sh", &first]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        })
        .collect::<std::io::Result<_>>()?;
    for child in &mut nested {
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "{line}");
    }
    let told = adopt(&node, "find")?;
    let named = told.iter().filter(|line| line.contains(" stays: 10.77.19.") && line.contains("process ")).count();
    for child in &mut nested {
        drop(child.stdin.take());
        child.wait()?;
    }
    ensure!(named == 8 && told.len() == 8, "{told:?}");
    let removed = adopt(&node, "remove")?;
    ensure!(removed.len() == 8 && adopt(&node, "find")?.is_empty(), "{removed:?} {:?}", adopt(&node, "find")?);
    Ok(())
}

/// A clock that was far ahead gives leases a date in the future. Such a lease stays only if a living container has the
/// lease's address.
#[test]
fn a_lease_of_the_future_does_not_stay_for_ever() -> Result<()> {
    let (node, net) = used(20, "nftables", &json!({"ipMasq": false, "macspoofchk": false}))?;
    attach(&net, "dead")?;
    attach(&net, "alive")?;
    node.remove_container("dead")?;
    let touch = |when: &str| node.sh(&format!("find /var/lib/cni/networks -type f -exec touch -d '{when}' {{}} +"));
    touch("1 minute")?;
    let told = adopt(&node, "find")?;
    ensure!(told.len() == 2 && told.iter().all(|line| line.contains("the lease is 0 s old")), "{told:?}");
    touch("1 hour")?;
    let told = adopt(&node, "remove")?;
    ensure!(told.len() == 2 && told.iter().all(|line| line.contains("dead")), "{told:?}");
    ensure!(adopt(&node, "find")?.is_empty(), "{:?}", adopt(&node, "find")?);
    Ok(())
}

#[test]
fn another_directory_of_leases_is_looked_at_if_it_is_named() -> Result<()> {
    let (node, net) =
        used(6, "nftables", &json!({"ipMasq": false, "macspoofchk": false, "ipam": {"dataDir": "/var/lib/leases"}}))?;
    attach(&net, "dead")?;
    node.remove_container("dead")?;
    node.sh("touch -d '1 hour ago' /var/lib/leases/native/*")?;
    ensure!(adopt(&node, "find")?.is_empty());
    ensure!(adopt(&node, "remove /var/lib/leases")?.len() == 2);
    ensure!(node.sh("ls /var/lib/leases/native | grep -c '^10\\|^fd' || true")?.trim() == "0");
    ensure!(adopt(&node, "find /var/lib/nowhere").is_err(), "a missing directory is no error");
    Ok(())
}

#[test]
fn what_postern_made_is_no_leftover() -> Result<()> {
    let node = Node::new()?;
    attach(&Network::new(&node, &config(7, "nftables"))?, "ours")?;
    age(&node)?;
    node.remove_container("ours")?;
    ensure!(adopt(&node, "find")?.is_empty(), "garbage with a record was reported as a leftover");
    // Without its record, the garbage looks like an object of a native plugin.
    node.sh("rm /run/postern/attachments/*")?;
    ensure!(adopt(&node, "remove")?.len() == 5, "{:?}", adopt(&node, "find")?);
    ensure!(adopt(&node, "find")?.is_empty());
    Ok(())
}

/// In a user namespace, the test can't look at the node's other processes. So `postern gc` must not conclude that an
/// address is unused.
#[test]
fn without_a_view_of_all_namespaces_only_ports_are_judged() -> Result<()> {
    let (node, net) = used(8, "nftables", &json!({}))?;
    attach(&net, "dead")?;
    node.remove_container("dead")?;
    age(&node)?;
    let before = picture(&node)?;
    let guards = node.sh("nft list table bridge nat")?;
    for run_by in ["", "unshare --pid --fork --mount-proc"] {
        let (printed, status) = gc(&node, run_by, "--native")?;
        let kinds: Vec<_> = entries(&printed, "native").iter().map(|entry| text(entry, "kind").to_owned()).collect();
        ensure!(kinds == ["mac-guard"], "{printed}");
        let problems = printed.get("problems").map(ToString::to_string).unwrap_or_default();
        ensure!(problems.contains("4 leases and masquerading rules were not judged"), "{printed}");
        ensure!(problems.contains("run the command as root on the host, in its PID namespace"), "{printed}");
        ensure!(status == Some(1), "gc did not report that leases were not judged: {status:?}");
        ensure!(compare(&before, &picture(&node)?).is_empty() && guards == node.sh("nft list table bridge nat")?);
    }
    let (printed, _) = gc(&node, "", "")?;
    ensure!(printed.get("native") == Some(&Value::Null), "gc looked for leftovers without `--native`: {printed}");
    let (printed, status) = gc(&node, "", "--native --yes")?;
    ensure!(printed.get("done") == Some(&json!(true)) && status == Some(1), "{printed}");
    let left = node.sh("nft list table bridge nat")?;
    ensure!(!left.contains("dead") && left.contains("PREROUTING"), "{left}");
    ensure!(adopt(&node, "find")?.len() == 4, "gc removed more than the bridge ports' rules");
    Ok(())
}

fn entries<'a>(printed: &'a Value, key: &str) -> &'a [Value] {
    printed.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Files of flannel and tuning about containers are removed if no live namespace has an address that the container
/// leases. Without a lease, nothing tells to which container a file belongs.
#[test]
fn of_flannel_and_tuning() -> Result<()> {
    let (node, net) = used(61, "nftables", &json!({}))?;
    node.sh("mkdir -p /var/lib/cni/flannel /run/cni/tuning; chmod 700 /var/lib/cni/flannel /run/cni/tuning")?;
    let files = |container: &str| {
        format!(
            "/var/lib/cni/flannel/{container} /run/cni/tuning/{container}_eth0.json /run/cni/tuning/{container}_eth1.json"
        )
    };
    for container in ["alive", "dead", "cached"] {
        attach(&net, container)?;
        node.sh(&format!("for file in {}; do echo '{{}}' > $file; done", files(container)))?;
    }
    // A container without a lease, and a file name that does not separate container and interface.
    node.sh(&format!("for file in {} /run/cni/tuning/dead_x_eth0.json; do echo '{{}}' > $file; done", files("other")))?;
    for container in ["dead", "cached"] {
        node.remove_container(container)?;
    }
    // A runtime's cache says that container `cached` is alive, in the namespace `vm61`.
    node.sh(
        "mkdir -p /var/lib/cni/results; ip netns add vm61
         echo '{\"kind\":\"cniCacheV1\",\"containerId\":\"cached\",\"ifName\":\"eth0\",\"networkName\":\"native\",\"netns\":\"/run/netns/vm61\"}' > /var/lib/cni/results/native-cached-eth0",
    )?;
    age(&node)?;
    let young = adopt(&node, "find")?;
    ensure!(young.iter().filter(|line| line.contains("stays: the file is")).count() == 2, "{young:?}");
    node.sh("find /var/lib/cni/flannel /run/cni/tuning -type f -exec touch -d '1 hour ago' {} +")?;
    let found = adopt(&node, "find")?;
    let files: Vec<&String> = found.iter().filter(|line| line.starts_with("state-file")).collect();
    let wanted = [
        "state-file ?/dead/?: no live namespace has its address",
        "state-file ?/dead/eth0: no live namespace has its address",
    ];
    ensure!(files == wanted, "{found:?}");
    adopt(&node, "remove")?;
    let left = node.sh("ls /var/lib/cni/flannel /run/cni/tuning")?;
    let of_dead: Vec<&str> = left.lines().filter(|line| line.starts_with("dead")).collect();
    ensure!(
        of_dead == ["dead_eth1.json", "dead_x_eth0.json"]
            && left.matches("alive").count() == 3
            && left.matches("cached").count() == 3
            && left.matches("other").count() == 3,
        "{left}"
    );
    ensure!(!adopt(&node, "find")?.iter().any(|line| line.contains("state-file")), "{:?}", adopt(&node, "find")?);
    net.attachment("alive").del()
}
