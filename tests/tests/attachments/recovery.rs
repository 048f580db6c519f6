//! A run did not end, or its container is gone. The next ADD, DEL, GC and `postern gc` remove the run's effects.

use anyhow::{Context, Result, ensure};
use postern_tests::{Network, Node, plugin_bin};
use serde_json::{Value, json};
use std::path::Path;

fn network(node: &Node) -> Result<Network> {
    let config = json!({
        "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
        "macspoofchk": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/29"}]]},
    });
    Network::new(node, &config)
}

fn postern(node: &Node, arguments: &str) -> Result<String> {
    node.sh(&format!("{}/postern {arguments}", plugin_bin()?.display()))
}

/// Returns the numbers of leases, pairs, masquerading rules, spoofing protection chains, and records.
fn left(node: &Node) -> Result<[usize; 5]> {
    let count = |script: &str| -> Result<usize> { Ok(node.sh(script)?.trim().parse()?) };
    Ok([
        count("find /var/lib/cni/networks/net -name '10.*' | wc -l")?,
        count("ip -o link | grep -c ': veth' || true")?,
        count("nft list ruleset | grep -c 'net: net,' || true")?,
        count("nft list ruleset | grep -c 'chain cni-br-iface-.*-mac' || true")?,
        count("ls /run/postern/attachments | wc -l")?,
    ])
}

const NOTHING: [usize; 5] = [0; 5];
const ONE: [usize; 5] = [1; 5];

/// Turns the record into the record of a run that was killed before its answer.
fn as_if_killed(node: &Node) -> Result<()> {
    node.sh("sed -i '/\"given\"/d' /run/postern/attachments/*").map(drop)
}

/// Removes the kernel's objects. Files stay.
fn as_if_of_another_boot(node: &Node) -> Result<()> {
    node.sh("for link in $(ip -o link | sed -n 's/^[0-9]*: \\(veth[^@]*\\)@.*/\\1/p'); do ip link del $link; done; nft flush ruleset")?;
    node.sh("sed -i 's/\"boot_id\":\"[^\"]*\"/\"boot_id\":\"another\"/' /run/postern/attachments/*").map(drop)
}

fn attached() -> Result<(Node, Network)> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let net = network(&node)?;
    net.add("c1")?;
    ensure!(left(&node)? == ONE, "{:?}", left(&node)?);
    Ok((node, net))
}

#[test]
fn the_next_add_begins_anew() -> Result<()> {
    let (node, net) = attached()?;
    let again = net.call("ADD", "c1")?;
    ensure!(
        again.status == 1 && again.stdout.contains("already exists"),
        "a second ADD replaced a complete attachment: {again:?}"
    );
    ensure!(left(&node)? == ONE, "{:?}", left(&node)?);
    for spoil in [as_if_killed, as_if_of_another_boot] {
        spoil(&node)?;
        let again = net.add("c1")?;
        ensure!(left(&node)? == ONE, "{:?}", left(&node)?);
        let record = node.sh("cat /run/postern/attachments/*")?;
        ensure!(record.matches("\"begun\"").count() == 1 && record.contains("\"given\""), "{record}");
        again.check()?;
    }
    net.attachment("c1").del()?;
    ensure!(left(&node)? == NOTHING, "{:?}", left(&node)?);
    Ok(())
}

/// With a helper for iptables, the host begins the record before it starts a guest.
#[test]
fn so_it_does_with_programs() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let net = network(&node)?.with(&json!({"ipMasqBackend": "iptables"}));
    let chains = || node.sh("iptables-save -t nat | grep -c '^:CNI-' || true");
    for _ in 0..2 {
        net.add("c1")?;
        let record = node.sh("cat /run/postern/attachments/*")?;
        ensure!(record.matches("\"begun\"").count() == 1 && record.contains("\"given\""), "{record}");
        ensure!(chains()? == "1\n", "{}", chains()?);
        as_if_killed(&node)?;
    }
    net.attachment("c1").del()?;
    ensure!(chains()? == "0\n" && left(&node)? == NOTHING, "{} {:?}", chains()?, left(&node)?);
    Ok(())
}

#[test]
fn an_add_for_another_namespace_begins_anew() -> Result<()> {
    let (node, net) = attached()?;
    // ADD does not wait for the old pair, which may remain while a process uses it.
    node.sh("ip netns del c1; ip netns add c1")?;
    net.add("c1")?;
    ensure!(left(&node)? == ONE, "{:?}", left(&node)?);
    net.attachment("c1").del()?;
    ensure!(left(&node)? == NOTHING, "{:?}", left(&node)?);
    Ok(())
}

#[test]
fn a_failed_second_add_takes_nothing_from_the_first() -> Result<()> {
    let (node, net) = attached()?;
    let before = node.sh("cat /run/postern/attachments/*")?;
    for _ in 0..2 {
        ensure!(net.call("ADD", "c1")?.status == 1, "a second ADD succeeded");
    }
    ensure!(left(&node)? == ONE, "{:?}", left(&node)?);
    let sections = |record: &str| record.matches("\"begun\"").count() + record.matches("\"ended\"").count();
    ensure!(
        sections(&before) == sections(&node.sh("cat /run/postern/attachments/*")?),
        "the second ADD changed the section"
    );
    ensure!(postern(&node, "gc --yes")?.contains("no garbage"), "gc took the attachment for a killed ADD");
    Ok(())
}

#[test]
fn people_collect_what_is_gone_and_nothing_else() -> Result<()> {
    for (spoil, reason) in [
        (as_if_killed as fn(&Node) -> Result<()>, "killed before the runtime had an answer"),
        (as_if_of_another_boot, "before the machine was last started"),
        (|node| node.remove_container("c1"), "namespace is gone"),
    ] {
        let (node, net) = attached()?;
        ensure!(
            postern(&node, "gc --yes")? == "no garbage; attachments in use: 1\n",
            "{}",
            postern(&node, "gc --yes")?
        );
        spoil(&node)?;
        node.add_container("c2")?;
        let c2 = net.add("c2")?;
        let before = left(&node)?;
        let shown = postern(&node, "gc")?;
        ensure!(shown.contains("net/c1/eth0") && shown.contains(reason), "{shown}");
        ensure!(!shown.contains("net/c2/eth0") && shown.contains("nothing was changed"), "{shown}");
        ensure!(left(&node)? == before, "gc without `--yes` changed the node");
        let report: Value = serde_json::from_str(&postern(&node, "gc --json")?)?;
        ensure!(report.pointer("/garbage/0/container") == Some(&json!("c1")), "{report}");
        ensure!(report.pointer("/done") == Some(&json!(false)) && left(&node)? == before, "{report}");
        let removed = postern(&node, "gc --yes")?;
        ensure!(removed.contains("removed 1 of 1"), "{removed}");
        ensure!(left(&node)? == ONE, "{reason}: {:?}", left(&node)?);
        ensure!(postern(&node, "gc --yes")?.contains("no garbage; attachments in use: 1"), "gc found garbage again");
        c2.check().context("c2 was harmed")?;
    }
    Ok(())
}

#[test]
fn a_collection_spares_who_is_at_work() -> Result<()> {
    let (node, net) = attached()?;
    as_if_killed(&node)?;
    let key = node.sh("ls /run/postern/attachments")?;
    let held = |command: &str| node.sh(&format!("flock /run/postern/attachments/{} {command}", key.trim()));
    let bin = plugin_bin()?;
    let shown = held(&format!("{}/postern gc --yes", bin.display()))?;
    ensure!(shown.contains("a run for this attachment is under way"), "{shown}");
    let empty = json!({"cni.dev/valid-attachments": []});
    let config = net.config(0, &empty)?;
    let gc = format!("sh -c 'CNI_COMMAND=GC CNI_PATH={0} {0}/bridge <<E\n{config}\nE'", bin.display());
    held(&gc)?;
    ensure!(left(&node)? == ONE, "{:?}", left(&node)?);
    net.call_at(0, "GC", "", &empty)?.success()?;
    ensure!(left(&node)? == NOTHING, "{:?}", left(&node)?);
    Ok(())
}

/// A run was killed directly after its record's first line. That line names a namespace that is gone. With a helper,
/// the next run begins its record before it can know that the namespace is gone.
#[test]
fn a_record_without_a_section_is_not_begun_for_another_namespace() -> Result<()> {
    let node = Node::new()?;
    let net = network(&node)?.with(&json!({"ipMasqBackend": "iptables"}));
    let header = || -> Result<Value> { Ok(serde_json::from_str(&node.sh("head -n1 /run/postern/attachments/*")?)?) };
    node.add_container("c1")?;
    net.add("c1")?;
    let first = header()?;
    let file = node.sh("ls /run/postern/attachments/*")?;
    net.attachment("c1").del()?;
    node.remove_container("c1")?;
    node.add_container("c1")?;
    node.sh(&format!("cat > {} <<'E'\n{first}\nE", file.trim()))?;
    net.add("c1")?;
    let second = header()?;
    ensure!(second["netns_cookie"] != first["netns_cookie"], "the record is about the old namespace: {second}");
    ensure!(
        net.call("ADD", "c1")?.stdout.contains("already exists"),
        "ADD took the attachment for another namespace's"
    );
    ensure!(
        postern(&node, "gc --yes")? == "no garbage; attachments in use: 1\n",
        "gc took a used attachment for garbage"
    );
    net.attachment("c1").del()?;
    ensure!(left(&node)? == NOTHING, "{:?}", left(&node)?);
    Ok(())
}

/// The names of spoofing protection's rules contain container and interface, but not the network.
#[test]
fn spoofing_protection_of_the_same_interface_in_another_network_stays() -> Result<()> {
    let (node, net) = attached()?;
    // An ADD was killed, and the runtime then used another network for this interface.
    as_if_killed(&node)?;
    node.sh("ip -n c1 link delete eth0")?;
    let ipam = json!({"ranges": [[{"subnet": "10.8.0.0/29"}]]});
    net.with(&json!({"name": "other", "bridge": "br8", "ipam": ipam})).add("c1")?;
    let guarded = || node.sh("nft list table bridge nat | grep -c 'ether saddr'");
    ensure!(postern(&node, "gc --yes")?.contains("removed 1 of 1"), "the first attachment is no garbage");
    ensure!(guarded()? == "1\n", "the second attachment has lost its protection");
    ensure!(left(&node)? == [0, 1, 0, 1, 1], "{:?}", left(&node)?);
    Ok(())
}

/// Once its lease is released, an address may belong to another attachment.
#[test]
fn leases_are_given_back_after_the_link_is_gone() -> Result<()> {
    let (node, _) = attached()?;
    as_if_killed(&node)?;
    ensure!(postern(&node, "gc --yes")?.contains("removed 1 of 1"), "the killed ADD is no garbage");
    let log = node.sh("tail -n4 /var/log/postern/audit.jsonl")?;
    let at = |what: &str| log.find(&format!("\"effect\":\"{what}\"")).with_context(|| format!("no {what}: {log}"));
    ensure!(at("veth")? < at("lease")?, "{log}");
    Ok(())
}

/// The runtime's list can't contain an attachment that was made after the collection began.
#[test]
fn a_collection_spares_what_is_younger() -> Result<()> {
    let (node, net) = attached()?;
    let given = |time: &str| {
        node.sh(&format!("sed -i \"s/\\\"given\\\":[0-9]*/\\\"given\\\":{time}/\" /run/postern/attachments/*"))
            .map(drop)
    };
    // strace delays the collection at each lock. So the collection reads records a short time after it began.
    let slow = "/run/slow";
    node.sh(&format!(
        "mkdir {slow}; printf '#!/bin/sh\nexec strace -f -qq -o /dev/null -e trace=flock -e \
         inject=flock:delay_enter=500000 {0}/bridge\n' > {slow}/bridge; chmod +x {slow}/bridge",
        plugin_bin()?.display()
    ))?;
    let gc = net.by(Path::new(slow)).request(0, "GC", "", &json!({"cni.dev/valid-attachments": []}))?;
    for (time, expected) in [("$(($(date +%s%3N) + 300))", ONE), ("1700000000000", NOTHING)] {
        given(time)?;
        node.call(&gc)?.success()?;
        ensure!(left(&node)? == expected, "{time}: {:?}", left(&node)?);
    }
    Ok(())
}

/// A DEL was killed after it removed the pair. In a living namespace nothing shows the kill, and no run needs to know
/// it.
#[test]
fn a_del_that_was_killed_is_collected_without_its_pair() -> Result<()> {
    let (node, _) = attached()?;
    node.sh("ip -n c1 link delete eth0; cd /run/postern/attachments; for file in *; do
         seq=$(sed -n 's/.*\"seq\":\\([0-9]*\\).*\"effect\":\"veth\".*/\\1/p' $file)
         echo '{\"plugin\":\"bridge\",\"ending\":true}' >> $file
         echo '{\"plugin\":\"bridge\",\"removed\":'$seq'}' >> $file; done; ip netns del c1")?;
    let removed = postern(&node, "gc --yes")?;
    ensure!(removed.contains("removed 1 of 1"), "{removed}");
    ensure!(left(&node)? == NOTHING, "{:?}", left(&node)?);
    Ok(())
}

/// Root in a container can give its link any address. Another container's garbage is removed nevertheless.
#[test]
fn an_address_on_anothers_link_saves_no_garbage() -> Result<()> {
    let (node, net) = attached()?;
    let address = node.sh("cd /var/lib/cni/networks/net && ls -d 10.*")?.trim().to_owned();
    node.add_container("c2")?;
    net.add("c2")?;
    node.remove_container("c1")?;
    node.sh_in("c2", &format!("ip addr add {address}/32 dev eth0"))?;
    postern(&node, "gc --yes")?;
    ensure!(left(&node)? == ONE, "{:?}", left(&node)?);
    Ok(())
}

/// A veth pair with both ends in the container does not prove that the attachment was made again.
#[test]
fn a_link_that_root_makes_is_nobodys_attachment() -> Result<()> {
    const MAKE: &str = "ip link add eth0 type veth peer name other";
    let (node, net) = attached()?;
    as_if_killed(&node)?;
    node.sh_in("c1", &format!("ip link del eth0; {MAKE}"))?;
    let answer = net.call("ADD", "c1")?;
    ensure!(answer.status == 1 && answer.stdout.contains("already exists"), "{answer:?}");
    ensure!(left(&node)? == NOTHING, "{:?}", left(&node)?);
    node.sh_in("c1", "ip link del eth0")?;
    net.add("c1")?;
    node.sh_in("c1", &format!("ip link del eth0; {MAKE}"))?;
    node.sh_in("c1", &format!("(timeout 5 sh -c 'while :; do {MAKE}; done' > /dev/null 2>&1 &)"))?;
    for time in ["first", "second", "third"] {
        net.attachment("c1").del().context(time)?;
        ensure!(left(&node)? == NOTHING, "{time}: {:?}", left(&node)?);
    }
    Ok(())
}
