//! Native IPAM programs, if policy lets them run, and a DEL that has only the record.

use anyhow::{Result, ensure};
use postern_tests::kernel::{self, NO_TAPS};
use postern_tests::proof::Refusal;
use postern_tests::{Names, Network, Node, compare, copy_bin, merge, plugin_bin, skip_part};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// A separate CNI bin directory of the node: a copy, so that its policies can be changed.
const BIN: &str = "/run/cni-bin";

/// A native IPAM program that writes down its input, and fails on request.
const SCRIPT: &str = r#"#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID" >> /run/script-ipam.log
cat > /run/script-ipam.stdin
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.42/24","gateway":"10.9.0.1"}]}' ;;
esac
"#;

/// Makes a node with a container, and its network.
fn network(patch: &Value) -> Result<Network> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(&format!(
        "{}; cat > {BIN}/script-ipam <<'END'\n{SCRIPT}\nEND\nchmod +x {BIN}/script-ipam; : > /run/script-ipam.log",
        copy_bin(&plugin_bin()?, BIN)
    ))?;
    let config = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    Ok(Network::new(&node, &config)?.by(Path::new(BIN)).with(patch))
}

fn allow_native(net: &Network) -> Result<String> {
    net.node
        .sh(&format!("sed -i 's/^native = \\[\\]/native = [\"${{config.ipam.type}}\"]/' {BIN}/postern.d/bridge.toml"))
}

/// Returns the attachments' own objects on the node.
fn left(net: &Network) -> Result<String> {
    net.node.sh("ip -o link | grep -o 'veth[0-9a-f]*' || true
         nft list ruleset | grep -E 'iifname|saddr' || true
         ls /run/postern/attachments 2>/dev/null || true
         find /var/lib/cni/networks -name '10.*' 2>/dev/null || true")
}

fn script(patch: Value) -> Value {
    let mut config = json!({"ipam": {"type": "script-ipam", "ranges": null}});
    merge(&mut config, &patch);
    config
}

#[test]
fn a_native_program_runs_only_where_policy_says_so() -> Result<()> {
    let net = network(&script(json!({})))?;
    let before = net.node.snapshot(&["c1"], &mut Names::new(""))?;
    let refused = net.call("ADD", "c1")?;
    ensure!(refused.status == 1, "{refused:?}");
    let text = &refused.stdout;
    ensure!(text.contains("\"code\": 110") && text.contains("native = [\\\"script-ipam\\\"]"), "{text}");
    ensure!(net.node.sh("cat /run/script-ipam.log")?.is_empty(), "the program ran");
    net.node.sh("ip link del br9; rm -rf /run/script-ipam*; ls /run/postern/attachments")?;
    net.node.sh(": > /run/script-ipam.log")?;
    let after = net.node.snapshot(&["c1"], &mut Names::new(""))?;
    let rest = compare(&before, &after);
    ensure!(
        rest.iter().all(|mismatch| mismatch.path.contains("forwarding") || mismatch.path.contains("ip_forward")),
        "{rest:?}"
    );
    Ok(())
}

#[test]
fn a_native_program_gets_the_attachment_unchanged() -> Result<()> {
    // A runtime's conventional arguments are for plugins that understand them. No plugin of this network understands
    // them.
    let net = network(&script(json!({
        "labels": {"a": "b"},
        "args": {"cni": {"labels": [{"key": "app", "value": "a"}], "other": 1}},
        "runtimeConfig": {"dns": {"servers": ["10.0.0.53"], "searches": ["a.b"], "options": ["ndots:5"]}},
    })))?;
    allow_native(&net)?;
    let attachment = net.add("c1")?;
    ensure!(attachment.addresses() == ["10.9.0.42/24"], "{attachment:?}");
    let stdin: Value = serde_json::from_str(&net.node.sh("cat /run/script-ipam.stdin")?)?;
    ensure!(stdin == net.config(0, &json!({}))?, "{stdin}");
    net.attachment("c1").del()?;
    ensure!(
        net.node.sh("cat /run/script-ipam.log")? == "ADD c1\nDEL c1\n",
        "{}",
        net.node.sh("cat /run/script-ipam.log")?
    );
    ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    Ok(())
}

#[test]
fn what_a_native_program_did_is_undone_by_it() -> Result<()> {
    // The route's next hop can't be reached: ADD fails after IPAM and the pair.
    let net = network(&script(json!({})))?;
    allow_native(&net)?;
    net.node.sh(&format!("sed -i 's/\"gateway\"/\"gw\"/; s/\\]}}/],\"routes\":[{{\"dst\":\"10.7.0.0\\/16\",\"gw\":\"10.5.0.1\"}}]}}/' {BIN}/script-ipam"))?;
    let answer = net.call("ADD", "c1")?;
    ensure!(answer.status == 1, "{answer:?}");
    ensure!(
        net.node.sh("cat /run/script-ipam.log")? == "ADD c1\nDEL c1\n",
        "{}",
        net.node.sh("cat /run/script-ipam.log")?
    );
    ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    Ok(())
}

/// The native library has an error text for each of these failures. No message repeats the error object as text.
#[test]
fn a_native_program_that_fails_without_json_is_quoted_once() -> Result<()> {
    let net = network(&script(json!({})))?;
    allow_native(&net)?;
    for (body, words) in [
        ("exit 3", "netplugin failed with no error message: exit status 3"),
        ("echo out of addresses >&2; exit 1", "netplugin failed: \"out of addresses"),
        ("echo no JSON; exit 1", "netplugin failed but error parsing its diagnostic message"),
        (r#"echo '{"msg": "no address is left"}'; exit 1"#, "no address is left"),
    ] {
        net.node.sh(&format!(
            "printf '%s\\n' '#!/bin/sh' 'cat > /dev/null' '{}' > {BIN}/script-ipam",
            body.replace('\'', "'\\''")
        ))?;
        let answer = net.call("ADD", "c1")?;
        let refusal = Refusal::of(&answer)?;
        ensure!(refusal.code == 999 && refusal.text.starts_with(words), "{body}: {answer:?}");
        ensure!(!refusal.text.contains("\"code\"") && !refusal.text.contains("CNI error object"), "{body}: {answer:?}");
    }
    Ok(())
}

/// No message advises to let a native program of the plugin's name run with all of the host's privileges.
#[test]
fn a_plugin_whose_code_is_gone_is_no_native_program() -> Result<()> {
    let net = network(&json!({}))?;
    let result = net.add("c1")?.result;
    net.node.sh(&format!(
        "rm {BIN}/postern.d/host-local.cwasm; mkdir /run/native; cp {BIN}/script-ipam /run/native/host-local; ip netns add c2"
    ))?;
    let path = format!("/run/native:{BIN}");
    let call = |verb: &str, container: &str, patch: &Value| {
        net.node.call(&net.request(0, verb, container, patch)?.env("CNI_PATH", &path))
    };
    let refusal = Refusal::of(&call("ADD", "c2", &json!({}))?)?;
    refusal.expect(999, "plugin \"host-local\" is installed, but its code is gone…postern add")?;
    ensure!(!refusal.text.contains("native"), "{}", refusal.text);
    call("DEL", "c1", &json!({"prevResult": result}))?.success()?;
    ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    ensure!(net.node.sh("cat /run/script-ipam.log")?.is_empty(), "the program ran");
    Ok(())
}

/// Attaches with all effects on the host. Then `lose` removes or changes data that DEL usually reads.
fn removed_by_record(lose: &str, netns: Option<&str>, del: &Value) -> Result<()> {
    let net = network(&json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}))?;
    let previous = json!({"prevResult": net.add("c1")?.result});
    ensure!(left(&net)?.lines().count() >= 5, "{}", left(&net)?);
    net.node.sh(lose)?;
    let path = netns.map_or_else(|| net.node.netns("c1"), str::to_owned);
    let patch = if del.is_null() { &previous } else { del };
    let del = net.request(0, "DEL", "c1", patch)?.attachment("c1", &path, "eth0");
    let answer = net.node.call(&del)?;
    ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
    ensure!(left(&net)?.is_empty(), "left after DEL: {}", left(&net)?);
    // The audit log also has lines for removals that the host itself makes.
    let noted = net.node.sh("grep -c '\"operation\":\"record.remove\"' /var/log/postern/audit.jsonl || true")?;
    ensure!(noted.trim() != "0", "the log has no line for the removals");
    // Runtimes may repeat a DEL.
    net.node.call(&del)?.success()?;
    ensure!(left(&net)?.is_empty(), "left after the second DEL: {}", left(&net)?);
    Ok(())
}

#[test]
fn del_with_a_changed_configuration() -> Result<()> {
    removed_by_record(
        ":",
        None,
        &json!({"ipMasq": false, "macspoofchk": false, "bridge": "br8", "ipam": {"type": null}}),
    )
}

#[test]
fn del_without_a_namespace() -> Result<()> {
    removed_by_record(":", Some(""), &json!({"ipam": {"type": null}}))
}

#[test]
fn del_with_a_namespace_that_is_gone() -> Result<()> {
    removed_by_record(":", Some("/run/netns/gone"), &Value::Null)
}

#[test]
fn del_when_the_path_leads_to_another_namespace_now() -> Result<()> {
    removed_by_record(
        "ip netns add other; ip -n other link add eth0 type veth peer name keep",
        Some("/run/netns/other"),
        &json!({}),
    )
}

#[test]
fn del_when_the_container_has_hidden_its_link() -> Result<()> {
    removed_by_record(
        "ip -n c1 link set eth0 down; ip -n c1 link set eth0 name real; ip -n c1 link set real up
         ip -n c1 link add eth0 type veth peer name decoy",
        None,
        &json!({}),
    )
}

#[test]
fn del_without_the_plugin() -> Result<()> {
    removed_by_record(&format!("rm {BIN}/postern.d/*"), None, &json!({}))
}

#[test]
fn del_without_policy_and_ipam() -> Result<()> {
    removed_by_record(&format!("rm {BIN}/postern.d/bridge.toml {BIN}/postern.d/host-local.*"), None, &json!({}))
}

/// `postern gc` runs the program with the operator's configuration, from the directories that the operator names. A
/// forged record must not choose the configuration or the program.
#[test]
fn people_collect_what_a_native_program_gave() -> Result<()> {
    let net = network(&script(json!({"ipMasq": true, "ipMasqBackend": "nftables"})))?;
    allow_native(&net)?;
    net.add("c1")?;
    net.node.remove_container("c1")?;
    let rules = || net.node.sh("nft list ruleset | grep -c 'net: net,' || true");
    ensure!(rules()? == "1\n", "{}", rules()?);
    let record = net.node.sh("cat /run/postern/attachments/*")?;
    ensure!(record.contains("\"plugin\":\"script-ipam\"") && !record.contains(BIN), "{record}");
    let gc = |more: &str| net.node.sh(&format!("{BIN}/postern gc --yes --cni-path {BIN} {more} 2>&1 || true"));
    net.node.sh("mkdir /run/none /run/net.d; : > /run/script-ipam.log")?;
    let refused = gc("--conf-dir /run/none")?;
    ensure!(refused.contains("the configuration of network \"net\" is missing"), "{refused}");
    ensure!(net.node.sh("cat /run/script-ipam.log")?.is_empty(), "the program ran");
    ensure!(rules()? == "0\n", "rules stay because the IPAM program can't run");
    ensure!(net.node.sh("ls /run/postern/attachments")?.lines().count() == 1, "the record is gone");
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [net.config(0, &json!({}))?]});
    std::fs::write(net.node.path("/run/net.d/10-net.conflist"), list.to_string())?;
    let removed = gc("--conf-dir /run/net.d")?;
    ensure!(removed.contains("removed 1 of 1"), "{removed}");
    ensure!(net.node.sh("cat /run/script-ipam.log")? == "DEL c1\n", "{}", net.node.sh("cat /run/script-ipam.log")?);
    let given: Value = serde_json::from_str(&net.node.sh("cat /run/script-ipam.stdin")?)?;
    ensure!(given.get("bridge") == Some(&json!("br9")) && given.get("name") == Some(&json!("net")), "{given}");
    ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    Ok(())
}

/// The run holds only the lock of its attachment's record. Other attachments come and go on the same bridge, and a
/// collection skips this attachment. When the run is killed, its program is killed too, and DEL need not wait.
#[test]
fn a_stuck_program_blocks_nobody_else() -> Result<()> {
    let net = network(&script(json!({"cniVersion": "1.1.0"})))?;
    allow_native(&net)?;
    net.node.sh(&format!("sed -i 's/^ADD) /ADD) exec sleep 60; /' {BIN}/script-ipam"))?;
    let mut stuck = net.node.start(&net.request(0, "ADD", "c1", &json!({}))?)?;
    net.node.sh("for i in $(seq 200); do grep -q ADD /run/script-ipam.log && exit; sleep .05; done; exit 1")?;
    net.node.add_container("c2")?;
    let other = net.clone().with(&json!({"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}}));
    let begun = Instant::now();
    other.add("c2")?;
    let valid = json!({"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]});
    other.call_at(0, "GC", "", &valid)?.success()?;
    other.attachment("c2").del()?;
    ensure!(begun.elapsed() < Duration::from_secs(30), "others waited for the stuck program: {:?}", begun.elapsed());
    ensure!(stuck.try_wait()?.is_none(), "the program is not stuck");
    ensure!(left(&net)?.contains("veth"), "the collection removed the pair of the unfinished ADD: {}", left(&net)?);
    stuck.kill()?;
    stuck.wait()?;
    let begun = Instant::now();
    net.attachment("c1").del()?;
    ensure!(begun.elapsed() < Duration::from_secs(30), "DEL waited for a dead program: {:?}", begun.elapsed());
    ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    Ok(())
}

/// Makes the program write down the number of pairs on the host when the program releases an address.
const PAIRS: &str = "sed -i 's/^case/[ $CNI_COMMAND = DEL ] \\&\\& ip -o link | grep -c veth >> \\/run\\/pairs.log\\ncase/' /run/cni-bin/script-ipam";

/// The program's DEL releases an address. The host runs this DEL last, both by the record and to undo an ADD.
#[test]
fn a_native_program_gives_back_when_the_pair_is_gone() -> Result<()> {
    for operations in [0, 5] {
        let net = network(&script(json!({"ipMasq": true, "ipMasqBackend": "nftables"})))?;
        allow_native(&net)?;
        net.node.sh(PAIRS)?;
        let limit = format!("printf '\\n[limits]\\noperations = {operations}\\n' >> {BIN}/postern.d/bridge.toml");
        if operations == 0 {
            net.add("c1")?;
            net.node.sh(&limit)?;
            net.attachment("c1").del()?;
        } else {
            // The operation after `ipam.add` is refused.
            net.node.sh(&limit)?;
            let answer = net.call("ADD", "c1")?;
            ensure!(answer.status == 1, "{answer:?}");
        }
        let log = net.node.sh("cat /run/script-ipam.log")?;
        ensure!(log == "ADD c1\nDEL c1\n", "{log}");
        let pairs = net.node.sh("cat /run/pairs.log")?;
        ensure!(pairs == "0\n", "operations {operations}: pairs at DEL: {pairs}");
        ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    }
    Ok(())
}

/// Makes a network with a program that hangs while `/run/hang` exists. If the program is killed, the programs that it
/// started remain. The argument of these programs distinguishes them from other tests' programs, because all tests see
/// the same processes.
fn hanging(seconds: u32) -> Result<Network> {
    let mark = mark(seconds);
    let net = network(&script(json!({"cniVersion": "1.1.0"})))?;
    allow_native(&net)?;
    net.node.sh(&format!(
        "sed -i 's/^case/[ -e \\/run\\/hang ] \\&\\& {{ sleep {mark}; sleep 1; }}\\ncase/' {BIN}/script-ipam"
    ))?;
    net.node.sh(&format!("printf '\\n[limits]\\nseconds = {seconds}\\n' >> {BIN}/postern.d/bridge.toml"))?;
    Ok(net)
}

fn sleeping(net: &Network, seconds: u32) -> Result<String> {
    let mark = mark(seconds);
    net.node.sh(&format!(
        "for at in /proc/[0-9]*; do tr '\\0' ' ' < $at/cmdline 2> /dev/null | grep -x 'sleep {mark} ' || true; done"
    ))
}

/// Returns the time for which the programs of a test sleep.
fn mark(seconds: u32) -> String {
    format!("1234.{seconds}{}", std::process::id())
}

/// A run has one deadline for everything, including undoing. Nothing continues after the deadline.
#[test]
fn a_program_that_hangs_takes_no_longer_than_the_limit() -> Result<()> {
    let net = hanging(4)?;
    let timed = |verb: &str, patch: &Value| -> Result<()> {
        net.node.sh("touch /run/hang")?;
        let begun = Instant::now();
        let answer = net.call_at(0, verb, "c1", patch)?;
        let took = begun.elapsed();
        println!("{verb}: {:.2} s, {}", took.as_secs_f32(), answer.stdout.replace('\n', " "));
        ensure!(answer.status == 1 && answer.stdout.contains("\"msg\""), "{verb}: {answer:?}");
        ensure!(took < Duration::from_millis(5500), "{verb} took {took:?}");
        let sleeping = sleeping(&net, 4)?;
        ensure!(sleeping.is_empty(), "{verb} left programs: {sleeping}");
        net.node.sh("rm /run/hang").map(drop)
    };
    timed("ADD", &json!({}))?;
    // The pair is gone, even if the program failed.
    ensure!(!left(&net)?.contains("veth"), "{}", left(&net)?);
    net.attachment("c1").del()?;
    let patch = json!({"prevResult": net.add("c1")?.result, "cni.dev/valid-attachments": []});
    for verb in ["CHECK", "STATUS", "GC", "DEL"] {
        timed(verb, &patch)?;
    }
    net.call_at(0, "DEL", "c1", &patch)?.success()?;
    ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    Ok(())
}

/// A runtime that kills the run also kills the run's programs and all their descendants. No process holds the record's
/// lock.
#[test]
fn programs_of_a_killed_run_hold_no_lock() -> Result<()> {
    let net = hanging(60)?;
    net.node.sh("touch /run/hang")?;
    let begun = Instant::now();
    let mut stuck = net.node.start(&net.request(0, "ADD", "c1", &json!({}))?)?;
    while sleeping(&net, 60)?.is_empty() {
        ensure!(begun.elapsed() < Duration::from_secs(20), "the program did not hang");
    }
    stuck.kill()?;
    stuck.wait()?;
    net.node.sh("rm /run/hang")?;
    let begun = Instant::now();
    net.attachment("c1").del()?;
    ensure!(begun.elapsed() < Duration::from_secs(20), "DEL waited: {:?}", begun.elapsed());
    ensure!(sleeping(&net, 60)?.is_empty(), "the program still runs: {}", sleeping(&net, 60)?);
    ensure!(left(&net)?.is_empty(), "{}", left(&net)?);
    Ok(())
}

/// An address to which forwards of another record lead is refused, from a native program and from static. The native
/// program takes the address back.
#[test]
fn no_plugin_gives_an_address_that_forwards_lead_to() -> Result<()> {
    let net = network(&script(json!({})))?;
    allow_native(&net)?;
    net.node.add_container("c0")?;
    let ranges = json!([[{"subnet": "10.9.0.0/24"}]]);
    let first = net.config(
        0,
        &json!({"ipam": {"type": "host-local", "ranges": ranges}, "args": {"cni": {"ips": ["10.9.0.42"]}}}),
    )?;
    let forwards = json!({"type": "portmap", "backend": "nftables",
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}});
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [first, forwards]});
    Network::new(&net.node, &list)?.by(Path::new(BIN)).add("c0")?;
    net.node.remove_container("c0")?;
    net.node.sh("rm -r /var/lib/cni")?;
    let before = left(&net)?;
    let addresses = json!([{"address": "10.9.0.42/24"}]);
    let fixed = net.clone().with(&json!({"ipam": {"type": "static", "addresses": addresses}}));
    for (other, name) in [(&net, "script-ipam"), (&fixed, "static")] {
        let refused = other.call("ADD", "c1")?;
        for words in [
            format!("IPAM plugin \\\"{name}\\\" gave 10.9.0.42, and rules of this node lead to this address"),
            "attachment net/c0/eth0 has forwards to 10.9.0.42, by its record".to_owned(),
            "postern gc".to_owned(),
        ] {
            ensure!(refused.status == 1 && refused.stdout.contains(&words), "{name}: {words}: {refused:?}");
        }
        ensure!(left(&net)? == before, "{name}: left: {}", left(&net)?);
    }
    if kernel::has("tap")? {
        // A tap in the container has no host end, so the forwards do not reach the address.
        let alone = json!({"cniVersion": "1.0.0", "name": "alone", "type": "tap", "ipam": {"type": "static", "addresses": addresses}});
        let alone = Network::new(&net.node, &alone)?.by(Path::new(BIN));
        let added = alone.call("ADD", "c1")?;
        added.success()?;
        ensure!(added.stderr.contains("attachment net/c0/eth0 has forwards to 10.9.0.42"), "{added:?}");
        alone.attachment("c1").del()?;
        ensure!(left(&net)? == before, "left: {}", left(&net)?);
    } else {
        skip_part("an attachment without a host end", NO_TAPS);
    }
    let called = net.node.sh("cat /run/script-ipam.log")?;
    ensure!(called == "ADD c1\nDEL c1\n", "the program's address was not released: {called}");
    net.node.sh(&format!("{BIN}/postern gc --yes --conf-dir /run/none"))?;
    for net in [&net, &fixed] {
        net.add("c1")?;
        net.attachment("c1").del()?;
    }
    Ok(())
}
