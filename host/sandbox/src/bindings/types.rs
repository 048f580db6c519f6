//! `postern:cni/types`: the values that the interfaces have in common.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Address, ErrorCode, LinkInfo, OpError};
use wit::types::{Error, Host};

impl Host for State {
    fn convert_error(&mut self, failure: Failure) -> wasmtime::Result<Error> {
        match failure {
            Failure::Answer(error) => Ok(error.into()),
            Failure::Trap(error) => Err(error),
        }
    }
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        Self {
            code: error.code.into(),
            errno: error.errno,
            operation: error.operation,
            object: error.object,
            message: error.message,
            hint: error.hint,
            delegate: error.delegate.map(|error| wit::types::DelegateError {
                code: error.code,
                msg: error.msg,
                details: error.details,
            }),
        }
    }
}

impl From<ErrorCode> for wit::types::ErrorCode {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Denied => Self::Denied,
            ErrorCode::NotFound => Self::NotFound,
            ErrorCode::Exists => Self::Exists,
            ErrorCode::InvalidArgument => Self::InvalidArgument,
            ErrorCode::InvalidHandle => Self::InvalidHandle,
            ErrorCode::Unsupported => Self::Unsupported,
            ErrorCode::Exhausted => Self::Exhausted,
            ErrorCode::TryAgain => Self::TryAgain,
            ErrorCode::Deadline => Self::Deadline,
            ErrorCode::Mismatch => Self::Mismatch,
            ErrorCode::Kernel => Self::Kernel,
            ErrorCode::Io => Self::Io,
            ErrorCode::Delegate => Self::Delegate,
        }
    }
}

impl From<LinkInfo> for wit::types::LinkAttributes {
    fn from(link: LinkInfo) -> Self {
        Self {
            name: link.name,
            mac: link.mac.map(|mac| mac.to_string()),
            mtu: link.mtu,
            kind: link.kind,
            up: link.up,
            running: link.running,
        }
    }
}

impl From<Address> for wit::types::Address {
    fn from(address: Address) -> Self {
        Self { net: address.net.to_string(), scope: address.scope, tentative: address.tentative }
    }
}
