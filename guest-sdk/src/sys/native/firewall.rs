//! `firewall` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use ipnet::IpNet;
use postern_types::IngressPolicy;

pub(crate) fn admit(addresses: &[IpNet]) -> Result<(), Error> {
    super::ask(postern_types::ops::Firewall::Admit { addresses: addresses.to_vec() })
}

pub(crate) fn isolate(ingress: IngressPolicy) -> Result<(), Error> {
    super::ask(postern_types::ops::Firewall::Isolate { ingress })
}

pub(crate) fn check(addresses: &[IpNet]) -> Result<(), Error> {
    super::ask(postern_types::ops::Firewall::Check { addresses: addresses.to_vec() })
}

pub(crate) fn remove() -> Result<(), Error> {
    super::ask(postern_types::ops::Firewall::Remove)
}
