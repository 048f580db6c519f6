//! Messages from a compromised sandbox to the gate: frames and messages that no correct sandbox sends.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{rogue, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;
use std::time::{Duration, Instant};

#[test]
fn frames() -> Result<()> {
    let large = "plugin \"rogue\" sent a message that is too long";
    let malformed = "plugin \"rogue\" ended without an answer: malformed message";
    let late = "plugin \"rogue\" ran past its deadline and was stopped";
    withstand(&[
        rogue("a frame of one byte too many", r#"[{"frame": [1048577, ""]}, {"hang": true}]"#).ends(999, large),
        rogue("a frame of 4 GiB", r#"[{"frame": [4294967295, ""]}, {"hang": true}]"#).ends(999, large),
        rogue("an empty frame", r#"[{"frame": [0, ""]}]"#).ends(999, malformed),
        rogue("half a frame", r#"[{"frame": [100, "{\"call\":"]}, {"leave": true}]"#)
            .ends(999, "plugin \"rogue\" ended without an answer: the other process is gone"),
        rogue("half a frame, and silence", r#"[{"frame": [100, "{\"call\":"]}, {"hang": true}]"#).ends(999, late),
        rogue("a frame that ends too late", r#"[{"frame": [2, "{\"call\":{\"op\":\"link-own\"}}"]}]"#)
            .ends(999, malformed),
        rogue("byte by byte", r#"[{"drip": 5}]"#).ends(999, late),
        rogue("silence", r#"[{"hang": true}]"#).ends(999, late),
        rogue("leave at once", r#"[{"leave": true}]"#).ends(999, "ended without an answer: the other process is gone"),
        rogue("no JSON", r#"[{"text": "GET / HTTP/1.1"}]"#).ends(999, malformed),
        rogue("a bomb of brackets", r#"[{"deep": 1048576}]"#).ends(999, malformed),
        rogue("two messages in a frame", r#"[{"text": "{\"stderr\":\"a\"}{\"stderr\":\"b\"}"}]"#).ends(999, malformed),
    ])
}

#[test]
fn messages() -> Result<()> {
    let malformed = "plugin \"rogue\" ended without an answer: malformed message";
    withstand(&[
        rogue("the gate's own message", r#"[{"say": {"answer": {"Ok": {"reply": "done"}}}}]"#).ends(999, malformed),
        rogue("a start of its own", r#"[{"say": {"start": {"env": [], "stdin": ""}}}]"#).ends(999, malformed),
        rogue("an operation that does not exist", r#"[{"op": "netlink"}]"#).ends(999, malformed),
        rogue("two operations in one", r#"[{"say": {"call": {"op": "link-own"}, "stderr": "x"}}]"#).ends(999, malformed),
        rogue("an operation without its argument", r#"[{"op": "link-up"}]"#).ends(999, malformed),
        rogue("an invalid address", r#"["veth-create", {"op": "addresses-add", "link": 0, "addresses": ["10.0.0.1/99"]}]"#)
            .ends(999, malformed),
        rogue("finished before it was started", "[]")
            .env("ROGUE_EARLY", "1")
            .ends(999, "plugin \"rogue\" claims address 10.66.6.6/24"),
        rogue("finished, and then a call", r#"[{"say": {"finished": {"stdout": "{\"cniVersion\": \"1.1.0\"}", "status": 0}}}, "veth-create", {"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": []}]"#)
            .ends(0, ""),
        rogue("finished twice, the second time with a claim", r#"[{"say": {"finished": {"stdout": "", "status": 0}}}, {"print": "{\"cniVersion\": \"1.1.0\", \"ips\": [{\"address\": \"10.66.6.6/24\"}]}"}]"#)
            .ends(999, "ended without printing a result"),
        rogue("failed, in the host's name", r#"[{"say": {"failed": "\u001b[2Jpostern: all is well\n{}"}}]"#)
            .ends(999, "plugin \"rogue\" \u{1b}[2Jpostern: all is well"),
        rogue("code that cannot be loaded", r#"[{"say": {"unloadable": "because"}}]"#)
            .ends(999, "cannot load the compiled code: because"),
        rogue("a failure that looks like a success", r#"[{"say": {"finished": {"stdout": "{\"cniVersion\": \"1.1.0\"}", "status": 255}}}, {"hang": true}]"#)
            .ends(999, "status 255 and printed no CNI error object"),
        rogue("calls without end, and no answer read", r#"[{"times": 0, "step": {"say": {"call": {"op": "link-own"}}}}]"#)
            .ends(999, "asked for more than 50 operations and was stopped"),
        rogue("calls without end or budget, and no answer read", r#"[{"times": 0, "step": {"say": {"call": {"op": "link-own"}}}}]"#)
            .policy("[limits]\noperations = 1000000")
            .ends(999, "ran past its deadline and was stopped"),
    ])
}

/// Endless standard error is shown up to its limit, and ends with the run.
#[test]
fn standard_error_without_end() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    for step in [
        r#"{"times": 0, "step": {"say": {"stderr": "once more"}}}"#,
        r#"{"times": 0, "step": {"say": {"stderr": ""}}}"#,
        r#"{"times": 0, "step": {"say": {"stderr": "\n\n\n\n\n\n\n\n"}}}"#,
    ] {
        let start = Instant::now();
        let answer = rogue("flood", &format!("[{step}]")).call(&attacked)?;
        let took = start.elapsed();
        Refusal::of(&answer)?.expect(999, "ran past its deadline and was stopped")?;
        ensure!(took < Duration::from_secs(10), "{step}: took {took:?}");
        ensure!(answer.stderr.len() < 256 << 10, "{step}: {} bytes of standard error", answer.stderr.len());
        attacked.unchanged()?;
    }
    Ok(())
}

/// One message may have a mebibyte. The shown part is as long as for any other output.
#[test]
fn standard_error_in_one_line() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let line = "x".repeat(100 << 10);
    let answer = rogue("line", &format!(r#"[{{"say": {{"stderr": "{line}{line}"}}}}]"#)).call(&attacked)?;
    answer.success()?;
    ensure!(
        answer.stderr.len() < 66 << 10,
        "{} bytes of standard error, where 64 KiB are the limit",
        answer.stderr.len()
    );
    attacked.unchanged()
}

/// A call may have a mebibyte. The gate must not process it longer than the run may take.
#[test]
fn calls_as_large_as_can_be() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let policy = "[grant.leases]\ndirectories = [\"/var/lib/hostile\"]\nranges = [\"10.0.0.0/8\"]";
    for (name, steps, ends) in [
        ("a name of a mebibyte", r#"[{"name": 1040000}]"#, "the answer is longer than a message may be"),
        ("30,000 range sets", r#"[{"sets": 30000}]"#, ""),
        ("20,000 routes", r#"["veth-create", {"op": "link-up", "link": 0}, {"routes": 20000}]"#, ""),
        ("300,000 VLANs", r#"["veth-create", {"op": "bridge-find", "name": "hostile0"}, {"vlans": 300000}]"#, ""),
    ] {
        attacked.operator_policy("rogue", policy)?;
        let start = Instant::now();
        let answer = rogue(name, steps).call(&attacked)?;
        let took = start.elapsed();
        println!("{name}: {} ms, {:.200}", took.as_millis(), answer.stdout);
        ensure!(took < Duration::from_secs(6), "{name}: took {took:?}, where 3 s are the limit: {answer:?}");
        if answer.status != 0 {
            let refusal = Refusal::of(&answer)?;
            ensure!(refusal.text.contains(ends), "{name}: {refusal:?}");
        }
        attacked.plugin("hostile", "DEL", &crate::attack::attacked_node::good())?;
        attacked.plugin("rogue", "DEL", &rogue("", "[]").config)?;
        attacked.operator_policy("rogue", "")?;
        attacked.unchanged()?;
    }
    Ok(())
}
