//! `dummy` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::LinkInfo;

pub(crate) fn create() -> Result<(super::link::Link, LinkInfo), Error> {
    let reply: LinkInfo = super::ask(postern_types::ops::Dummy::Create)?;
    Ok((reply.handle, reply))
}
