//! Tests of records as their owner writes and reads them. Further tests are in the modules.

mod damage;
mod listing;
mod sections;

use super::*;
use crate::leases::tests::{Scratch, soon};
use proptest::prelude::*;
use serde::Deserialize;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Act {
    Link { name: String },
    Lease,
}

fn header() -> Header {
    Header {
        network: "net".to_owned(),
        container_id: "box".to_owned(),
        ifname: "eth0".to_owned(),
        boot_id: "boot".to_owned(),
        host_netns_cookie: u64::MAX,
        netns_cookie: None,
        netns_path: "/run/netns/a\nb".to_owned(),
        created: 5,
    }
}

fn link(name: &str) -> Act {
    Act::Link { name: name.to_owned() }
}

fn open(scratch: &Scratch) -> Record<Act> {
    Record::open_or_create(&scratch.path("state"), &header(), soon()).unwrap()
}

fn existing(scratch: &Scratch) -> Result<Option<Record<Act>>> {
    Record::open_existing(&scratch.path("state"), &header().key(), soon())
}

fn path(scratch: &Scratch) -> PathBuf {
    scratch.path("state/attachments").join(header().key().file_name())
}

#[test]
fn effects_survive_the_process_in_order() {
    let scratch = Scratch::new();
    assert!(existing(&scratch).unwrap().is_none());
    let mut record = open(&scratch);
    assert!(record.is_new());
    assert_eq!(record.append("bridge", &link("a"), false).unwrap(), 1);
    assert_eq!(record.append("tuning", &link("b"), false).unwrap(), 2);
    assert_eq!(record.append("bridge", &Act::Lease, false).unwrap(), 3);
    record.mark_removed(1).unwrap();
    drop(record);
    let mut record = existing(&scratch).unwrap().unwrap();
    assert!(!record.is_new());
    assert_eq!(record.header(), &header());
    let seen: Vec<_> = record.effects(None).into_iter().map(|e| (e.seq, e.section, e.effect)).collect();
    assert_eq!(seen, [(2, "tuning".to_owned(), link("b")), (3, "bridge".to_owned(), Act::Lease)]);
    assert_eq!(record.effects(Some("bridge")).len(), 1);
    assert_eq!(record.append("bridge", &link("c"), false).unwrap(), 4);
    for seq in [3, 4] {
        record.mark_removed(seq).unwrap();
    }
    assert_eq!(record.effects(None).len(), 1);
    drop(record);
    let mut record = open(&scratch);
    assert_eq!(record.effects(None).len(), 1);
    record.mark_removed(2).unwrap();
    assert!(record.is_empty());
    assert!(record.remove_file().unwrap());
    assert!(!path(&scratch).exists());
}

#[test]
fn handles_are_noted_beside_their_effect() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    record.append("bridge", &link("a"), false).unwrap();
    record.append("bridge", &Act::Lease, false).unwrap();
    record.note_handles(1, &[7, u64::MAX], &[3]).unwrap();
    record.note_handles(9, &[1], &[]).unwrap();
    drop(record);
    let record = existing(&scratch).unwrap().unwrap();
    assert!(record.warnings().is_empty());
    let seen: Vec<_> =
        record.effects(None).into_iter().map(|noted| (noted.effect, noted.handles, noted.tables)).collect();
    assert_eq!(seen, [(link("a"), vec![7, u64::MAX], vec![3]), (Act::Lease, vec![], vec![])]);
    // A version ignores a line that it doesn't know. So earlier versions ignore this note.
    let text = std::fs::read_to_string(path(&scratch)).unwrap();
    std::fs::write(path(&scratch), text.replace("\"of\"", "\"unknown\"").replace("\"handles\"", "\"numbers\""))
        .unwrap();
    drop(record);
    let record = existing(&scratch).unwrap().unwrap();
    assert!(record.warnings().is_empty());
    assert_eq!(record.effects(None).len(), 2);
}

#[test]
fn files_are_private_and_lines_are_as_documented() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    record.append("bridge", &link("a"), false).unwrap();
    record.mark_removed(1).unwrap();
    assert_eq!(std::fs::metadata(path(&scratch)).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(std::fs::metadata(scratch.path("state")).unwrap().permissions().mode() & 0o7777, 0o700);
    let text = std::fs::read_to_string(path(&scratch)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("{\"version\":1,\"writer\":\"postern "), "{text}");
    assert_eq!(lines[1], r#"{"seq":1,"plugin":"bridge","effect":{"link":{"name":"a"}}}"#);
    assert_eq!(lines[2], r#"{"plugin":"bridge","removed":1}"#);
    assert!(record.append("x", &link("b"), false).is_ok() && !record.remove_file().unwrap());
    assert!(path(&scratch).exists());
}

#[test]
fn a_living_owner_is_seen_and_waited_for() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    assert!(!is_busy(&root, &header().key(), 9).unwrap());
    let mut record = open(&scratch);
    assert!(is_busy(&root, &header().key(), 9).unwrap());
    record.begin("bridge", "", "c", 8).unwrap();
    drop(record);
    assert!(is_busy(&root, &header().key(), 8).unwrap(), "the ADD ended, but the runtime did not know it yet");
    assert!(!is_busy(&root, &header().key(), 9).unwrap());
    // The clock was set back after the section noted its time.
    let ahead = SystemTime::now() + Duration::from_secs(3600);
    let ahead = u64::try_from(ahead.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let mut record = open(&scratch);
    record.begin("portmap", "", "c", ahead).unwrap();
    drop(record);
    assert!(!is_busy(&root, &header().key(), 9).unwrap(), "a time in the future does not count as progress");
    assert!(is_busy(&root, &header().key(), 8).unwrap());
    let mut record = open(&scratch);
    record.end(None).unwrap();
    let soon_over = Instant::now() + std::time::Duration::from_millis(30);
    let error = Record::<Act>::open_or_create(&root, &header(), soon_over).err().unwrap();
    assert!(matches!(error, StateError::Locked { .. }), "{error}");
    std::thread::scope(|scope| {
        // The thread waits for the lock of a file that is then unlinked. The thread must get another file.
        let waiting = scope.spawn(|| open(&scratch).is_new());
        std::thread::sleep(std::time::Duration::from_millis(50));
        record.remove_file().unwrap();
        assert!(waiting.join().unwrap());
    });
    assert!(path(&scratch).exists());
    assert!(!is_busy(&root, &header().key(), 9).unwrap());
}

#[test]
fn a_program_that_stays_keeps_no_lock() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    record.append("bridge", &link("a"), false).unwrap();
    let inherited = record.lock().try_clone_to_owned().unwrap();
    drop(record);
    assert_eq!(existing(&scratch).unwrap().unwrap().effects(None).len(), 1);
    drop(inherited);
}
