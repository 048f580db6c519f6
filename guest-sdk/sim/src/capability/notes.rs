//! `notes`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, OpError, host};

/// The greatest length of a note, in bytes.
const LIMIT: usize = 4096;

impl host::Notes for Kernel {
    fn set(&mut self, text: &str) -> Result<(), OpError> {
        if text.len() > LIMIT {
            let message = format!("a note of {} bytes is too long: it may have {LIMIT}", text.len());
            return Err(OpError::new(ErrorCode::Denied, "", message));
        }
        self.note = Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(())
    }

    fn get(&mut self) -> Result<Option<String>, OpError> {
        Ok(self.note.clone())
    }
}
