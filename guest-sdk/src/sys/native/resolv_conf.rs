//! `resolv-conf` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::Dns;

pub(crate) fn read() -> Result<Dns, Error> {
    super::ask(postern_types::ops::ResolvConf::Read)
}
