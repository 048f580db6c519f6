use super::*;
use crate::leases::tests::{Scratch, soon};
use proptest::prelude::*;
use serde::Deserialize;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

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
    record.note_handles(1, &[7, u64::MAX]).unwrap();
    record.note_handles(9, &[1]).unwrap();
    drop(record);
    let record = existing(&scratch).unwrap().unwrap();
    assert!(record.warnings().is_empty());
    let seen: Vec<_> = record.effects(None).into_iter().map(|noted| (noted.effect, noted.handles)).collect();
    assert_eq!(seen, [(link("a"), vec![7, u64::MAX]), (Act::Lease, vec![])]);
    // A line that a version doesn't know is passed over: this is what earlier ones do with the note.
    let text = std::fs::read_to_string(path(&scratch)).unwrap();
    std::fs::write(path(&scratch), text.replace("\"of\"", "\"unknown\"").replace("\"handles\"", "\"numbers\""))
        .unwrap();
    drop(record);
    let record = existing(&scratch).unwrap().unwrap();
    assert!(record.warnings().is_empty());
    assert_eq!(record.effects(None).len(), 2);
}

#[test]
fn records_of_the_known_are_not_opened() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    drop(open(&scratch));
    let other = Header { container_id: "other".to_owned(), ..header() };
    drop(Record::<Act>::open_or_create(&root, &other, soon()).unwrap());
    // What is in the file of a known one is not looked at.
    std::fs::write(path(&scratch), "no record").unwrap();
    let empty = Header { container_id: "empty".to_owned(), ..header() };
    let empty = root.join("attachments").join(empty.key().file_name());
    std::fs::write(&empty, "").unwrap();
    let others = list_others(&root, &[header().key()].into_iter().collect()).unwrap();
    assert_eq!(others.iter().map(|summary| summary.header.clone()).collect::<Vec<_>>(), [Some(other.clone())]);
    assert!(!empty.exists());
    assert_eq!(list_others(&root, &[other.key()].into_iter().collect()).unwrap()[0].problems.len(), 1);
}

#[test]
fn other_networks_records_are_not_opened() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    drop(open(&scratch));
    let of = |network: &str, container: &str| Header {
        network: network.to_owned(),
        container_id: container.to_owned(),
        ..header()
    };
    let (stale, foreign) = (of(&header().network, "stale"), of("foreign", "c"));
    for header in [&stale, &foreign] {
        drop(Record::<Act>::open_or_create(&root, header, soon()).unwrap());
    }
    std::fs::write(root.join("attachments").join(foreign.key().file_name()), "no record").unwrap();
    let network = NetworkKey::new(header().host_netns_cookie, &header().network);
    let valid = Valid { network, attachments: [header().key()].into_iter().collect() };
    let headers = |summaries: Vec<Summary>| summaries.into_iter().map(|summary| summary.header).collect::<Vec<_>>();
    assert_eq!(headers(list_strangers(&root, &valid).unwrap()), [Some(stale)]);
    assert_eq!(headers(list_of(&root, network).unwrap()).len(), 2);
}

#[test]
fn records_of_postern_0_1_are_found_by_their_names() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    let mut record = open(&scratch);
    record.append("bridge", &link("v1"), false).unwrap();
    drop(record);
    // Before there were networks in the names.
    let earlier = path(&scratch).with_file_name(header().key().file_name().split_off(16));
    std::fs::rename(path(&scratch), &earlier).unwrap();
    let network = NetworkKey::new(header().host_netns_cookie, "another");
    assert!(list_of(&root, network).unwrap().is_empty());
    let valid = Valid { network, attachments: [header().key()].into_iter().collect() };
    assert!(list_strangers(&root, &valid).unwrap().is_empty(), "known by its attachment");
    assert!(!is_busy(&root, &header().key(), 0).unwrap());
    let record = open(&scratch);
    assert!(is_busy(&root, &header().key(), 0).unwrap() && !path(&scratch).exists());
    assert_eq!(record.effects(None).len(), 1);
    let key = list(&root).unwrap()[0].key.unwrap();
    assert_eq!((key, key.file_name().len()), (header().key(), 32));
    drop(record);
    let mut record = Record::<Act>::open_existing(&root, &key, soon()).unwrap().unwrap();
    record.mark_removed(1).unwrap();
    assert!(record.remove_file().unwrap() && !earlier.exists());
    drop(open(&scratch));
    assert!(path(&scratch).exists() && !earlier.exists(), "a new one has the new name");
}

#[test]
fn a_plugin_can_have_several_sections() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    assert_eq!((record.next_section("tuning"), record.called_section("tuning", "a")), ("tuning".to_owned(), None));
    record.begin("tuning", "d", "a", 1).unwrap();
    record.begin("tuning-x", "d", "a", 1).unwrap();
    let second = record.next_section("tuning");
    assert_eq!((second.as_str(), plugin_of(&second)), ("tuning#2", "tuning"));
    record.append(&second, &Act::Lease, true).unwrap();
    record.begin(&second, "d", "b", 2).unwrap();
    record.append(&second, &link("v"), true).unwrap();
    record.begin("tuning#3", "d", "a", 3).unwrap();
    drop(record);
    let mut record = open(&scratch);
    let called = |record: &Record<Act>, config| record.called_section("tuning", config).map(|s| s.name.clone());
    for (config, expected) in [("a", "tuning#3"), ("b", "tuning#2"), ("c", "tuning#3")] {
        assert_eq!(called(&record, config).as_deref(), Some(expected));
    }
    let makers: Vec<_> = record.sections().iter().map(|s| (s.name.as_str(), s.plugin(), s.made_link)).collect();
    let expected = [("tuning", "tuning"), ("tuning-x", "tuning-x"), ("tuning#2", "tuning"), ("tuning#3", "tuning")];
    assert_eq!(makers, expected.map(|(name, plugin)| (name, plugin, name == "tuning#2")));
    record.end(Some("tuning#3")).unwrap();
    assert_eq!(called(&record, "a").as_deref(), Some("tuning"));
    assert_eq!((record.effects(Some("tuning#2")).len(), record.effects(Some("tuning")).len()), (2, 0));
    assert_eq!(record.next_section("tuning"), "tuning#3");
    // Ones that were given out already are not given out again while a later one is there.
    record.end(Some("tuning")).unwrap();
    assert_eq!(record.next_section("tuning"), "tuning#3");
}

#[test]
fn sections_of_postern_0_1_are_read() {
    let scratch = Scratch::new();
    drop(open(&scratch));
    let mut text = std::fs::read_to_string(path(&scratch)).unwrap();
    text += "{\"plugin\":\"bridge\",\"begun\":{\"digest\":\"d\",\"time\":7}}\n";
    text += "{\"seq\":1,\"plugin\":\"bridge\",\"effect\":\"lease\"}\n";
    std::fs::write(path(&scratch), text).unwrap();
    let record = open(&scratch);
    let section = record.called_section("bridge", "any").unwrap();
    assert_eq!((section.config.as_deref(), section.made_link, section.name.as_str()), (None, false, "bridge"));
}

#[test]
fn sections_tell_how_far_each_plugin_got() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    record.begin("bridge", "d1", "c", 7).unwrap();
    record.append("bridge", &link("a"), false).unwrap();
    record.made("bridge", vec!["10.0.0.2/24".to_owned()], DataPath::default()).unwrap();
    record.given("bridge", 9).unwrap();
    record.begin("tuning", "d2", "c", 8).unwrap();
    drop(record);
    let mut record = existing(&scratch).unwrap().unwrap();
    let bridge = Section {
        name: "bridge".to_owned(),
        config: Some("c".to_owned()),
        made_link: false,
        digest: "d1".to_owned(),
        begun: 7,
        stage: Stage::Given,
        since: 9,
        addresses: vec!["10.0.0.2/24".to_owned()],
        path: DataPath::default(),
    };
    let tuning = Section {
        name: "tuning".to_owned(),
        config: Some("c".to_owned()),
        made_link: false,
        digest: "d2".to_owned(),
        begun: 8,
        stage: Stage::Begun,
        since: 8,
        addresses: Vec::new(),
        path: DataPath::default(),
    };
    assert_eq!(record.sections(), [bridge.clone(), tuning]);
    assert_eq!(list(&scratch.path("state")).unwrap()[0].sections, record.sections());
    record.end(Some("tuning")).unwrap();
    assert_eq!(record.sections(), [bridge]);
    record.mark_removed(1).unwrap();
    assert!(!record.remove_file().unwrap(), "a plugin that left nothing may have made what dies with the namespace");
    let mut record = existing(&scratch).unwrap().unwrap();
    record.end(None).unwrap();
    assert!(record.remove_file().unwrap());
}

/// How packets go is kept as far as the record stays within the page that its first line has taken.
#[test]
fn a_data_path_is_kept_within_a_page() {
    for (count, is_kept) in [(3, true), (30, true), (200, false)] {
        let scratch = Scratch::new();
        let mut record = open(&scratch);
        record.begin("bridge", "d", "c", 1).unwrap();
        let wanted = DataPath {
            mac: Some("02:00:00:00:00:01".to_owned()),
            routes: (0..count).map(|number| format!("10.{number}.0.0/16 10.9.0.1")).collect(),
            gateways: vec!["br9 10.9.0.1/24".to_owned()],
            ..DataPath::default()
        };
        record.made("bridge", vec!["10.0.0.2/24".to_owned()], wanted.clone()).unwrap();
        record.given("bridge", 2).unwrap();
        drop(record);
        assert!(std::fs::metadata(path(&scratch)).unwrap().len() <= 4096);
        let record = existing(&scratch).unwrap().unwrap();
        let section = &record.sections()[0];
        assert_eq!((section.stage, section.addresses.len()), (Stage::Given, 1));
        let expected = if is_kept { wanted } else { DataPath { routes: Vec::new(), ..wanted } };
        assert_eq!(section.path, expected, "{count}");
    }
}

/// What is known when the runtime has its answer can be noted on a disk that is full.
#[test]
fn the_last_line_needs_no_room() {
    let scratch = Scratch::new();
    let size = || std::fs::metadata(path(&scratch)).unwrap().len();
    let mut record = open(&scratch);
    record.begin("bridge", "d", "c", 1).unwrap();
    record.made("bridge", vec!["10.0.0.2/24".to_owned()], DataPath::default()).unwrap();
    let full = size();
    record.given("bridge", 1_795_266_000_123).unwrap();
    assert_eq!(size(), full);
    record.append("bridge", &link("a"), false).unwrap();
    drop(record);
    let record = existing(&scratch).unwrap().unwrap();
    assert!(record.warnings().is_empty() && record.effects(None).len() == 1);
    assert_eq!((record.sections()[0].stage, record.sections()[0].since), (Stage::Given, 1_795_266_000_123));
    drop(record);
    // Killed before, and gone on with another line, shorter or longer than the room.
    for name in ["", "a name that is rather long for a link, and longer than the room"] {
        let mut record = open(&scratch);
        record.end(None).unwrap();
        record.begin("bridge", "d", "c", 1).unwrap();
        record.made("bridge", Vec::new(), DataPath::default()).unwrap();
        let effects = record.effects(None).len();
        record.append("bridge", &link(name), false).unwrap();
        drop(record);
        let record = existing(&scratch).unwrap().unwrap();
        assert!(record.warnings().is_empty() && record.effects(None).len() == effects + 1);
        assert_eq!(record.sections()[0].stage, Stage::Made);
    }
}

/// As version 0.1.0 wrote them, and as one to come may.
#[test]
fn lines_of_other_kinds_are_passed_over() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    record.append("bridge", &link("a"), false).unwrap();
    drop(record);
    let text = std::fs::read_to_string(path(&scratch)).unwrap();
    assert!(text.lines().count() == 2, "a record without sections:\n{text}");
    std::fs::write(path(&scratch), format!("{text}{{\"plugin\":\"bridge\",\"slept\":{{\"well\":true}}}}\n")).unwrap();
    let record = existing(&scratch).unwrap().unwrap();
    assert!(record.sections().is_empty() && record.warnings().is_empty() && record.effects(None).len() == 1);
}

#[test]
fn what_is_no_file_is_set_aside() {
    use nix::sys::stat::Mode;
    let scratch = Scratch::new();
    drop(open(&scratch));
    let place = path(&scratch);
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("directory", &|| std::fs::create_dir(&place).unwrap()),
        ("link", &|| std::os::unix::fs::symlink("/etc/passwd", &place).unwrap()),
        ("fifo", &|| nix::unistd::mkfifo(&place, Mode::S_IRWXU).unwrap()),
        ("too long", &|| std::fs::write(&place, vec![b'{'; 2 << 20]).unwrap()),
    ];
    for (number, (kind, make)) in kinds.into_iter().enumerate() {
        std::fs::remove_file(&place).unwrap();
        make();
        assert!(is_busy(&scratch.path("state"), &header().key(), 0).is_err() || kind == "too long", "{kind}");
        assert!(place.symlink_metadata().is_ok(), "a look moves nothing");
        let error = existing(&scratch).err().unwrap();
        assert!(matches!(error, StateError::Corrupt { .. }), "{kind}: {error}");
        let aside = format!("{}.corrupt-{}", place.display(), number + 1);
        assert!(Path::new(&aside).symlink_metadata().is_ok(), "{kind}");
        assert!(open(&scratch).is_new());
    }
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

/// What can be noted can be read again, with all notes that it was undone.
#[test]
fn a_record_that_is_full_refuses_and_can_still_be_removed() {
    for (name, fits) in [("a", MOST_EFFECTS), (&*"b".repeat(10_000), 26), (&*"\0".repeat(60_000), 0)] {
        let scratch = Scratch::new();
        let mut record = open(&scratch);
        let mut noted = 0;
        let error = loop {
            match record.append("bridge", &link(name), false) {
                Ok(_) => noted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, StateError::Exhausted(text) if text.contains("its DEL removes them")), "{error}");
        assert_eq!(noted, fits);
        drop(record);
        let mut record = existing(&scratch).unwrap().unwrap();
        assert_eq!(record.effects(None).len(), noted);
        for effect in record.effects(None) {
            record.mark_removed(effect.seq).unwrap();
        }
        drop(record);
        assert!(existing(&scratch).unwrap().unwrap().remove_file().unwrap());
    }
}

/// What comes and goes fills a record too.
#[test]
fn notes_of_what_is_undone_count() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    while let Ok(seq) = record.append("bridge", &link("a"), false) {
        record.mark_removed(seq).unwrap();
    }
    assert!(record.is_empty());
    let length = std::fs::metadata(path(&scratch)).unwrap().len();
    assert!(length > MOST_BYTES - 200 && length < MOST_BYTES + 200, "{length}");
    drop(record);
    assert!(existing(&scratch).unwrap().unwrap().remove_file().unwrap());
}

/// Earlier versions had no limit but that of reading.
#[test]
fn a_longer_record_of_an_earlier_version_is_removed() {
    let scratch = Scratch::new();
    drop(open(&scratch));
    let mut text = std::fs::read_to_string(path(&scratch)).unwrap();
    let mut seq = 0;
    while (text.len() as u64) < READ_LIMIT - 200 {
        seq += 1;
        text += &format!("{{\"seq\":{seq},\"plugin\":\"bridge\",\"effect\":\"lease\"}}\n");
    }
    std::fs::write(path(&scratch), &text).unwrap();
    let mut record = existing(&scratch).unwrap().unwrap();
    assert!(matches!(record.append("bridge", &Act::Lease, false), Err(StateError::Exhausted(_))));
    for effect in record.effects(None).iter().skip(1) {
        record.mark_removed(effect.seq).unwrap();
    }
    // As a DEL that is killed leaves it.
    drop(record);
    let mut record = existing(&scratch).unwrap().unwrap();
    for left in record.effects(None) {
        record.mark_removed(left.seq).unwrap();
    }
    assert!(record.remove_file().unwrap());
}

#[test]
fn files_that_were_never_begun_go() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    assert_eq!(tidy(&root).unwrap(), 0);
    let record = open(&scratch);
    std::fs::write(path(&scratch), "").unwrap();
    assert_eq!(tidy(&root).unwrap(), 0, "somebody has it open");
    drop(record);
    assert_eq!(tidy(&root).unwrap(), 1);
    drop(open(&scratch));
    std::fs::create_dir(root.join("attachments").join("0".repeat(32))).unwrap();
    assert_eq!(tidy(&root).unwrap(), 0);
    assert!(path(&scratch).exists());
}

#[test]
fn keys_are_unambiguous() {
    let keys = [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), ("", "abc", "d"), ("abcd", "", "")];
    let keys: std::collections::HashSet<_> = keys.iter().map(|(n, c, i)| RecordKey::new(1, n, c, i)).collect();
    assert_eq!(keys.len(), 5);
    assert!(keys.iter().all(|key| RecordKey::parse(&key.file_name()).as_ref() == Some(key)));
    assert_eq!(RecordKey::parse("../../../../../../../etc/shadow1"), None);
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
    assert!(is_busy(&root, &header().key(), 8).unwrap(), "it ended, but nobody knew of it yet");
    assert!(!is_busy(&root, &header().key(), 9).unwrap());
    let mut record = open(&scratch);
    record.end(None).unwrap();
    let soon_over = Instant::now() + std::time::Duration::from_millis(30);
    let error = Record::<Act>::open_or_create(&root, &header(), soon_over).err().unwrap();
    assert!(error.is_try_again(), "{error}");
    std::thread::scope(|scope| {
        // Waits on the file that is then unlinked, and must end with another one.
        let waiting = scope.spawn(|| open(&scratch).is_new());
        std::thread::sleep(std::time::Duration::from_millis(50));
        record.remove_file().unwrap();
        assert!(waiting.join().unwrap());
    });
    assert!(path(&scratch).exists());
    assert!(!is_busy(&root, &header().key(), 9).unwrap());
}

#[test]
fn corrupt_records_are_set_aside() {
    let scratch = Scratch::new();
    for (number, content) in ["garbage\n", "\0\0\0\0", "{}\n", "{\"version\":1}\n"].iter().enumerate() {
        drop(open(&scratch));
        std::fs::write(path(&scratch), content).unwrap();
        let error = existing(&scratch).err().unwrap();
        assert!(matches!(error, StateError::Corrupt { .. }), "{error}");
        let aside = format!("{}.corrupt-{}", path(&scratch).display(), number + 1);
        assert_eq!(&std::fs::read_to_string(aside).unwrap(), content);
        assert!(existing(&scratch).unwrap().is_none());
    }
    std::fs::write(path(&scratch), "garbage\n").unwrap();
    let record = open(&scratch);
    assert!(record.is_new() && record.warnings()[0].contains(".corrupt-5"));
    drop(record);
    // A record under another's key.
    let other = RecordKey::new(u64::MAX, "net", "box", "eth1");
    std::fs::copy(path(&scratch), path(&scratch).with_file_name(other.file_name())).unwrap();
    assert!(Record::<Act>::open_existing(&scratch.path("state"), &other, soon()).is_err());
    let listed = list(&scratch.path("state")).unwrap();
    assert_eq!(listed.len(), 7);
    assert_eq!(listed.iter().filter(|summary| summary.problems.is_empty()).count(), 1);
    assert!(listed.iter().all(|summary| !summary.is_of_other_version));
}

#[test]
fn other_versions_are_named() {
    let scratch = Scratch::new();
    drop(open(&scratch));
    std::fs::write(path(&scratch), "{\"version\":2,\"writer\":\"postern 9.1\"}\n{\"what\":1}\n").unwrap();
    let error = existing(&scratch).err().unwrap().to_string();
    assert!(error.contains("version 2, written by postern 9.1"), "{error}");
    assert!(list(&scratch.path("state")).unwrap()[0].is_of_other_version);
    assert!(path(&scratch).exists());
    std::fs::remove_file(path(&scratch)).unwrap();
    drop(open(&scratch));
    let text = std::fs::read_to_string(path(&scratch)).unwrap();
    std::fs::write(path(&scratch), format!("{text}{{\"seq\":1,\"plugin\":\"x\",\"effect\":\"teleport\"}}\n")).unwrap();
    let error = existing(&scratch).err().unwrap().to_string();
    assert!(error.contains("line 2") && error.contains("teleport"), "{error}");
    assert_eq!(list(&scratch.path("state")).unwrap()[0].effects.len(), 1);
}

#[test]
fn a_damaged_line_doesnt_hide_the_others() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    for name in ["a", "b", "c"] {
        record.append("bridge", &link(name), false).unwrap();
    }
    drop(record);
    let text = std::fs::read_to_string(path(&scratch)).unwrap();
    std::fs::write(path(&scratch), text.replace("{\"seq\":2", "{\"se\0:2")).unwrap();
    let mut record = existing(&scratch).unwrap().unwrap();
    assert_eq!(record.effects(None).iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(record.warnings().len(), 1);
    assert_eq!(record.append("bridge", &link("d"), false).unwrap(), 4);
    drop(record);
    let mut record = existing(&scratch).unwrap().unwrap();
    assert_eq!(record.effects(None).len(), 3);
    for effect in record.effects(None) {
        record.mark_removed(effect.seq).unwrap();
    }
    // Who knows what the line told of.
    let error = record.remove_file().err().unwrap().to_string();
    assert!(error.contains("line 3 is damaged") && error.contains(".corrupt-1"), "{error}");
    assert!(!path(&scratch).exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Killed at any byte: what was wholly written counts, and the record goes on from there.
    #[test]
    fn any_cut_is_survived(cut in any::<prop::sample::Index>()) {
        let scratch = Scratch::new();
        let mut record = open(&scratch);
        for name in ["a", "b", "c"] {
            record.append("bridge", &link(name), false).unwrap();
        }
        drop(record);
        let bytes = std::fs::read(path(&scratch)).unwrap();
        let cut = cut.index(bytes.len() + 1);
        std::fs::write(path(&scratch), &bytes[..cut]).unwrap();
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        let mut record = open(&scratch);
        prop_assert_eq!(record.is_new(), whole == 0);
        prop_assert_eq!(record.effects(None).len(), whole.saturating_sub(1));
        prop_assert!(record.warnings().is_empty());
        record.append("bridge", &link("d"), false).unwrap();
        drop(record);
        let record = existing(&scratch).unwrap().unwrap();
        prop_assert_eq!(record.effects(None).len(), whole.saturating_sub(1) + 1);
        prop_assert!(record.warnings().is_empty());
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), with_header in any::<bool>()) {
        let scratch = Scratch::new();
        drop(open(&scratch));
        let mut content = if with_header { std::fs::read(path(&scratch)).unwrap() } else { Vec::new() };
        content.extend(bytes);
        std::fs::write(path(&scratch), content).unwrap();
        let _ = list(&scratch.path("state")).unwrap();
        let record = open(&scratch);
        prop_assert!(record.effects(None).is_empty());
    }
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
