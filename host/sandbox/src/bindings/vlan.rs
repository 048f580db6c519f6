//! `postern:cni/vlan`.

use super::link::Link;
use super::parent::Parent;
use super::{Failure, wit};
use crate::state::State;
use postern_types::{Reply, ops};
use wasmtime::component::Resource;
use wit::vlan::{Found, Made};

impl wit::vlan::Host for State {
    fn create(&mut self, parent: Resource<Parent>, id: u16, mtu: Option<u32>) -> Result<Made, Failure> {
        let parent = self.table.get(&parent)?.handle;
        match self.call(ops::Vlan::Create { parent, id, mtu })? {
            Reply::Made(made) => {
                let link = self.table.push(Link { handle: made.handle })?;
                Ok(Made { link, attributes: made.into() })
            }
            other => Err(other.unexpected().into()),
        }
    }

    fn find(&mut self) -> Result<Option<Found>, Failure> {
        match self.call(ops::Vlan::Find)? {
            Reply::MaybeVlan(None) => Ok(None),
            Reply::MaybeVlan(Some(found)) => {
                let link = self.table.push(Link { handle: found.link.handle })?;
                Ok(Some(Found { link, attributes: found.link.into(), id: found.id }))
            }
            other => Err(other.unexpected().into()),
        }
    }
}
