//! Attachments in doubt: a confined ADD needs an object that another attachment has, such as an address. The ADD can't
//! find out whether the other attachment is alive.
//!
//! The ADD leaves a note: an empty file `<root>/doubts/<key>`, named after the record of the other attachment. The next
//! ADD that may need the same object reads the note before it confines itself. It examines the attachment, and removes
//! the note. An address concerns only ADDs of one network. The name of a note about an address has the network too:
//! `<root>/doubts/<key>.<network>`. A note proves nothing: it only asks for an examination.
//!
//! All errors are [`StateError::Untrusted`] and [`StateError::Io`].

use crate::dir::OpenMode;
use crate::error::{Result, StateError};
use crate::files::Directory;
use crate::record::{NetworkKey, RecordKey};
use std::path::Path;

const SUBDIRECTORY: &str = "doubts";

/// The largest number of notes that concern one network, and of notes that concern all networks. Each note costs an
/// examination.
const MOST: usize = 16;

/// Notes that an attachment is in doubt, for the ADDs of one network or of all networks. False if there is no room for
/// the note.
pub fn note(root: &Path, key: &RecordKey, network: Option<NetworkKey>) -> Result<bool> {
    let directory = Directory::make_state(root, SUBDIRECTORY)?;
    let network = network.map(|network| network.to_string());
    let name = network.as_ref().map_or_else(|| key.file_name(), |network| format!("{key}.{network}"));
    let noted = directory.names_that(|other| network_of(other) == network.as_deref())?;
    if noted.contains(&name) {
        return Ok(true);
    }
    if noted.len() >= MOST {
        return Ok(false);
    }
    let made = directory.dir.file(&name, OpenMode::ChangeOrCreate(0o600));
    made.map(|_| true).map_err(|error| StateError::io("write", directory.path_of(&name), error))
}

/// Returns the network whose ADDs a note concerns; `None` for all networks.
fn network_of(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, network)| network)
}

/// Returns the attachments in doubt that concern an ADD of this network. Without a note, the call takes one system
/// call.
pub fn list(root: &Path, network: NetworkKey) -> Result<Vec<RecordKey>> {
    if nix::sys::stat::lstat(&root.join(SUBDIRECTORY)).is_err() {
        return Ok(Vec::new());
    }
    let Some(directory) = Directory::state(root, SUBDIRECTORY)? else { return Ok(Vec::new()) };
    let own = network.to_string();
    let names = directory.names_that(|name| network_of(name).is_none_or(|network| network == own))?;
    let mut keys: Vec<RecordKey> = Vec::new();
    for key in names.iter().filter_map(|name| RecordKey::parse(name.split('.').next()?)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.truncate(2 * MOST);
    Ok(keys)
}

/// Removes the notes on an attachment.
pub fn settle(root: &Path, key: &RecordKey) -> Result<()> {
    let Some(directory) = Directory::state(root, SUBDIRECTORY)? else { return Ok(()) };
    for name in directory.names_that(|name| key.is_named(name))? {
        directory.unlink(&name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;

    #[test]
    fn notes_are_few_and_go_when_they_are_settled() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let (own, other) = (NetworkKey::new(7, "n"), NetworkKey::new(7, "other"));
        assert_eq!(list(&root, own).unwrap(), []);
        let key = |number: usize| RecordKey::new(7, "n", &number.to_string(), "eth0");
        for number in [1, 2, 1] {
            assert!(note(&root, &key(number), None).unwrap());
        }
        settle(&root, &key(2)).unwrap();
        settle(&root, &key(3)).unwrap();
        assert_eq!(list(&root, own).unwrap(), [key(1)]);
        let made = (0..2 * MOST).filter(|number| note(&root, &key(*number), None).unwrap()).count();
        assert_eq!((made, list(&root, own).unwrap().len()), (MOST, MOST));
        assert!(note(&root, &key(1), None).unwrap(), "the note exists");
        // The notes of one network take no room from other networks, and other networks do not read them.
        let made = (100..200).filter(|number| note(&root, &key(*number), Some(own)).unwrap()).count();
        assert_eq!((made, list(&root, own).unwrap().len()), (MOST, 2 * MOST));
        assert_eq!(list(&root, other).unwrap().len(), MOST);
        assert!(note(&root, &key(100), Some(other)).unwrap());
        settle(&root, &key(100)).unwrap();
        assert_eq!((list(&root, own).unwrap().len(), list(&root, other).unwrap().len()), (2 * MOST - 1, MOST));
    }
}
