//! `postern:cni/link`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Handle, Reply, ops};
use wasmtime::component::Resource;
use wit::types::LinkAttributes;

/// The host's data for a guest's `link`.
pub struct Link {
    pub(super) handle: Handle,
}

impl wit::link::Host for State {
    fn own(&mut self) -> Result<Option<Resource<Link>>, Failure> {
        match self.call(ops::Link::Own)? {
            Reply::MaybeLink(None) => Ok(None),
            Reply::MaybeLink(Some(link)) => Ok(Some(self.table.push(Link { handle: link.handle })?)),
            other => Err(other.unexpected().into()),
        }
    }
}

impl wit::link::HostLink for State {
    fn attributes(&mut self, link: Resource<Link>) -> Result<LinkAttributes, Failure> {
        let link = self.table.get(&link)?.handle;
        self.link_attributes(link)
    }

    fn up(&mut self, link: Resource<Link>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.done(ops::Link::Up { link })
    }

    fn delete(&mut self, link: Resource<Link>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.done(ops::Link::Delete { link })
    }

    fn drop(&mut self, link: Resource<Link>) -> wasmtime::Result<()> {
        self.table.delete(link)?;
        Ok(())
    }
}

impl State {
    /// Answers `link.attributes` of any held link: the container's, the host end, the bridge.
    pub(super) fn link_attributes(&mut self, link: Handle) -> Result<LinkAttributes, Failure> {
        match self.call(ops::Link::Attributes { link })? {
            Reply::Link(link) => Ok(link.into()),
            other => Err(other.unexpected().into()),
        }
    }
}
