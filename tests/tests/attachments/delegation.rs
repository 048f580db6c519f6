//! Native IPAM programs, if policy lets them run; and a DEL that has only the record.

use anyhow::{Result, ensure};
use postern_tests::kernel::{self, NO_TAPS};
use postern_tests::proof::Refusal;
use postern_tests::{Call, Names, Node, compare, copy_bin, merge, plugin_bin, skip_part};
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

struct Place {
    node: Node,
    config: Value,
}

impl Place {
    fn new(patch: &Value) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(&format!(
            "{}; cat > {BIN}/script-ipam <<'END'\n{SCRIPT}\nEND\nchmod +x {BIN}/script-ipam; : > /run/script-ipam.log",
            copy_bin(&plugin_bin()?, BIN)
        ))?;
        let mut config = json!({
            "cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
        });
        merge(&mut config, patch);
        Ok(Self { node, config })
    }

    fn allow_native(&self) -> Result<String> {
        self.node.sh(&format!(
            "sed -i 's/^native = \\[\\]/native = [\"${{config.ipam.type}}\"]/' {BIN}/postern.d/bridge.toml"
        ))
    }

    fn call(&self, verb: &str, netns: &str, config: &Value) -> Result<postern_tests::Answer> {
        self.node.call(&Call::new(Path::new(BIN), "bridge", verb, config.to_string()).attachment("c1", netns, "eth0"))
    }

    fn add(&self) -> Result<Value> {
        self.call("ADD", &self.node.netns("c1"), &self.config)?.success()
    }

    /// Returns the objects on the node, without those that attachments share.
    fn left(&self) -> Result<String> {
        self.node.sh("ip -o link | grep -o 'veth[0-9a-f]*' || true
             nft list ruleset | grep -E 'iifname|saddr' || true
             ls /run/postern/attachments 2>/dev/null || true
             find /var/lib/cni/networks -name '10.*' 2>/dev/null || true")
    }
}

fn script(patch: Value) -> Value {
    let mut config = json!({"ipam": {"type": "script-ipam", "ranges": null}});
    merge(&mut config, &patch);
    config
}

#[test]
fn a_native_program_runs_only_where_policy_says_so() -> Result<()> {
    let place = Place::new(&script(json!({})))?;
    let before = place.node.snapshot(&["c1"], &mut Names::new(""))?;
    let refused = place.call("ADD", &place.node.netns("c1"), &place.config)?;
    ensure!(refused.status == 1, "{refused:?}");
    let text = &refused.stdout;
    ensure!(text.contains("\"code\": 110") && text.contains("native = [\\\"script-ipam\\\"]"), "{text}");
    ensure!(place.node.sh("cat /run/script-ipam.log")?.is_empty(), "it ran");
    place.node.sh("ip link del br9; rm -rf /run/script-ipam*; ls /run/postern/attachments")?;
    place.node.sh(": > /run/script-ipam.log")?;
    let after = place.node.snapshot(&["c1"], &mut Names::new(""))?;
    let rest = compare(&before, &after);
    ensure!(
        rest.iter().all(|mismatch| mismatch.path.contains("forwarding") || mismatch.path.contains("ip_forward")),
        "{rest:?}"
    );
    Ok(())
}

#[test]
fn a_native_program_gets_the_attachment_unchanged() -> Result<()> {
    // Conventional arguments of a runtime are for plugins that understand them, and none here does.
    let place = Place::new(&script(json!({
        "labels": {"a": "b"},
        "args": {"cni": {"labels": [{"key": "app", "value": "a"}], "other": 1}},
        "runtimeConfig": {"dns": {"servers": ["10.0.0.53"], "searches": ["a.b"], "options": ["ndots:5"]}},
    })))?;
    place.allow_native()?;
    let result = place.add()?;
    ensure!(result.pointer("/ips/0/address").and_then(Value::as_str) == Some("10.9.0.42/24"), "{result}");
    let stdin: Value = serde_json::from_str(&place.node.sh("cat /run/script-ipam.stdin")?)?;
    ensure!(stdin == place.config, "{stdin}");
    let answer = place.call("DEL", &place.node.netns("c1"), &place.config)?;
    answer.success()?;
    ensure!(
        place.node.sh("cat /run/script-ipam.log")? == "ADD c1\nDEL c1\n",
        "{}",
        place.node.sh("cat /run/script-ipam.log")?
    );
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

#[test]
fn what_a_native_program_did_is_undone_by_it() -> Result<()> {
    // The route's next hop can't be reached: ADD fails after IPAM and the pair.
    let place = Place::new(&script(json!({})))?;
    place.allow_native()?;
    place.node.sh(&format!("sed -i 's/\"gateway\"/\"gw\"/; s/\\]}}/],\"routes\":[{{\"dst\":\"10.7.0.0\\/16\",\"gw\":\"10.5.0.1\"}}]}}/' {BIN}/script-ipam"))?;
    let answer = place.call("ADD", &place.node.netns("c1"), &place.config)?;
    ensure!(answer.status == 1, "{answer:?}");
    ensure!(
        place.node.sh("cat /run/script-ipam.log")? == "ADD c1\nDEL c1\n",
        "{}",
        place.node.sh("cat /run/script-ipam.log")?
    );
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// The native library has an error for each of these programs. Nothing quotes it as text once more.
#[test]
fn a_native_program_that_fails_without_json_is_quoted_once() -> Result<()> {
    let place = Place::new(&script(json!({})))?;
    place.allow_native()?;
    for (body, words) in [
        ("exit 3", "netplugin failed with no error message: exit status 3"),
        ("echo out of addresses >&2; exit 1", "netplugin failed: \"out of addresses"),
        ("echo no JSON; exit 1", "netplugin failed but error parsing its diagnostic message"),
        (r#"echo '{"msg": "no address is left"}'; exit 1"#, "no address is left"),
    ] {
        place.node.sh(&format!(
            "printf '%s\\n' '#!/bin/sh' 'cat > /dev/null' '{}' > {BIN}/script-ipam",
            body.replace('\'', "'\\''")
        ))?;
        let answer = place.call("ADD", &place.node.netns("c1"), &place.config)?;
        let refusal = Refusal::of(&answer)?;
        ensure!(refusal.code == 999 && refusal.text.starts_with(words), "{body}: {answer:?}");
        ensure!(!refusal.text.contains("\"code\"") && !refusal.text.contains("CNI error object"), "{body}: {answer:?}");
    }
    Ok(())
}

/// Nobody is told to let a native program of the same name run with all of the host's privileges.
#[test]
fn a_plugin_whose_code_is_gone_is_no_native_program() -> Result<()> {
    let place = Place::new(&json!({}))?;
    let result = place.add()?;
    place.node.sh(&format!(
        "rm {BIN}/postern.d/host-local.cwasm; mkdir /run/native; cp {BIN}/script-ipam /run/native/host-local; ip netns add c2"
    ))?;
    let call = |verb: &str, container: &str| {
        let mut config = place.config.clone();
        if verb != "ADD" {
            merge(&mut config, &json!({"prevResult": result}));
        }
        let call = Call::new(Path::new(BIN), "bridge", verb, config.to_string());
        let path = format!("/run/native:{BIN}");
        place.node.call(&call.attachment(container, &format!("/run/netns/{container}"), "eth0").env("CNI_PATH", &path))
    };
    let refusal = Refusal::of(&call("ADD", "c2")?)?;
    refusal.expect(999, "plugin \"host-local\" is installed, but its code is gone…postern add")?;
    ensure!(!refusal.text.contains("native"), "{}", refusal.text);
    call("DEL", "c1")?.success()?;
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    ensure!(place.node.sh("cat /run/script-ipam.log")?.is_empty(), "it ran");
    Ok(())
}

/// Attaches with all effects on the host, and then removes the usual sources of DEL.
fn removed_by_record(lose: &str, netns: Option<&str>, del: &Value) -> Result<()> {
    let place = Place::new(&json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}))?;
    let result = place.add()?;
    ensure!(place.left()?.lines().count() >= 5, "{}", place.left()?);
    place.node.sh(lose)?;
    let mut config = place.config.clone();
    merge(&mut config, del);
    if del.is_null() {
        config = place.config.clone();
        merge(&mut config, &json!({"prevResult": result}));
    }
    let path = netns.map_or_else(|| place.node.netns("c1"), str::to_owned);
    let answer = place.call("DEL", &path, &config)?;
    ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
    ensure!(place.left()?.is_empty(), "left after DEL: {}", place.left()?);
    // Removals that the host makes itself are in the log too.
    let noted = place.node.sh("grep -c '\"operation\":\"record.remove\"' /var/log/postern/audit.jsonl || true")?;
    ensure!(noted.trim() != "0", "the log has no line for what was removed");
    // And once more, as runtimes do.
    place.call("DEL", &path, &config)?.success()?;
    ensure!(place.left()?.is_empty(), "left after the second DEL: {}", place.left()?);
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
/// forged record must not choose either.
#[test]
fn people_collect_what_a_native_program_gave() -> Result<()> {
    let place = Place::new(&script(json!({"ipMasq": true, "ipMasqBackend": "nftables"})))?;
    place.allow_native()?;
    place.add()?;
    place.node.remove_container("c1")?;
    let rules = || place.node.sh("nft list ruleset | grep -c 'net: net,' || true");
    ensure!(rules()? == "1\n", "{}", rules()?);
    let record = place.node.sh("cat /run/postern/attachments/*")?;
    ensure!(record.contains("\"plugin\":\"script-ipam\"") && !record.contains(BIN), "{record}");
    let gc = |more: &str| place.node.sh(&format!("{BIN}/postern gc --yes --cni-path {BIN} {more} 2>&1 || true"));
    place.node.sh("mkdir /run/none /run/net.d; : > /run/script-ipam.log")?;
    let refused = gc("--conf-dir /run/none")?;
    ensure!(refused.contains("configuration of network \"net\", and there is none"), "{refused}");
    ensure!(place.node.sh("cat /run/script-ipam.log")?.is_empty(), "it ran");
    ensure!(rules()? == "0\n", "what takes no program stays for want of one");
    ensure!(place.node.sh("ls /run/postern/attachments")?.lines().count() == 1, "the record went");
    let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [place.config]});
    std::fs::write(place.node.path("/run/net.d/10-net.conflist"), list.to_string())?;
    let removed = gc("--conf-dir /run/net.d")?;
    ensure!(removed.contains("removed 1 of 1"), "{removed}");
    ensure!(place.node.sh("cat /run/script-ipam.log")? == "DEL c1\n", "{}", place.node.sh("cat /run/script-ipam.log")?);
    let given: Value = serde_json::from_str(&place.node.sh("cat /run/script-ipam.stdin")?)?;
    ensure!(given.get("bridge") == Some(&json!("br9")) && given.get("name") == Some(&json!("net")), "{given}");
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// The only lock held is that of the attachment's own record: other attachments come and go on the same bridge, and a
/// collection skips it. When the run is killed, its program is killed too, and DEL need not wait.
#[test]
fn a_stuck_program_blocks_nobody_else() -> Result<()> {
    let place = Place::new(&script(json!({"cniVersion": "1.1.0"})))?;
    place.allow_native()?;
    place.node.sh(&format!("sed -i 's/^ADD) /ADD) exec sleep 60; /' {BIN}/script-ipam"))?;
    let add = Call::new(Path::new(BIN), "bridge", "ADD", place.config.to_string());
    let mut stuck = place.node.start(&add.attachment("c1", &place.node.netns("c1"), "eth0"))?;
    place.node.sh("for i in $(seq 200); do grep -q ADD /run/script-ipam.log && exit; sleep .05; done; exit 1")?;
    place.node.add_container("c2")?;
    let mut other = place.config.clone();
    merge(&mut other, &json!({"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}}));
    let call = |verb: &str, container: &str, config: &Value| {
        let call = Call::new(Path::new(BIN), "bridge", verb, config.to_string());
        place.node.call(&call.attachment(container, &place.node.netns(container), "eth0"))
    };
    let begun = Instant::now();
    call("ADD", "c2", &other)?.success()?;
    let mut collected = other.clone();
    merge(&mut collected, &json!({"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]}));
    let gc = Call::new(Path::new(BIN), "bridge", "GC", collected.to_string()).attachment("", "", "");
    place.node.call(&gc)?.success()?;
    call("DEL", "c2", &other)?.success()?;
    ensure!(begun.elapsed() < Duration::from_secs(30), "others waited for it: {:?}", begun.elapsed());
    ensure!(stuck.try_wait()?.is_none(), "it was to be stuck");
    ensure!(place.left()?.contains("veth"), "the collection took what is being made: {}", place.left()?);
    stuck.kill()?;
    stuck.wait()?;
    let begun = Instant::now();
    call("DEL", "c1", &place.config)?.success()?;
    ensure!(begun.elapsed() < Duration::from_secs(30), "DEL waited for a program that is dead: {:?}", begun.elapsed());
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// A program that writes down the host's number of pairs when it releases an address.
const PAIRS: &str = "sed -i 's/^case/[ $CNI_COMMAND = DEL ] \\&\\& ip -o link | grep -c veth >> \\/run\\/pairs.log\\ncase/' /run/cni-bin/script-ipam";

/// Its DEL releases an address: the host runs it last, both by the record and to undo an ADD.
#[test]
fn a_native_program_gives_back_when_the_pair_is_gone() -> Result<()> {
    for operations in [0, 5] {
        let place = Place::new(&script(json!({"ipMasq": true, "ipMasqBackend": "nftables"})))?;
        place.allow_native()?;
        place.node.sh(PAIRS)?;
        let limit = format!("printf '\\n[limits]\\noperations = {operations}\\n' >> {BIN}/postern.d/bridge.toml");
        if operations == 0 {
            place.add()?;
            place.node.sh(&limit)?;
            place.call("DEL", &place.node.netns("c1"), &place.config)?.success()?;
        } else {
            // The operation after `ipam.add` is refused.
            place.node.sh(&limit)?;
            let answer = place.call("ADD", &place.node.netns("c1"), &place.config)?;
            ensure!(answer.status == 1, "{answer:?}");
        }
        let log = place.node.sh("cat /run/script-ipam.log")?;
        ensure!(log == "ADD c1\nDEL c1\n", "{log}");
        let pairs = place.node.sh("cat /run/pairs.log")?;
        ensure!(pairs == "0\n", "operations {operations}: pairs at DEL: {pairs}");
        ensure!(place.left()?.is_empty(), "{}", place.left()?);
    }
    Ok(())
}

impl Place {
    /// Makes a place with a program that hangs while `/run/hang` exists, and leaves its own programs behind when it is
    /// killed. Their argument distinguishes them from those of other tests: all tests see the same processes.
    fn hanging(seconds: u32) -> Result<Self> {
        let mark = mark(seconds);
        let place = Self::new(&script(json!({"cniVersion": "1.1.0"})))?;
        place.allow_native()?;
        place.node.sh(&format!(
            "sed -i 's/^case/[ -e \\/run\\/hang ] \\&\\& {{ sleep {mark}; sleep 1; }}\\ncase/' {BIN}/script-ipam"
        ))?;
        place.node.sh(&format!("printf '\\n[limits]\\nseconds = {seconds}\\n' >> {BIN}/postern.d/bridge.toml"))?;
        Ok(place)
    }

    fn sleeping(&self, seconds: u32) -> Result<String> {
        let mark = mark(seconds);
        self.node.sh(&format!(
            "for at in /proc/[0-9]*; do tr '\\0' ' ' < $at/cmdline 2> /dev/null | grep -x 'sleep {mark} ' || true; done"
        ))
    }
}

/// Returns the time for which the programs of a test sleep.
fn mark(seconds: u32) -> String {
    format!("1234.{seconds}{}", std::process::id())
}

/// One deadline for everything in a run, including undoing; nothing continues after it.
#[test]
fn a_program_that_hangs_takes_no_longer_than_the_limit() -> Result<()> {
    let place = Place::hanging(4)?;
    let netns = place.node.netns("c1");
    let timed = |verb: &str, config: &Value| -> Result<()> {
        place.node.sh("touch /run/hang")?;
        let call = Call::new(Path::new(BIN), "bridge", verb, config.to_string());
        let call = if matches!(verb, "GC" | "STATUS") { call } else { call.attachment("c1", &netns, "eth0") };
        let begun = Instant::now();
        let answer = place.node.call(&call)?;
        let took = begun.elapsed();
        println!("{verb}: {:.2} s, {}", took.as_secs_f32(), answer.stdout.replace('\n', " "));
        ensure!(answer.status == 1 && answer.stdout.contains("\"msg\""), "{verb}: {answer:?}");
        ensure!(took < Duration::from_millis(5500), "{verb} took {took:?}");
        let sleeping = place.sleeping(4)?;
        ensure!(sleeping.is_empty(), "{verb} left programs: {sleeping}");
        place.node.sh("rm /run/hang").map(drop)
    };
    timed("ADD", &place.config)?;
    // The pair is gone, whatever the outcome of the program.
    ensure!(!place.left()?.contains("veth"), "{}", place.left()?);
    place.call("DEL", &netns, &place.config)?.success()?;
    let mut config = place.config.clone();
    merge(&mut config, &json!({"prevResult": place.add()?, "cni.dev/valid-attachments": []}));
    for verb in ["CHECK", "STATUS", "GC", "DEL"] {
        timed(verb, &config)?;
    }
    place.call("DEL", &netns, &config)?.success()?;
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// A runtime that kills the run also kills its programs and all that they have started: no process holds the record's
/// lock.
#[test]
fn programs_of_a_killed_run_hold_no_lock() -> Result<()> {
    let place = Place::hanging(60)?;
    let netns = place.node.netns("c1");
    place.node.sh("touch /run/hang")?;
    let add = Call::new(Path::new(BIN), "bridge", "ADD", place.config.to_string());
    let mut stuck = place.node.start(&add.attachment("c1", &netns, "eth0"))?;
    place.node.sh("for i in $(seq 200); do grep -q ADD /run/script-ipam.log && exit; sleep .05; done; exit 1")?;
    std::thread::sleep(Duration::from_millis(200));
    ensure!(!place.sleeping(60)?.is_empty(), "it was to hang");
    stuck.kill()?;
    stuck.wait()?;
    place.node.sh("rm /run/hang")?;
    let begun = Instant::now();
    place.call("DEL", &netns, &place.config)?.success()?;
    ensure!(begun.elapsed() < Duration::from_secs(20), "DEL waited: {:?}", begun.elapsed());
    ensure!(place.sleeping(60)?.is_empty(), "it goes on: {}", place.sleeping(60)?);
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// An address to which forwards of another record lead is refused whoever gives it: a native program, static, or a service. What
/// the program gave is given back.
#[test]
fn no_plugin_gives_an_address_that_forwards_lead_to() -> Result<()> {
    let place = Place::new(&script(json!({})))?;
    place.allow_native()?;
    place.node.add_container("c0")?;
    let mut first = place.config.clone();
    let ranges = json!([[{"subnet": "10.9.0.0/24"}]]);
    merge(
        &mut first,
        &json!({"ipam": {"type": "host-local", "ranges": ranges}, "args": {"cni": {"ips": ["10.9.0.42"]}}}),
    );
    let of_c0 = |plugin: &str, config: &Value| -> Result<Value> {
        let call = Call::new(Path::new(BIN), plugin, "ADD", config.to_string());
        place.node.call(&call.attachment("c0", &place.node.netns("c0"), "eth0"))?.success()
    };
    let result = of_c0("bridge", &first)?;
    let forwards = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "portmap", "backend": "nftables", "prevResult": result,
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
    });
    of_c0("portmap", &forwards)?;
    place.node.remove_container("c0")?;
    place.node.sh("rm -r /var/lib/cni")?;
    let before = place.left()?;
    let mut fixed = first.clone();
    let addresses = json!([{"address": "10.9.0.42/24"}]);
    merge(&mut fixed, &json!({"ipam": {"type": "static", "ranges": null, "addresses": addresses}, "args": null}));
    for (config, name) in [(&place.config, "script-ipam"), (&fixed, "static")] {
        let refused = place.call("ADD", &place.node.netns("c1"), config)?;
        for words in [
            format!("IPAM plugin \\\"{name}\\\" gave 10.9.0.42, and rules of this node lead to it"),
            "attachment net/c0/eth0 has forwards to 10.9.0.42, by its record".to_owned(),
            "postern gc".to_owned(),
        ] {
            ensure!(refused.status == 1 && refused.stdout.contains(&words), "{name}: {words}: {refused:?}");
        }
        ensure!(place.left()? == before, "{name}: left: {}", place.left()?);
    }
    if kernel::has("tap")? {
        // A tap in the container has no end on the host: the forwards don't get there.
        let alone = json!({"cniVersion": "1.0.0", "name": "alone", "type": "tap", "ipam": {"type": "static", "addresses": addresses}});
        let of_alone = |verb: &str| {
            let call = Call::new(Path::new(BIN), "tap", verb, alone.to_string());
            place.node.call(&call.attachment("c1", &place.node.netns("c1"), "eth0"))
        };
        let added = of_alone("ADD")?;
        added.success()?;
        ensure!(added.stderr.contains("attachment net/c0/eth0 has forwards to 10.9.0.42"), "{added:?}");
        of_alone("DEL")?.success()?;
        ensure!(place.left()? == before, "left: {}", place.left()?);
    } else {
        skip_part("an attachment without an end on the host", NO_TAPS);
    }
    let called = place.node.sh("cat /run/script-ipam.log")?;
    ensure!(called == "ADD c1\nDEL c1\n", "what the program gave is given back: {called}");
    place.node.sh(&format!("{BIN}/postern gc --yes --conf-dir /run/none"))?;
    for config in [&place.config, &fixed] {
        place.call("ADD", &place.node.netns("c1"), config)?.success()?;
        place.call("DEL", &place.node.netns("c1"), config)?.success()?;
    }
    Ok(())
}
