//! `postern:cni/macvlan`.

use super::link::Link;
use super::parent::Parent;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{MacvlanInfo, MacvlanMode, Reply, ops};
use wasmtime::component::Resource;
use wit::macvlan::{Made, Mode};

/// The host's data for a guest's `options`.
pub struct Options {
    mode: MacvlanMode,
    mtu: Option<u32>,
    mac: Option<String>,
    queue: Option<u32>,
}

impl wit::macvlan::Host for State {
    fn create(&mut self, parent: Resource<Parent>, options: Resource<Options>) -> Result<Made, Failure> {
        let parent = self.table.get(&parent)?.handle;
        let Options { mode, mtu, mac, queue } = self.table.get(&options)?;
        let mac = parse::maybe("macvlan.create", mac.as_ref())?;
        let operation = ops::Macvlan::Create { parent, mode: *mode, mtu: *mtu, mac, queue: *queue };
        match self.call(operation)? {
            Reply::Macvlan(made) => self.macvlan(made),
            other => Err(other.unexpected().into()),
        }
    }

    fn find(&mut self) -> Result<Option<Made>, Failure> {
        match self.call(ops::Macvlan::Find)? {
            Reply::MaybeMacvlan(found) => found.map(|found| self.macvlan(found)).transpose(),
            other => Err(other.unexpected().into()),
        }
    }
}

impl wit::macvlan::HostOptions for State {
    fn new(&mut self, mode: Mode) -> wasmtime::Result<Resource<Options>> {
        let mode = match mode {
            Mode::Bridge => MacvlanMode::Bridge,
            Mode::Private => MacvlanMode::Private,
            Mode::Vepa => MacvlanMode::Vepa,
            Mode::Passthru => MacvlanMode::Passthru,
        };
        Ok(self.table.push(Options { mode, mtu: None, mac: None, queue: None })?)
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
        self.table.get_mut(&options)?.queue = Some(length);
        Ok(())
    }

    fn drop(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.delete(options)?;
        Ok(())
    }
}

impl State {
    fn macvlan(&mut self, made: MacvlanInfo) -> Result<Made, Failure> {
        let mode = made.mode.map(|mode| match mode {
            MacvlanMode::Bridge => Mode::Bridge,
            MacvlanMode::Private => Mode::Private,
            MacvlanMode::Vepa => Mode::Vepa,
            MacvlanMode::Passthru => Mode::Passthru,
        });
        let link = self.table.push(Link { handle: made.link.handle })?;
        Ok(Made { link, attributes: made.link.into(), mode })
    }
}
