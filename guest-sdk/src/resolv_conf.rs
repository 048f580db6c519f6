//! The resolv.conf(5) file that the operator's configuration names.

use crate::error::Error;
use crate::sys;
use postern_types::Dns;

/// Reads the file named by `ipam.resolvConf`.
pub fn read() -> Result<Dns, Error> {
    sys::resolv_conf::read()
}
