//! Names that are made of two others: attachments whose rules would have the same name, and names that no rules can
//! have.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Call, Node, merge, plugin_bin};
use serde_json::{Value, json};

fn config(patch: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true, "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    merge(&mut config, patch);
    config
}

fn call(node: &Node, verb: &str, of: (&str, &str), netns: &str, config: &Value) -> Result<Answer> {
    call_under(node, &[], "bridge", verb, of, netns, config)
}

fn call_under(
    node: &Node,
    wrapper: &[String],
    plugin: &str,
    verb: &str,
    of: (&str, &str),
    netns: &str,
    config: &Value,
) -> Result<Answer> {
    let call = Call::new(&plugin_bin()?, plugin, verb, config.to_string());
    node.call_under(wrapper, &call.attachment(of.0, &node.netns(netns), of.1))
}

fn add(node: &Node, of: (&str, &str), netns: &str, config: &Value) -> Result<Value> {
    let result = call(node, "ADD", of, netns, config)?.success()?;
    let mut config = config.clone();
    merge(&mut config, &json!({"prevResult": result}));
    Ok(config)
}

/// Checks the protection: by CHECK, and by frames with another address.
fn is_guarded(node: &Node, of: (&str, &str), netns: &str, config: &Value) -> Result<()> {
    call(node, "CHECK", of, netns, config)?.success().with_context(|| format!("{of:?}"))?;
    let ping = format!("busybox ping -c1 -W1 -I {} 10.9.0.1", of.1);
    let ping_for_some_time = format!("for i in 1 2 3 4 5; do {ping} && exit; done; exit 1");
    node.sh_in(netns, &ping_for_some_time).with_context(|| format!("{of:?} does not reach the gateway"))?;
    // The kernel lets packets pass some time after a link was set up. A ping before that would prove nothing.
    let change = |mac: &str| {
        format!(
            "ip link set {0} down; ip link set {0} address {mac}; ip link set {0} up; \
             until ip -o link show {0} | grep -q 'state UP'; do sleep .01; done",
            of.1
        )
    };
    let own = node.sh_in(netns, &format!("ip -o link show dev {} | sed 's/.*ether //; s/ .*//'", of.1))?;
    node.sh_in(netns, &change("02:00:00:00:00:99"))?;
    ensure!(node.sh_in(netns, &ping).is_err(), "{of:?} sends under another address");
    node.sh_in(netns, &change(own.trim())).map(drop)
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
    let config = config(&json!({}));
    for [first, second] in [
        [(("c1", "eth0"), "c1"), (("c1", "eth0-mac"), "c1")],
        [(("c1", "eth0-mac"), "c1"), (("c1", "eth0"), "c1")],
        [(("a-b", "c"), "c1"), (("a", "b-c"), "c2")],
    ] {
        for the_first_goes_first in [true, false] {
            let node = Node::new()?;
            ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
            // The network's GC, which keeps both.
            let attachment = |of: (&str, &str)| json!({"containerID": of.0, "ifname": of.1});
            let mut gc = config.clone();
            merge(&mut gc, &json!({"cni.dev/valid-attachments": [attachment(first.0), attachment(second.0)]}));

            let earlier = add(&node, first.0, first.1, &config)?;
            let native = format!("cni-br-iface-{}-{}", first.0.0, first.0.1);
            ensure!(node.sh("nft list table bridge nat")?.contains(&format!("jump {native} ")), "no native name");
            let later = add(&node, second.0, second.1, &config)?;
            let both = [(first, &earlier), (second, &later)];
            for ((of, netns), config) in both {
                // Two interfaces in one network: the other one's rules would pass for this one's.
                let others = if first.1 == second.1 { [first.0.1, second.0.1] } else { [of.1, of.1] };
                let other = others.into_iter().find(|name| *name != of.1);
                if let Some(other) = other {
                    node.sh_in(netns, &format!("ip link set {other} down"))?;
                }
                call(&node, "GC", ("", ""), netns, &gc)?.success()?;
                is_guarded(&node, of, netns, config)?;
                if let Some(other) = other {
                    node.sh_in(netns, &format!("ip link set {other} up"))?;
                }
            }
            let doctor = node.sh(&format!("{}/postern doctor --json || true", plugin_bin()?.display()))?;
            ensure!(!doctor.contains("without a record"), "{doctor}");

            let [goes, stays] = if the_first_goes_first { [0, 1] } else { [1, 0] };
            let (((gone, gone_netns), gone_config), ((of, netns), config)) = (both[goes], both[stays]);
            call(&node, "DEL", gone, gone_netns, gone_config)?.success()?;
            // Now without a record: its names belong to the other one.
            call(&node, "DEL", gone, gone_netns, gone_config)?.success()?;
            is_guarded(&node, of, netns, config)?;
            merge(&mut gc, &json!({"cni.dev/valid-attachments": []}));
            call(&node, "GC", ("", ""), netns, &gc)?.success()?;
            ensure!(left(&node)? == (0, 0), "{gone:?} went first: {:?}", left(&node)?);
            ensure!(!node.sh("nft list ruleset")?.contains("cni-br-iface"), "chains are left");
        }
    }
    Ok(())
}

/// A node for the same container and interface in two networks, whose configurations follow: the native names of their
/// rules are the same.
fn two_networks() -> Result<(Node, [Value; 2])> {
    let node = Node::new()?;
    ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
    let other = config(
        &json!({"name": "other", "bridge": "br8", "isGateway": false, "ipam": {"ranges": [[{"subnet": "10.8.0.0/24"}]]}}),
    );
    Ok((node, [config(&json!({})), other]))
}

#[test]
fn networks_do_not_take_each_others_guards() -> Result<()> {
    let (node, [one, other]) = two_networks()?;
    let of = ("c1", "eth0");
    let first = add(&node, of, "c1", &one)?;
    let second = add(&node, of, "c2", &other)?;
    is_guarded(&node, of, "c1", &first)?;
    call(&node, "CHECK", of, "c2", &second)?.success()?;
    call(&node, "DEL", of, "c2", &second)?.success()?;
    is_guarded(&node, of, "c1", &first)?;
    call(&node, "DEL", of, "c1", &first)?.success()?;
    ensure!(left(&node)? == (0, 0), "{:?}", left(&node)?);
    Ok(())
}

/// A note in the record fails: an ADD that succeeds nevertheless has a guard that CHECK finds, and that follows to another
/// address of the link, and back.
#[test]
fn a_lost_note_loses_no_guard() -> Result<()> {
    let (node, [one, other]) = two_networks()?;
    let of = ("c1", "eth0");
    let first = add(&node, of, "c1", &one)?;
    let mut complained = 0;
    for at in 1..=20 {
        let inject = format!("inject=pwrite64:error=ENOSPC:when={at}");
        let strace = ["strace", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e", &inject].map(str::to_owned);
        let answer = call_under(&node, &strace, "bridge", "ADD", of, "c2", &other)?;
        let failed = || format!("pwrite64 {at} failed: {}", answer.stderr);
        let mut second = other.clone();
        if answer.status == 0 {
            complained += usize::from(!answer.stderr.is_empty());
            let result = answer.success()?;
            merge(&mut second, &json!({"prevResult": result}));
            call(&node, "CHECK", of, "c2", &second)?.success().with_context(failed)?;
            let mac = "02:00:00:00:00:aa";
            let tuned =
                json!({"cniVersion": "1.1.0", "name": "other", "type": "tuning", "mac": mac, "prevResult": result});
            for verb in ["ADD", "DEL"] {
                let answer = call_under(&node, &[], "tuning", verb, of, "c2", &tuned)?;
                answer.success().with_context(failed).with_context(|| format!("{verb} of tuning"))?;
            }
        }
        call(&node, "DEL", of, "c2", &second)?.success().with_context(failed)?;
        call(&node, "CHECK", of, "c1", &first)?.success().with_context(failed)?;
    }
    ensure!(complained > 0, "no ADD went on after a note that failed");
    call(&node, "DEL", of, "c1", &first)?.success()?;
    ensure!(left(&node)? == (0, 0), "{:?}", left(&node)?);
    Ok(())
}

/// An effect that can't be made is refused before it is noted, with the way out, and nothing is left of it.
#[test]
fn names_that_no_rules_can_have() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let long = "c".repeat(240);
    let of = (long.as_str(), "eth0");
    let iptables = json!({"macspoofchk": false, "ipMasq": true, "ipMasqBackend": "iptables"});
    for (patch, words) in [
        (json!({}), "shorter container ID, or a network without"),
        (iptables.clone(), "set \\\"ipMasqBackend\\\" to \\\"nftables\\\""),
    ] {
        let config = config(&patch);
        let answer = call(&node, "ADD", of, "c1", &config)?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{answer:?}");
        ensure!(left(&node)? == (0, 0), "{:?}: {}", left(&node)?, answer.stderr);
        ensure!(!answer.stderr.contains("could not undo"), "{}", answer.stderr);
        call(&node, "DEL", of, "c1", &config)?.success()?;
    }
    Ok(())
}

/// A record of an earlier version that has such an effect is no obstacle.
#[test]
fn records_of_what_cannot_exist() -> Result<()> {
    let long = "c".repeat(240);
    let of = (long.as_str(), "eth0");
    let plain = config(&json!({"macspoofchk": false}));
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
            call(&node, "ADD", of, "c1", &plain)?.success()?;
            node.sh(&format!("cat >> $(ls /run/postern/attachments/*) <<'END'\n{line}\nEND"))?;
            match way {
                "DEL" => call(&node, "DEL", of, "c1", &plain)?.success().map(drop),
                "GC" => {
                    let mut gc = plain.clone();
                    merge(&mut gc, &json!({"cni.dev/valid-attachments": []}));
                    call(&node, "GC", ("", ""), "c1", &gc)?.success().map(drop)
                }
                _ => {
                    // For a killed run no proof is needed that its container is gone.
                    node.sh(&format!(
                        "echo '{{\"plugin\":\"bridge\",\"ending\":true}}' >> $(ls /run/postern/attachments/*)
                         {}/postern gc --yes",
                        plugin_bin()?.display()
                    ))
                    .map(drop)
                }
            }
            .with_context(|| format!("{way} with {line}"))?;
            let records = node.sh("tail -n 99 /run/postern/attachments/* || true")?;
            ensure!(left(&node)? == (0, 0), "{way} with {line}: {:?}\n{records}", left(&node)?);
        }
    }
    Ok(())
}
