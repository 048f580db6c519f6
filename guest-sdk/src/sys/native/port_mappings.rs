//! `port-mappings` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{Forward, NatSources};
use std::net::IpAddr;

pub(crate) fn ensure(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    super::ask(postern_types::ops::PortMappings::Ensure {
        addresses: addresses.to_vec(),
        forwards: forwards.to_vec(),
        masquerade,
    })
}

pub(crate) fn check(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    super::ask(postern_types::ops::PortMappings::Check {
        addresses: addresses.to_vec(),
        forwards: forwards.to_vec(),
        masquerade,
    })
}

pub(crate) fn remove() -> Result<(), Error> {
    super::ask(postern_types::ops::PortMappings::Remove)
}
