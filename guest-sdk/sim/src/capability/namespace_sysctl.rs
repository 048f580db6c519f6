//! `namespace-sysctl`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, OpError, host};

impl host::NamespaceSysctl for Kernel {
    fn set(&mut self, key: &str, value: &str) -> Result<(), OpError> {
        self.namespace()?;
        self.settings.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn check(&mut self, key: &str, value: &str) -> Result<(), OpError> {
        self.namespace()?;
        match self.settings.get(key) {
            Some(have) if have == value => Ok(()),
            have => {
                let have = have.map_or("absent", String::as_str);
                let message = format!("Error: Tuning configured value of {key} is {value}, current value is {have}");
                Err(OpError::new(ErrorCode::Mismatch, key, message))
            }
        }
    }
}
