//! Conversions of errors of the crates below the gate to the guest's form, and of the host's errors to the runtime's
//! form.

use crate::DENIED;
use postern_cni::{Error, code};
use postern_firewall::FirewallError;
use postern_kernel::KernelError;
use postern_state::StateError;
use postern_types::{ErrorCode, OpError};
use std::fmt;

/// Converts an obstacle of a run to the runtime's form: code 999.
pub fn obstacle(error: impl fmt::Display) -> Error {
    Error::internal(error.to_string())
}

/// Converts the error of a program that is no guest. Such an error must not have the code of the gate's refusals.
pub fn of_program(error: Error) -> Error {
    if error.code == DENIED { error.with_code(code::INTERNAL) } else { error }
}

/// Converts a kernel error to the guest's form.
pub fn kernel_error(error: KernelError) -> OpError {
    use nix::errno::Errno;
    let code = match error.errno.map(Errno::from_raw) {
        Some(Errno::EEXIST) => ErrorCode::Exists,
        Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH) => ErrorCode::NotFound,
        Some(Errno::EOPNOTSUPP) => ErrorCode::Unsupported,
        Some(Errno::EXFULL) => ErrorCode::Exhausted,
        _ => ErrorCode::Kernel,
    };
    let text = error.to_string();
    let mut converted = OpError::new(code, error.object, text);
    converted.errno = error.errno;
    converted
}

/// Converts an error of the state directory to the guest's form.
pub fn state_error(error: StateError) -> OpError {
    let code = match error {
        StateError::Locked { .. } | StateError::LongSearch { .. } => ErrorCode::TryAgain,
        StateError::Refused(_) => ErrorCode::Exists,
        StateError::Exhausted(_) => ErrorCode::Exhausted,
        StateError::Relative { .. } => ErrorCode::InvalidArgument,
        _ => ErrorCode::Io,
    };
    OpError::new(code, "", error.to_string())
}

/// Converts a packet filter's error to the guest's form.
pub fn firewall_error(error: FirewallError) -> OpError {
    let mut converted = OpError::new(ErrorCode::Kernel, error.object.clone(), error.to_string());
    converted.errno = error.errno;
    converted.hint = error.hint;
    converted
}

/// Converts a kernel error about `object` to the native plugins' form: `what`, then the error number's text.
pub fn native_error(error: KernelError, object: &(impl ToString + ?Sized), what: impl fmt::Display) -> OpError {
    let message = format!("{what}: {}", error.message);
    OpError { message, object: object.to_string(), ..kernel_error(error) }
}

/// Converts a kernel error about a link. The kernel's error has the link's index, but people need the link's name.
pub fn about(name: &(impl ToString + ?Sized)) -> impl Fn(KernelError) -> OpError {
    move |error| kernel_error(KernelError { object: name.to_string(), ..error })
}

/// The error for a link that disappeared between two operations.
pub fn link_gone(name: &str) -> OpError {
    OpError::new(ErrorCode::InvalidHandle, name, format!("link \"{name}\" is gone"))
}

/// The error of the host itself, outside of any plugin.
pub fn internal(error: OpError) -> Error {
    let code = match error.code {
        ErrorCode::TryAgain | ErrorCode::Deadline => code::TRY_AGAIN_LATER,
        ErrorCode::Io => code::IO_FAILURE,
        _ => code::INTERNAL,
    };
    Error::new(code, error.to_string())
}
