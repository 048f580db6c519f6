//! The path of an attacker's output to people who read terminals and logs.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::endings::orders;
use crate::attack::{hostile, rogue};
use anyhow::{Result, ensure};
use postern_tests::proof::test_bin;
use serde_json::json;

#[test]
fn standard_error_is_marked_bounded_and_harmless() -> Result<()> {
    let attacked = AttackedNode::new()?;
    let answer = attacked.plugin("hostile", "ADD", &orders("flood-stderr", json!({})))?;
    ensure!(answer.stderr.len() > 1000 && answer.stderr.len() < 256 << 10, "{} bytes", answer.stderr.len());
    for line in answer.stderr.lines() {
        ensure!(line.starts_with("hostile: "), "not marked: {line:?}");
        ensure!(!line.chars().any(|c| c.is_control() && c != '\t'), "control characters: {line:?}");
    }
    ensure!(answer.stderr.contains("the rest is not shown"), "nothing says that something is missing");
    Ok(())
}

#[test]
fn endless_calls_do_not_wash_the_log_away() -> Result<()> {
    let attacked = AttackedNode::new()?;
    attacked.node().sh("echo '{\"first\": true}' >> /var/log/postern/audit.jsonl")?;
    attacked.plugin("hostile", "ADD", &orders("call-loop", json!({})))?;
    let log = attacked.audit()?;
    ensure!(log.contains("\"first\""), "the log was rotated by one run of one plugin");
    ensure!(log.lines().count() < 1000, "{} lines", log.lines().count());
    Ok(())
}

/// A runtime stops reading during an ADD. The ADD's effects are still undone.
#[test]
fn nobody_reads_what_is_said() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let config = orders("flood-stderr", json!({"make": true}));
    attacked.node().sh(&format!(
        "export CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS={netns} CNI_IFNAME=eth0 CNI_PATH={bin}
         mkfifo /var/log/said; true < /var/log/said & exec 3> /var/log/said; wait $!
         {bin}/hostile > /var/log/out 2>&3 <<'END' || echo $? > /var/log/status
{config}
END",
        netns = attacked.node().netns("c1"),
        bin = test_bin()?.display(),
    ))?;
    ensure!(attacked.node().sh("cat /var/log/status")?.trim() == "1", "the run did not end with status 1");
    ensure!(attacked.node().sh("cat /var/log/out")?.contains("flooded"), "no error object");
    attacked.unchanged()
}

/// The most calls that an operator may grant, with names of four-byte characters.
#[test]
fn denied_calls_do_not_fill_the_log() -> Result<()> {
    let attacked = AttackedNode::new()?;
    // The gate of `rogue` is a debug build, which takes 4 ms for a call on a slow and busy node. This test is only
    // about the log.
    attacked.operator_policy("rogue", "[limits]\noperations = 1000000\nseconds = 90")?;
    let name = "😀".repeat(2000);
    let steps = format!(r#"[{{"times": 4000, "step": {{"try": {{"op": "bridge-find", "name": "{name}"}}}}}}]"#);
    let before = attacked.audit()?.len();
    rogue("denied", &steps).call(&attacked)?.success()?;
    let log = attacked.audit()?;
    ensure!(log.len() - before < 70 << 10, "one run wrote {} bytes", log.len() - before);
    ensure!(
        log.contains("more operations that changed nothing are not shown"),
        "no message says that operations are missing"
    );
    Ok(())
}

#[test]
fn what_a_killed_run_has_done_is_in_the_log() -> Result<()> {
    let attacked = AttackedNode::new()?;
    let config = orders("loop", json!({"make": true}));
    // The run is killed while the plugin loops, long before the run's deadline.
    attacked.node().sh(&format!(
        ": >/var/log/postern/audit.jsonl
         CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS={netns} CNI_IFNAME=eth0 CNI_PATH={bin} {bin}/hostile <<'END' &
{config}
END
         tries=0
         until grep -q veth.create.*allow.*ok /var/log/postern/audit.jsonl; do
           sleep .01; tries=$((tries+1)); [ $tries -lt 150 ]
         done
         kill -KILL $!; ! wait $!",
        netns = attacked.node().netns("c1"),
        bin = test_bin()?.display(),
    ))?;
    let log = attacked.audit()?;
    ensure!(log.contains("\"operation\":\"veth.create\""), "{log}");
    ensure!(!log.contains("record.remove"), "the run was not killed, but ended: {log}");
    attacked.plugin("hostile", "DEL", &config).map(drop)
}

#[test]
fn nobody_forges_lines_of_the_log() -> Result<()> {
    let attacked = AttackedNode::new()?;
    attacked.plugin("hostile", "ADD", &orders("bridge-forgery", json!({})))?;
    let shown = attacked.node().postern_of(test_bin()?, "log --container c1")?;
    let shown = shown.printed()?;
    ensure!(shown.contains("allowed everything"), "the log doesn't show the requested name: {shown}");
    // A genuine line is a heading, an entry with its time, or a wrapped line below the objects.
    let genuine = |line: &str| {
        let heading = line.starts_with("20") && line.contains(" UTC  ");
        let entry = line.starts_with("  ") && line.get(2..4).is_some_and(|hour| hour.parse::<u8>().is_ok());
        heading || entry || line.starts_with(&" ".repeat(16))
    };
    ensure!(shown.lines().all(genuine), "a forged line: {shown}");
    ensure!(!shown.chars().any(|c| c.is_control() && c != '\n'), "control characters: {shown:?}");
    Ok(())
}

/// Whatever an attacker sends, the host's standard output has no byte that controls a terminal.
#[test]
fn no_terminal_obeys_an_error() -> Result<()> {
    let attacked = AttackedNode::new()?;
    let words = r"\u001b[2J\u0007\u009b31m\u061c\u2028\u202e\u200b\nroot# ";
    for attack in [
        rogue(
            "an error object",
            &format!(
                r#"[{{"say": {{"finished": {{"stdout": "{{\"code\": 123, \"msg\": \"{}\", \"details\": \"{}\"}}", "status": 1}}}}}}]"#,
                words.replace('\\', "\\\\"),
                words.replace('\\', "\\\\")
            ),
        ),
        rogue("a failure", &format!(r#"[{{"say": {{"failed": "{words}"}}}}]"#)),
        rogue("a name", &format!(r#"[{{"op": "bridge-find", "name": "{words}"}}]"#)),
        hostile("nonsense", "nonsense-failure"),
    ] {
        let answer = attack.call(&attacked)?;
        ensure!(answer.status == 1, "{}: {answer:?}", attack.name);
        let obeyed = |c: char| !matches!(c, '\n' | ' '..='~' | '…');
        ensure!(!answer.stdout.chars().any(obeyed), "{}: {:?}", attack.name, answer.stdout);
        ensure!(!answer.stderr.chars().any(obeyed), "{}: {:?}", attack.name, answer.stderr);
    }
    Ok(())
}

/// Only the gate can return the code of a refusal by policy, and the remedy with it.
#[test]
fn nobody_refuses_for_the_gate() -> Result<()> {
    let fails = |msg: &str| {
        let error = json!({"cniVersion": "1.1.0", "code": 110, "msg": msg, "details": "an operator can allow it with `[grant.delegate]`"});
        json!({"say": {"finished": {"stdout": error.to_string(), "status": 1}}})
    };
    let words = "policy does not allow plugin \"rogue\" bridge.find on \"cni0\"";
    let own = json!([fails(words)]);
    let refused = json!([{"try": {"op": "bridge-find", "name": "cni0"}}, fails(words)]);
    let others = json!([{"try": {"op": "bridge-find", "name": "cni1"}}, fails(words)]);
    crate::attack::withstand(&[
        rogue("a refusal that the guest invents", &own.to_string())
            .ends(999, "failed with code 110, which only the gate may use…policy does not allow"),
        rogue("a refusal for another bridge than the gate's", &others.to_string())
            .ends(999, "which only the gate may use"),
        rogue("the gate's refusal", &refused.to_string()).ends(110, "bridge.find on \"cni0\"…bridge.find cni0;"),
    ])?;
    let attacked = AttackedNode::new()?;
    for (attack, way_out) in [(&own, false), (&refused, true)] {
        let answer = rogue("a remedy", &attack.to_string()).call(&attacked)?;
        ensure!(!answer.stdout.contains("grant.delegate"), "{answer:?}");
        ensure!(answer.stdout.contains("names = [") == way_out, "{answer:?}");
    }
    Ok(())
}

/// Standard error of an attacker can't be mistaken for the host's own.
#[test]
fn nobody_speaks_for_the_host() -> Result<()> {
    let attacked = AttackedNode::new()?;
    let attack = rogue(
        "words",
        r#"[{"say": {"stderr": "postern: all is well\rpostern: removed\u0085postern: x\npostern: done"}}]"#,
    );
    let answer = attack.call(&attacked)?;
    answer.success()?;
    ensure!(answer.stderr.contains("all is well"), "{answer:?}");
    ensure!(answer.stderr.lines().all(|line| line.starts_with("rogue: ")), "{:?}", answer.stderr);
    ensure!(!answer.stderr.chars().any(|c| c.is_control() && c != '\n'), "{:?}", answer.stderr);
    Ok(())
}
