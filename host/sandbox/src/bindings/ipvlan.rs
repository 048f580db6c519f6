//! `postern:cni/ipvlan`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{IpvlanInfo, IpvlanMode, LinkInfo, ops};
use wasmtime::component::Resource;

impl wit::ipvlan::Host for State {
    fn create(
        &mut self,
        parent: Resource<super::parent::Parent>,
        mode: wit::ipvlan::Mode,
        mtu: Option<u32>,
    ) -> Result<wit::ipvlan::Made, Failure> {
        let parent = self.table.get(&parent)?.handle;
        let mode = read_mode(mode);
        let reply: LinkInfo = self.call(ops::Ipvlan::Create { parent, mode, mtu })?;
        self.give_ipvlan_made(reply)
    }

    fn find(&mut self) -> Result<Option<wit::ipvlan::Found>, Failure> {
        let reply: Option<IpvlanInfo> = self.call(ops::Ipvlan::Find)?;
        reply.map(|shown| self.give_ipvlan_found(shown)).transpose()
    }
}

fn read_mode(given: wit::ipvlan::Mode) -> IpvlanMode {
    match given {
        wit::ipvlan::Mode::L2 => IpvlanMode::L2,
        wit::ipvlan::Mode::L3 => IpvlanMode::L3,
        wit::ipvlan::Mode::L3s => IpvlanMode::L3s,
    }
}

fn show_mode(shown: IpvlanMode) -> wit::ipvlan::Mode {
    match shown {
        IpvlanMode::L2 => wit::ipvlan::Mode::L2,
        IpvlanMode::L3 => wit::ipvlan::Mode::L3,
        IpvlanMode::L3s => wit::ipvlan::Mode::L3s,
    }
}

impl State {
    fn give_ipvlan_found(&mut self, shown: IpvlanInfo) -> Result<wit::ipvlan::Found, Failure> {
        Ok(wit::ipvlan::Found {
            link: self.table.push(super::link::Link { handle: shown.link.handle })?,
            attributes: shown.link.into(),
            mode: shown.mode.map(show_mode),
        })
    }
}

impl State {
    fn give_ipvlan_made(&mut self, shown: LinkInfo) -> Result<wit::ipvlan::Made, Failure> {
        Ok(wit::ipvlan::Made {
            link: self.table.push(super::link::Link { handle: shown.handle })?,
            attributes: shown.into(),
        })
    }
}
