//! Lists of records, by their names and keys.

use super::*;

#[test]
fn records_of_the_known_are_not_opened() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    drop(open(&scratch));
    let other = Header { container_id: "other".to_owned(), ..header() };
    drop(Record::<Act>::open_or_create(&root, &other, soon()).unwrap());
    // `list_others` does not read the record of a known key.
    std::fs::write(path(&scratch), "no record").unwrap();
    let empty = Header { container_id: "empty".to_owned(), ..header() };
    let empty = root.join("attachments").join(empty.key().file_name());
    std::fs::write(&empty, "").unwrap();
    let others = list_others(&root, &[header().key()].into_iter().collect()).unwrap();
    assert_eq!(others.iter().map(|summary| summary.header.clone()).collect::<Vec<_>>(), [Some(other.clone())]);
    assert!(!empty.exists());
    assert_eq!(list_others(&root, &[other.key()].into_iter().collect()).unwrap()[0].problems.len(), 1);
}

/// A file that can never be a record must not make a list fail.
#[test]
fn what_is_no_record_is_not_unread() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    drop(open(&scratch));
    let place = |name: &str| {
        let header = Header { container_id: name.to_owned(), ..header() };
        root.join("attachments").join(header.key().file_name())
    };
    std::fs::create_dir(place("directory")).unwrap();
    std::os::unix::fs::symlink("nowhere", place("link")).unwrap();
    nix::unistd::mkfifo(&place("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    let large = std::fs::File::create(place("large")).unwrap();
    large.set_len(READ_LIMIT + 1).unwrap();
    let problems = |summaries: Vec<Summary>| summaries.iter().filter(|summary| !summary.problems.is_empty()).count();
    assert_eq!(problems(list_known(&root).unwrap()), 4);
    let network = NetworkKey::new(header().host_netns_cookie, &header().network);
    assert_eq!(problems(list_of(&root, network).unwrap()), 4);
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
    assert_eq!(headers(list_collectable(&root, &valid).unwrap()), [Some(stale)]);
    assert_eq!(headers(list_of(&root, network).unwrap()).len(), 2);
}

#[test]
fn records_of_postern_0_1_are_found_by_their_names() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    let mut record = open(&scratch);
    record.append("bridge", &link("v1"), false).unwrap();
    drop(record);
    // File names of Postern 0.1 have no network.
    let earlier = path(&scratch).with_file_name(header().key().file_name().split_off(16));
    std::fs::rename(path(&scratch), &earlier).unwrap();
    let network = NetworkKey::new(header().host_netns_cookie, "another");
    assert!(list_of(&root, network).unwrap().is_empty());
    let valid = Valid { network, attachments: [header().key()].into_iter().collect() };
    assert!(list_collectable(&root, &valid).unwrap().is_empty(), "known by its attachment");
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
    assert!(path(&scratch).exists() && !earlier.exists(), "a new record has the new name");
}

#[test]
fn files_that_were_never_begun_go() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    assert_eq!(tidy(&root).unwrap(), 0);
    let record = open(&scratch);
    std::fs::write(path(&scratch), "").unwrap();
    assert_eq!(tidy(&root).unwrap(), 0, "another process has the file open");
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
fn records_without_the_text_are_not_parsed() {
    let scratch = Scratch::new();
    let root = scratch.path("state");
    drop(open(&scratch));
    let other = Header { container_id: "other".to_owned(), ..header() };
    drop(Record::<Act>::open_or_create(&root, &other, soon()).unwrap());
    let headers = |text: &str| {
        let found = list_with(&root, text).unwrap();
        found.into_iter().map(|summary| summary.header.unwrap().container_id).collect::<Vec<_>>()
    };
    assert_eq!(headers("\"other\""), ["other"]);
    assert_eq!(headers("no such text"), Vec::<String>::new());
    assert_eq!(headers("container_id").len(), 2);
    // A file that can't be parsed is ignored if it lacks the text.
    std::fs::write(path(&scratch), "no record").unwrap();
    assert_eq!(headers("other"), ["other"]);
}
