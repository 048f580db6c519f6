//! A rule's name consists of two other names, such as container ID and interface. Without care, the rules of two
//! attachments would have the same name, or a name that no rule can have.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Call, Network, Node};
use serde_json::{Value, json};

fn network(node: &Node, patch: &Value) -> Result<Network> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let bridge = json!({"type": "bridge", "bridge": "br9", "isGateway": true, "macspoofchk": true, "ipam": ipam});
    Ok(Network::new(node, &bridge)?.with(patch))
}

/// An attachment whose container ID is not the name of its namespace.
struct Named<'a> {
    network: Network,
    id: &'a str,
    interface: &'a str,
    container: &'a str,
    /// The patch of a call's configuration: the result of ADD.
    previous: Value,
}

impl<'a> Named<'a> {
    fn new(network: &Network, (id, interface): (&'a str, &'a str), container: &'a str) -> Self {
        Self { network: network.clone().interface(interface), id, interface, container, previous: json!({}) }
    }

    fn add(mut self) -> Result<Self> {
        self.previous = json!({"prevResult": self.call("ADD")?.success()?});
        Ok(self)
    }

    fn request(&self, verb: &str) -> Result<Call> {
        Ok(self.network.request(0, verb, self.container, &self.previous)?.env("CNI_CONTAINERID", self.id))
    }

    fn call(&self, verb: &str) -> Result<Answer> {
        self.network.node.call(&self.request(verb)?)
    }

    /// Tests the spoofing protection with CHECK, and with frames from another address.
    fn is_guarded(&self) -> Result<()> {
        let (node, interface) = (&self.network.node, self.interface);
        let of = || format!("{} {interface}", self.id);
        self.call("CHECK")?.success().with_context(of)?;
        let ping = format!("busybox ping -c1 -W1 -I {interface} 10.9.0.1");
        let ping_for_some_time = format!("for i in 1 2 3 4 5; do {ping} && exit; done; exit 1");
        node.sh_in(self.container, &ping_for_some_time)
            .with_context(|| format!("{} does not reach the gateway", of()))?;
        // The kernel lets packets pass some time after a link is set up. An earlier ping would prove nothing.
        let change = |mac: &str| {
            format!(
                "ip link set {interface} down; ip link set {interface} address {mac}; ip link set {interface} up; \
                 until ip -o link show {interface} | grep -q 'state UP'; do sleep .01; done"
            )
        };
        let own =
            node.sh_in(self.container, &format!("ip -o link show dev {interface} | sed 's/.*ether //; s/ .*//'"))?;
        node.sh_in(self.container, &change("02:00:00:00:00:99"))?;
        ensure!(node.sh_in(self.container, &ping).is_err(), "{} sends under another address", of());
        node.sh_in(self.container, &change(own.trim())).map(drop)
    }
}

/// Returns the numbers of spoofing protection rules and records.
fn left(node: &Node) -> Result<(usize, usize)> {
    let count = |script: &str| -> Result<usize> { Ok(node.sh(script)?.trim().parse()?) };
    Ok((
        count("nft list ruleset | grep -c macspoofchk || true")?,
        count("if [ -d /run/postern/attachments ]; then ls /run/postern/attachments; fi | wc -l")?,
    ))
}

#[test]
fn guards_whose_names_run_together() -> Result<()> {
    for [first, second] in [
        [(("c1", "eth0"), "c1"), (("c1", "eth0-mac"), "c1")],
        [(("c1", "eth0-mac"), "c1"), (("c1", "eth0"), "c1")],
        [(("a-b", "c"), "c1"), (("a", "b-c"), "c2")],
    ] {
        for the_first_goes_first in [true, false] {
            let node = Node::new()?;
            ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
            let network = network(&node, &json!({}))?;
            let collect =
                |valid: Value| network.call_at(0, "GC", "", &json!({"cni.dev/valid-attachments": valid}))?.success();

            let earlier = Named::new(&network, first.0, first.1).add()?;
            let native = format!("cni-br-iface-{}-{}", earlier.id, earlier.interface);
            ensure!(node.sh("nft list table bridge nat")?.contains(&format!("jump {native} ")), "no native name");
            let later = Named::new(&network, second.0, second.1).add()?;
            for (one, other) in [(&earlier, &later), (&later, &earlier)] {
                // For two interfaces in one network, the other interface's rules could hide missing rules. So the other
                // link is down.
                let set_other = |state: &str| match one.container == other.container {
                    true => node.sh_in(one.container, &format!("ip link set {} {state}", other.interface)).map(drop),
                    false => Ok(()),
                };
                set_other("down")?;
                // The network's GC keeps both attachments.
                let valid = |of: &Named| json!({"containerID": of.id, "ifname": of.interface});
                collect(json!([valid(&earlier), valid(&later)]))?;
                one.is_guarded()?;
                set_other("up")?;
            }
            let doctor = node.postern("doctor --json")?.stdout;
            ensure!(!doctor.contains("without a record"), "{doctor}");

            let (goes, stays) = if the_first_goes_first { (earlier, later) } else { (later, earlier) };
            goes.call("DEL")?.success()?;
            // The removed attachment has no record now. The names of its rules belong to the other attachment.
            goes.call("DEL")?.success()?;
            stays.is_guarded()?;
            collect(json!([]))?;
            ensure!(left(&node)? == (0, 0), "{} {} went first: {:?}", goes.id, goes.interface, left(&node)?);
            ensure!(!node.sh("nft list ruleset")?.contains("cni-br-iface"), "chains are left");
        }
    }
    Ok(())
}

/// A node with two networks for the same container and interface. The native names of both networks' rules are the
/// same.
fn two_networks() -> Result<(Node, [Network; 2])> {
    let node = Node::new()?;
    ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
    let ipam = json!({"ranges": [[{"subnet": "10.8.0.0/24"}]]});
    let other = json!({"name": "other", "bridge": "br8", "isGateway": false, "ipam": ipam});
    let networks = [network(&node, &json!({}))?, network(&node, &other)?];
    Ok((node, networks))
}

#[test]
fn networks_do_not_take_each_others_guards() -> Result<()> {
    let (node, [one, other]) = two_networks()?;
    let of = ("c1", "eth0");
    let first = Named::new(&one, of, "c1").add()?;
    let second = Named::new(&other, of, "c2").add()?;
    first.is_guarded()?;
    second.call("CHECK")?.success()?;
    second.call("DEL")?.success()?;
    first.is_guarded()?;
    first.call("DEL")?.success()?;
    ensure!(left(&node)? == (0, 0), "{:?}", left(&node)?);
    Ok(())
}

/// A write into the record fails. If ADD still succeeds, CHECK finds the guard. The guard follows a new address of the
/// link, and the old address again.
#[test]
fn a_lost_note_loses_no_guard() -> Result<()> {
    let (node, [one, other]) = two_networks()?;
    let of = ("c1", "eth0");
    let first = Named::new(&one, of, "c1").add()?;
    let tuning = Network::new(&node, &json!({"name": "other", "type": "tuning", "mac": "02:00:00:00:00:aa"}))?;
    let mut complained = 0;
    for at in 1..=20 {
        let inject = format!("inject=pwrite64:error=ENOSPC:when={at}");
        let strace = ["strace", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e", &inject].map(str::to_owned);
        let mut second = Named::new(&other, of, "c2");
        let answer = node.call_under(&strace, &second.request("ADD")?)?;
        let failed = || format!("pwrite64 {at} failed: {}", answer.stderr);
        if answer.status == 0 {
            complained += usize::from(!answer.stderr.is_empty());
            second.previous = json!({"prevResult": answer.success()?});
            second.call("CHECK")?.success().with_context(failed)?;
            let tuned = Named { previous: second.previous.clone(), ..Named::new(&tuning, of, "c2") };
            for verb in ["ADD", "DEL"] {
                tuned.call(verb)?.success().with_context(failed).with_context(|| format!("{verb} of tuning"))?;
            }
        }
        second.call("DEL")?.success().with_context(failed)?;
        first.call("CHECK")?.success().with_context(failed)?;
    }
    ensure!(complained > 0, "no ADD continued after a failed note");
    first.call("DEL")?.success()?;
    ensure!(left(&node)? == (0, 0), "{:?}", left(&node)?);
    Ok(())
}

/// An impossible effect is refused before it is noted. The error names a remedy, and nothing is left.
#[test]
fn names_that_no_rules_can_have() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let long = "c".repeat(240);
    let iptables = json!({"macspoofchk": false, "ipMasq": true, "ipMasqBackend": "iptables"});
    for (patch, words) in [
        (json!({}), "shorter container ID, or a network without"),
        (iptables, "set \\\"ipMasqBackend\\\" to \\\"nftables\\\""),
    ] {
        let named = Named::new(&network(&node, &patch)?, (&long, "eth0"), "c1");
        let answer = named.call("ADD")?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{answer:?}");
        ensure!(left(&node)? == (0, 0), "{:?}: {}", left(&node)?, answer.stderr);
        ensure!(!answer.stderr.contains("could not undo"), "{}", answer.stderr);
        named.call("DEL")?.success()?;
    }
    Ok(())
}

/// An earlier version's record with an impossible effect does not block DEL or GC.
#[test]
fn records_of_what_cannot_exist() -> Result<()> {
    let long = "c".repeat(240);
    let lines = [
        r#"{"seq":90,"plugin":"bridge","effect":{"effect":"mac-guard"}}"#,
        r#"{"seq":91,"plugin":"bridge","effect":{"effect":"masquerade","backend":"iptables","addresses":["10.9.0.2/24"]}}"#,
        r#"{"seq":92,"plugin":"bridge","effect":{"effect":"lease","directory":"/nowhere/at/all"}}"#,
        r#"{"seq":93,"plugin":"bridge","effect":{"effect":"lease","directory":"relative\u0000"}}"#,
        r#"{"seq":94,"plugin":"bridge","effect":{"effect":"veth","host":"a name that no link can have","mac":"02:00:00:00:00:01"}}"#,
        r#"{"seq":95,"plugin":"bridge","effect":{"effect":"native","plugin":"../no/plain/name"}}"#,
    ];
    for line in lines {
        for way in ["DEL", "GC", "gc"] {
            let node = Node::new()?;
            node.add_container("c1")?;
            let network = network(&node, &json!({"macspoofchk": false}))?;
            let named = Named::new(&network, (&long, "eth0"), "c1");
            named.call("ADD")?.success()?;
            let note = |line: &str| node.sh(&format!("cat >> $(ls /run/postern/attachments/*) <<'END'\n{line}\nEND"));
            note(line)?;
            match way {
                "DEL" => named.call("DEL")?.success().map(drop),
                "GC" => {
                    let none = json!({"cni.dev/valid-attachments": []});
                    network.call_at(0, "GC", "", &none)?.success().map(drop)
                }
                _ => {
                    // For a killed run, `postern gc` needs no proof that the container is gone.
                    note(r#"{"plugin":"bridge","ending":true}"#)?;
                    node.postern("gc --yes")?.printed().map(drop)
                }
            }
            .with_context(|| format!("{way} with {line}"))?;
            let records = node.sh("tail -n 99 /run/postern/attachments/* || true")?;
            ensure!(left(&node)? == (0, 0), "{way} with {line}: {:?}\n{records}", left(&node)?);
        }
    }
    Ok(())
}
