//! A recorder of the keys that code asks for: tests compare these keys with the documented keys.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static READ: RefCell<Option<BTreeSet<(String, String)>>> = const { RefCell::new(None) };
}

/// Runs `act`, and returns the keys that `act` asked for in this thread. Each entry has the name of a structure, and
/// the path of a key in the structure, without the indexes of lists.
pub fn record<T>(act: impl FnOnce() -> T) -> (T, BTreeSet<(String, String)>) {
    READ.with_borrow_mut(|read| *read = Some(BTreeSet::new()));
    let outcome = act();
    (outcome, READ.with_borrow_mut(Option::take).unwrap_or_default())
}

/// Notes that a key is asked for.
pub(crate) fn note(structure: &str, path: impl FnOnce() -> String) {
    READ.with_borrow_mut(|read| {
        if let Some(read) = read {
            read.insert((structure.to_owned(), path()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;

    #[test]
    fn keys_are_noted_with_their_path_while_it_records() {
        let json = Json::parse(br#"{"a": {"b": 1}, "l": [{"c": 2}]}"#, 100).unwrap();
        let read = || {
            let fields = json.fields("S").unwrap();
            fields.object("a").unwrap().unwrap().int("b").unwrap();
            fields.objects("l").unwrap().unwrap().first().unwrap().int("c").unwrap();
            fields.bool("absent").unwrap();
        };
        read();
        let ((), keys) = record(read);
        let paths: Vec<&str> = keys.iter().map(|(_, path)| path.as_str()).collect();
        assert_eq!(paths, ["a", "a.b", "absent", "l", "l.c"]);
        assert!(record(|| ()).1.is_empty());
    }
}
