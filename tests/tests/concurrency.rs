//! Many attachments at the same time, on one bridge and one range: no error, no address twice, nothing left after DEL.

use anyhow::{Context, Result, anyhow, ensure};
use postern_tests::{Call, Node, merge, plugin_bin};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

fn attach_and_detach(count: usize, patch: &Value) -> Result<()> {
    let bin = plugin_bin()?;
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    merge(&mut config, patch);
    let node = Node::new()?;
    let containers: Vec<_> = (0..count).map(|number| format!("c{number}")).collect();
    node.sh(&format!("for number in $(seq 0 {}); do ip netns add c$number; done", count - 1))?;

    let all = |verb: &str| -> Result<Vec<Value>> {
        let start = Instant::now();
        let answers = std::thread::scope(|scope| {
            let call = |container: &str| {
                let call = Call::new(&bin, "bridge", verb, config.to_string());
                let call = call.attachment(container, &node.netns(container), "eth0");
                let answer =
                    if verb == "DEL" { node.delete(&call).map(|()| Value::Null) } else { node.call(&call)?.success() };
                answer.with_context(|| format!("{verb} of {container}"))
            };
            let threads: Vec<_> = containers.iter().map(|container| scope.spawn(move || call(container))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        println!("{count} x {verb} at once: {} ms", start.elapsed().as_millis());
        Ok(answers)
    };

    let results = all("ADD")?;
    let address = |result: &Value| result.pointer("/ips/0/address").and_then(Value::as_str).map(str::to_owned);
    let addresses: BTreeSet<_> = results.iter().filter_map(address).collect();
    ensure!(addresses.len() == count, "{count} attachments, {} addresses", addresses.len());
    let ports = node.sh("ip -o link show master br9 | wc -l")?;
    ensure!(ports.trim() == count.to_string(), "{count} attachments, {ports} ports");
    for container in ["c0".to_owned(), format!("c{}", count - 1)] {
        node.sh_in(&container, "for i in 1 2 3 4 5; do busybox ping -c1 -W1 10.9.0.1 && exit; done; exit 1")?;
    }

    all("DEL")?;
    let links = node.sh("ip -o link | grep veth || true")?;
    ensure!(links.is_empty(), "left behind:\n{links}");
    let leases = node.sh("ls /var/lib/cni/networks/net | grep '^10' || true")?;
    ensure!(leases.is_empty(), "left behind:\n{leases}");
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
