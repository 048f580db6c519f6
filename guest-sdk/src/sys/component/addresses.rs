//! `addresses` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::addresses as wit;
use crate::error::Error;
use ipnet::IpNet;
use postern_types::Address;

pub(crate) fn add(link: &super::link::Link, addresses: &[IpNet]) -> Result<(), Error> {
    wit::add(link, &super::texts(addresses)).map_err(super::failure)
}

pub(crate) fn list(link: &super::link::Link) -> Result<Vec<Address>, Error> {
    let got = wit::list(link).map_err(super::failure)?;
    got.into_iter().map(super::address).collect::<Result<Vec<_>, Error>>()
}

pub(crate) fn has(link: &super::link::Link, addresses: &[IpNet]) -> Result<Vec<bool>, Error> {
    wit::has(link, &super::texts(addresses)).map_err(super::failure)
}

pub(crate) fn settle(link: &super::link::Link) -> Result<(), Error> {
    wit::settle(link).map_err(super::failure)
}
