//! Delegation to the main plugin of a flannel network.

use crate::error::Error;
use crate::sys;
use postern_cni::{CniResult, Json, SubnetFile, Version, print};

/// Returns the contents of the subnet file that the configuration names.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`].
pub fn subnet_file() -> Result<SubnetFile, Error> {
    sys::delegate::subnet_file()
}

/// Runs the delegate's ADD with this configuration, which must equal the configuration that the host has made. If the
/// caller's ADD fails later, the host undoes the delegate's effects.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn add(config: &Json) -> Result<CniResult, Error> {
    let config = print::compact(config);
    let text = sys::delegate::add(&config)?;
    let result = Json::parse(text.as_bytes(), text.len())?;
    Ok(CniResult::parse(&result, Version::LATEST.as_str())?)
}

/// Runs the delegate's DEL with the configuration of its ADD.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn del() -> Result<(), Error> {
    sys::delegate::del()
}

/// Runs the delegate's CHECK with the configuration of its ADD.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn check() -> Result<(), Error> {
    sys::delegate::check()
}

/// Runs the delegate's STATUS.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn status() -> Result<(), Error> {
    sys::delegate::status()
}

/// Runs the delegate's GC.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn gc() -> Result<(), Error> {
    sys::delegate::gc()
}
