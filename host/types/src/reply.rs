//! The answer to an operation that succeeded.

use crate::{ErrorCode, OpError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The answer to an operation, as bytes. Both ends know the answer's type from the operation (`surface`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// Makes an answer of this value.
    ///
    /// # Errors
    /// [`ErrorCode::Kernel`]: the value can't be encoded, which is a fault of the host.
    pub fn of(value: &impl Serialize) -> Result<Self, OpError> {
        postcard::to_allocvec(value).map(Self).map_err(|error| malformed(&error))
    }

    /// Reads the value.
    ///
    /// # Errors
    /// [`ErrorCode::Kernel`]: the bytes answer another operation, which is a fault of the host.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, OpError> {
        match postcard::take_from_bytes(&self.0) {
            Ok((value, [])) => Ok(value),
            Ok(_) => Err(malformed(&postcard::Error::DeserializeBadEncoding)),
            Err(error) => Err(malformed(&error)),
        }
    }
}

fn malformed(error: &postcard::Error) -> OpError {
    OpError::new(ErrorCode::Kernel, "", format!("the host's answer is malformed: {error}"))
}
