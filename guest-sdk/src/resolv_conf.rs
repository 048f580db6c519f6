//! The resolv.conf(5) file that the operator's configuration names as `ipam.resolvConf`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use crate::sys;
use postern_types::Dns;

/// Reads the file and returns the values that resolv.conf(5) defines, never raw text. So the contents of other
/// files can't be read this way. Errors: `denied`, `not-found`, `io`.
pub fn read() -> Result<Dns, Error> {
    sys::resolv_conf::read()
}
