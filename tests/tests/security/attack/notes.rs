//! Notes of plugins: another plugin's notes, too long notes, too many notes, and notes where none is allowed.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, attack, honest, withstand};
use anyhow::{Context, Result, ensure};
use postern_tests::proof::{Refusal, test_bin};
use postern_tests::{Answer, Network};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SECRET: &str = "a secret of the plugin";

/// Makes an attack by the sandbox process of a chained plugin, with these steps.
fn behind(name: &'static str, steps: &Value) -> Attack {
    let orders = json!({"type": "chained", "rogue": steps, "prevResult": {"cniVersion": "1.1.0"}});
    attack(name, "chained", orders).policy("[grant.notes]")
}

fn set(text: &str) -> Value {
    json!({"op": "notes-set", "text": text})
}

#[test]
fn notes_have_limits() -> Result<()> {
    let (long, longer) = ("x".repeat(4096), "x".repeat(4097));
    let one = |name, operation: Value| behind(name, &json!([{"call": operation}]));
    // Repeating the same text takes no room in the record.
    let many: Vec<Value> = (0..70).map(|at| json!({"call": set(&format!("{at}{}", "y".repeat(4000)))})).collect();
    withstand(&[
        one("as long as it may be", set(&long)).ends(0, ""),
        one("a byte more", set(&longer)).ends(110, "a note of 4097 bytes is too long: the limit is 4096…keep less"),
        one("a megabyte", set(&"x".repeat(900_000))).ends(110, "a note of 900000 bytes is too long"),
        one("without the grant", set(SECRET))
            .policy("withdraw = []")
            .ends(110, "policy does not allow plugin \"chained\" notes.set"),
        one("read without the grant", json!({"op": "notes-get"}))
            .policy("withdraw = []")
            .ends(110, "policy does not allow plugin \"chained\" notes.get"),
        one("on CHECK", set(SECRET)).on("CHECK").ends(110, "notes.set is not for CHECK"),
        one("on DEL", set(SECRET)).on("DEL").ends(110, "notes.set is not for DEL"),
        one("on STATUS", set(SECRET)).on("STATUS").ends(50, "notes.set is not for STATUS"),
        one("on GC", set(SECRET)).on("GC").ends(110, "notes.set is not for GC"),
        behind("more than the record has room for", &json!(many)).ends(999, "the room for notes of plugins, 256 KiB"),
        behind("the same note many times", &json!([{"times": 900, "step": {"call": set(&long)}}])).ends(0, ""),
        behind(
            "the same note more often than operations allow",
            &json!([{"times": 9000, "step": {"call": set(&long)}}]),
        )
        .ends(999, "asked for more than 4096 operations and was stopped"),
    ])
}

/// A delegate has no section in the record. If the gate allowed notes, the delegate would write and read the caller's
/// note.
#[test]
fn delegates_have_no_notes() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("hostile", "[grant.notes]")?;
    for behaviour in ["note", "read-note"] {
        let orders = json!({"bridge": "hostile0", "hostile": behaviour, "ipam": {"type": "hostile"}});
        let answer = honest("a delegate", "bridge", &orders.to_string()).call(&attacked)?;
        Refusal::of(&answer)?
            .expect(110, "\"hostile\" runs for another plugin here, and has no section of its own")
            .context(behaviour)?;
        attacked.unchanged()?;
    }
    Ok(())
}

/// Calls a chained plugin whose note has the labels of the container.
fn remember(attacked: &AttackedNode, plugin: &str, verb: &str, container: &str, labels: &Value) -> Result<Answer> {
    let args = json!({"cni": {"labels": labels}});
    let config = json!({"type": plugin, "args": args, "prevResult": {"cniVersion": "1.1.0"}});
    Network::new(attacked.node(), &config)?.by(&test_bin()?).call(verb, container)
}

fn done(answer: &Answer) -> Result<()> {
    ensure!(answer.status == 0, "{answer:?}");
    Ok(())
}

/// Only the same plugin reads a note, and only for the same attachment. No command or log shows the note.
#[test]
fn a_note_stays_with_its_plugin_and_attachment() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let none = json!([]);
    let token = format!("{SECRET} \u{1b}[2J\u{202e}\n");
    let labels = json!([{"key": "token", "value": token}]);
    done(&remember(&attacked, "remember", "ADD", "c1", &labels)?)?;
    done(&remember(&attacked, "remember", "CHECK", "c1", &labels)?)?;
    Refusal::of(&remember(&attacked, "remember", "CHECK", "c1", &none)?)?.expect(999, SECRET)?;
    // First the same component under another name, for the same network and container. Then the other containers.
    for (plugin, container) in [("recall", "c1"), ("remember", "c2"), ("remember", "c3")] {
        done(&remember(&attacked, plugin, "CHECK", container, &none)?)
            .with_context(|| format!("{plugin} {container}"))?;
        let answer = remember(&attacked, plugin, "DEL", container, &none)?;
        ensure!(answer.status == 0 && !answer.stderr.contains(SECRET), "{plugin} {container}: {answer:?}");
    }
    for arguments in
        ["log --container c1", "log --container c1 --json", "show c1", "show c1 --json", "ls", "ls --json", "doctor"]
    {
        let text = attacked.node().postern_of(test_bin()?, arguments)?.stdout;
        ensure!(!text.contains(SECRET) && !text.contains('\u{1b}'), "{arguments}: {text}");
    }
    let log = attacked.audit()?;
    let request = json!({"op": "notes-set", "text_bytes": "token=".len() + token.len()});
    ensure!(log.contains(&format!("\"request\":{request}")) && !log.contains(SECRET), "{log}");
    // Standard error reaches the runtime, and finally a person's terminal.
    let answer = remember(&attacked, "remember", "DEL", "c1", &none)?;
    ensure!(answer.status == 0 && answer.stderr.contains(SECRET) && !answer.stderr.contains('\u{1b}'), "{answer:?}");
    done(&remember(&attacked, "remember", "CHECK", "c1", &none)?)?;
    attacked.unchanged()
}

/// A refused note leaves the earlier note, and does not appear in the log.
#[test]
fn a_refused_note_changes_nothing() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("chained", "[grant.notes]")?;
    let steps = json!([{"call": set("kept")}, {"try": set(&"x".repeat(4097))}]);
    let behind = behind("", &steps);
    behind.call(&attacked)?.success()?;
    let lines = attacked.node().sh("grep -h '\"note\"' /run/postern/attachments/*")?;
    ensure!(lines == "{\"plugin\":\"chained\",\"note\":\"kept\"}\n", "{lines}");
    Attack { verb: "DEL", ..behind }.call(&attacked)?;
    attacked.unchanged()?;

    // The plugin that made the link runs a second ADD without a DEL. The first attachment still exists.
    attacked.operator_policy("rogue", "[grant.link]\n[grant.veth]\n[grant.notes]")?;
    let add = |text: &str, more: Value| {
        let steps = json!([{"call": set(text)}, more]);
        attack("", "rogue", json!({"type": "rogue", "rogue": steps}))
    };
    let first = add("kept", json!({"call": {"op": "veth-create"}}));
    first.call(&attacked)?.success()?;
    let second = add("other", json!({"call": {"op": "notes-get"}})).call(&attacked)?;
    Refusal::of(&second)?.expect(999, "an earlier ADD made this attachment, and its note stays…run DEL first")?;
    let lines = attacked.node().sh("grep -h '\"note\"' /run/postern/attachments/*")?;
    ensure!(lines == "{\"plugin\":\"rogue\",\"note\":\"kept\"}\n", "{lines}");
    Attack { verb: "DEL", ..first }.call(&attacked)?.success()?;
    attacked.operator_policy("rogue", "")?;
    attacked.unchanged()
}

/// Another program has changed the note in a record. The host does not use this note.
#[test]
fn a_note_that_was_made_longer_is_told() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let labels = json!([{"key": "app", "value": "web"}]);
    done(&remember(&attacked, "remember", "ADD", "c1", &labels)?)?;
    attacked.node().sh("sed -i \"s/app=web/$(printf '%5000s' x)/\" /run/postern/attachments/*")?;
    let answer = remember(&attacked, "remember", "CHECK", "c1", &labels)?;
    Refusal::of(&answer)?
        .expect(5, "has 5000 bytes, and this host writes 4096 at most: another program changed the record…run DEL")?;
    done(&remember(&attacked, "remember", "DEL", "c1", &labels)?)?;
    attacked.unchanged()
}

/// A run is killed after it wrote its note. The note does not count.
#[test]
fn the_note_of_a_killed_run_goes() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("chained", "[grant.notes]")?;
    let record = "/run/postern/attachments";
    for way in ["DEL", "gc", "ADD"] {
        let attack = behind("", &json!([{"call": set(SECRET)}, {"hang": true}]));
        let mut child = attacked.node().start(&attacked.request("chained", "ADD", attack.config.to_string())?)?;
        let start = Instant::now();
        while !attacked.node().sh(&format!("cat {record}/*"))?.contains(SECRET) {
            ensure!(start.elapsed() < Duration::from_secs(20), "the run wrote no note");
            std::thread::sleep(Duration::from_millis(50));
        }
        child.kill()?;
        child.wait()?;
        let later = behind("", &json!([]));
        match way {
            "gc" => drop(attacked.node().postern_of(test_bin()?, "gc --yes")?.printed()?),
            "ADD" => {
                later.call(&attacked)?.success()?;
                ensure!(
                    !attacked.node().sh(&format!("cat {record}/*"))?.contains(SECRET),
                    "the record still has the killed run's note"
                );
                Attack { verb: "DEL", ..later }.call(&attacked)?;
            }
            _ => drop(Attack { verb: "DEL", ..later }.call(&attacked)?),
        }
        attacked.unchanged().context(way)?;
    }
    Ok(())
}
