//! `postern:cni/device`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{DeviceKey, LinkInfo, ops};

impl wit::device::Host for State {
    fn find(&mut self, by: wit::device::Key, value: String) -> Result<Option<wit::types::LinkAttributes>, Failure> {
        let by = read_key(by);
        let reply: Option<LinkInfo> = self.call(ops::Device::Find { by, value })?;
        Ok(reply.map(|shown| shown.into()))
    }

    fn take(&mut self, by: wit::device::Key, value: String) -> Result<wit::device::Taken, Failure> {
        let by = read_key(by);
        let reply: LinkInfo = self.call(ops::Device::Take { by, value })?;
        self.give_device_taken(reply)
    }

    fn give_back(&mut self) -> Result<(), Failure> {
        self.call(ops::Device::GiveBack)
    }
}

fn read_key(given: wit::device::Key) -> DeviceKey {
    match given {
        wit::device::Key::Name => DeviceKey::Name,
        wit::device::Key::Address => DeviceKey::Address,
        wit::device::Key::Path => DeviceKey::Path,
        wit::device::Key::Pci => DeviceKey::Pci,
        wit::device::Key::Id => DeviceKey::Id,
    }
}

impl State {
    fn give_device_taken(&mut self, shown: LinkInfo) -> Result<wit::device::Taken, Failure> {
        Ok(wit::device::Taken {
            link: self.table.push(super::link::Link { handle: shown.handle })?,
            attributes: shown.into(),
        })
    }
}
