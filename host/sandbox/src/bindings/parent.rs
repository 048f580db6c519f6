//! `postern:cni/parent`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Handle, LinkInfo, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `parent`.
pub struct Parent {
    pub(super) handle: Handle,
}

impl wit::parent::Host for State {
    fn find(&mut self, name: String, in_container: bool) -> Result<Resource<Parent>, Failure> {
        let reply: LinkInfo = self.call(ops::Parent::Find { name, in_container })?;
        self.give_parent(reply)
    }
}

impl wit::parent::HostParent for State {
    fn attributes(&mut self, parent: Resource<Parent>) -> Result<wit::types::LinkAttributes, Failure> {
        let link = self.table.get(&parent)?.handle;
        let reply: LinkInfo = self.call(ops::Link::Attributes { link })?;
        Ok(reply.into())
    }

    fn drop(&mut self, parent: Resource<Parent>) -> wasmtime::Result<()> {
        self.table.delete(parent)?;
        Ok(())
    }
}

impl State {
    pub(super) fn give_parent(&mut self, shown: LinkInfo) -> Result<Resource<Parent>, Failure> {
        Ok(self.table.push(Parent { handle: shown.handle })?)
    }
}
