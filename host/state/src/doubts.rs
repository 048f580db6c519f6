//! Attachments in doubt: a confined ADD met one that has what it wants, and could not look whether that one is alive.
//!
//! It leaves a note, an empty file `<root>/doubts/<key>` with the name of that record. The next ADD that may want the same
//! looks before it confines itself, and removes the note. A note proves nothing: it only asks for a look.

use crate::dir::OpenMode;
use crate::error::{Result, StateError};
use crate::files::Directory;
use crate::record::RecordKey;
use std::path::Path;

const SUBDIRECTORY: &str = "doubts";

/// The most notes: each costs a look.
const MOST: usize = 16;

/// Notes that an attachment is in doubt.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`].
pub fn note(root: &Path, key: &RecordKey) -> Result<()> {
    let Some(directory) = Directory::state(root, SUBDIRECTORY, true)? else { return Ok(()) };
    let name = key.file_name();
    if directory.names()?.len() >= MOST {
        return Ok(());
    }
    let made = directory.dir.file(&name, OpenMode::ChangeOrCreate(0o600));
    made.map(drop).map_err(|error| StateError::io("write", directory.path_of(&name), error))
}

/// Returns the attachments in doubt. Without a note this is one system call.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`].
pub fn list(root: &Path) -> Result<Vec<RecordKey>> {
    if nix::sys::stat::lstat(&root.join(SUBDIRECTORY)).is_err() {
        return Ok(Vec::new());
    }
    let Some(directory) = Directory::state(root, SUBDIRECTORY, false)? else { return Ok(Vec::new()) };
    Ok(directory.names()?.iter().filter_map(|name| RecordKey::parse(name)).take(MOST).collect())
}

/// Removes the note on an attachment.
///
/// # Errors
/// [`StateError::Untrusted`], [`StateError::Io`].
pub fn settle(root: &Path, key: &RecordKey) -> Result<()> {
    match Directory::state(root, SUBDIRECTORY, false)? {
        Some(directory) => directory.unlink(&key.file_name()).map(drop),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;

    #[test]
    fn notes_are_few_and_go_when_they_are_settled() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        assert_eq!(list(&root).unwrap(), []);
        let key = |number: usize| RecordKey::new(7, "n", &number.to_string(), "eth0");
        for number in [1, 2, 1] {
            note(&root, &key(number)).unwrap();
        }
        settle(&root, &key(2)).unwrap();
        settle(&root, &key(3)).unwrap();
        assert_eq!(list(&root).unwrap(), [key(1)]);
        (0..2 * MOST).for_each(|number| note(&root, &key(number)).unwrap());
        assert_eq!(list(&root).unwrap().len(), MOST);
    }
}
