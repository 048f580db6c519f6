//! `postern:cni/link`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Handle, LinkInfo, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `link`.
pub struct Link {
    pub(super) handle: Handle,
}

impl wit::link::Host for State {
    fn own(&mut self) -> Result<Option<Resource<Link>>, Failure> {
        let reply: Option<LinkInfo> = self.call(ops::Link::Own)?;
        reply.map(|shown| self.give_link(shown)).transpose()
    }
}

impl wit::link::HostLink for State {
    fn attributes(&mut self, link: Resource<Link>) -> Result<wit::types::LinkAttributes, Failure> {
        let link = self.table.get(&link)?.handle;
        let reply: LinkInfo = self.call(ops::Link::Attributes { link })?;
        Ok(reply.into())
    }

    fn up(&mut self, link: Resource<Link>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::Link::Up { link })
    }

    fn delete(&mut self, link: Resource<Link>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::Link::Delete { link })
    }

    fn drop(&mut self, link: Resource<Link>) -> wasmtime::Result<()> {
        self.table.delete(link)?;
        Ok(())
    }
}

impl State {
    pub(super) fn give_link(&mut self, shown: LinkInfo) -> Result<Resource<Link>, Failure> {
        Ok(self.table.push(Link { handle: shown.handle })?)
    }
}
