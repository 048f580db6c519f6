//! `masquerade` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::masquerade as wit;
use crate::error::Error;
use postern_types::Backend;

pub(crate) fn ensure(backend: Option<Backend>) -> Result<(), Error> {
    wit::ensure(backend.map(wire_backend)).map_err(super::failure)
}

pub(crate) fn check(backend: Option<Backend>) -> Result<(), Error> {
    wit::check(backend.map(wire_backend)).map_err(super::failure)
}

pub(crate) fn remove() -> Result<(), Error> {
    wit::remove().map_err(super::failure)
}

fn wire_backend(value: Backend) -> wit::Backend {
    match value {
        Backend::Nftables => wit::Backend::Nftables,
        Backend::Iptables => wit::Backend::Iptables,
    }
}
