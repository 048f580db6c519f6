//! `postern:cni/veth`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{Handle, LinkInfo, VethPair, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `options`.
#[derive(Clone, Default)]
pub struct Options {
    mtu: Option<u32>,
    mac: Option<String>,
}

/// The host's data for a guest's `host-end`.
pub struct HostEnd {
    pub(super) handle: Handle,
}

impl wit::veth::Host for State {
    fn create(&mut self, options: Resource<Options>) -> Result<wit::veth::Pair, Failure> {
        let options = self.table.get(&options)?.clone();
        let reply: VethPair =
            self.call(ops::Veth::Create { mtu: options.mtu, mac: parse::maybe("veth.create", options.mac.as_ref())? })?;
        self.give_veth_pair(reply)
    }

    fn find(&mut self) -> Result<Option<wit::veth::Pair>, Failure> {
        let reply: Option<VethPair> = self.call(ops::Veth::Find)?;
        reply.map(|shown| self.give_veth_pair(shown)).transpose()
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
    fn attributes(&mut self, host_end: Resource<HostEnd>) -> Result<wit::types::LinkAttributes, Failure> {
        let link = self.table.get(&host_end)?.handle;
        let reply: LinkInfo = self.call(ops::Link::Attributes { link })?;
        Ok(reply.into())
    }

    fn wait_running(&mut self, host_end: Resource<HostEnd>) -> Result<wit::types::LinkAttributes, Failure> {
        let host = self.table.get(&host_end)?.handle;
        let reply: LinkInfo = self.call(ops::Veth::WaitRunning { host })?;
        Ok(reply.into())
    }

    fn drop(&mut self, host_end: Resource<HostEnd>) -> wasmtime::Result<()> {
        self.table.delete(host_end)?;
        Ok(())
    }
}

impl State {
    pub(super) fn give_host_end(&mut self, shown: LinkInfo) -> Result<Resource<HostEnd>, Failure> {
        Ok(self.table.push(HostEnd { handle: shown.handle })?)
    }
}

impl State {
    fn give_veth_pair(&mut self, shown: VethPair) -> Result<wit::veth::Pair, Failure> {
        Ok(wit::veth::Pair {
            container: self.table.push(super::link::Link { handle: shown.container.handle })?,
            container_attributes: shown.container.into(),
            host: self.table.push(HostEnd { handle: shown.host.handle })?,
            host_attributes: shown.host.into(),
            bridge: shown.bridge,
        })
    }
}
