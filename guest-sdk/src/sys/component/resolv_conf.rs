//! `resolv-conf` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::resolv_conf as wit;
use crate::error::Error;
use postern_types::Dns;

pub(crate) fn read() -> Result<Dns, Error> {
    let got = wit::read().map_err(super::failure)?;
    Ok(got_dns(got))
}

fn got_dns(got: wit::Dns) -> Dns {
    Dns { nameservers: got.nameservers, domain: got.domain, search: got.search, options: got.options }
}
