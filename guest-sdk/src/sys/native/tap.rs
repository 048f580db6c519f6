//! `tap` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{LinkInfo, TapSettings};

pub(crate) fn create(options: &TapSettings) -> Result<(super::link::Link, LinkInfo), Error> {
    let reply: LinkInfo = super::ask(postern_types::ops::Tap::Create { settings: options.clone() })?;
    Ok((reply.handle, reply))
}

pub(crate) fn join(link: &super::link::Link, bridge: &str) -> Result<(), Error> {
    super::ask(postern_types::ops::Tap::Join { link: *link, bridge: bridge.to_owned() })
}
