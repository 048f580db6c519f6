//! An address is not free while a rule still uses it. STATUS reports whether an ADD could work.

use anyhow::{Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Network, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};

/// Returns a configuration with its own subnet for each test, because concurrent tests see each other's namespaces.
fn bridge(subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
        "macspoofchk": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("{subnet}.0/24")}]]},
    })
}

fn portmap(backend: &str, port: u16) -> Value {
    let mapping = json!({"hostPort": port, "containerPort": 80, "protocol": "tcp"});
    json!({"type": "portmap", "backend": backend, "runtimeConfig": {"portMappings": [mapping]}})
}

/// The list of a runtime's GC without an attachment.
fn no_attachments() -> Value {
    json!({"cni.dev/valid-attachments": []})
}

/// Runs the native portmap, which the runtime calls after bridge.
fn native_portmap(node: &Node, verb: &str, backend: &str, result: &Value) -> Result<()> {
    let net = Network::new(node, &portmap(backend, 8080))?.with(&json!({"cniVersion": "1.0.0"})).by(&native_bin()?);
    net.call_at(0, verb, "c1", &json!({"prevResult": result}))?.success().map(drop)
}

/// Makes two containers with ports that our portmap mapped. Both end without DEL. Returns the network, without ports.
fn dead_pair(subnet: &str, backend: &str) -> Result<(Node, Network)> {
    let node = Node::new()?;
    let net = Network::new(&node, &bridge(subnet))?;
    for (container, port) in [("c1", 8080), ("c2", 8081)] {
        node.add_container(container)?;
        Network::new(&node, &json!([bridge(subnet), portmap(backend, port)]))?.add(container)?;
    }
    ["c1", "c2"].iter().try_for_each(|container| node.remove_container(container))?;
    Ok((node, net))
}

/// Makes a container that ended without a DEL. If `backend` is not empty, the native portmap has mapped a port. Returns
/// the network and the result that portmap got.
fn dead(subnet: &str, backend: &str) -> Result<(Node, Network, Value)> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let net = Network::new(&node, &bridge(subnet))?;
    let mut result = net.add("c1")?.result;
    merge(&mut result, &json!({"cniVersion": "1.0.0"}));
    if !backend.is_empty() {
        native_portmap(&node, "ADD", backend, &result)?;
    }
    node.remove_container("c1")?;
    Ok((node, net, result))
}

fn leases(node: &Node) -> Result<String> {
    node.sh("cd /var/lib/cni/networks/net; ls -d 10.* 2>/dev/null || true")
}

fn rules(node: &Node) -> Result<String> {
    node.sh("nft list ruleset | grep -E 'net: net|macspoofchk' || true; ip -o link | grep veth || true")
}

fn doctor(node: &Node) -> Result<String> {
    node.sh(&format!("{}/postern doctor --json || true", plugin_bin()?.display()))
}

fn gc(node: &Node, lists: &str) -> Result<String> {
    node.sh(&format!("mkdir -p {lists}; {}/postern gc --yes --conf-dir {lists} 2>&1", plugin_bin()?.display()))
}

#[test]
fn people_give_back_no_address_that_a_rule_serves() -> Result<()> {
    const NET: &str = "10.61.0";
    for backend in ["iptables", "nftables"] {
        let (node, net, result) = dead(NET, backend)?;
        let printed = gc(&node, "/run/none")?;
        ensure!(printed.contains("addresses are kept: a rule in ip") && printed.contains("10.61.0.2"), "{printed}");
        ensure!(printed.contains("removed 0 of 1, and 1 partly: the addresses are kept"), "{printed}");
        ensure!(leases(&node)? == "10.61.0.2\n" && rules(&node)?.is_empty(), "{} {}", leases(&node)?, rules(&node)?);
        node.add_container("c2")?;
        let second = net.add("c2")?;
        ensure!(second.addresses() == ["10.61.0.3/24"], "{second:?}");
        let findings = doctor(&node)?;
        ensure!(findings.contains("lead traffic to 10.61.0.2, which no namespace has"), "{findings}");
        // The runtime calls the DELs from the end of the chain. Afterwards no rule uses the address.
        native_portmap(&node, "DEL", backend, &result)?;
        net.attachment("c1").del()?;
        ensure!(leases(&node)? == format!("{NET}.3\n"), "{}", leases(&node)?);
        let findings = doctor(&node)?;
        ensure!(!findings.contains("lead traffic to"), "{findings}");
    }
    Ok(())
}

/// The directory of leases is lost, but the records and rules remain. A dead container's port must not lead to a new
/// container.
#[test]
fn an_address_that_forwards_of_a_record_lead_to_is_not_given_out() -> Result<()> {
    const NET: &str = "10.67.0";
    for backend in ["iptables", "nftables"] {
        let (node, net) = dead_pair(NET, backend)?;
        node.sh("rm -r /var/lib/cni")?;
        node.add_container("c3")?;
        let small = json!([[{"subnet": format!("{NET}.0/24"), "rangeEnd": format!("{NET}.3")}]]);
        let refused = net.call_at(0, "ADD", "c3", &json!({"ipam": {"ranges": small}}))?;
        let words = format!("attachment net/c2/eth0 has forwards to {NET}.3, by its record");
        ensure!(
            refused.status == 1 && refused.stdout.contains(&words) && refused.stdout.contains("postern gc"),
            "{refused:?}"
        );
        let asked = json!({"args": {"cni": {"ips": [format!("{NET}.2")]}}});
        let refused = net.call_at(0, "ADD", "c3", &asked)?;
        let words = format!("attachment net/c1/eth0 has forwards to {NET}.2, by its record");
        ensure!(refused.status == 1 && refused.stdout.contains(&words), "{refused:?}");
        ensure!(leases(&node)?.is_empty(), "left: {}", leases(&node)?);
        let given = net.add("c3")?;
        ensure!(given.addresses() == [format!("{NET}.4/24")], "{given:?}");
        net.attachment("c3").del()?;
        ensure!(gc(&node, "/run/none")?.contains("removed 2 of 2"), "{backend}");
        net.with(&asked).add("c3")?;
    }
    Ok(())
}

/// DEL removes an attachment's forwards too, so they are no reason to keep its address.
#[test]
fn the_own_forwards_keep_no_address() -> Result<()> {
    const NET: &str = "10.66.0";
    let forwards = "nft list ruleset | grep -F 10.66.0. || true";
    for backend in ["iptables", "nftables"] {
        let (node, _) = dead_pair(NET, backend)?;
        let printed = gc(&node, "/run/none")?;
        ensure!(printed.contains("removed 2 of 2") && !printed.contains("kept"), "{printed}");
        ensure!(leases(&node)?.is_empty() && node.sh(forwards)?.is_empty(), "{}", leases(&node)?);
        let (node, net) = dead_pair(NET, backend)?;
        let printed = net.call_at(0, "GC", "", &no_attachments())?;
        ensure!(printed.status == 0 && printed.stderr.is_empty(), "{printed:?}");
        ensure!(leases(&node)?.is_empty() && node.sh(forwards)?.is_empty(), "{}", leases(&node)?);
        // Forwards of the attachment that its record lacks count as a native plugin's.
        let (node, net) = dead_pair(NET, backend)?;
        node.sh("cd /run/postern/attachments; sed -i '/port-mappings/d' *")?;
        let printed = net.call_at(0, "GC", "", &no_attachments())?;
        ensure!(printed.stderr.contains("still leads traffic to 10.66.0.2"), "{printed:?}");
        ensure!(leases(&node)? == "10.66.0.2\n10.66.0.3\n", "{}", leases(&node)?);
    }
    Ok(())
}

#[test]
fn nor_one_of_a_chain_that_cannot_be_undone() -> Result<()> {
    const NET: &str = "10.62.0";
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge(NET), {"type": "tuning"}, {"type": "of-others"}]});
    let harmless = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [bridge(NET), {"type": "tuning"}]});
    for (cached, listed, keeps) in
        [(None, &list, true), (None, &harmless, false), (Some(&harmless), &list, false), (Some(&list), &harmless, true)]
    {
        let (node, net, _) = dead(NET, "")?;
        node.sh("mkdir -p /run/net.d /var/lib/cni/results")?;
        std::fs::write(node.path("/run/net.d/10-net.conflist"), listed.to_string())?;
        if let Some(cached) = cached {
            let entry = "/var/lib/cni/results/net-c1-eth0";
            std::fs::write(node.path("/run/list"), cached.to_string())?;
            node.sh(&format!(
                "printf '{{\"kind\":\"cniCacheV1\",\"config\":\"%s\"}}' $(base64 -w0 /run/list) > {entry}"
            ))?;
        }
        for round in 0..2 {
            let printed = gc(&node, "/run/net.d")?;
            // In the second round the pair is gone. A caller that can't see all namespaces no longer knows that the
            // container's namespace ended.
            ensure!(round > 0 || printed.contains("native of-others") == keeps, "round {round}: {printed}");
            ensure!(leases(&node)?.is_empty() != keeps && rules(&node)?.is_empty(), "{printed} {}", leases(&node)?);
        }
        net.attachment("c1").del()?;
        ensure!(leases(&node)?.is_empty(), "DEL did not release the lease");
    }
    Ok(())
}

#[test]
fn a_runtimes_collection_keeps_what_a_rule_serves() -> Result<()> {
    const NET: &str = "10.63.0";
    for (backend, lose) in [("iptables", ":"), ("nftables", ":"), ("nftables", "rm /run/postern/attachments/*")] {
        let (node, net, result) = dead(NET, backend)?;
        node.sh(lose)?;
        let printed = net.call_at(0, "GC", "", &no_attachments())?;
        ensure!(printed.status == 0 && printed.stderr.contains("still leads traffic to 10.63.0.2"), "{printed:?}");
        ensure!(leases(&node)? == "10.63.0.2\n", "{backend}, {lose}: {}", leases(&node)?);
        native_portmap(&node, "DEL", backend, &result)?;
        net.call_at(0, "GC", "", &no_attachments())?.success()?;
        ensure!(
            leases(&node)?.is_empty() && !rules(&node)?.contains("net: net"),
            "{} {}",
            leases(&node)?,
            rules(&node)?
        );
    }
    Ok(())
}

/// GC collects for all plugins, in the order of the list.
#[test]
fn one_plugin_collects_for_the_whole_chain() -> Result<()> {
    const NET: &str = "10.64.0";
    let (node, net, _) = dead(NET, "")?;
    node.sh("cd /run/postern/attachments; file=$(ls); sed -i '/\"effect\":\"masquerade\"/s/\"plugin\":\"bridge\"/\"plugin\":\"behind\"/' $file
         echo '{\"plugin\":\"behind\",\"begun\":{\"digest\":\"0\",\"time\":1700000000000}}' >> $file
         echo '{\"plugin\":\"behind\",\"given\":1700000000000}' >> $file")?;
    net.call_at(0, "GC", "", &no_attachments())?.success()?;
    ensure!(leases(&node)?.is_empty() && rules(&node)?.is_empty(), "{} {}", leases(&node)?, rules(&node)?);
    let records = node.sh("ls /run/postern/attachments")?;
    ensure!(records.is_empty(), "a section is left: {records}");
    let log = node.sh("grep record.remove /var/log/postern/audit.jsonl")?;
    let at = |what: &str| log.find(&format!("\"effect\":\"{what}\"")).unwrap_or_default();
    ensure!(at("masquerade") < at("lease") && at("veth") < at("lease"), "{log}");
    Ok(())
}

#[test]
fn status_says_whether_an_add_could_work() -> Result<()> {
    const NET: &str = "10.65.0";
    let node = Node::new()?;
    let net = Network::new(&node, &bridge(NET))?;
    node.sh(&format!("{PRIVATE_ETC} mkdir -p /run/empty"))?;
    let settings = |text: &str| node.sh(&format!("echo '{text}' > /etc/postern/node.toml"));
    let status = |patch: Value| -> Result<(u64, String)> {
        settings("")?;
        let lenient = net.call_at(0, "STATUS", "", &patch)?;
        settings("status = \"strict\"")?;
        let answer = net.call_at(0, "STATUS", "", &patch)?;
        // A fault of the whole node is an error only with `status = "strict"`.
        let is_policy = ["olicy", "host-local.toml", "nowhere"].iter().any(|word| answer.stdout.contains(word));
        if answer.status != 0 && !is_policy {
            let error: Value = serde_json::from_str(&answer.stdout)?;
            let words = error["msg"].as_str().unwrap_or_default();
            ensure!(lenient.status == 0 && lenient.stdout.is_empty(), "by default: {lenient:?}");
            ensure!(lenient.stderr.contains("postern: an ADD to network"), "{words}: {lenient:?}");
        } else {
            ensure!((lenient.status, &lenient.stdout) == (answer.status, &answer.stdout), "{lenient:?} {answer:?}");
        }
        if answer.status == 0 {
            return Ok((0, answer.stdout));
        }
        let error: Value = serde_json::from_str(&answer.stdout)?;
        Ok((error["code"].as_u64().unwrap_or_default(), answer.stdout))
    };
    let expect = |before: &str, patch: Value, after: &str, code: u64, words: &str| -> Result<()> {
        node.sh(before)?;
        let (found, printed) = status(patch)?;
        node.sh(after)?;
        ensure!(found == code && printed.contains(words), "after {before}: {found} instead of {code}: {printed}");
        let (found, printed) = status(json!({}))?;
        ensure!(found == 0, "after {after}: {printed}");
        Ok(())
    };
    let policy = |toml: &str| format!("printf '%s\\n' '{toml}' > /etc/postern/policy/bridge.toml");
    let open = "rm -f /etc/postern/policy/*";
    expect(":", json!({}), ":", 0, "")?;
    expect(&policy("withdraw = [\"masquerade\"]"), json!({}), open, 50, "masquerade")?;
    expect(&policy("withdraw = [\"masquerade\"]"), json!({"ipMasq": false}), open, 0, "")?;
    expect(&policy("withdraw = [\"veth\"]"), json!({}), open, 50, "veth")?;
    expect(&policy("grants = 1"), json!({}), open, 50, "grants")?;
    expect(&policy("grant.masquerade = { backends = [\"iptables\"] }"), json!({}), open, 50, "nftables")?;
    expect(&policy("grant.ipam = { types = [\"static\"] }"), json!({}), open, 50, "host-local")?;
    expect("echo 'x = 1' > /etc/postern/policy/host-local.toml", json!({}), open, 50, "host-local.toml")?;
    expect(":", json!({"ipam": {"type": "nowhere"}}), ":", 50, "nowhere")?;
    expect("ip link add cni9 type veth peer name peer9", json!({"bridge": "cni9"}), ":", 51, "no bridge")?;
    expect("ip link add cni0 type veth peer name p0", json!({"bridge": null}), "ip link del cni0", 51, "no bridge")?;
    let tagged = json!({"bridge": "br7", "vlan": 100});
    expect("ip link add br7 type bridge", tagged, "ip link del br7", 50, "does not filter VLANs")?;
    expect(
        "mkdir -p /var/lib/cni/networks; mount -t tmpfs -o ro,mode=755 x /var/lib/cni/networks",
        json!({}),
        "umount /var/lib/cni/networks",
        50,
        "Read-only",
    )?;
    expect(
        "mkdir -p /var/lib/cni/networks/net; for i in 1 2 3 4 5 6; do printf 'x\\r\\neth0' > /var/lib/cni/networks/net/10.65.0.$i; done",
        json!({"ipam": {"ranges": [[{"subnet": "10.65.0.0/29"}]]}}),
        ":",
        50,
        "no IP addresses",
    )?;
    // STATUS has not changed the node.
    let left =
        node.sh("ip -o link | grep -c br9 || true; ls /run/postern/attachments 2>/dev/null || true; nft list ruleset")?;
    ensure!(left == "0\n", "{left}");
    Ok(())
}
