//! `resolv-conf` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;
use postern_types::Dns;

pub(crate) fn read() -> Result<Dns, Error> {
    super::ask(postern_types::ops::ResolvConf::Read)
}
