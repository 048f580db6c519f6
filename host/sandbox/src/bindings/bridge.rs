//! `postern:cni/bridge`.

use super::veth::HostEnd;
use super::{Failure, wit};
use crate::state::State;
use postern_types::{BridgeInfo, Handle, PortSpec, Reply, ops};
use wasmtime::component::Resource;
use wit::types::LinkAttributes;

/// The host's data for a guest's `options`.
#[derive(Default)]
pub struct Options {
    mtu: Option<u32>,
    vlan_filtering: bool,
    promisc: bool,
}

/// The host's data for a guest's `port`.
#[derive(Default)]
pub struct Port {
    spec: PortSpec,
}

/// The host's data for a guest's `bridge`.
pub struct Bridge {
    handle: Handle,
    promisc: bool,
}

impl From<BridgeInfo> for Bridge {
    fn from(bridge: BridgeInfo) -> Self {
        Self { handle: bridge.link.handle, promisc: bridge.promisc }
    }
}

impl wit::bridge::Host for State {
    fn ensure(&mut self, name: String, options: Resource<Options>) -> Result<Resource<Bridge>, Failure> {
        let &Options { mtu, vlan_filtering, promisc } = self.table.get(&options)?;
        match self.call(ops::Bridge::Ensure { name, mtu, vlan_filtering, promisc })? {
            Reply::Bridge(bridge) => Ok(self.table.push(Bridge::from(bridge))?),
            other => Err(other.unexpected().into()),
        }
    }

    fn find(&mut self, name: String) -> Result<Option<Resource<Bridge>>, Failure> {
        match self.call(ops::Bridge::Find { name })? {
            Reply::MaybeBridge(None) => Ok(None),
            Reply::MaybeBridge(Some(bridge)) => Ok(Some(self.table.push(Bridge::from(bridge))?)),
            other => Err(other.unexpected().into()),
        }
    }

    fn previous_link(&mut self) -> Result<Option<Resource<HostEnd>>, Failure> {
        match self.call(ops::Bridge::PreviousLink)? {
            Reply::MaybeLink(link) => {
                Ok(link.map(|link| self.table.push(HostEnd { handle: link.handle })).transpose()?)
            }
            other => Err(other.unexpected().into()),
        }
    }
}

impl wit::bridge::HostBridge for State {
    fn attributes(&mut self, bridge: Resource<Bridge>) -> Result<LinkAttributes, Failure> {
        let bridge = self.table.get(&bridge)?.handle;
        self.link_attributes(bridge)
    }

    fn promisc(&mut self, bridge: Resource<Bridge>) -> wasmtime::Result<bool> {
        Ok(self.table.get(&bridge)?.promisc)
    }

    fn attach(
        &mut self,
        bridge: Resource<Bridge>,
        host: Resource<HostEnd>,
        port: Resource<Port>,
    ) -> Result<(), Failure> {
        let bridge = self.table.get(&bridge)?.handle;
        let host = self.table.get(&host)?.handle;
        let port = self.table.get(&port)?.spec.clone();
        self.done(ops::Bridge::Attach { bridge, host, port })
    }

    fn ensure_gateways(
        &mut self,
        bridge: Resource<Bridge>,
        port: Resource<Port>,
        force: bool,
    ) -> Result<Option<LinkAttributes>, Failure> {
        let bridge = self.table.get(&bridge)?.handle;
        let port = self.table.get(&port)?.spec.clone();
        match self.call(ops::Bridge::EnsureGateways { bridge, port, force })? {
            Reply::MaybeLink(link) => Ok(link.map(Into::into)),
            other => Err(other.unexpected().into()),
        }
    }

    fn drop(&mut self, bridge: Resource<Bridge>) -> wasmtime::Result<()> {
        self.table.delete(bridge)?;
        Ok(())
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
        self.table.get_mut(&port)?.spec.hairpin = on;
        Ok(())
    }

    fn set_isolated(&mut self, port: Resource<Port>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.spec.isolated = on;
        Ok(())
    }

    fn set_vlan(&mut self, port: Resource<Port>, id: u16) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.spec.vlan = Some(id);
        Ok(())
    }

    fn set_trunk(&mut self, port: Resource<Port>, ids: Vec<u16>) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.spec.trunk = ids;
        Ok(())
    }

    fn set_preserve_default_vlan(&mut self, port: Resource<Port>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&port)?.spec.preserve_default_vlan = on;
        Ok(())
    }

    fn drop(&mut self, port: Resource<Port>) -> wasmtime::Result<()> {
        self.table.delete(port)?;
        Ok(())
    }
}
