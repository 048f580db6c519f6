//! `notes`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, LONGEST_NOTE, OpError, host};

impl host::Notes for Kernel {
    fn set(&mut self, text: &str) -> Result<(), OpError> {
        if text.len() > LONGEST_NOTE {
            let message = format!("a note of {} bytes is too long: the limit is {LONGEST_NOTE}", text.len());
            return Err(OpError::new(ErrorCode::Denied, "", message));
        }
        self.note = Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(())
    }

    fn get(&mut self) -> Result<Option<String>, OpError> {
        Ok(self.note.clone())
    }
}
