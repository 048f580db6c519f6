//! `postern:cni/vlan`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{LinkInfo, VlanInfo, ops};
use wasmtime::component::Resource;

impl wit::vlan::Host for State {
    fn create(
        &mut self,
        parent: Resource<super::parent::Parent>,
        id: u16,
        mtu: Option<u32>,
    ) -> Result<wit::vlan::Made, Failure> {
        let parent = self.table.get(&parent)?.handle;
        let reply: LinkInfo = self.call(ops::Vlan::Create { parent, id, mtu })?;
        self.give_vlan_made(reply)
    }

    fn find(&mut self) -> Result<Option<wit::vlan::Found>, Failure> {
        let reply: Option<VlanInfo> = self.call(ops::Vlan::Find)?;
        reply.map(|shown| self.give_vlan_found(shown)).transpose()
    }
}

impl State {
    fn give_vlan_found(&mut self, shown: VlanInfo) -> Result<wit::vlan::Found, Failure> {
        Ok(wit::vlan::Found {
            link: self.table.push(super::link::Link { handle: shown.link.handle })?,
            attributes: shown.link.into(),
            id: shown.id,
        })
    }
}

impl State {
    fn give_vlan_made(&mut self, shown: LinkInfo) -> Result<wit::vlan::Made, Failure> {
        Ok(wit::vlan::Made {
            link: self.table.push(super::link::Link { handle: shown.handle })?,
            attributes: shown.into(),
        })
    }
}
