//! `firewall` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::firewall as wit;
use crate::error::Error;
use ipnet::IpNet;
use postern_types::IngressPolicy;

pub(crate) fn admit(addresses: &[IpNet]) -> Result<(), Error> {
    wit::admit(&super::texts(addresses)).map_err(super::failure)
}

pub(crate) fn isolate(ingress: IngressPolicy) -> Result<(), Error> {
    wit::isolate(wire_ingress_policy(ingress)).map_err(super::failure)
}

pub(crate) fn check(addresses: &[IpNet]) -> Result<(), Error> {
    wit::check(&super::texts(addresses)).map_err(super::failure)
}

pub(crate) fn remove() -> Result<(), Error> {
    wit::remove().map_err(super::failure)
}

fn wire_ingress_policy(value: IngressPolicy) -> wit::IngressPolicy {
    match value {
        IngressPolicy::SameBridge => wit::IngressPolicy::SameBridge,
        IngressPolicy::Isolated => wit::IngressPolicy::Isolated,
    }
}
