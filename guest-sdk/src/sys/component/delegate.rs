//! `delegate` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::delegate as wit;
use crate::error::Error;
use postern_types::SubnetFile;

pub(crate) fn subnet_file() -> Result<SubnetFile, Error> {
    let got = wit::subnet_file().map_err(super::failure)?;
    got_subnet(got)
}

pub(crate) fn add(config: &str) -> Result<String, Error> {
    wit::add(config).map_err(super::failure)
}

pub(crate) fn del() -> Result<(), Error> {
    wit::del().map_err(super::failure)
}

pub(crate) fn check() -> Result<(), Error> {
    wit::check().map_err(super::failure)
}

pub(crate) fn status() -> Result<(), Error> {
    wit::status().map_err(super::failure)
}

pub(crate) fn gc() -> Result<(), Error> {
    wit::gc().map_err(super::failure)
}

fn got_subnet(got: wit::Subnet) -> Result<SubnetFile, Error> {
    Ok(SubnetFile {
        networks: got.networks.into_iter().map(|got| super::read(&got)).collect::<Result<Vec<_>, Error>>()?,
        subnets: got.subnets.into_iter().map(|got| super::read(&got)).collect::<Result<Vec<_>, Error>>()?,
        mtu: got.mtu,
        ip_masq: got.ip_masq,
    })
}
