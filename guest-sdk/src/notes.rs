//! A note that a plugin keeps for an attachment: a small state of its own, in its section of the attachment's record.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;
use crate::sys;

/// Keeps a text of at most 4096 bytes for the container in the namespace, in place of the one before. An empty
/// text keeps none. Allowed only on ADD. The text counts as soon as it is in the record. A failed ADD takes it
/// back, and it goes with the attachment.
///
/// Each text takes its room in the record, which has enough for some sixty long ones: an ADD notes what it has
/// to know later, and no progress. Errors: `denied` (also: the text is longer), `exists` (an earlier ADD made
/// this attachment), `exhausted` (the room is used up), `not-found` (no namespace), `io`. After each of them
/// the text before counts.
pub fn set(text: &str) -> Result<(), Error> {
    sys::notes::set(text)
}

/// Returns the text, if there is one. There is none on STATUS and GC, which are about no attachment. On DEL
/// this needs no grant. Errors: `denied`, `io` (another program changed the record).
pub fn get() -> Result<Option<String>, Error> {
    sys::notes::get()
}
