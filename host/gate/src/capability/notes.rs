//! `notes`: the text that a plugin keeps in its section of the attachment's record.
//!
//! Attachment, plugin name and configuration identify the run's section. So no request of a guest can choose the
//! section.

pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::errors::state_error;
use crate::gate::Gate;
use crate::guest_state::GuestState;
use postern_cni::Verb;
use postern_state::{Section, Stage};
use postern_types::{ErrorCode, LONGEST_NOTE, OpError, host};

impl host::Notes for Gate<'_> {
    fn set(&mut self, text: &str) -> Result<(), OpError> {
        if text.len() > LONGEST_NOTE {
            let message = format!("a note of {} bytes is too long: the limit is {LONGEST_NOTE}", text.len());
            return Err(OpError::new(ErrorCode::Denied, "", message).hint("keep less; no policy can allow more"));
        }
        // Only a section that this ADD has begun can be changed: an earlier ADD's section belongs to a complete
        // attachment.
        let Some(section) = own_section(self)?.filter(|section| section.stage == Stage::Begun) else {
            let message = "an earlier ADD made this attachment, and its note stays";
            return Err(OpError::new(ErrorCode::Exists, "", message).hint("run DEL first"));
        };
        if section.note.as_deref().unwrap_or_default() == text {
            return Ok(());
        }
        let name = section.name.clone();
        self.run.journal.record_for_writing(self.run.view())?.keep(&name, text).map_err(state_error)
    }

    fn get(&mut self) -> Result<Option<String>, OpError> {
        let note = own_section(self)?.and_then(|section| section.note.clone());
        match note {
            Some(text) if text.len() > LONGEST_NOTE => {
                let message = format!(
                    "the note in the attachment's record has {} bytes, and this host writes {LONGEST_NOTE} at most: \
                     another program changed the record",
                    text.len()
                );
                Err(OpError::new(ErrorCode::Io, "", message).hint("run DEL, then ADD"))
            }
            note => Ok(note),
        }
    }
}

/// Refuses a delegate: the section in the record belongs to its caller.
///
/// # Errors
/// [`ErrorCode::Denied`].
pub fn refuse_delegate(guest: &GuestState<'_>) -> Result<(), OpError> {
    if guest.depth == 0 {
        return Ok(());
    }
    let message = format!("\"{}\" runs for another plugin here, and has no section of its own", guest.plugin);
    let way_out = "only a plugin that the runtime calls keeps a note";
    Err(OpError::new(ErrorCode::Denied, guest.plugin, message).hint(way_out))
}

/// Returns the calling plugin's section, if the record has this section.
fn own_section<'a>(gate: &'a Gate<'_>) -> Result<Option<&'a Section>, OpError> {
    refuse_delegate(&gate.guest)?;
    let journal = &gate.run.journal;
    // A record of an attachment that is gone has no notes of this attachment. DEL is about the recorded attachment,
    // even if the path now leads to another namespace.
    let is_gone = || gate.run.request.verb != Verb::Del && journal.has_foreign_record(gate.run.system);
    if journal.is_replaced() || is_gone() {
        return Ok(None);
    }
    Ok(journal.sections().iter().find(|section| section.name == journal.section()))
}
