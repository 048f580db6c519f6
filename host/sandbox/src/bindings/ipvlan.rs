//! `postern:cni/ipvlan`.

use super::link::Link;
use super::parent::Parent;
use super::{Failure, wit};
use crate::state::State;
use postern_types::{IpvlanMode, Reply, ops};
use wasmtime::component::Resource;
use wit::ipvlan::{Found, Made, Mode};

impl wit::ipvlan::Host for State {
    fn create(&mut self, parent: Resource<Parent>, mode: Mode, mtu: Option<u32>) -> Result<Made, Failure> {
        let parent = self.table.get(&parent)?.handle;
        let mode = match mode {
            Mode::L2 => IpvlanMode::L2,
            Mode::L3 => IpvlanMode::L3,
            Mode::L3s => IpvlanMode::L3s,
        };
        match self.call(ops::Ipvlan::Create { parent, mode, mtu })? {
            Reply::Made(made) => {
                let link = self.table.push(Link { handle: made.handle })?;
                Ok(Made { link, attributes: made.into() })
            }
            other => Err(other.unexpected().into()),
        }
    }

    fn find(&mut self) -> Result<Option<Found>, Failure> {
        match self.call(ops::Ipvlan::Find)? {
            Reply::MaybeIpvlan(None) => Ok(None),
            Reply::MaybeIpvlan(Some(found)) => {
                let mode = found.mode.map(|mode| match mode {
                    IpvlanMode::L2 => Mode::L2,
                    IpvlanMode::L3 => Mode::L3,
                    IpvlanMode::L3s => Mode::L3s,
                });
                let link = self.table.push(Link { handle: found.link.handle })?;
                Ok(Some(Found { link, attributes: found.link.into(), mode }))
            }
            other => Err(other.unexpected().into()),
        }
    }
}
