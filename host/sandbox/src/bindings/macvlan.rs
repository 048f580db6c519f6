//! `postern:cni/macvlan`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{MacvlanInfo, MacvlanMode, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `options`.
#[derive(Clone)]
pub struct Options {
    mode: wit::macvlan::Mode,
    mtu: Option<u32>,
    mac: Option<String>,
    broadcast_queue: Option<u32>,
}

impl wit::macvlan::Host for State {
    fn create(
        &mut self,
        parent: Resource<super::parent::Parent>,
        options: Resource<Options>,
    ) -> Result<wit::macvlan::Made, Failure> {
        let parent = self.table.get(&parent)?.handle;
        let options = self.table.get(&options)?.clone();
        let reply: MacvlanInfo = self.call(ops::Macvlan::Create {
            parent,
            mode: read_mode(options.mode),
            mtu: options.mtu,
            mac: parse::maybe("macvlan.create", options.mac.as_ref())?,
            queue: options.broadcast_queue,
        })?;
        self.give_macvlan_made(reply)
    }

    fn find(&mut self) -> Result<Option<wit::macvlan::Made>, Failure> {
        let reply: Option<MacvlanInfo> = self.call(ops::Macvlan::Find)?;
        reply.map(|shown| self.give_macvlan_made(shown)).transpose()
    }
}

impl wit::macvlan::HostOptions for State {
    fn new(&mut self, mode: wit::macvlan::Mode) -> wasmtime::Result<Resource<Options>> {
        Ok(self.table.push(Options { mode, mtu: None, mac: None, broadcast_queue: None })?)
    }

    fn set_mtu(&mut self, options: Resource<Options>, mtu: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mtu = Some(mtu);
        Ok(())
    }

    fn set_mac(&mut self, options: Resource<Options>, mac: String) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mac = Some(mac);
        Ok(())
    }

    fn set_broadcast_queue(&mut self, options: Resource<Options>, length: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.broadcast_queue = Some(length);
        Ok(())
    }

    fn drop(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.delete(options)?;
        Ok(())
    }
}

fn read_mode(given: wit::macvlan::Mode) -> MacvlanMode {
    match given {
        wit::macvlan::Mode::Bridge => MacvlanMode::Bridge,
        wit::macvlan::Mode::Private => MacvlanMode::Private,
        wit::macvlan::Mode::Vepa => MacvlanMode::Vepa,
        wit::macvlan::Mode::Passthru => MacvlanMode::Passthru,
    }
}

fn show_mode(shown: MacvlanMode) -> wit::macvlan::Mode {
    match shown {
        MacvlanMode::Bridge => wit::macvlan::Mode::Bridge,
        MacvlanMode::Private => wit::macvlan::Mode::Private,
        MacvlanMode::Vepa => wit::macvlan::Mode::Vepa,
        MacvlanMode::Passthru => wit::macvlan::Mode::Passthru,
    }
}

impl State {
    fn give_macvlan_made(&mut self, shown: MacvlanInfo) -> Result<wit::macvlan::Made, Failure> {
        Ok(wit::macvlan::Made {
            link: self.table.push(super::link::Link { handle: shown.link.handle })?,
            attributes: shown.link.into(),
            mode: shown.mode.map(show_mode),
        })
    }
}
