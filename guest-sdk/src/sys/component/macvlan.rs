//! `macvlan` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::macvlan as wit;
use crate::error::Error;
use postern_types::{Mac, MacvlanMode};

/// Collects the values that the plugin sets for a call.
#[derive(Debug)]
pub(crate) struct Options(pub(super) wit::Options);

impl Options {
    pub(crate) fn new(mode: MacvlanMode) -> Self {
        Self(wit::Options::new(wire_mode(mode)))
    }

    pub(crate) fn set_mtu(&self, value: u32) {
        self.0.set_mtu(value);
    }

    pub(crate) fn set_mac(&self, value: Mac) {
        self.0.set_mac(&value.to_string());
    }

    pub(crate) fn set_queue(&self, value: u32) {
        self.0.set_broadcast_queue(value);
    }
}

pub(crate) fn create(parent: &super::parent::Parent, options: &Options) -> Result<crate::macvlan::Macvlan, Error> {
    let got = wit::create(parent, &options.0).map_err(super::failure)?;
    Ok(got_made(got))
}

pub(crate) fn find() -> Result<Option<crate::macvlan::Macvlan>, Error> {
    let got = wit::find().map_err(super::failure)?;
    Ok(got.map(got_made))
}

fn wire_mode(value: MacvlanMode) -> wit::Mode {
    match value {
        MacvlanMode::Bridge => wit::Mode::Bridge,
        MacvlanMode::Private => wit::Mode::Private,
        MacvlanMode::Vepa => wit::Mode::Vepa,
        MacvlanMode::Passthru => wit::Mode::Passthru,
    }
}

fn got_mode(got: wit::Mode) -> MacvlanMode {
    match got {
        wit::Mode::Bridge => MacvlanMode::Bridge,
        wit::Mode::Private => MacvlanMode::Private,
        wit::Mode::Vepa => MacvlanMode::Vepa,
        wit::Mode::Passthru => MacvlanMode::Passthru,
    }
}

fn got_made(got: wit::Made) -> crate::macvlan::Macvlan {
    crate::macvlan::Macvlan {
        link: crate::link::Link(got.link),
        attributes: super::link_info(got.attributes),
        mode: got.mode.map(got_mode),
    }
}
