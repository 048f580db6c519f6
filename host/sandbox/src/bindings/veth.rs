//! `postern:cni/veth`.

use super::link::Link;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{Handle, Reply, VethPair, ops};
use wasmtime::component::Resource;
use wit::types::LinkAttributes;
use wit::veth::Pair;

/// The host's data for a guest's `options`.
#[derive(Default)]
pub struct Options {
    mtu: Option<u32>,
    mac: Option<String>,
}

/// The host's data for a guest's `host-end`.
pub struct HostEnd {
    pub(super) handle: Handle,
}

impl wit::veth::Host for State {
    fn create(&mut self, options: Resource<Options>) -> Result<Pair, Failure> {
        let options = self.table.get(&options)?;
        let operation = ops::Veth::Create { mtu: options.mtu, mac: parse::maybe("veth.create", options.mac.as_ref())? };
        match self.call(operation)? {
            Reply::Veth(pair) => self.pair(pair),
            other => Err(other.unexpected().into()),
        }
    }

    fn find(&mut self) -> Result<Option<Pair>, Failure> {
        match self.call(ops::Veth::Find)? {
            Reply::MaybeVeth(pair) => pair.map(|pair| self.pair(pair)).transpose(),
            other => Err(other.unexpected().into()),
        }
    }
}

impl wit::veth::HostOptions for State {
    fn new(&mut self) -> wasmtime::Result<Resource<Options>> {
        Ok(self.table.push(Options::default())?)
    }

    fn set_mtu(&mut self, options: Resource<Options>, mtu: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mtu = Some(mtu);
        Ok(())
    }

    fn set_mac(&mut self, options: Resource<Options>, mac: String) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mac = Some(mac);
        Ok(())
    }

    fn drop(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.delete(options)?;
        Ok(())
    }
}

impl wit::veth::HostHostEnd for State {
    fn attributes(&mut self, host: Resource<HostEnd>) -> Result<LinkAttributes, Failure> {
        let host = self.table.get(&host)?.handle;
        self.link_attributes(host)
    }

    fn wait_running(&mut self, host: Resource<HostEnd>) -> Result<LinkAttributes, Failure> {
        let host = self.table.get(&host)?.handle;
        match self.call(ops::Veth::WaitRunning { host })? {
            Reply::Link(link) => Ok(link.into()),
            other => Err(other.unexpected().into()),
        }
    }

    fn drop(&mut self, host: Resource<HostEnd>) -> wasmtime::Result<()> {
        self.table.delete(host)?;
        Ok(())
    }
}

impl State {
    fn pair(&mut self, pair: VethPair) -> Result<Pair, Failure> {
        Ok(Pair {
            container: self.table.push(Link { handle: pair.container.handle })?,
            container_attributes: pair.container.into(),
            host: self.table.push(HostEnd { handle: pair.host.handle })?,
            host_attributes: pair.host.into(),
            bridge: pair.bridge,
        })
    }
}
