//! `dummy` on the build machine.
//!
//! Written by `cargo xtask surface` from `wit/`, which is to be changed in place of this.

use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) fn create() -> Result<(super::link::Link, LinkInfo), Error> {
    let reply: LinkInfo = super::ask(postern_types::ops::Dummy::Create)?;
    Ok((reply.handle, reply))
}
