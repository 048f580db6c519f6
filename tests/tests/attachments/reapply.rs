//! `postern reapply` puts back rules that another program removed. It changes nothing else.

use anyhow::{Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Network, Node, native_bin, plugin_bin};
use serde_json::{Value, json};

/// Returns a bridge, with the rules of one backend.
fn bridge(net: &str, backend: &str) -> Value {
    json!({
        "name": format!("net{net}"), "type": "bridge", "bridge": format!("br{net}"), "isGateway": true, "ipMasq": true,
        "ipMasqBackend": backend, "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{net}.0.0/24")}]]},
    })
}

fn nftables(node: &Node, net: &str) -> Result<Network> {
    Ok(Network::new(node, &bridge(net, "nftables"))?.with(&json!({"macspoofchk": true})))
}

/// Runs a verb of `postern`. Returns its text and its exit status.
fn postern(node: &Node, arguments: &str) -> Result<(String, i32)> {
    let text = node.sh(&format!("{}/postern {arguments} 2>&1 && echo 0 || echo $?", plugin_bin()?.display()))?;
    let (text, status) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    Ok((text.to_owned(), status.parse()?))
}

/// Returns all rules of the node, without counters.
fn rules(node: &Node) -> Result<String> {
    node.sh("nft -s list ruleset 2>/dev/null | sort; iptables-save | grep -v '^[#:]' | sort")
}

/// Returns the state that `postern reapply` must not change.
fn links(node: &Node) -> Result<String> {
    // Duplicate address detection may end between two calls.
    node.sh("ip -o link; ip -o addr | sed 's/ tentative//'; ip route; ls /var/lib/cni/networks/*")
}

#[test]
fn wiped_rules_are_put_back() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    let iptables = Network::new(&node, &bridge("72", "iptables"))?;
    let networks = [("c1", nftables(&node, "71")?), ("c2", iptables), ("c3", nftables(&node, "71")?)];
    let mut attachments = Vec::new();
    for (container, net) in &networks {
        node.add_container(container)?;
        attachments.push(net.add(container)?);
    }
    let (before, links_before) = (rules(&node)?, links(&node)?);
    let (said, status) = postern(&node, "reapply")?;
    ensure!(status == 0 && said == "no rules are missing; attachments with all their rules: 3", "{said}");
    node.sh("nft flush ruleset")?;
    ensure!(rules(&node)?.is_empty(), "{}", rules(&node)?);
    let doctor = node.sh(&format!("{}/postern doctor --json || true", plugin_bin()?.display()))?;
    ensure!(
        doctor.contains("\"remedy\": \"postern reapply\"") || doctor.contains("\"remedy\":\"postern reapply\""),
        "{doctor}"
    );
    let (said, status) = postern(&node, "reapply --dry-run")?;
    ensure!(status == 0 && said.contains("nothing was changed") && rules(&node)?.is_empty(), "{said}");
    let (said, status) = postern(&node, "reapply --json")?;
    let report: Value = serde_json::from_str(&said)?;
    let restored = report["restored"].as_array().map(Vec::len);
    ensure!(status == 0 && restored == Some(3) && report["problems"] == json!([]), "{report}");
    ensure!(rules(&node)? == before, "{}\n---\n{before}", rules(&node)?);
    ensure!(links(&node)? == links_before, "{}\n---\n{links_before}", links(&node)?);
    let (said, _) = postern(&node, "reapply")?;
    ensure!(said.contains("attachments with all their rules: 3"), "{said}");
    let (log, _) = postern(&node, "log --json")?;
    let lines = log.lines().filter(|line| line.contains("record.reapply")).count();
    ensure!(lines == 5, "{lines}: masquerading of three, spoofing protection of two");
    for ((container, net), attachment) in networks.iter().zip(attachments) {
        attachment.check()?;
        net.attachment(container).del()?;
    }
    ensure!(!rules(&node)?.contains("net7"), "{}", rules(&node)?);
    Ok(())
}

/// Returns a list of bridge, portmap and firewall.
fn list(node: &Node, net: &str, backend: &str, port: u16) -> Result<Network> {
    let mapping = |protocol| json!({"hostPort": port, "containerPort": 80, "protocol": protocol});
    let plugins = json!([
        bridge(net, backend),
        {"type": "portmap", "backend": backend, "runtimeConfig": {"portMappings": [mapping("tcp"), mapping("udp")]}},
        {"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"},
    ]);
    Network::new(node, &json!({"name": format!("net{net}"), "plugins": plugins}))
}

/// Returns the rules without iptables' own base chains.
fn bare(node: &Node) -> Result<String> {
    let all = rules(node)?;
    let is_frame = |line: &&str| ["table ", "chain ", "type ", "}"].iter().any(|word| line.trim().starts_with(word));
    Ok(all.lines().filter(|line| !line.trim().is_empty() && !is_frame(line)).collect::<Vec<_>>().join("\n"))
}

/// Tests lists of three plugins, with both packet filters, after other programs removed rules in several ways. doctor
/// names the missing rules, and `reapply` changes no link.
#[test]
fn forwards_and_forwarding_are_put_back() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    ["c1", "c2", "c3"].iter().try_for_each(|container| node.add_container(container))?;
    // The operator's own rules, and two dumps that the operator saved before the attachments were made.
    node.sh("iptables -A INPUT -s 203.0.113.9 -j DROP; iptables -t nat -A POSTROUTING -s 203.0.113.0/24 -j ACCEPT
         iptables-save > /run/old; (echo flush ruleset; nft list ruleset) > /run/old.nft")?;
    let mut attachments = Vec::new();
    for (container, net, backend, port) in
        [("c1", "76", "nftables", 8080), ("c2", "77", "iptables", 8081), ("c3", "77", "iptables", 8082)]
    {
        attachments.push(list(&node, net, backend, port)?.add(container)?);
    }
    let (before, links_before) = (bare(&node)?, links(&node)?);
    let localnet = "grep . /proc/sys/net/ipv4/conf/*/route_localnet";
    let sysctls = node.sh(localnet)?;
    ensure!(sysctls.contains("br76/route_localnet:1"), "{sysctls}");
    const NFT: &str = "ports of the node don't lead to 10.76.0.2: the rules in nftables are gone";
    const IPT: &str = "ports of the node don't lead to 10.77.0.3: the rules in iptables are gone";
    const FWD: &str = "10.76.0.2 is not forwarded: iptables no longer has it";
    const BRIDGE: &str = "bridge br77 is not isolated (same-bridge): the rules in iptables are gone";
    const GUARD: &str = "containers behind br76 reach the node's 127.0.0.0/8: the guard rule is gone";
    for (wipe, missing, there) in [
        ("nft flush ruleset", &[NFT, IPT, FWD, BRIDGE, GUARD][..], &[][..]),
        ("nft -f /run/old.nft", &[NFT, IPT, FWD, BRIDGE, GUARD], &[]),
        ("iptables-restore < /run/old", &[IPT, FWD, BRIDGE], &[NFT, GUARD]),
        ("iptables -F; iptables -t nat -F", &[IPT, FWD, BRIDGE], &[NFT, GUARD]),
        (
            "iptables -t nat -D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
            &[IPT],
            &[NFT, FWD, BRIDGE],
        ),
        ("iptables -t nat -F CNI-HOSTPORT-SETMARK", &[IPT], &[NFT, FWD, BRIDGE]),
        ("nft flush chain ip cni_hostport hostports", &[NFT], &[IPT, FWD, GUARD]),
        ("nft flush chain ip cni_hostport prerouting", &[NFT], &[IPT, FWD, GUARD]),
        ("nft delete table ip postern_localnet", &[GUARD], &[NFT, IPT, FWD, BRIDGE]),
    ] {
        node.sh(wipe)?;
        let doctor = node.sh(&format!("{}/postern doctor --json || true", plugin_bin()?.display()))?;
        for what in missing {
            ensure!(doctor.contains(what), "{wipe}: doctor does not say \"{what}\":\n{doctor}");
        }
        for what in there {
            ensure!(!doctor.contains(what), "{wipe}: doctor says \"{what}\":\n{doctor}");
        }
        let (listed, _) = postern(&node, "ls")?;
        ensure!(listed.contains("drift"), "{wipe}: {listed}");
        let (said, status) = postern(&node, "reapply")?;
        ensure!(status == 0, "{wipe}: {said}");
        // `postern reapply` does not restore the operator's own rules.
        node.sh("iptables -C INPUT -s 203.0.113.9 -j DROP 2>/dev/null || iptables -A INPUT -s 203.0.113.9 -j DROP
                 iptables -t nat -C POSTROUTING -s 203.0.113.0/24 -j ACCEPT 2>/dev/null || iptables -t nat -A POSTROUTING -s 203.0.113.0/24 -j ACCEPT")?;
        ensure!(bare(&node)? == before, "{wipe}:\n{}\n---\n{before}", bare(&node)?);
        ensure!(links(&node)? == links_before && node.sh(localnet)? == sysctls, "{wipe}: {}", links(&node)?);
        let (said, _) = postern(&node, "reapply")?;
        ensure!(said.contains("attachments with all their rules: 3"), "{wipe}: {said}");
    }
    attachments.into_iter().try_for_each(|attachment| attachment.check()?.del())?;
    let left = bare(&node)?;
    ensure!(!left.contains("10.76.0.") && !left.contains("10.77.0.") && !left.contains("CNI-DN-"), "{left}");
    Ok(())
}

#[test]
fn rules_of_what_is_gone_are_not() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    for container in ["c1", "c2"] {
        node.add_container(container)?;
        nftables(&node, "73")?.add(container)?;
    }
    // c1 has lost its link, and c2 its namespace.
    node.sh_in("c1", "ip link delete eth0")?;
    node.remove_container("c2")?;
    node.sh("nft flush ruleset")?;
    let (said, status) = postern(&node, "reapply")?;
    ensure!(status == 0 && rules(&node)?.is_empty(), "{said} {}", rules(&node)?);
    Ok(())
}

#[test]
fn a_part_that_is_missing_is_put_back_alone() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    node.add_container("c1")?;
    nftables(&node, "74")?.add("c1")?;
    let before = rules(&node)?;
    // An operator's table stays.
    node.sh("nft add table ip own; nft add chain ip own kept; nft add rule ip own kept counter")?;
    let whole = rules(&node)?;
    node.sh("nft delete table inet cni_plugins_masquerade")?;
    let (said, status) = postern(&node, "reapply")?;
    ensure!(status == 0 && said.contains("put back: masquerading rules") && !said.contains("spoofing"), "{said}");
    ensure!(rules(&node)? == whole && whole != before, "{}\n---\n{whole}", rules(&node)?);
    Ok(())
}

/// If the kernel shows a user no rules, `postern reapply` does not report complete rules.
#[test]
fn rules_that_cannot_be_looked_at_are_no_complete_ones() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    node.add_container("c1")?;
    nftables(&node, "75")?.add("c1")?;
    node.sh("nft flush ruleset")?;
    let blind = format!(
        "setpriv --bounding-set=-net_admin {}/postern reapply 2>&1 && echo 0 || echo $?",
        plugin_bin()?.display()
    );
    let said = node.sh(&blind)?;
    ensure!(said.contains("look at its packet filter") && said.trim_end().ends_with("\n1"), "{said}");
    ensure!(!said.contains("no rules are missing") && rules(&node)?.is_empty(), "{said}");
    Ok(())
}

/// The native portmap has made the forwards again in its own form. No rule is missing, and `postern reapply` adds none.
#[test]
fn forwards_in_the_native_form_are_no_drift() -> Result<()> {
    let node = Node::new()?;
    node.sh(PRIVATE_ETC)?;
    node.add_container("c1")?;
    let forward = json!({"type": "portmap", "backend": "nftables",
        "runtimeConfig": {"portMappings": [{"hostPort": 8073, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.73"},
                                           {"hostPort": 8074, "containerPort": 81, "protocol": "udp"}]}});
    let list = json!({"name": "net73", "plugins": [bridge("73", "nftables"), forward]});
    let net = Network::new(&node, &list)?.with(&json!({"ipMasq": null, "ipMasqBackend": null}));
    let previous = json!({"prevResult": net.add("c1")?.result});
    let ours = rules(&node)?;
    let net = net.by(&native_bin()?);
    for verb in ["DEL", "ADD"] {
        net.call_at(1, verb, "c1", &previous)?.success()?;
    }
    let native = rules(&node)?;
    ensure!(native != ours, "the native rules equal ours, so this test proves nothing");
    let (said, status) = postern(&node, "ls --json")?;
    ensure!(status == 0 && said.contains("\"ok\""), "{said}");
    let (said, _) = postern(&node, "show c1")?;
    ensure!(said.contains("8073") && !said.contains("are gone"), "{said}");
    let (said, status) = postern(&node, "reapply")?;
    ensure!(status == 0 && said.contains("no rules are missing") && rules(&node)? == native, "{said}");
    // A missing forward is drift.
    node.sh("nft -a list chain ip cni_hostport hostports | sed -n 's/.*8073.*# handle //p' |
        xargs -I{} nft delete rule ip cni_hostport hostports handle {}")?;
    ensure!(postern(&node, "show c1")?.0.contains("the rules are gone"), "a missing forward does not show");
    Ok(())
}
