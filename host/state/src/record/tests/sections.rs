//! Sections: their plugins and their progress.

use super::*;

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
    // An ordinal is not given out again while a section with a higher ordinal exists.
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
        joined: false,
        digest: "d1".to_owned(),
        begun: 7,
        stage: Stage::Given,
        since: 9,
        addresses: vec!["10.0.0.2/24".to_owned()],
        path: DataPath::default(),
        note: None,
    };
    let tuning = Section {
        name: "tuning".to_owned(),
        config: Some("c".to_owned()),
        made_link: false,
        joined: false,
        digest: "d2".to_owned(),
        begun: 8,
        stage: Stage::Begun,
        since: 8,
        addresses: Vec::new(),
        path: DataPath::default(),
        note: None,
    };
    assert_eq!(record.sections(), [bridge.clone(), tuning]);
    assert_eq!(list(&scratch.path("state")).unwrap()[0].sections, record.sections());
    record.end(Some("tuning")).unwrap();
    assert_eq!(record.sections(), [bridge]);
    record.mark_removed(1).unwrap();
    assert!(!record.remove_file().unwrap(), "the plugin may have made objects that end with the namespace");
    let mut record = existing(&scratch).unwrap().unwrap();
    record.end(None).unwrap();
    assert!(record.remove_file().unwrap());
}

/// The data path is kept if the record stays within the page that its first line has taken.
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

/// The last line, for the time when the runtime has the result, can be written on a full disk.
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
    // The process is killed before the last line. The next process writes another line, shorter or longer than the
    // room.
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

/// A section that joined a link of another plugin keeps the mark `joined`, whatever effects remain.
#[test]
fn a_section_that_joined_is_known_by_that() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    record.begin("bridge", "d", "c", 1).unwrap();
    record.joined("bridge").unwrap();
    record.append("bridge", &link("tap0"), false).unwrap();
    record.given("bridge", 2).unwrap();
    record.ending(Some("bridge")).unwrap();
    record.mark_removed(1).unwrap();
    drop(record);
    let mut record = existing(&scratch).unwrap().unwrap();
    assert!(record.sections()[0].joined && !record.sections()[0].made_link);
    // The next ADD begins without the mark.
    record.begin("bridge", "d", "c", 3).unwrap();
    assert!(!record.sections()[0].joined);
}

#[test]
fn a_note_counts_until_its_section_ends() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    let notes = |record: &Record<Act>| -> Vec<(String, Option<String>)> {
        record.sections().iter().map(|section| (section.name.clone(), section.note.clone())).collect()
    };
    let expected = |all: &[(&str, Option<&str>)]| -> Vec<(String, Option<String>)> {
        all.iter().map(|(name, note)| ((*name).to_owned(), note.map(str::to_owned))).collect()
    };
    record.begin("remember", "d", "a", 1).unwrap();
    record.begin("remember#2", "d", "b", 1).unwrap();
    record.keep("remember", "first").unwrap();
    record.keep("remember", "second\n\u{1b}[2J").unwrap();
    record.keep("remember#2", "other").unwrap();
    record.keep("nobody", "lost").unwrap();
    drop(record);
    let mut record = open(&scratch);
    let both = expected(&[("remember", Some("second\n\u{1b}[2J")), ("remember#2", Some("other"))]);
    assert_eq!(notes(&record), both);
    // A note in a torn line does not count.
    let text = std::fs::read_to_string(path(&scratch)).unwrap();
    record.keep("remember", "third").unwrap();
    drop(record);
    std::fs::write(path(&scratch), text + "{\"plugin\":\"remember\",\"note\":\"thi").unwrap();
    let mut record = open(&scratch);
    assert_eq!(notes(&record), both);
    record.keep("remember", "").unwrap();
    assert_eq!(notes(&record), expected(&[("remember", None), ("remember#2", Some("other"))]));
    // A new ADD begins without a note.
    record.begin("remember#2", "d", "b", 2).unwrap();
    assert_eq!(notes(&record), expected(&[("remember", None), ("remember#2", None)]));
}

/// Each note takes room, since a record is not compacted. Room for effects and progress always remains.
#[test]
fn notes_do_not_fill_a_record() {
    let scratch = Scratch::new();
    let mut record = open(&scratch);
    record.begin("remember", "d", "a", 1).unwrap();
    let text = |at: usize| format!("{at}{}", "\u{1}".repeat(4000));
    let refused = (0..1000).find(|at| record.keep("remember", &text(*at)).is_err()).unwrap();
    assert!(record.content.length < MOST_BYTES / 3, "{}", record.content.length);
    let error = record.keep("remember", "x".repeat(4096).as_str()).unwrap_err();
    assert!(matches!(&error, StateError::Exhausted(text) if text.contains("room for notes")), "{error}");
    assert_eq!(record.sections()[0].note, Some(text(refused - 1)));
    record.append("remember", &Act::Lease, false).unwrap();
    record.made("remember", Vec::new(), DataPath::default()).unwrap();
    record.given("remember", 2).unwrap();
    drop(record);
    assert_eq!(open(&scratch).sections()[0].note, Some(text(refused - 1)));
}
