//! `macvlan` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;
use postern_types::{Mac, MacvlanMode};
use std::cell::Cell;

/// Collects the values that the plugin sets for a call.
#[derive(Debug)]
pub(crate) struct Options {
    mode: MacvlanMode,
    mtu: Cell<Option<u32>>,
    mac: Cell<Option<Mac>>,
    queue: Cell<Option<u32>>,
}

impl Options {
    pub(crate) fn new(mode: MacvlanMode) -> Self {
        Self { mode, mtu: Cell::default(), mac: Cell::default(), queue: Cell::default() }
    }

    pub(crate) fn set_mtu(&self, value: u32) {
        self.mtu.set(Some(value));
    }

    pub(crate) fn set_mac(&self, value: Mac) {
        self.mac.set(Some(value));
    }

    pub(crate) fn set_queue(&self, value: u32) {
        self.queue.set(Some(value));
    }
}

pub(crate) fn create(parent: &super::parent::Parent, options: &Options) -> Result<crate::macvlan::Macvlan, Error> {
    let reply: postern_types::MacvlanInfo = super::ask(postern_types::ops::Macvlan::Create {
        parent: *parent,
        mode: options.mode,
        mtu: options.mtu.get(),
        mac: options.mac.get(),
        queue: options.queue.get(),
    })?;
    Ok(hand_made(reply))
}

pub(crate) fn find() -> Result<Option<crate::macvlan::Macvlan>, Error> {
    let reply: Option<postern_types::MacvlanInfo> = super::ask(postern_types::ops::Macvlan::Find)?;
    Ok(reply.map(hand_made))
}

fn hand_made(reply: postern_types::MacvlanInfo) -> crate::macvlan::Macvlan {
    crate::macvlan::Macvlan { link: crate::link::Link(reply.link.handle), attributes: reply.link, mode: reply.mode }
}
