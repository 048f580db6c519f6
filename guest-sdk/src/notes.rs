//! A note that a plugin keeps for an attachment: a short text in the plugin's section of the attachment's record.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use crate::sys;

/// Keeps a text of at most 4096 bytes, in place of the earlier text. An empty text removes the note. The call
/// is allowed only on ADD. The text counts as soon as it is in the record. A failed ADD removes the note.
/// Otherwise the note ends with the attachment.
///
/// Each text takes room in the record, which has room for about sixty long texts. So an ADD should note only
/// what a later call needs, and no progress. Errors: `denied` (also: the text is longer), `exists` (an earlier
/// ADD made this attachment), `exhausted` (the room is used up), `not-found` (no namespace), `io`. After each
/// error the earlier text counts.
pub fn set(text: &str) -> Result<(), Error> {
    sys::notes::set(text)
}

/// Returns the text, if there is one. STATUS and GC have no attachment, and so no note. On DEL the call needs
/// no grant. Errors: `denied`, `io` (another program changed the record).
pub fn get() -> Result<Option<String>, Error> {
    sys::notes::get()
}
