//! Delegation to the IPAM plugin that the operator's configuration names as `ipam.type`.
//!
//! No function takes an argument: the delegate gets the attachment's own environment and configuration.

use crate::error::Error;
use crate::sys;
use postern_cni::{CniResult, Json, Version};

/// Runs ADD; the addresses become the attachment's own. If the caller's ADD fails later, the host runs DEL.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn add() -> Result<CniResult, Error> {
    let text = sys::ipam::add()?;
    let result = Json::parse(text.as_bytes(), text.len())?;
    Ok(CniResult::parse(&result, Version::LATEST.as_str())?)
}

/// Runs DEL. The host first removes everything in the record that uses the attachment's addresses. A plugin that makes
/// a link must delete the link before this call.
pub fn del() -> Result<(), Error> {
    sys::ipam::del()
}

/// Runs CHECK.
pub fn check() -> Result<(), Error> {
    sys::ipam::check()
}

/// Runs STATUS.
pub fn status() -> Result<(), Error> {
    sys::ipam::status()
}

/// Runs GC.
pub fn gc() -> Result<(), Error> {
    sys::ipam::gc()
}
