//! `port-mappings` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

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
