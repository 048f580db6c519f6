//! The lease that the node's DHCP service keeps for this attachment.
//!
//! No function takes an argument: the host tells the service the attachment and the operator's configuration.

use crate::error::Error;
use crate::sys;
use postern_types::DhcpLease;

/// Asks the service to get a lease for the attachment's link, and to renew it. The addresses become the attachment's
/// own. If the ADD fails later, the host gives the lease back.
///
/// # Errors
/// The service's own error, unchanged. [`postern_types::ErrorCode::Unsupported`] if no service answers,
/// `InvalidArgument` if the host refuses the lease, `Deadline` if the run's deadline passes.
pub fn acquire() -> Result<DhcpLease, Error> {
    sys::dhcp::acquire()
}

/// Returns the present lease of the service.
///
/// # Errors
/// The errors of [`acquire`], and the service's own error if the lease is lost.
pub fn check() -> Result<DhcpLease, Error> {
    sys::dhcp::check()
}

/// Asks the service to give the lease back. The host first removes everything in the record that uses the addresses.
/// The call succeeds if there is no lease, or no service.
pub fn release() -> Result<(), Error> {
    sys::dhcp::release()
}

/// Tests whether the service answers.
///
/// # Errors
/// [`postern_types::ErrorCode::Unsupported`]: the service does not answer.
pub fn status() -> Result<(), Error> {
    sys::dhcp::status()
}
