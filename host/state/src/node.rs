//! Notes on node objects: objects made by Postern that outlive single attachments. Examples are a bridge, the base
//! tables of the firewall, or forwarding that was switched on. An uninstall reads in these notes which objects it may
//! remove.
//!
//! Each object has one JSON file, `<root>/node/<kind>-<name>@<cookie>.json`, put in place by a rename. The cookie is
//! the number of the host's network namespace, because two namespaces may each have a bridge of the same name.
//!
//! All errors are [`StateError::Untrusted`] and [`StateError::Io`]; for a single note also
//! [`StateError::OtherVersion`].

use crate::error::{Result, StateError};
use crate::files::Directory;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const VERSION: u64 = 1;
const SUBDIRECTORY: &str = "node";
const SUFFIX: &str = ".json";

/// A node object made by Postern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeObject {
    /// The object's kind, e.g. `bridge`, `table`, `forwarding`.
    pub kind: String,
    /// The object's name, e.g. `cni0`, `inet/postern`, `ipv4`.
    pub name: String,
    /// The boot in which the object was made. In a later boot the object is gone, or another program made it.
    pub boot_id: String,
    /// Cookie of the host's network namespace that the object is in.
    pub host_netns_cookie: u64,
    /// The time when the object was made, milliseconds since 1970.
    pub created: u64,
    /// Further data for the object's removal, e.g. the earlier value of a switch.
    #[serde(default)]
    pub detail: Value,
}

#[derive(Serialize, Deserialize)]
struct Note {
    version: u64,
    #[serde(flatten)]
    object: NodeObject,
}

/// Notes an object before it is made; true if the note is new. A note of the same boot stays as it is, because the
/// first note has the state before Postern. A note of an earlier boot is replaced.
pub fn note(root: &Path, object: &NodeObject) -> Result<bool> {
    let directory = Directory::make_state(root, SUBDIRECTORY)?;
    let name = file_name(&object.kind, &object.name, object.host_netns_cookie);
    if let Some(content) = directory.read(&name)?
        && let Ok(earlier) = serde_json::from_slice::<Note>(&content)
        && earlier.object.boot_id == object.boot_id
    {
        return Ok(false);
    }
    write(&directory, &name, object)?;
    Ok(true)
}

/// Replaces an existing note.
pub fn update(root: &Path, object: &NodeObject) -> Result<()> {
    let directory = Directory::make_state(root, SUBDIRECTORY)?;
    write(&directory, &file_name(&object.kind, &object.name, object.host_netns_cookie), object)
}

fn write(directory: &Directory, name: &str, object: &NodeObject) -> Result<()> {
    let content = serde_json::to_vec(&Note { version: VERSION, object: object.clone() })
        .map_err(|error| StateError::io("encode", directory.path_of(name), error))?;
    directory.replace(name, &format!(".{}-{name}", std::process::id()), &content)
}

/// Returns the note on an object in the network namespace `host_netns_cookie`; `None` if Postern didn't make the
/// object.
pub fn find(root: &Path, kind: &str, name: &str, host_netns_cookie: u64) -> Result<Option<NodeObject>> {
    let Some(directory) = Directory::state(root, SUBDIRECTORY)? else { return Ok(None) };
    read(&directory, &file_name(kind, name, host_netns_cookie))
}

/// Returns all readable notes, and the errors of the other notes.
pub fn list(root: &Path) -> Result<(Vec<NodeObject>, Vec<StateError>)> {
    let (mut objects, mut problems) = (Vec::new(), Vec::new());
    if let Some(directory) = Directory::state(root, SUBDIRECTORY)? {
        let mut names = directory.names()?;
        names.sort();
        for name in names.iter().filter(|name| name.ends_with(SUFFIX) && !name.starts_with('.')) {
            match read(&directory, name) {
                Ok(object) => objects.extend(object),
                Err(error) => problems.push(error),
            }
        }
    }
    Ok((objects, problems))
}

/// Removes the note on an object that was removed; true if the note existed.
pub fn remove(root: &Path, kind: &str, name: &str, host_netns_cookie: u64) -> Result<bool> {
    match Directory::state(root, SUBDIRECTORY)? {
        Some(directory) => directory.unlink(&file_name(kind, name, host_netns_cookie)),
        None => Ok(false),
    }
}

fn read(directory: &Directory, name: &str) -> Result<Option<NodeObject>> {
    let Some(content) = directory.read(name)? else { return Ok(None) };
    let note: Note =
        serde_json::from_slice(&content).map_err(|error| StateError::io("decode", directory.path_of(name), error))?;
    if note.version != VERSION {
        let (path, writer) = (directory.path_of(name), "another postern".to_owned());
        return Err(StateError::OtherVersion { path, version: note.version, writer });
    }
    Ok(Some(note.object))
}

/// Returns the file name of an object. A name may have any character (an interface may be called `a%b`). Characters
/// other than letters, digits and plain signs are escaped.
fn file_name(kind: &str, name: &str, cookie: u64) -> String {
    let mut file = String::new();
    for (part, separator) in [(kind, "-"), (name, "@")] {
        for byte in part.bytes() {
            // A hyphen in the kind would give two pairs of kind and name the same file name.
            let is_plain =
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') || (byte == b'-' && separator == "@");
            // Writing to a string can't fail.
            let _ = if is_plain { file.write_char(char::from(byte)) } else { write!(file, "%{byte:02x}") };
        }
        file.push_str(separator);
    }
    file + &format!("{cookie:x}{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;

    fn object(kind: &str, name: &str, cookie: u64) -> NodeObject {
        NodeObject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            boot_id: "boot".to_owned(),
            host_netns_cookie: cookie,
            created: 1,
            detail: Value::Null,
        }
    }

    #[test]
    fn notes_are_kept_per_namespace_and_replaced_after_a_boot() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        assert!(list(&root).unwrap().0.is_empty());
        let mut first = object("bridge", "cni0", 1);
        first.detail = serde_json::json!({"forwarding": "0"});
        assert!(note(&root, &first).unwrap());
        assert!(note(&root, &object("bridge", "cni0", 2)).unwrap());
        assert!(!note(&root, &object("bridge", "cni0", 1)).unwrap(), "the first note counts");
        assert_eq!(find(&root, "bridge", "cni0", 1).unwrap(), Some(first));
        assert_eq!(find(&root, "bridge", "cni0", 3).unwrap(), None);
        let mut later = object("bridge", "cni0", 1);
        later.boot_id = "next".to_owned();
        assert!(note(&root, &later).unwrap());
        assert_eq!(list(&root).unwrap().0, [later, object("bridge", "cni0", 2)]);
        assert!(remove(&root, "bridge", "cni0", 1).unwrap());
        assert!(!remove(&root, "bridge", "cni0", 1).unwrap());
        assert_eq!(list(&root).unwrap().0.len(), 1);
    }

    #[test]
    fn names_cant_leave_the_directory_or_meet() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        let names = [("table", "../../x"), ("a-b", "c"), ("a", "b-c"), ("a", "%"), ("a", "\u{fc}\n"), ("a", "@1.json")];
        for (kind, name) in names {
            assert!(note(&root, &object(kind, name, 1)).unwrap(), "{kind} {name}");
            assert_eq!(find(&root, kind, name, 1).unwrap().unwrap().name, name);
        }
        assert_eq!(list(&root).unwrap().0.len(), names.len());
    }

    #[test]
    fn unreadable_notes_are_told() {
        let scratch = Scratch::new();
        let root = scratch.path("state");
        note(&root, &object("bridge", "a", 1)).unwrap();
        std::fs::write(root.join("node/bridge-b@1.json"), "garbage").unwrap();
        let newer = std::fs::read_to_string(root.join("node/bridge-a@1.json"))
            .unwrap()
            .replace("\"version\":1", "\"version\":7");
        std::fs::write(root.join("node/bridge-c@1.json"), newer).unwrap();
        let (objects, problems) = list(&root).unwrap();
        assert_eq!((objects.len(), problems.len()), (1, 2));
        assert!(problems[1].to_string().contains("version 7"), "{}", problems[1]);
        assert!(find(&root, "bridge", "b", 1).is_err());
        assert!(note(&root, &object("bridge", "b", 1)).unwrap());
    }
}
