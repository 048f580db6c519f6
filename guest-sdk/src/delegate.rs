//! Delegation to the main plugin of a network of flannel.

use crate::error::Error;
use crate::sys::{self, host};
use postern_cni::{CniResult, Json, Subnet, Version, print};

#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, SubnetFile, ops},
};

/// Returns the contents of the subnet file that the configuration names.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::NotFound`].
pub fn subnet_file() -> Result<Subnet, Error> {
    host!(
        component: {
            let file = sys::delegate::subnet_file().map_err(sys::failure)?;
            let read = |list: &[String]| list.iter().map(|text| sys::read(text)).collect::<Result<Vec<_>, _>>();
            Ok(Subnet {
                networks: read(&file.networks)?,
                subnets: read(&file.subnets)?,
                mtu: file.mtu,
                ip_masq: file.ip_masq,
            })
        },
        fake: ask_for_subnet().map(|file| Subnet {
            networks: file.networks,
            subnets: file.subnets,
            mtu: file.mtu,
            ip_masq: file.ip_masq,
        }),
    )
}

/// Runs the delegate's ADD with this configuration, which the host compares with its own. If the caller's ADD fails later,
/// the host undoes the delegate's effects.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn add(config: &Json) -> Result<CniResult, Error> {
    let config = print::compact(config);
    let text = host!(
        component: sys::delegate::add(&config).map_err(sys::failure)?,
        fake: ask_for_result(config)?,
    );
    let result = Json::parse(text.as_bytes(), text.len())?;
    Ok(CniResult::parse(&result, Version::LATEST.as_str())?)
}

#[cfg(not(target_arch = "wasm32"))]
fn ask_for_subnet() -> Result<SubnetFile, Error> {
    ask!(ops::Delegate::SubnetFile, Reply::Subnet(file) => file)
}

#[cfg(not(target_arch = "wasm32"))]
fn ask_for_result(config: String) -> Result<String, Error> {
    ask!(ops::Delegate::Add { config }, Reply::Result(result) => result)
}

/// Runs the delegate's DEL with the configuration of its ADD.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn del() -> Result<(), Error> {
    host!(
        component: sys::delegate::del().map_err(sys::failure),
        fake: sys::done(ops::Delegate::Del),
    )
}

/// Runs the delegate's CHECK with the configuration of its ADD.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn check() -> Result<(), Error> {
    host!(
        component: sys::delegate::check().map_err(sys::failure),
        fake: sys::done(ops::Delegate::Check),
    )
}

/// Runs the delegate's STATUS.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn status() -> Result<(), Error> {
    host!(
        component: sys::delegate::status().map_err(sys::failure),
        fake: sys::done(ops::Delegate::Status),
    )
}

/// Runs the delegate's GC.
///
/// # Errors
/// The delegate's own error, unchanged.
pub fn gc() -> Result<(), Error> {
    host!(
        component: sys::delegate::gc().map_err(sys::failure),
        fake: sys::done(ops::Delegate::Gc),
    )
}
