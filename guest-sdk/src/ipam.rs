//! Delegation to the IPAM plugin that the operator's configuration names as `ipam.type`.
//!
//! No function takes an argument: the delegate gets the attachment's own environment and configuration.

use crate::error::Error;
use crate::sys::{self, host};
use postern_cni::{CniResult, Json, Version};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// Runs ADD; the addresses become the attachment's own. If the caller's ADD fails later, the host runs DEL.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn add() -> Result<CniResult, Error> {
    let text = host!(
        component: sys::ipam::add().map_err(sys::failure)?,
        fake: ask_for_result()?,
    );
    let result = Json::parse(text.as_bytes(), text.len())?;
    Ok(CniResult::parse(&result, Version::LATEST.as_str())?)
}

#[cfg(not(target_arch = "wasm32"))]
fn ask_for_result() -> Result<String, Error> {
    ask!(ops::Ipam::Add, Reply::Result(result) => result)
}

/// Runs DEL. The host removes everything in the record that uses the attachment's addresses first. A plugin that makes
/// a link deletes the link before this call.
pub fn del() -> Result<(), Error> {
    host!(
        component: sys::ipam::del().map_err(sys::failure),
        fake: sys::done(ops::Ipam::Del),
    )
}

/// Runs CHECK.
pub fn check() -> Result<(), Error> {
    host!(
        component: sys::ipam::check().map_err(sys::failure),
        fake: sys::done(ops::Ipam::Check),
    )
}

/// Runs STATUS.
pub fn status() -> Result<(), Error> {
    host!(
        component: sys::ipam::status().map_err(sys::failure),
        fake: sys::done(ops::Ipam::Status),
    )
}

/// Runs GC.
pub fn gc() -> Result<(), Error> {
    host!(
        component: sys::ipam::gc().map_err(sys::failure),
        fake: sys::done(ops::Ipam::Gc),
    )
}
