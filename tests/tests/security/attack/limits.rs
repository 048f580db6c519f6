//! Every limit of `[limits]`: its default, and an operator's value.

use crate::attack::attacked_node::{AttackedNode, good};
use crate::attack::{Attack, hostile, rogue, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const CALLS: &str = r#"[{"times": 60, "step": {"try": {"op": "link-own"}}}]"#;

#[test]
fn each_limit_by_default_and_as_an_operator_sets_it() -> Result<()> {
    let large = serde_json::json!({"hostile": "says", "says": format!("{{\"cniVersion\": \"1.1.0\", \"dns\": {{\"domain\": \"{}\"}}}}", "x".repeat(4000))}).to_string();
    let says = |name| hostile(name, "says").with(&large);
    withstand(&[
        rogue("seconds", r#"[{"hang": true}]"#)
            .policy("[limits]\nseconds = 1")
            .ends(999, "ran past its deadline and was stopped"),
        // The limit in the policy that comes with the plugin.
        rogue("operations", CALLS).ends(
            999,
            "asked for more than 50 operations and was stopped; `limits.operations = 100` in /etc/postern/policy/rogue.toml",
        ),
        rogue("operations, set", CALLS)
            .policy("[limits]\noperations = 3")
            .ends(999, "asked for more than 3 operations"),
        rogue("operations, none at all", r#"["link-own"]"#)
            .policy("[limits]\noperations = 0")
            .ends(999, "asked for more than 0 operations"),
        rogue("operations, enough", CALLS).policy("[limits]\noperations = 60").ends(0, ""),
        rogue("handles", r#"["veth-create"]"#).ends(0, ""),
        rogue("handles, set", r#"["veth-create"]"#)
            .policy("[limits]\nhandles = 1")
            .ends(999, "a run may hold 1 handles"),
        rogue("handles, the same one often", r#"["veth-create", {"times": 20, "step": {"call": {"op": "link-own"}}}]"#)
            .policy("[limits]\nhandles = 2")
            .ends(0, ""),
        hostile("memory", "allocate").ends(999, "ran out of memory: the limit is 64 MiB"),
        hostile("memory, set", "allocate")
            .policy("[limits]\nmemory-mib = 8")
            .ends(999, "ran out of memory: the limit is 8 MiB"),
        hostile("4 GiB at once", "allocate-at-once").ends(999, "plugin \"hostile\""),
        hostile("tables", "good").ends(0, ""),
        hostile("tables, set", "good").policy("[limits]\ntables = 1").ends(999, "plugin \"hostile\""),
        hostile("resources", "hoard").ends(999, "resource table has no free keys"),
        hostile("resources, set", "hoard-some")
            .policy("[limits]\nresources = 50")
            .ends(999, "resource table has no free keys"),
        hostile("resources, enough", "hoard-some").policy("[limits]\nresources = 200").ends(0, ""),
        hostile("call", "bridge-kilobytes").ends(110, "policy does not allow plugin…bridge.find"),
        hostile("call, set", "bridge-kilobytes").policy("[limits]\ncall-kib = 1").ends(999, "trapped: too much data"),
        says("standard output").ends(0, ""),
        says("standard output, set").policy("[limits]\nstdout-kib = 1").ends(999, "wrote too much to standard output"),
        hostile("depth", "ipam")
            .with(r#"{"ipam": {"type": "host-local"}}"#)
            .ends(999, "ended without printing a result"),
        hostile("depth, set", "ipam").policy("[limits]\ndepth = 0").ends(999, "plugins delegate more than 0 deep"),
        hostile("recursion", "recurse").ends(999, "plugin \"hostile\" trapped: "),
        hostile("a loop", "loop").policy("[limits]\nseconds = 1").ends(999, "ran past its deadline and was stopped"),
        hostile("a loop of calls", "call-loop")
            .policy("[limits]\noperations = 1000000\nseconds = 1")
            .ends(999, "ran past its deadline and was stopped"),
    ])
}

/// The counters of one call start again at the next call. Other limits count all calls of a run.
#[test]
fn what_a_run_may_use_up_in_many_calls() -> Result<()> {
    let link = r#""veth-create", {"op": "link-up", "link": 0}"#;
    let addresses = vec![r#""10.66.6.6/24""#; 257].join(", ");
    let reserve = r#"{"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": ["10.9.0.1"]}"#;
    withstand(&[
        // Each operation starts a delegate, which has the same number of operations.
        rogue("operations of delegates", r#"[{"times": 30, "step": {"try": {"op": "ipam-add"}}}, "veth-create"]"#)
            .ends(999, "plugin \"rogue\" asked for more than 50 operations and was stopped"),
        rogue(
            "operations of delegates, enough",
            r#"[{"times": 5, "step": {"try": {"op": "ipam-add"}}}, "veth-create"]"#,
        )
        .ends(0, ""),
        rogue("routes", &format!("[{link}, {{\"routes\": 1025}}]"))
            .ends(999, "1025 routes are too many: a run may add 1024"),
        rogue("routes, in two calls", &format!("[{link}, {{\"routes\": 1000}}, {{\"routes\": 25}}]"))
            .ends(999, "25 routes are too many: a run may add 1024"),
        rogue("routes, enough", &format!("[{link}, {{\"routes\": 1024}}]")).ends(0, ""),
        rogue("addresses", &format!(r#"[{link}, {{"op": "addresses-add", "link": 0, "addresses": [{addresses}]}}]"#))
            .ends(999, "257 addresses are too many: a run may add 256"),
        // Each effect is noted before it fails, so DEL removes it.
        rogue("a record", &format!(r#"[{{"times": 4096, "step": {{"try": {reserve}}}}}, {reserve}]"#))
            .policy("[limits]\noperations = 5000\nseconds = 60")
            .ends(999, "an attachment can leave 4096 things on the node"),
        rogue("a record, and DEL", &format!(r#"[{{"times": 900, "step": {{"try": {reserve}}}}}]"#))
            .policy("[limits]\noperations = 1000")
            .ends(0, ""),
    ])
}

/// Root in a container can make any number of objects. A list has a limit and says so. A question about some of the
/// objects is answered.
#[test]
fn routes_that_the_container_made() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let made = rogue("made", r#"["veth-create", {"op": "link-up", "link": 0}]"#);
    made.call(&attacked)?.success()?;
    let netns = attacked.node().netns("c1");
    attacked.node().sh(&format!(
        "for high in $(seq 0 80); do for low in $(seq 0 255); do echo route add 11.0.$high.$low/32 dev eth0; done; done |
         nsenter --net={netns} ip -batch -"
    ))?;
    let previous = r#"{"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0"}]}}"#;
    let listed = rogue("listed", r#"["link-own", {"op": "routes-list", "link": 0}]"#).with(previous).on("CHECK");
    let answer = listed.call(&attacked)?;
    let asked = r#"["link-own", {"op": "routes-has", "link": 0, "routes": [{"dst": "11.0.80.255/32"}, {"dst": "11.1.0.0/32"}]}]"#;
    let asked = rogue("asked", asked).with(previous).on("CHECK").call(&attacked)?;
    let many = vec![r#"{"dst": "11.0.0.1/32"}"#; 1025].join(",");
    let many = format!(r#"["link-own", {{"op": "routes-has", "link": 0, "routes": [{many}]}}]"#);
    let many = rogue("a question about too many routes", &many).with(previous).on("CHECK").call(&attacked)?;
    Attack { verb: "DEL", ..made }.call(&attacked)?.success()?;
    attacked.unchanged()?;
    ensure!(answer.stdout.contains("has 20737 routes in the container: a list has room for 4096"), "{answer:?}");
    ensure!(answer.stdout.contains("remove routes of the link in the container"), "{answer:?}");
    ensure!(many.stdout.contains("1025 routes are too many: one call asks about 1024"), "{many:?}");
    asked.success().map(drop)
}

#[test]
fn limits_beyond_what_is_possible_are_refused() -> Result<()> {
    let set = |limit: &'static str, words| hostile(limit, "good").policy(limit).ends(999, words);
    withstand(
        &[
            set("[limits]\nseconds = 0", "seconds = 0: it can be 1 to 3600"),
            set("[limits]\nseconds = 3601", "seconds = 3601: it can be 1 to 3600"),
            set("[limits]\nmemory-mib = 257", "memory-mib = 257: it can be 1 to 256"),
            set("[limits]\ncall-kib = 1025", "call-kib = 1025: it can be 1 to 1024"),
            set("[limits]\noperations = -1", "rogue.toml…operations"),
            set("[limits]\nminutes = 1", "unknown field `minutes`, expected one of"),
        ]
        .map(|attack| Attack { words: attack.words.trim_start_matches("rogue.toml…"), ..attack }),
    )
}

#[test]
fn standard_error_as_an_operator_sets_it() -> Result<()> {
    let attacked = AttackedNode::new()?;
    for (policy, most) in [("", 256 << 10), ("[limits]\nstderr-kib = 1", 4 << 10), ("[limits]\nstderr-kib = 0", 200)] {
        attacked.operator_policy("hostile", policy)?;
        let answer = hostile("flood", "flood-stderr").call(&attacked)?;
        Refusal::of(&answer)?.expect(123, "flooded")?;
        ensure!(answer.stderr.len() < most, "{policy}: {} bytes of standard error", answer.stderr.len());
    }
    Ok(())
}

/// Holds a lock until it is dropped.
struct Held(Child);

impl Held {
    fn lock(attacked: &AttackedNode, path: &str) -> Result<Self> {
        let mut command = attacked.node().command("flock");
        // The process ends when its standard input is closed.
        let mut child =
            command.args([path, "sh", "-c", "echo held; cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        ensure!(line == "held\n", "{path} can't be locked");
        Ok(Self(child))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Waiting for another process's lock ends with the run's deadline too.
#[test]
fn locks_that_somebody_holds() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let held = Held::lock(&attacked, "/var/lib/hostile/net/lock")?;
    let start = Instant::now();
    let answer = attacked.plugin("hostile", "ADD", &good())?;
    let took = start.elapsed();
    println!("a lease directory's lock: {} ms: {answer:?}", took.as_millis());
    Refusal::of(&answer)?.expect(11, "lock /var/lib/hostile/net/lock: not free before the deadline")?;
    // The run has two seconds. The last quarter is reserved for undoing, and a short time before it for this error.
    ensure!(took > Duration::from_millis(1000) && took < Duration::from_secs(4), "took {took:?}");
    drop(held);
    attacked.plugin("hostile", "DEL", &good())?.success()?;
    attacked.unchanged()?;

    attacked.plugin("hostile", "ADD", &good())?.success()?;
    let record = attacked.node().sh("grep -l '\"container_id\":\"c1\"' /run/postern/attachments/*")?;
    let held = Held::lock(&attacked, record.trim())?;
    let start = Instant::now();
    let answer = attacked.plugin("hostile", "DEL", &good())?;
    let took = start.elapsed();
    println!("a record's lock: {} ms: {answer:?}", took.as_millis());
    Refusal::of(&answer)?.expect(11, "")?;
    ensure!(took > Duration::from_millis(1450) && took < Duration::from_secs(4), "took {took:?}");
    drop(held);
    attacked.plugin("hostile", "DEL", &good())?.success()?;
    attacked.unchanged()
}
