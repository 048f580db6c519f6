//! `postern:cni/parent`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Handle, Reply, ops};
use wasmtime::component::Resource;
use wit::types::LinkAttributes;

/// The host's data for a guest's `parent`.
pub struct Parent {
    pub(super) handle: Handle,
}

impl wit::parent::Host for State {
    fn find(&mut self, name: String, in_container: bool) -> Result<Resource<Parent>, Failure> {
        match self.call(ops::Parent::Find { name, in_container })? {
            Reply::Parent(link) => Ok(self.table.push(Parent { handle: link.handle })?),
            other => Err(other.unexpected().into()),
        }
    }
}

impl wit::parent::HostParent for State {
    fn attributes(&mut self, parent: Resource<Parent>) -> Result<LinkAttributes, Failure> {
        let parent = self.table.get(&parent)?.handle;
        self.link_attributes(parent)
    }

    fn drop(&mut self, parent: Resource<Parent>) -> wasmtime::Result<()> {
        self.table.delete(parent)?;
        Ok(())
    }
}
