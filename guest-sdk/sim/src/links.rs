//! Links, their addresses and routes.

use super::kernel::{Kernel, Link, Place};
use super::services::first_address;
use ipnet::IpNet;
use postern_types::{
    Address, BridgeInfo, ErrorCode, Handle, LinkInfo, LinkSysctl, Mac, OpError, PortSpec, Reply, Route,
};
use postern_types::{VethPair, VlanId};
use std::net::IpAddr;

const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const ENETDOWN: i32 = 100;
const ENETUNREACH: i32 = 101;
const ESRCH: i32 = 3;

fn kernel(errno: i32, object: impl ToString, message: &str) -> OpError {
    let code = if errno == EEXIST { ErrorCode::Exists } else { ErrorCode::Kernel };
    OpError::new(code, object.to_string(), message).errno(errno)
}

impl Kernel {
    /// Adds a link and returns its handle. Addresses are made up from the handle, so that they are the same every time.
    pub fn add_link(&mut self, place: Place, name: &str, kind: &str) -> Handle {
        let handle = self.links.keys().last().map_or(1, |last| last + 1);
        let [_, _, high, low] = handle.to_be_bytes();
        let info = LinkInfo {
            handle,
            name: name.to_owned(),
            mac: Some(Mac([2, 0, 0, 0, high, low])),
            mtu: 1500,
            kind: kind.to_owned(),
            up: false,
            running: false,
        };
        self.links.insert(
            handle,
            Link {
                place,
                info,
                peer: None,
                master: None,
                port: None,
                promisc: false,
                vlan_filtering: false,
                pinned: false,
                lent_over: None,
                addresses: Vec::new(),
                routes: Vec::new(),
                sysctls: Vec::new(),
            },
        );
        handle
    }

    /// Adds a link as it was found on a node: as [`Kernel::add_link`], with these attributes but the handle.
    pub fn seed_link(&mut self, place: Place, info: LinkInfo, addresses: Vec<Address>) -> Handle {
        let handle = self.add_link(place, &info.name, &info.kind);
        if let Some(link) = self.links.get_mut(&handle) {
            link.info = LinkInfo { handle, ..info };
            link.addresses = addresses;
        }
        handle
    }

    /// The link of this name.
    pub fn find(&self, place: Place, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.place == place && link.info.name == name)
    }

    /// The attachment's own link.
    pub fn own(&self) -> Option<&Link> {
        self.find(Place::Container, &self.ifname).filter(|_| self.netns)
    }

    /// The host's end of the attachment's own pair.
    pub fn host_end(&self) -> Option<&Link> {
        self.own()?.peer.and_then(|peer| self.links.get(&peer))
    }

    pub(super) fn held(&self, handle: Handle) -> Result<&Link, OpError> {
        let gone = || OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "the link is gone");
        self.links.get(&handle).ok_or_else(gone)
    }

    fn held_mut(&mut self, handle: Handle) -> Result<&mut Link, OpError> {
        let gone = || OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "the link is gone");
        self.links.get_mut(&handle).ok_or_else(gone)
    }

    pub(super) fn link_up(&mut self, handle: Handle) -> Result<Reply, OpError> {
        self.held_mut(handle)?.info.up = true;
        // A veth is operational as soon as both of its ends are up.
        if let Some(peer) = self.held(handle)?.peer {
            let both = self.held(peer)?.info.up;
            self.held_mut(peer)?.info.running = both;
            self.held_mut(handle)?.info.running = both;
        }
        Ok(Reply::Done)
    }

    pub(super) fn link_delete(&mut self, handle: Handle) -> Result<Reply, OpError> {
        if let Some(peer) = self.links.remove(&handle).and_then(|link| link.peer) {
            self.links.remove(&peer);
        }
        Ok(Reply::Done)
    }

    pub(super) fn veth_create(&mut self, mtu: Option<u32>, mac: Option<Mac>) -> Result<Reply, OpError> {
        self.namespace()?;
        if self.own().is_some() {
            let peer = self.host_end_name.as_deref().unwrap_or("vethfake");
            let text = format!("container veth name (\"{}\") peer provided (\"{peer}\") already exists", self.ifname);
            return Err(kernel(EEXIST, &self.ifname, &text));
        }
        let name = self.ifname.clone();
        let container = self.add_link(Place::Container, &name, "veth");
        let host_name = self.host_end_name.clone().unwrap_or_else(|| format!("veth{container:08x}"));
        let host = self.add_link(Place::Host, &host_name, "veth");
        for (end, other) in [(container, host), (host, container)] {
            let link = self.held_mut(end)?;
            link.peer = Some(other);
            link.info.mtu = mtu.unwrap_or(1500);
        }
        if let Some(mac) = mac {
            self.held_mut(container)?.info.mac = Some(mac);
        }
        self.held_mut(host)?.info.up = true;
        self.pair().map(Reply::Veth).ok_or_else(|| kernel(ENODEV, &name, "no such device"))
    }

    pub(super) fn pair(&self) -> Option<VethPair> {
        let container = self.own()?;
        let host = self.host_end()?;
        let bridge = host.master.and_then(|master| self.links.get(&master)).map(|bridge| bridge.info.name.clone());
        Some(VethPair { container: container.info.clone(), host: host.info.clone(), bridge })
    }

    pub(super) fn wait_running(&self, host: Handle) -> Result<Reply, OpError> {
        let link = self.held(host)?;
        if link.info.running {
            return Ok(Reply::Link(link.info.clone()));
        }
        Err(OpError::new(ErrorCode::Kernel, &link.info.name, "bridge port in error state: lowerlayerdown"))
    }

    pub(super) fn sysctl(&mut self, handle: Handle, key: LinkSysctl, value: bool) -> Result<Reply, OpError> {
        if !self.ipv6 && key != LinkSysctl::ArpNotify {
            return Err(OpError::new(ErrorCode::NotFound, format!("{key:?}"), "no such key"));
        }
        self.held_mut(handle)?.sysctls.push((key, value));
        Ok(Reply::Done)
    }

    pub(super) fn addresses_add(&mut self, handle: Handle, nets: &[IpNet]) -> Result<Reply, OpError> {
        let own = self.own_addresses();
        for net in nets {
            if !own.iter().any(|(address, _)| address == net) {
                let message = format!("{net} is not an address of this attachment");
                return Err(OpError::new(ErrorCode::InvalidArgument, net.to_string(), message));
            }
            let dad = !self.held(handle)?.sysctls.contains(&(LinkSysctl::AcceptDad, false));
            let link = self.held_mut(handle)?;
            if link.addresses.iter().any(|address| address.net == *net) {
                return Err(kernel(EEXIST, net, "file exists"));
            }
            let tentative = matches!(net, IpNet::V6(_)) && dad;
            link.addresses.push(Address { net: *net, scope: 0, tentative });
            let connected = Route { scope: Some(253), ..to(net.trunc()) };
            if net.prefix_len() < net.max_prefix_len() && !link.routes.contains(&connected) {
                link.routes.push(connected);
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn settle(&mut self, handle: Handle) -> Result<Reply, OpError> {
        self.held_mut(handle)?.addresses.iter_mut().for_each(|address| address.tentative = false);
        Ok(Reply::Done)
    }

    pub(super) fn routes_add(&mut self, handle: Handle, routes: &[Route]) -> Result<Reply, OpError> {
        let own = self.own_addresses();
        let foreign = |source: &IpAddr| !own.iter().any(|(address, _)| address.addr() == *source);
        if let Some(source) = routes.iter().filter_map(|route| route.source).find(foreign) {
            let message = format!("{source} is not an address of this attachment");
            return Err(OpError::new(ErrorCode::InvalidArgument, source.to_string(), message));
        }
        let link = self.held_mut(handle)?;
        for route in routes {
            let describe = || format!("{} via {:?}", route.dst, route.gateway);
            let near = |gateway: &IpAddr| {
                let on_link = |known: &Route| known.gateway.is_none() && known.dst.contains(gateway);
                link.routes.iter().any(on_link)
            };
            let same = |known: &Route| {
                (known.dst, known.gateway, known.priority, known.table)
                    == (route.dst, route.gateway, route.priority, route.table)
            };
            if !link.info.up {
                return Err(kernel(ENETDOWN, describe(), "network is down"));
            }
            if route.gateway.as_ref().is_some_and(|gateway| !near(gateway)) {
                return Err(kernel(ENETUNREACH, describe(), "network is unreachable"));
            }
            if link.routes.iter().any(same) {
                return Err(kernel(EEXIST, describe(), "file exists"));
            }
            link.routes.push(route.clone());
        }
        Ok(Reply::Done)
    }

    pub(super) fn remove_connected(&mut self, handle: Handle, networks: &[IpNet]) -> Result<Reply, OpError> {
        let link = self.held_mut(handle)?;
        for network in networks {
            let before = link.routes.len();
            link.routes.retain(|route| route.dst != *network || route.gateway.is_some());
            if link.routes.len() == before {
                return Err(OpError { code: ErrorCode::NotFound, ..kernel(ESRCH, network, "no such process") });
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn main_routes(&self, handle: Handle) -> Result<Vec<Route>, OpError> {
        let link = self.held(handle)?;
        let main = |route: &&Route| link.info.up && matches!(route.table, None | Some(254));
        Ok(link.routes.iter().filter(main).cloned().collect())
    }

    pub(super) fn bridge_find(&self, name: &str) -> Result<Option<BridgeInfo>, OpError> {
        match self.find(Place::Host, name) {
            None => Ok(None),
            Some(link) if link.info.kind == "bridge" => {
                Ok(Some(BridgeInfo { link: link.info.clone(), promisc: link.promisc }))
            }
            Some(_) => {
                Err(OpError::new(ErrorCode::Exists, name, format!("\"{name}\" already exists but is not a bridge")))
            }
        }
    }

    pub(super) fn bridge_ensure(
        &mut self,
        name: &str,
        mtu: Option<u32>,
        vlan_filtering: bool,
        promisc: bool,
    ) -> Result<Reply, OpError> {
        if self.bridge_find(name)?.is_none() {
            if vlan_filtering && !self.vlans {
                return Err(OpError::new(ErrorCode::Unsupported, name, "operation not supported"));
            }
            let handle = self.add_link(Place::Host, name, "bridge");
            let bridge = self.held_mut(handle)?;
            bridge.info.mtu = mtu.unwrap_or(1500);
            bridge.vlan_filtering = vlan_filtering;
        }
        for link in self.links.values_mut().filter(|link| link.place == Place::Host && link.info.name == name) {
            link.info.up = true;
            link.promisc |= promisc;
        }
        let bridge = self.bridge_find(name)?;
        bridge.map(Reply::Bridge).ok_or_else(|| kernel(ENODEV, name, "no such device"))
    }

    pub(super) fn attach(&mut self, bridge: Handle, host: Handle, port: &PortSpec) -> Result<Reply, OpError> {
        let filters = self.held(bridge)?.vlan_filtering;
        if !filters && (port.vlan.is_some() || !port.trunk.is_empty()) {
            let name = &self.held(bridge)?.info.name;
            let message =
                format!("bridge \"{name}\" does not filter VLANs: ports of different VLANs would reach each other");
            return Err(OpError::new(ErrorCode::Unsupported, name, message));
        }
        let end = self.held_mut(host)?;
        end.master = Some(bridge);
        end.port = Some(port.clone());
        let mac = end.info.mac;
        let bridge = self.held_mut(bridge)?;
        bridge.info.running = true;
        if !bridge.pinned {
            bridge.lent_over = bridge.lent_over.or(bridge.info.mac);
            bridge.info.mac = mac;
        }
        Ok(Reply::Done)
    }

    pub(super) fn ensure_gateways(
        &mut self,
        bridge: Handle,
        vlan: Option<VlanId>,
        force: bool,
    ) -> Result<Reply, OpError> {
        let outside = |(address, gateway): &&(IpNet, Option<IpAddr>)| {
            !address.contains(&gateway.unwrap_or_else(|| first_address(address)))
        };
        if let Some((address, gateway)) = self.own_addresses().iter().find(outside) {
            let gateway = gateway.unwrap_or_else(|| first_address(address));
            let message = format!(
                "failed to set bridge addr: the gateway of {address} would be {gateway}, which does not lie in its network"
            );
            return Err(OpError::new(ErrorCode::InvalidArgument, address.to_string(), message));
        }
        let target = match vlan {
            None => bridge,
            Some(vlan) => {
                let name = format!("{}.{vlan}", self.held(bridge)?.info.name);
                let known = self.find(Place::Host, &name).map(|link| link.info.handle);
                known.unwrap_or_else(|| self.add_link(Place::Host, &name, "veth"))
            }
        };
        for (address, gateway) in self.own_addresses() {
            let gateway = gateway.unwrap_or_else(|| first_address(&address));
            let Ok(net) = IpNet::new(gateway, address.prefix_len()) else { continue };
            let link = self.held_mut(target)?;
            if link.addresses.iter().any(|known| known.net == net) {
                continue;
            }
            let in_the_way = |known: &Address| match (known.net, net) {
                (IpNet::V4(_), IpNet::V4(_)) => true,
                (IpNet::V6(_), IpNet::V6(_)) => known.net.contains(&gateway) || net.contains(&known.net.addr()),
                _ => false,
            };
            if !force && link.addresses.iter().any(in_the_way) {
                let name = &link.info.name;
                let message =
                    format!("failed to set bridge addr: \"{name}\" already has an IP address different from {net}");
                return Err(OpError::new(ErrorCode::Exists, name, message));
            }
            link.addresses.retain(|known| !in_the_way(known));
            link.addresses.push(Address { net, scope: 0, tentative: false });
            // To the address that it had before its ports joined.
            link.pinned = true;
            link.info.mac = link.lent_over.or(link.info.mac);
        }
        let gateway = vlan.and_then(|_| self.links.get(&target)).map(|link| link.info.clone());
        Ok(Reply::MaybeLink(gateway))
    }

    pub(super) fn point_to_point(&mut self, host: Handle) -> Result<Reply, OpError> {
        for (address, gateway) in self.own_addresses() {
            let Some(gateway) = gateway else {
                let message = format!("{address} has no gateway");
                return Err(OpError::new(ErrorCode::InvalidArgument, address.to_string(), message));
            };
            if gateway.is_ipv4() != address.addr().is_ipv4() {
                let message = format!("{gateway} can't be the gateway of {address}: they are of different IP versions");
                return Err(OpError::new(ErrorCode::InvalidArgument, address.to_string(), message));
            }
            let local = |link: &Link| link.addresses.iter().any(|known| known.net.addr() == address.addr());
            if self.links.values().any(|link| link.place == Place::Host && local(link)) {
                let message =
                    format!("{} is an address of this host: it can't be routed into a container", address.addr());
                return Err(OpError::new(ErrorCode::Exists, address.to_string(), message));
            }
            let route = Route { scope: Some(254), ..to(IpNet::from(address.addr())) };
            let taken = |link: &Link| link.routes.iter().any(|known| known.dst == route.dst);
            if self.links.values().any(|link| link.place == Place::Host && taken(link)) {
                let words = format!("{} dev {}", route.dst, self.held(host)?.info.name);
                let text = format!("failed to add route on host '{words}': file exists");
                return Err(kernel(EEXIST, words, &text));
            }
            let link = self.held_mut(host)?;
            let net = IpNet::from(gateway);
            if !link.addresses.iter().any(|known| known.net == net) {
                link.addresses.push(Address { net, scope: 0, tentative: false });
            }
            link.routes.push(route);
        }
        Ok(Reply::Done)
    }
}

/// A route to `dst` and nothing more, to be completed.
fn to(dst: IpNet) -> Route {
    Route { dst, gateway: None, source: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
}
