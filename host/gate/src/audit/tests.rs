use super::*;
use postern_types::ops;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A log directory for one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("postern-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        Self(dir)
    }

    /// Returns the log's lines; the lines of the previous log come first.
    fn lines(&self) -> Vec<Value> {
        let text =
            [".1", ""].map(|end| std::fs::read_to_string(self.0.join(format!("{LOG}{end}"))).unwrap_or_default());
        text.concat().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn audit(&self) -> Audit {
        Audit::new(&self.0, "net/c1/eth0".to_owned())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn note(audit: &mut Audit, operation: &Operation, rule: Option<&str>) {
    let outcome = match rule {
        Some(_) => Reply::of(&()),
        None => Err(OpError::new(ErrorCode::Denied, "x", "policy does not allow it")),
    };
    audit.note(&AuditEntry {
        verb: Verb::Add,
        plugin: "demo",
        digest: "0123",
        operation,
        rule,
        from: rule.map(|_| "shipped"),
        outcome: &outcome,
        took: Duration::from_micros(7),
    });
}

#[test]
fn what_changes_something_is_written_at_once() {
    let place = Place::new("once");
    let mut audit = place.audit();
    note(&mut audit, &ops::Link::Own.into(), Some("grant.link"));
    assert!(place.lines().is_empty(), "reading gathers");
    note(&mut audit, &ops::Forwarding::Enable.into(), None);
    assert!(place.lines().is_empty(), "a refusal changes nothing");
    note(&mut audit, &ops::Forwarding::Enable.into(), Some("grant.forwarding"));
    // A killed process leaves the log like this.
    std::mem::forget(audit);
    let lines = place.lines();
    let field = |at: usize, name: &str| lines[at][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(lines.len(), 3);
    assert_eq!((field(0, "digest"), field(0, "from")), ("0123".to_owned(), "shipped".to_owned()));
    assert_eq!((field(1, "decision"), field(2, "decision")), ("deny".to_owned(), "allow".to_owned()));
    assert_eq!(std::fs::metadata(place.0.join(LOG)).unwrap().permissions().mode() & 0o777, 0o600);
}

/// An operation without a rule is logged as `deny`, even if policy is not the cause of the error (for example a missing
/// namespace).
#[test]
fn what_was_not_admitted_was_not_allowed() {
    let place = Place::new("admitted");
    let operation = &ops::Forwarding::Enable.into();
    for code in [ErrorCode::NotFound, ErrorCode::Deadline, ErrorCode::Exhausted, ErrorCode::Denied, ErrorCode::Kernel] {
        for rule in [None, Some("grant.forwarding")] {
            let outcome = Err(OpError::new(code, "x", "no"));
            let (verb, from, took) = (Verb::Add, None, Duration::ZERO);
            let entry =
                AuditEntry { verb, plugin: "demo", digest: "0123", operation, rule, from, outcome: &outcome, took };
            place.audit().note(&entry);
            let expected = if rule.is_none() || code == ErrorCode::Denied { "deny" } else { "allow" };
            assert_eq!(place.lines().pop().unwrap()["decision"], expected, "{code:?} {rule:?}");
        }
    }
}

#[test]
fn a_run_that_changes_nothing_cannot_fill_the_log() {
    let place = Place::new("flood");
    let mut audit = place.audit();
    // Characters of four bytes each, and characters that JSON makes longer.
    for text in ["😀".repeat(3000), "\u{1}".repeat(3000), "\"".repeat(3000)] {
        for rule in [None, Some("bridge.names")] {
            for _ in 0..2000 {
                let outcome = Err(OpError::new(ErrorCode::Denied, "x", text.clone()));
                let operation = &ops::Bridge::Find { name: text.clone() }.into();
                let (verb, from, took) = (Verb::Add, None, Duration::ZERO);
                audit.note(&AuditEntry {
                    verb,
                    plugin: "demo",
                    digest: "0123",
                    operation,
                    rule,
                    from,
                    outcome: &outcome,
                    took,
                });
            }
        }
    }
    note(&mut audit, &ops::Forwarding::Enable.into(), Some("grant.forwarding"));
    drop(audit);
    let text = std::fs::read_to_string(place.0.join(LOG)).unwrap();
    let longest = text.lines().map(str::len).max().unwrap();
    assert!(longest < 2 * SHOWN + 300, "{longest}");
    assert!(text.len() < UNCHANGING + 2 * longest + 200, "{}", text.len());
    let lines = place.lines();
    let [.., changed, last] = lines.as_slice() else { panic!("{text}") };
    assert_eq!(changed["operation"], "forwarding.enable", "what changes something is always written");
    let hidden = 12_000 - (lines.len() - 2);
    assert_eq!(last["note"], format!("{hidden} more operations that changed nothing are not shown"));
    assert_eq!((last["attachment"].as_str(), last["verb"].as_str()), (Some("net/c1/eth0"), Some("ADD")));
}

#[test]
fn texts_are_cut_by_what_they_take_in_the_log() {
    assert_eq!(shorten(&"x".repeat(512)), "x".repeat(512));
    assert_eq!(shorten(&"x".repeat(513)), format!("{}…", "x".repeat(512)));
    assert_eq!(shorten(&format!("x{}", "😀".repeat(200))), format!("x{}…", "😀".repeat(42)));
    assert_eq!(shorten(&"\n".repeat(86)).chars().count(), 86);
    assert_eq!(shorten(&"\"".repeat(300)).chars().count(), 257);
}

#[test]
fn the_host_writes_down_its_own_acts() {
    let place = Place::new("own");
    let done = |outcome: Result<(), &str>, operation: &str, object: Value| {
        place.audit().note_own("GC", operation, &object, "note", &outcome, Duration::ZERO);
    };
    done(Ok(()), "node.remove", json!({"bridge": "br0"}));
    done(Err("no"), "native.remove", json!({"kind": "lease"}));
    let [node, native] = place.lines().try_into().unwrap();
    assert_eq!((node["plugin"].as_str(), node["operation"].as_str()), (Some("postern"), Some("node.remove")));
    assert_eq!(node["request"]["bridge"].as_str(), Some("br0"));
    assert_eq!((native["operation"].as_str(), native["result"].as_str()), (Some("native.remove"), Some("no")));
    assert_eq!((native["request"]["kind"].as_str(), native["decision"].as_str()), (Some("lease"), Some("allow")));
}

#[test]
fn what_cannot_be_written_is_tried_again_and_counted() {
    let place = Place::new("again");
    let elsewhere = place.0.with_extension("away");
    std::fs::rename(&place.0, &elsewhere).unwrap();
    let mut audit = place.audit();
    note(&mut audit, &ops::Forwarding::Enable.into(), Some("grant.forwarding"));
    assert!(audit.failure.is_some());
    std::fs::rename(&elsewhere, &place.0).unwrap();
    drop(audit);
    assert_eq!(place.lines().len(), 1, "the line is written when the directory is back");

    std::fs::rename(&place.0, &elsewhere).unwrap();
    let mut audit = place.audit();
    for _ in 0..1000 {
        note(&mut audit, &ops::Forwarding::Enable.into(), Some("grant.forwarding"));
    }
    assert!(audit.lines.len() <= GATHERED, "what can't be written must not fill the memory");
    audit.give_up();
    assert_eq!(audit.lost, 1000);
    std::fs::rename(&elsewhere, &place.0).unwrap();
}

#[test]
fn a_directory_or_log_that_others_can_write_is_not_used() {
    let place = Place::new("open");
    let mut log = LogFile::new(&place.0, LIMIT);
    std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(0o770)).unwrap();
    assert!(log.append(b"{}\n").unwrap_err().to_string().contains("can be written by others"));
    std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("/dev/null", place.0.join(LOG)).unwrap();
    log.append(b"{}\n").unwrap_err();
    std::fs::remove_file(place.0.join(LOG)).unwrap();
    log.append(b"{}\n").unwrap();
}

/// Runs several writers at once, each with its own descriptor, like processes. Returns the number of lines in the two
/// files, and the number of bytes that were dropped with older files.
fn rotates(name: &str, limit: u64, lines_per_writer: usize) -> (usize, u64) {
    const WRITERS: usize = 8;
    let place = Place::new(name);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let place = &place;
            scope.spawn(move || {
                let mut log = LogFile::new(&place.0, limit);
                for line in 0..lines_per_writer {
                    log.append(format!("{{\"writer\":{writer},\"line\":{}}}\n", 100_000 + line).as_bytes()).unwrap();
                }
            });
        }
    });
    let lines = place.lines();
    let written: Vec<&Value> = lines.iter().filter(|line| line.get("note").is_none()).collect();
    let mut unique: Vec<String> = written.iter().map(ToString::to_string).collect();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), written.len(), "a line was written twice");
    let dropped: u64 = lines.iter().filter_map(|line| line["dropped_bytes"].as_u64()).sum();
    (written.len(), dropped)
}

#[test]
fn writers_that_rotate_at_once_lose_nothing() {
    // One rotation: all lines are there.
    assert_eq!(rotates("rotate-once", 40_000, 200), (1600, 0));
    // Two rotations: the first file and its lines are gone, and the new file says how many bytes were lost.
    let (written, dropped) = rotates("rotate-twice", 20_000, 200);
    assert!(dropped > 20_000, "{dropped}");
    assert_eq!(written as u64 + dropped / LINE, 1600);
    assert_eq!(dropped % LINE, 0);
}

/// The length of a line of [`rotates`], in bytes.
const LINE: u64 = 27;

#[test]
fn refusals_do_not_wash_the_log_away() {
    let place = Place::new("refusals");
    let refuse = |attachment: &str, reason: &str| {
        let refusal = RunRefusal { verb: "ADD", plugin: "demo", attachment, reason, took: Duration::from_micros(7) };
        refusal.write(&place.0, LIMIT).unwrap();
    };
    // A different container each time.
    for number in 0..100 {
        refuse(&format!("net/c{number}/eth0"), "the code is not whole");
    }
    assert_eq!(place.lines().len(), 1);
    refuse("other/c1/eth0", "the code is not whole");
    assert_eq!(place.lines().len(), 2);
    // A different reason each time.
    for number in 0..1000 {
        refuse("net/c1/eth0", &format!("no namespace {number} \u{202e}"));
    }
    let lines = place.lines();
    assert_eq!(lines.len(), 65, "64 refusals, and a line that says that there are more");
    assert!(lines.last().unwrap()["note"].as_str().unwrap().contains("further refusals are not shown"));
    assert!(std::fs::read(place.0.join(LOG)).unwrap().is_ascii());
    // Operations of plugins are still written.
    let mut audit = place.audit();
    note(&mut audit, &ops::Forwarding::Enable.into(), Some("grant.forwarding"));
    assert_eq!(place.lines().len(), 66);
}
