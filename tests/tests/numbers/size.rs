//! A run costs the same on a full node as on an empty node. It opens no files and reads no rules of other attachments.
//! The test measures no time: it counts the opened files and the bytes of the kernel's answers.

use anyhow::{Result, ensure};
use postern_tests::tour::{VERBS, legs};
use postern_tests::{Network, Node, merge, native_bin, plugin_bin, shipped, skip_part};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The file of strace's trace.
const TRACE: &str = "/var/log/trace";
/// On the full node, `OTHERS` is the number of attachments by real runs, and `RULES` the number of rules without runs.
const OTHERS: usize = 40;
const RULES: usize = 400;
/// The bytes allowed for more answers about the run's own link: a run reads the link repeatedly until the link is up.
const SLACK: u64 = 24 << 10;
/// The bytes of the first datagrams of two chains, of at most 32 KiB each.
const HEAD: u64 = 64 << 10;

/// Makes a node with a container, and a network with all effects.
fn network() -> Result<(Node, Network)> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let config = json!({
        "type": "bridge", "bridge": "br9", "isGateway": true, "macspoofchk": true,
        "ipMasq": true, "ipMasqBackend": "nftables",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]},
    });
    let net = Network::new(&node, &config)?;
    Ok((node, net))
}

/// The number of files that a run opened, and of bytes that it received.
#[derive(Debug)]
struct Cost {
    opened: u64,
    received: u64,
    /// Requests that make the kernel walk through all rules or links, although the answer is short.
    walks: Vec<String>,
}

/// Runs a verb of the first plugin for the container, and counts its cost.
fn cost(net: &Network, verb: &str, patch: &Value) -> Result<(Cost, Value)> {
    let wrapper =
        ["strace", "-qq", "-s", "256", "-o", TRACE, "-e", "trace=openat,openat2,recvfrom,sendto", "-e", "signal=none"]
            .map(str::to_owned);
    let answer = net.node.call_under(&wrapper, &net.request(0, verb, "c1", patch)?)?;
    // A plugin without a result prints nothing.
    let result = answer.success()?;
    let mut cost = Cost { opened: 0, received: 0, walks: Vec::new() };
    for line in std::fs::read_to_string(net.node.path(TRACE))?.lines() {
        let answer = line.rsplit_once(" = ").map_or("", |(_, answer)| answer);
        if line.starts_with("openat(") || line.starts_with("openat2(") {
            cost.opened += 1;
        } else if line.starts_with("sendto(") {
            let of_all_links =
                line.contains("RTM_GETADDR") && line.contains("NLM_F_DUMP") && line.contains("ifa_index=0");
            if of_all_links || line.contains("NFT_MSG_GETRULE") {
                cost.walks.push(line.to_owned());
            }
        } else if let Ok(received) = answer.parse::<u64>() {
            cost.received += received;
        }
    }
    Ok((cost, result))
}

/// True if a request is about rules in a chain of iptables that all attachments share.
fn is_in_long_chain(request: &str) -> bool {
    // strace shows a text in this form, with the final zero byte.
    let shown = |chain: &str| chain.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    ["CNI-HOSTPORT-DNAT", "POSTROUTING", "CNI-FORWARD"].iter().any(|chain| request.contains(&shown(chain)))
}

/// Runs ADD, CHECK and DEL of one attachment.
fn life(net: &Network) -> Result<[Cost; 3]> {
    let (add, result) = cost(net, "ADD", &json!({}))?;
    let previous = json!({"prevResult": result});
    Ok([add, cost(net, "CHECK", &previous)?.0, cost(net, "DEL", &previous)?.0])
}

/// Returns the list of valid attachments for GC, with these interfaces.
fn valid(interfaces: std::ops::RangeInclusive<usize>) -> Value {
    let valid = interfaces.map(|number| json!({"containerID": "c1", "ifname": format!("eth{number}")}));
    json!({"cni.dev/valid-attachments": valid.collect::<Vec<_>>()})
}

/// Returns the network, for another interface of the container.
fn at(net: &Network, number: usize) -> Network {
    net.clone().interface(&format!("eth{number}"))
}

#[test]
fn a_run_does_the_same_on_a_full_node() -> Result<()> {
    let (node, net) = network()?;
    at(&net, 1).add("c1")?;
    life(&net)?;
    let empty = life(&net)?;
    let (collected, _) = cost(&net, "GC", &valid(1..=1))?;

    for number in 2..=OTHERS {
        at(&net, number).add("c1")?;
    }
    // The name of a record shows GC that the record is of another network.
    let ipam = json!({"ranges": [[{"subnet": "10.7.0.0/16"}]]});
    let another = net.clone().with(&json!({"name": "another", "bridge": "br8", "ipam": ipam}));
    for number in 1..=OTHERS {
        at(&another, OTHERS + number).add("c1")?;
    }
    // An ordinary user's transactions must be short.
    for chunk in (0..RULES).collect::<Vec<_>>().chunks(50) {
        let lines = chunk.iter().map(|number| {
            format!(
                "add rule inet cni_plugins_masquerade masq_checks ip saddr 10.8.{}.{} masquerade\n\
                 add rule bridge nat PREROUTING iifname \"stranger{number}\" accept\n",
                number / 250,
                number % 250
            )
        });
        std::fs::write(node.path("/var/log/rules"), lines.collect::<String>())?;
        node.sh("nft -f /var/log/rules")?;
    }
    let full = life(&net)?;
    for ((verb, empty), full) in ["ADD", "CHECK", "DEL"].iter().zip(&empty).zip(&full) {
        ensure!(full.opened <= empty.opened + 2, "{verb} opens more: {empty:?}, on a full node {full:?}");
        ensure!(full.received <= empty.received + SLACK, "{verb} reads more: {empty:?}, on a full node {full:?}");
    }
    let (all, _) = cost(&net, "GC", &valid(1..=OTHERS))?;
    ensure!(
        all.opened <= collected.opened + 2,
        "GC opens records that are valid or of another network: {collected:?}, with all valid {all:?}"
    );
    let status = node.sh("ls /run/postern/attachments | wc -l")?;
    ensure!(status.trim() == (2 * OTHERS).to_string(), "{status} records of {} are left", 2 * OTHERS);
    Ok(())
}

/// A run reads no iptables rules of other attachments.
#[test]
fn rules_of_others_in_iptables_are_not_read() -> Result<()> {
    let (node, net) = network()?;
    let net = net.with(&json!({"ipMasqBackend": "iptables", "macspoofchk": false}));
    life(&net)?;
    let empty = life(&net)?;
    // An ordinary user's transactions must be short.
    for chunk in (0..RULES).collect::<Vec<_>>().chunks(50) {
        let rules = chunk.iter().map(|number| {
            let (chain, address) = (format!("CNI-{number:024x}"), format!("10.8.{}.{}", number / 250, number % 250));
            format!("-N {chain}\n-A {chain} -j ACCEPT\n-A POSTROUTING -s {address} -j {chain}\n")
        });
        std::fs::write(node.path("/var/log/rules"), format!("*nat\n{}COMMIT\n", rules.collect::<String>()))?;
        node.sh("iptables-restore --noflush < /var/log/rules")?;
    }
    let full = life(&net)?;
    for ((verb, empty), full) in ["ADD", "CHECK", "DEL"].iter().zip(&empty).zip(&full) {
        ensure!(full.received <= empty.received + SLACK, "{verb} reads more: {empty:?}, on a full node {full:?}");
        let walks: Vec<&String> = full.walks.iter().filter(|line| is_in_long_chain(line)).collect();
        ensure!(*verb != "DEL" || walks.is_empty(), "{verb} lists rules of other attachments: {walks:?}");
    }
    ensure!(node.sh("iptables-save -t nat | grep -c '^:CNI-'")?.trim() == RULES.to_string(), "another chain is gone");
    Ok(())
}

/// portmap and firewall read no rules and no records of other attachments, with each packet filter.
#[test]
fn forwards_of_others_are_not_read() -> Result<()> {
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = |backend: &str| json!({"type": "portmap", "backend": backend, "snat": true, "runtimeConfig": {"portMappings": mappings}});
    let others_in_iptables = |number: usize| {
        let (chain, address) = (format!("CNI-DN-{number:021x}"), format!("10.8.{}.{}", number / 250, number % 250));
        format!(
            "*nat\n-N {chain}\n-A {chain} -p tcp -m tcp --dport {number} -j DNAT --to-destination {address}:80\n\
             -A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports {number} -j {chain}\n-A POSTROUTING -s {address} -j RETURN\n\
             COMMIT\n*filter\n-A CNI-FORWARD -d {address} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
             -A CNI-FORWARD -s {address} -j ACCEPT\nCOMMIT\n"
        )
    };
    let others_in_nftables = |number: usize| {
        format!(
            "add rule ip cni_hostport hostports tcp dport {number} dnat to 10.8.0.1:80 comment \"other{number}\"\n\
             add rule ip cni_hostport masquerading ip daddr 10.8.0.1 masquerade comment \"other{number}\"\n"
        )
    };
    for (kind, patch) in [
        ("iptables", portmap("iptables")),
        ("nftables", portmap("nftables")),
        ("iptables", json!({"type": "firewall", "backend": "iptables"})),
        ("iptables", json!({"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"})),
    ] {
        let node = Node::new()?;
        node.add_container("c1")?;
        let bridge = Network::new(
            &node,
            &json!({"type": "bridge", "bridge": "br9", "isGateway": true,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]}}),
        )?;
        let (_, previous) = cost(&bridge, "ADD", &json!({}))?;
        let net = Network::new(&node, &patch)?;
        let life = || -> Result<[Cost; 3]> {
            let [add, check, del] =
                ["ADD", "CHECK", "DEL"].map(|verb| cost(&net, verb, &json!({"prevResult": previous})));
            Ok([add?.0, check?.0, del?.0])
        };
        // The first attachment makes the shared chains.
        let sole = || node.sh(if kind == "iptables" { "iptables-save | grep -v ^#" } else { "nft list ruleset" });
        life()?;
        let before = sole()?;
        let empty = life()?;
        // All attachments are valid, so GC removes nothing.
        let (collected, _) = cost(&net, "GC", &valid(0..=0))?;
        for chunk in (1..=RULES).collect::<Vec<_>>().chunks(20) {
            let (text, load) = match kind {
                "iptables" => (
                    chunk.iter().map(|number| others_in_iptables(*number)).collect::<String>(),
                    "iptables-restore --noflush <",
                ),
                _ => (chunk.iter().map(|number| others_in_nftables(*number)).collect(), "nft -f"),
            };
            // A chain may be missing: portmap makes the first chain, and firewall the second chain.
            let chains = "iptables -t nat -N CNI-HOSTPORT-DNAT; iptables -N CNI-FORWARD";
            std::fs::write(node.path("/var/log/rules"), text)?;
            node.sh(&format!("({chains}) 2>/dev/null || true; {load} /var/log/rules"))?;
        }
        for number in 1..=OTHERS {
            cost(&at(&bridge, number), "ADD", &json!({}))?;
        }
        let full = life()?;
        // portmap compares the names of all chains, and reads rules if it does not know a name. So the test compares
        // only firewall's GC.
        if patch.get("type") == Some(&json!("firewall")) {
            let (all, _) = cost(&net, "GC", &valid(0..=OTHERS))?;
            ensure!(
                all.opened <= collected.opened + 2 && all.received <= collected.received + SLACK,
                "{patch}: GC reads more: {collected:?}, on a full node {all:?}"
            );
        }
        for ((verb, empty), full) in ["ADD", "CHECK", "DEL"].iter().zip(&empty).zip(&full) {
            ensure!(full.opened <= empty.opened + 2, "{patch}: {verb} opens more: {empty:?}, on a full node {full:?}");
            ensure!(
                full.received <= empty.received + HEAD,
                "{patch}: {verb} reads more: {empty:?}, on a full node {full:?}"
            );
            // The record has rule handles, so DEL lists no rules. With iptables, DEL may list an attachment's own short
            // chain.
            let mut walks = full.walks.iter().filter(|line| kind != "iptables" || is_in_long_chain(line));
            ensure!(*verb != "DEL" || walks.next().is_none(), "{patch}: {verb} lists rules: {:?}", full.walks);
        }
        let after = sole()?;
        let own =
            |rules: &str| rules.lines().filter(|line| line.contains("10.9.0.")).map(str::to_owned).collect::<Vec<_>>();
        ensure!(own(&before) == own(&after), "{patch}: rules are left: {after}");
    }
    Ok(())
}

/// Behind a native plugin, ADD searches the index for records with the attachment's address. It opens no other records.
#[test]
fn behind_a_native_plugin_other_records_are_not_read() -> Result<()> {
    let node = Node::new()?;
    for container in ["c1", "c2"] {
        node.add_container(container)?;
    }
    let bridge = Network::new(
        &node,
        &json!({"name": "behind", "type": "bridge", "bridge": "br6", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.6.0.0/16"}], [{"subnet": "fd00:6::/64"}]]}}),
    )?;
    let native = bridge.clone().by(&native_bin()?);
    let behind = |config: &Value, previous: &Value| -> Result<Network> {
        Ok(Network::new(&node, config)?.with(&json!({"name": "behind", "prevResult": previous})))
    };
    let forward = |port: usize, previous: &Value| {
        let mappings = json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]);
        behind(
            &json!({"type": "portmap", "backend": "nftables", "runtimeConfig": {"portMappings": mappings}}),
            previous,
        )
    };
    let first = native.add("c1")?.result;
    // The first run reads all records, and fills the index.
    let forwarded = forward(8000, &first)?;
    life(&forwarded)?;
    let empty = life(&forwarded)?;
    // firewall also searches for a record of the pair's host end.
    let fence = behind(&json!({"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"}), &first)?;
    life(&fence)?;
    let fenced = life(&fence)?;
    for number in 1..=OTHERS {
        let result = at(&native, number).add("c1")?.result;
        cost(&at(&forward(8000 + number, &result)?, number), "ADD", &json!({}))?;
    }
    let full = life(&forwarded)?;
    let fenced_full = life(&fence)?;
    for ((verb, empty), full) in ["ADD", "CHECK", "DEL"].iter().zip(&fenced).zip(&fenced_full) {
        ensure!(full.opened <= empty.opened + 2, "firewall {verb} opens more: {empty:?}, on a full node {full:?}");
    }
    for ((verb, empty), full) in ["ADD", "CHECK", "DEL"].iter().zip(&empty).zip(&full) {
        ensure!(full.opened <= empty.opened + 2, "{verb} opens more: {empty:?}, on a full node {full:?}");
        let listings: Vec<&String> = full.walks.iter().filter(|line| line.contains("RTM_GETADDR")).collect();
        ensure!(listings.is_empty(), "{verb} lists all links of the node: {listings:?}");
    }
    // The search also finds addresses that a record got after the index was filled.
    let ipam = json!({"ranges": [[{"subnet": "10.5.0.0/16"}]]});
    let other = bridge.with(&json!({"name": "other", "bridge": "br5", "ipam": ipam})).add("c2")?;
    let given = other.addresses().concat();
    node.sh(&format!("ip -n c1 address add {given} dev eth0"))?;
    let claim = forward(9000, &first)?.with(&json!({"prevResult": {"ips": [{"address": given, "interface": 2}]}}));
    let refused = claim.call("ADD", "c1")?;
    ensure!(refused.stdout.contains("attachment other/c2/eth0 has this address, by its record"), "{}", refused.stdout);
    other.del()?;
    claim.add("c1").map(drop)
}

/// Very many forwards need several transactions. DEL reads the chain once for all transactions.
#[test]
fn many_forwards_are_read_once() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.4.0.0/16"}]]});
    let bridge = json!({"name": "many", "type": "bridge", "bridge": "br4", "isGateway": true, "ipam": ipam});
    let (_, previous) = cost(&Network::new(&node, &bridge)?, "ADD", &json!({}))?;
    let mappings: Value =
        (0..4000).map(|step| json!({"hostPort": 10_000 + step, "containerPort": 80, "protocol": "tcp"})).collect();
    let config = json!({"name": "many", "type": "portmap", "backend": "nftables", "snat": false,
        "runtimeConfig": {"portMappings": mappings}, "prevResult": previous});
    let [_, check, del] = life(&Network::new(&node, &config)?)?;
    ensure!(del.received < check.received * 3 / 2, "DEL reads more than one list of all forwards: {check:?}, {del:?}");
    ensure!(!node.sh("nft list ruleset")?.contains("10.4.0."), "forwards are left");
    Ok(())
}

/// A script that copies a record. Half of the copies have names of the same network, half of another network.
const CROWD: &str = "cd /run/postern/attachments; record=$(ls); other=0123456789abcdef
    for number in $(seq 30); do
        cp $record $(printf 'SAME%032x' $number); cp $record $(printf '%s%032x' $other $number)
    done";
/// The copies of each half.
const COPIES: usize = 30;

/// No verb of a plugin opens the record of another attachment. Copies of a record stand for other records. A virtual
/// machine tests links that this kernel lacks: `tests/vm/kernel` names their plugins in `POSTERN_SIZE_OF`.
#[test]
fn no_plugin_opens_the_records_of_others() -> Result<()> {
    let bin = plugin_bin()?;
    let wrapper = ["strace", "-f", "-qq", "-s", "256", "-o", TRACE, "-e", "trace=openat,openat2", "-e", "signal=none"]
        .map(str::to_owned);
    // The names of copies have many zeros. A set counts a record once, even if it is opened twice.
    let opened = |node: &Node| -> Result<usize> {
        let trace = std::fs::read_to_string(node.path(TRACE))?;
        let of_copy = |word: &str| word.len() == 48 && word[16..46].bytes().all(|byte| byte == b'0');
        Ok(trace.split('"').filter(|word| of_copy(word)).collect::<BTreeSet<_>>().len())
    };
    let (mut measured, mut sees, mut beyond) = (BTreeSet::new(), false, Vec::new());
    let in_vm = std::env::var("POSTERN_SIZE_OF").unwrap_or_default();
    let wanted: Vec<&str> = in_vm.split_whitespace().collect();
    let least = if wanted.is_empty() { 13 } else { wanted.len() };
    for plugin in shipped()?.into_iter().filter(|plugin| wanted.is_empty() || wanted.contains(&plugin.as_str())) {
        let legs = legs(&plugin)?;
        if legs.is_empty() {
            skip_part(&plugin, &format!("this kernel has no {plugin} links"));
        }
        for mut leg in legs {
            // Both directions have a limit. For egress, the run makes an ifb, whose name another record may have.
            if plugin == "bandwidth" {
                merge(&mut leg.config, &json!({"egressRate": 1_000_000, "egressBurst": 1_000_000}));
            }
            // With IPv6, the run also changes settings of the link and of `lo`, which other records may have.
            if leg.config.pointer("/ipam/ranges").is_some_and(Value::is_array) {
                merge(
                    &mut leg.config,
                    &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd09::/64"}]]}}),
                );
            }
            let node = Node::new()?;
            node.add_container("c0")?;
            let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
            let mut plugins = vec![json!({"type": "bridge", "bridge": "tour0", "ipam": ipam})];
            // The first request for a port after a boot reads all records, and fills the index.
            if plugin == "portmap" {
                let mapping = json!({"hostPort": 9999, "containerPort": 80, "protocol": "tcp"});
                plugins.push(json!({"type": "portmap", "runtimeConfig": {"portMappings": [mapping]}}));
            }
            Network::new(&node, &json!({"name": "tour", "plugins": plugins}))?.add("c0")?;
            // The first request for an address, a link or a setting also fills the index.
            node.sh("ip link add prime0 type veth peer name prime1")?;
            let device = json!({"name": "prime", "type": "host-device", "device": "prime0"});
            let device = Network::new(&node, &device)?.interface("dev0");
            device.add("c0")?;
            device.attachment("c0").del()?;
            let name = node.sh("ls /run/postern/attachments")?;
            let network = name.trim().get(..16).unwrap_or_default();
            node.sh(&CROWD.replace("SAME", network))?;
            let same = format!("rm /run/postern/attachments/{network}0000*");
            leg.walk_on(&node, &bin, |node, verb, call| {
                if verb == "GC" {
                    // GC must open the copies, which are not valid. This proves that the count works.
                    if !sees {
                        node.call_under(&wrapper, call)?;
                        sees = opened(node)? >= COPIES;
                        ensure!(sees, "{}: {} records were opened", leg.name, opened(node)?);
                    }
                    node.sh(&format!("{same} 2>/dev/null || true"))?;
                }
                let answer = node.call_under(&wrapper, call)?;
                ensure!(answer.status == 0, "{} {verb}: {answer:?}", leg.name);
                if opened(node)? > 1 {
                    beyond.push(format!("{} {verb} opens {} records of other attachments", leg.name, opened(node)?));
                }
                measured.insert((plugin.clone(), verb.to_owned()));
                Ok(answer)
            })?;
        }
    }
    ensure!(beyond.is_empty(), "{}", beyond.join("\n"));
    let plugins = measured.iter().map(|(plugin, _)| plugin).collect::<BTreeSet<_>>().len();
    ensure!(
        measured.len() == plugins * VERBS.len() && plugins >= least && sees,
        "too little was measured: {measured:?}"
    );
    Ok(())
}
