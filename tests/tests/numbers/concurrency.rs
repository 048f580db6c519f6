//! Many attachments at the same time, on one bridge or link and one range. No call fails, no two containers have the
//! same address, and nothing is left after DEL.

use anyhow::{Context, Result, anyhow, ensure};
use postern_tests::kernel::has_or_skips_part;
use postern_tests::{Network, Node};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

/// Runs a verb for all containers at once, each with its own patch of the configuration. Returns the results.
fn all(net: &Network, containers: &[String], verb: &str, own: impl Fn(usize) -> Value + Sync) -> Result<Vec<Value>> {
    let start = Instant::now();
    let call = |number: usize, container: &str| {
        let answer = net.call_at(0, verb, container, &own(number))?;
        answer.success().with_context(|| format!("{verb} of {container}"))
    };
    let call = &call;
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = containers
            .iter()
            .enumerate()
            .map(|(number, container)| scope.spawn(move || call(number, container)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect::<Result<Vec<_>>>()
    })?;
    println!("{} x {verb} at once: {} ms", containers.len(), start.elapsed().as_millis());
    Ok(answers)
}

/// Returns a node with this many containers, and their names.
fn crowd(count: usize) -> Result<(Node, Vec<String>)> {
    let node = Node::new()?;
    node.sh(&format!("for number in $(seq 0 {}); do ip netns add c$number; done", count - 1))?;
    Ok((node, (0..count).map(|number| format!("c{number}")).collect()))
}

/// Returns the addresses of results. Fails if two addresses are the same.
fn addresses(results: &[Value]) -> Result<BTreeSet<String>> {
    let address = |result: &Value| result.pointer("/ips/0/address").and_then(Value::as_str).map(str::to_owned);
    let addresses: BTreeSet<_> = results.iter().filter_map(address).collect();
    ensure!(addresses.len() == results.len(), "{} attachments, {} addresses", results.len(), addresses.len());
    Ok(addresses)
}

/// Fails if a lease of the network is left.
fn no_lease(node: &Node) -> Result<()> {
    let leases = node.sh("ls /var/lib/cni/networks/net | grep '^10' || true")?;
    ensure!(leases.is_empty(), "left behind:\n{leases}");
    Ok(())
}

fn attach_and_detach(count: usize, patch: &Value) -> Result<()> {
    let config = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": "br9", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    let (node, containers) = crowd(count)?;
    let net = Network::new(&node, &config)?.with(patch);
    addresses(&all(&net, &containers, "ADD", |_| json!({}))?)?;
    let ports = node.sh("ip -o link show master br9 | wc -l")?;
    ensure!(ports.trim() == count.to_string(), "{count} attachments, {ports} ports");
    for container in ["c0".to_owned(), format!("c{}", count - 1)] {
        node.sh_in(&container, "for i in 1 2 3 4 5; do busybox ping -c1 -W1 10.9.0.1 && exit; done; exit 1")?;
    }

    all(&net, &containers, "DEL", |_| json!({}))?;
    let links = node.sh("ip -o link | grep veth || true")?;
    ensure!(links.is_empty(), "left behind:\n{links}");
    no_lease(&node)?;
    let rules = node.sh("nft list ruleset | grep -E 'masquerade|macspoof' | grep c[0-9] || true")?;
    ensure!(rules.is_empty(), "left behind:\n{rules}");
    Ok(())
}

#[test]
fn a_hundred_attachments_at_once() -> Result<()> {
    attach_and_detach(100, &json!({}))
}

#[test]
fn thirty_attachments_with_firewall_work_at_once() -> Result<()> {
    attach_and_detach(30, &json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}))
}

/// Many links without a host end on one parent link, and many devices: each container has its address, on a link of the
/// plugin's kind.
#[test]
fn fifty_links_of_each_kind_at_once() -> Result<()> {
    const COUNT: usize = 50;
    // The kinds that were tested outside of the virtual machine.
    let elsewhere = std::env::var("POSTERN_ELSEWHERE").unwrap_or_default();
    for (plugin, patch) in [
        ("macvlan", json!({"master": "wire0"})),
        ("vlan", json!({"master": "wire0"})),
        ("ipvlan", json!({"master": "wire0", "mode": "l3"})),
        ("dummy", json!({})),
        ("tap", json!({"owner": 0})),
        ("host-device", json!({})),
    ] {
        if elsewhere.split(' ').any(|one| one == plugin) || plugin != "host-device" && !has_or_skips_part(plugin)? {
            continue;
        }
        let own = |number: usize| match plugin {
            "vlan" => json!({"vlanId": number}),
            "host-device" => json!({"device": format!("card{number}")}),
            _ => json!({}),
        };
        let (node, containers) = crowd(COUNT)?;
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
        let config = json!({"cniVersion": "1.0.0", "type": plugin, "ipam": ipam});
        let net = Network::new(&node, &config)?.with(&patch);
        node.sh(&format!(
            "ip link add wire0 type veth peer name wire1; ip link set wire0 up
             for n in $(seq 0 {}); do ip link add card$n type veth peer name socket$n; done",
            COUNT - 1
        ))?;
        let before = node.sh("ip -o link | sed 's/^[0-9]*: //' | sort")?;
        let results = all(&net, &containers, "ADD", own).context(plugin)?;
        addresses(&results).context(plugin)?;
        for (container, result) in containers.iter().zip(&results) {
            let shown = node.sh_in(container, "ip -d -o link show dev eth0; ip -o address show dev eth0")?;
            let address = result.pointer("/ips/0/address").and_then(Value::as_str).unwrap_or_default();
            let kind = match plugin {
                "host-device" => "veth",
                "tap" => "tun",
                plugin => plugin,
            };
            ensure!(
                shown.contains(&format!(" {address} ")) && shown.contains(&format!(" {kind} ")),
                "{plugin}: {shown}"
            );
        }
        all(&net, &containers, "DEL", own).context(plugin)?;
        no_lease(&node).context(plugin)?;
        for container in &containers {
            ensure!(!node.sh_in(container, "ip -o link")?.contains("eth0"), "{plugin}: {container} still has its link");
        }
        let after = node.sh("ip -o link | sed 's/^[0-9]*: //' | sort")?;
        ensure!(before == after, "{plugin}: before:\n{before}\nafter:\n{after}");
    }
    Ok(())
}
