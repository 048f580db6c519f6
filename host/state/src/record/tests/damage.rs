//! Records that are full, damaged or of another version, and files that are no records.

use super::*;

/// Records as version 0.1.0 wrote them, and as a later version may write them.
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
        ("too long", &|| std::fs::write(&place, vec![b'{'; 4 << 20]).unwrap()),
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

/// A full record can be read again, even with a note for each undone effect.
#[test]
fn a_record_that_is_full_refuses_and_can_still_be_removed() {
    for (name, fits) in [("a", MOST_EFFECTS), (&*"b".repeat(40_000), 26), (&*"\0".repeat(240_000), 0)] {
        let scratch = Scratch::new();
        let mut record = open(&scratch);
        let mut noted = 0;
        let error = loop {
            match record.append("bridge", &link(name), false) {
                Ok(_) => noted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, StateError::Exhausted(text) if text.contains("DEL removes these things")), "{error}");
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

/// Effects that were undone take room in a record too.
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

/// Earlier versions had only the limit on reading.
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
    // A killed DEL leaves this state.
    drop(record);
    let mut record = existing(&scratch).unwrap().unwrap();
    for left in record.effects(None) {
        record.mark_removed(left.seq).unwrap();
    }
    assert!(record.remove_file().unwrap());
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
    // The name and the content of this file belong to different records.
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
    // The content of the damaged line is unknown.
    let error = record.remove_file().err().unwrap().to_string();
    assert!(error.contains("line 3 is damaged") && error.contains(".corrupt-1"), "{error}");
    assert!(!path(&scratch).exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A process can be killed at any byte. Whole lines count, and the record continues after them.
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
