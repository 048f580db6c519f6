//! `postern:cni/bridge`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{BridgeInfo, Handle, LinkInfo, OpError, PortSpec, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `options`.
#[derive(Clone, Default)]
pub struct Options {
    mtu: Option<u32>,
    vlan_filtering: bool,
    promisc: bool,
}

/// The host's data for a guest's `port`.
#[derive(Clone, Default)]
pub struct Port {
    hairpin: bool,
    isolated: bool,
    vlan: Option<u16>,
    trunk: Vec<u16>,
    preserve_default_vlan: bool,
}

/// The host's data for a guest's `bridge`.
pub struct Bridge {
    pub(super) handle: Handle,
    promisc: bool,
}

impl wit::bridge::Host for State {
    fn ensure(&mut self, name: String, options: Resource<Options>) -> Result<Resource<Bridge>, Failure> {
        let options = self.table.get(&options)?.clone();
        let reply: BridgeInfo = self.call(ops::Bridge::Ensure {
            name,
            mtu: options.mtu,
            vlan_filtering: options.vlan_filtering,
            promisc: options.promisc,
        })?;
        self.give_bridge(reply)
    }

    fn find(&mut self, name: String) -> Result<Option<Resource<Bridge>>, Failure> {
        let reply: Option<BridgeInfo> = self.call(ops::Bridge::Find { name })?;
        reply.map(|shown| self.give_bridge(shown)).transpose()
    }

    fn previous_link(&mut self) -> Result<Option<Resource<super::veth::HostEnd>>, Failure> {
        let reply: Option<LinkInfo> = self.call(ops::Bridge::PreviousLink)?;
        reply.map(|shown| self.give_host_end(shown)).transpose()
    }
}

impl wit::bridge::HostOptions for State {
    fn new(&mut self) -> wasmtime::Result<Resource<Options>> {
        Ok(self.table.push(Options::default())?)
    }

    fn set_mtu(&mut self, options: Resource<Options>, mtu: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mtu = Some(mtu);
        Ok(())
    }

    fn set_vlan_filtering(&mut self, options: Resource<Options>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.vlan_filtering = on;
        Ok(())
    }

    fn set_promisc(&mut self, options: Resource<Options>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.promisc = on;
        Ok(())
    }

    fn drop(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.delete(options)?;
        Ok(())
    }
}

impl wit::bridge::HostPort for State {
    fn new(&mut self) -> wasmtime::Result<Resource<Port>> {
        Ok(self.table.push(Port::default())?)
    }

    fn set_hairpin(&mut self, port: Resource<Port>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.hairpin = on;
        Ok(())
    }

    fn set_isolated(&mut self, port: Resource<Port>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.isolated = on;
        Ok(())
    }

    fn set_vlan(&mut self, port: Resource<Port>, id: u16) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.vlan = Some(id);
        Ok(())
    }

    fn set_trunk(&mut self, port: Resource<Port>, ids: Vec<u16>) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.trunk = ids;
        Ok(())
    }

    fn set_preserve_default_vlan(&mut self, port: Resource<Port>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.preserve_default_vlan = on;
        Ok(())
    }

    fn drop(&mut self, port: Resource<Port>) -> wasmtime::Result<()> {
        self.table.delete(port)?;
        Ok(())
    }
}

impl wit::bridge::HostBridge for State {
    fn attributes(&mut self, bridge: Resource<Bridge>) -> Result<wit::types::LinkAttributes, Failure> {
        let link = self.table.get(&bridge)?.handle;
        let reply: LinkInfo = self.call(ops::Link::Attributes { link })?;
        Ok(reply.into())
    }

    fn promisc(&mut self, bridge: Resource<Bridge>) -> wasmtime::Result<bool> {
        Ok(self.table.get(&bridge)?.promisc)
    }

    fn attach(
        &mut self,
        bridge: Resource<Bridge>,
        host: Resource<super::veth::HostEnd>,
        port: Resource<Port>,
    ) -> Result<(), Failure> {
        let bridge = self.table.get(&bridge)?.handle;
        let host = self.table.get(&host)?.handle;
        let port = self.table.get(&port)?.read("bridge.attach")?;
        self.call(ops::Bridge::Attach { bridge, host, port })
    }

    fn ensure_gateways(
        &mut self,
        bridge: Resource<Bridge>,
        port: Resource<Port>,
        force: bool,
    ) -> Result<Option<wit::types::LinkAttributes>, Failure> {
        let bridge = self.table.get(&bridge)?.handle;
        let port = self.table.get(&port)?.read("bridge.ensure-gateways")?;
        let reply: Option<LinkInfo> = self.call(ops::Bridge::EnsureGateways { bridge, port, force })?;
        Ok(reply.map(|shown| shown.into()))
    }

    fn drop(&mut self, bridge: Resource<Bridge>) -> wasmtime::Result<()> {
        self.table.delete(bridge)?;
        Ok(())
    }
}

impl Port {
    fn read(&self, _operation: &str) -> Result<PortSpec, OpError> {
        Ok(PortSpec {
            hairpin: self.hairpin,
            isolated: self.isolated,
            vlan: self.vlan,
            trunk: self.trunk.clone(),
            preserve_default_vlan: self.preserve_default_vlan,
        })
    }
}

impl State {
    pub(super) fn give_bridge(&mut self, shown: BridgeInfo) -> Result<Resource<Bridge>, Failure> {
        Ok(self.table.push(Bridge { handle: shown.link.handle, promisc: shown.promisc })?)
    }
}
