//! `addresses` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use ipnet::IpNet;
use postern_types::Address;

pub(crate) fn add(link: &super::link::Link, addresses: &[IpNet]) -> Result<(), Error> {
    super::ask(postern_types::ops::Addresses::Add { link: *link, addresses: addresses.to_vec() })
}

pub(crate) fn list(link: &super::link::Link) -> Result<Vec<Address>, Error> {
    super::ask(postern_types::ops::Addresses::List { link: *link })
}

pub(crate) fn has(link: &super::link::Link, addresses: &[IpNet]) -> Result<Vec<bool>, Error> {
    super::ask(postern_types::ops::Addresses::Has { link: *link, addresses: addresses.to_vec() })
}

pub(crate) fn settle(link: &super::link::Link) -> Result<(), Error> {
    super::ask(postern_types::ops::Addresses::Settle { link: *link })
}
