//! `namespace-sysctl`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::NamespaceSysctl) -> Result<Reply, OpError> {
    kernel.namespace()?;
    match operation {
        ops::NamespaceSysctl::Set { key, value } => {
            kernel.settings.insert(key.clone(), value.clone());
            Ok(Reply::Done)
        }
        ops::NamespaceSysctl::Check { key, value } => match kernel.settings.get(key) {
            Some(have) if have == value => Ok(Reply::Done),
            have => {
                let have = have.map_or("absent", String::as_str);
                let message = format!("Error: Tuning configured value of {key} is {value}, current value is {have}");
                Err(OpError::new(ErrorCode::Mismatch, key, message))
            }
        },
    }
}
