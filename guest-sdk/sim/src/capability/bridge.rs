//! `bridge`, simulated.

use crate::kernel::{Kernel, Place};
use crate::links::{ENODEV, refused};
use crate::services::first_address;
use ipnet::IpNet;
use postern_types::{Address, BridgeInfo, ErrorCode, Handle, LinkInfo, OpError, PortSpec, host};
use std::net::IpAddr;

impl host::Bridge for Kernel {
    fn attach(&mut self, bridge: Handle, host: Handle, port: &PortSpec) -> Result<(), OpError> {
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
        end.info.up = true;
        let mac = end.info.mac;
        let bridge = self.held_mut(bridge)?;
        bridge.info.running = true;
        if !bridge.pinned {
            bridge.lent_over = bridge.lent_over.or(bridge.info.mac);
            bridge.info.mac = mac;
        }
        Ok(())
    }

    fn ensure_gateways(&mut self, bridge: Handle, port: &PortSpec, force: bool) -> Result<Option<LinkInfo>, OpError> {
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
        let target = match port.vlan {
            None => bridge,
            Some(vlan) => {
                let name = format!("{}.{vlan}", self.held(bridge)?.info.name);
                let known = Kernel::find(self, Place::Host, &name).map(|link| link.info.handle);
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
            // The bridge gets the MAC address that it had before its ports joined.
            link.pinned = true;
            link.info.mac = link.lent_over.or(link.info.mac);
        }
        Ok(port.vlan.and_then(|_| self.links.get(&target)).map(|link| link.info.clone()))
    }

    fn ensure(
        &mut self,
        name: &str,
        mtu: Option<u32>,
        vlan_filtering: bool,
        promisc: bool,
    ) -> Result<BridgeInfo, OpError> {
        if self.bridge(name)?.is_none() {
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
        self.bridge(name)?.ok_or_else(|| refused(ENODEV, name, "no such device"))
    }

    fn find(&mut self, name: &str) -> Result<Option<BridgeInfo>, OpError> {
        self.bridge(name)
    }

    fn previous_link(&mut self) -> Result<Option<LinkInfo>, OpError> {
        Ok(self.previous())
    }
}

impl Kernel {
    fn bridge(&self, name: &str) -> Result<Option<BridgeInfo>, OpError> {
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

    fn previous(&self) -> Option<LinkInfo> {
        let name = self.previous_link.as_ref()?;
        self.find(Place::Host, name).map(|link| link.info.clone())
    }

    /// True if this link of the host joined the bridge instead of a pair.
    pub(crate) fn is_previous(&self, handle: Handle) -> bool {
        self.previous().is_some_and(|link| link.handle == handle)
    }
}
