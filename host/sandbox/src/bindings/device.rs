//! `postern:cni/device`.

use super::link::Link;
use super::{Failure, wit};
use crate::state::State;
use postern_types::{DeviceKey, Reply, ops};
use wit::device::{Key, Taken};
use wit::types::LinkAttributes;

impl wit::device::Host for State {
    fn find(&mut self, by: Key, value: String) -> Result<Option<LinkAttributes>, Failure> {
        match self.call(ops::Device::Find { by: key(by), value })? {
            Reply::Device(found) => Ok(found.map(Into::into)),
            other => Err(other.unexpected().into()),
        }
    }

    fn take(&mut self, by: Key, value: String) -> Result<Taken, Failure> {
        match self.call(ops::Device::Take { by: key(by), value })? {
            Reply::Taken(taken) => {
                let link = self.table.push(Link { handle: taken.handle })?;
                Ok(Taken { link, attributes: taken.into() })
            }
            other => Err(other.unexpected().into()),
        }
    }

    fn give_back(&mut self) -> Result<(), Failure> {
        self.done(ops::Device::GiveBack)
    }
}

fn key(by: Key) -> DeviceKey {
    match by {
        Key::Name => DeviceKey::Name,
        Key::Address => DeviceKey::Address,
        Key::Path => DeviceKey::Path,
        Key::Pci => DeviceKey::Pci,
        Key::Id => DeviceKey::Id,
    }
}
