//! `firewall` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

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
