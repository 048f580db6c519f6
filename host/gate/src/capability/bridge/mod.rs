//! `bridge`: the granted bridge, and this attachment's port on it.

pub mod effect;

use crate::capability::dhcp;
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::veth::{ask_for_no_address, ignore_router_advertisements};
use crate::context::Context;
use crate::effect::Port;
use crate::errors::{about, kernel_error, link_gone, native_error};
use crate::gate::Gate;
use crate::guest_state::{BridgeLink, Object};
use crate::own::OwnAddress;
use crate::{cause, node, others};
use ipnet::IpNet;
use nix::errno::Errno;
use postern_kernel::{Link, Netlink, VethSpec, random_mac, random_veth_name};
use postern_types::{BridgeInfo, ErrorCode, Handle, HandleKind, LinkInfo, Mac, OpError, PortSpec, VlanId, host};
use std::collections::BTreeSet;
use std::net::IpAddr;

impl host::Bridge for Gate<'_> {
    fn attach(&mut self, bridge: Handle, host: Handle, port: &PortSpec) -> Result<(), OpError> {
        let bridge = self.guest.bridge(bridge)?;
        let (index, name) = self.guest.port(host)?;
        if let Some(bad) = port.vlan.iter().chain(&port.trunk).find(|id| !(1..=4094).contains(*id)) {
            let message = format!("VLAN id {bad} is not 1 to 4094");
            return Err(OpError::new(ErrorCode::InvalidArgument, bad.to_string(), message));
        }
        let is_port = self.guest.object(host)?.kind() == HandleKind::Port;
        let is_down = is_port && take(self, index, &name, &bridge)?;
        let netlink = self.run.system.host()?;
        let tagged = port.vlan.is_some() || !port.trunk.is_empty();
        if tagged {
            let found = netlink.link_by_index(bridge.index).map_err(kernel_error)?;
            if !found.ok_or_else(|| link_gone(&bridge.name))?.vlan_filtering {
                return Err(unfiltered(&bridge.name));
            }
            // A new port is in the default VLAN. It is set down first, because the container must never send in that
            // VLAN.
            netlink.set_down(index).map_err(about(&name))?;
        }
        netlink.attach_port(index, bridge.index, port.hairpin, port.isolated).map_err(|error| {
            let hint = "a bridge takes 1023 ports; give the network's pods a second bridge";
            let hint = if error.is(Errno::EXFULL) { hint } else { "" };
            native_error(error, &name, format_args!("failed to connect \"{name}\" to bridge {}", bridge.name))
                .hint(hint)
        })?;
        set_vlans(netlink, index, &name, port)?;
        if tagged || is_down {
            netlink.set_up(index).map_err(about(&name))?;
        }
        self.run.own.joined = Some(bridge.index);
        self.run.own.path.bridge = Some(bridge.name);
        self.run.own.path.port_settings = tagged || port.hairpin || port.isolated;
        self.guest.join(port);
        Ok(())
    }

    fn ensure_gateways(&mut self, bridge: Handle, port: &PortSpec, force: bool) -> Result<Option<LinkInfo>, OpError> {
        self.guest.has_joined(port)?;
        let bridge = self.guest.bridge(bridge)?;
        // All gateways are checked before anything is made: an address that is put on a bridge stays there.
        let gateways: Vec<IpNet> =
            self.run.own.addresses.iter().map(OwnAddress::gateway_on_bridge).collect::<Result<_, _>>()?;
        let netlink = self.run.system.host()?;
        let shown = port.vlan.map(|vlan| vlan_gateway(self, &bridge, vlan, port)).transpose()?;
        let target = shown.as_ref().map_or(bridge, BridgeLink::of);
        spares_node(self.run, netlink, &target)?;
        // Root in a container could claim the link-local address of a bridge that Postern did not make. With
        // `accept_dad=2` the bridge would then lose all its IPv6 addresses, and could get no others.
        if target.asks && gateways.iter().any(|gateway| gateway.addr().is_ipv6()) {
            ask_for_no_address(self.run.system, &target.name)?;
        }
        let mut pinned = false;
        let mut noted: Vec<String> = gateways.iter().map(|gateway| format!("{} {gateway}", target.name)).collect();
        noted.dedup();
        for gateway in gateways {
            // The hardware address is set at once. A later gateway may fail, and the first gateway must not stay on a
            // bridge whose hardware address changes.
            if ensure_address(netlink, &target, gateway, force)? && !pinned {
                pin_hardware_address(netlink, &target)?;
                pinned = true;
            }
        }
        // No handle is given out for a VLAN gateway: no operation of a guest acts on it.
        self.run.own.path.gateways = noted;
        self.common.shown.extend(shown.iter().map(|link| link.name.to_string()));
        Ok(shown.map(|link| Gate::show(Handle::MAX, link)))
    }

    fn ensure(
        &mut self,
        name: &str,
        mtu: Option<u32>,
        vlan_filtering: bool,
        promisc: bool,
    ) -> Result<BridgeInfo, OpError> {
        check_name(name)?;
        let host = self.run.system.host()?;
        let bridge = match host.link_by_name(name).map_err(kernel_error)? {
            Some(link) => link,
            None => {
                self.guest.room(1)?;
                // Two runs may find at once that the bridge is missing. The kernel lets one run create the bridge, and
                // the other run then finds the bridge.
                let create = || host.create_bridge(name, mtu, vlan_filtering);
                node::noted(&self.run.fixed.places.state, host, node::BRIDGE, name, create)
                    .map_err(|error| native_error(error, name, format_args!("could not add \"{name}\"")))
                    .map_err(|error| cause::Asked { mac: None, mtu, largest: cause::LARGEST_MTU }.explain(error))?;
                // A new bridge never checks its addresses (DAD). For an existing bridge, DAD is switched off only when
                // the bridge is set up, or gets an IPv6 gateway.
                ask_for_no_address(self.run.system, name)?;
                host.link_by_name(name).map_err(kernel_error)?.ok_or_else(|| link_gone(name))?
            }
        };
        must_be_bridge(&bridge)?;
        // The check comes before a pair is made, because a pair can't be attached to such a bridge.
        if self.guest.granted().has_vlans() && !bridge.vlan_filtering {
            return Err(unfiltered(name));
        }
        if promisc && !bridge.promisc {
            host.set_promisc(bridge.index, true).map_err(about(name))?;
        }
        ignore_router_advertisements(self.run.system, name)?;
        if !bridge.up {
            // DAD is switched off first: the kernel checks the link-local address as soon as the bridge is up.
            if BridgeLink::of(&bridge).asks {
                ask_for_no_address(self.run.system, name)?;
            }
            host.set_up(bridge.index).map_err(about(name))?;
        }
        hand_out(self, bridge, promisc)
    }

    fn find(&mut self, name: &str) -> Result<Option<BridgeInfo>, OpError> {
        check_name(name)?;
        let Some(bridge) = self.run.system.host()?.link_by_name(name).map_err(kernel_error)? else {
            return Ok(None);
        };
        must_be_bridge(&bridge)?;
        hand_out(self, bridge, false).map(Some)
    }

    fn previous_link(&mut self) -> Result<Option<LinkInfo>, OpError> {
        let Some((link, mac)) = others::previous_link(self.run, self.guest.granted())? else {
            return Ok(None);
        };
        self.run.own.container_mac = mac;
        Ok(Some(Gate::show(self.grant(Object::Port { index: link.index, name: link.name.to_string() })?, link)))
    }
}

fn hand_out(gate: &mut Gate<'_>, link: Link, promisc: bool) -> Result<BridgeInfo, OpError> {
    let promisc = promisc || link.promisc;
    Ok(BridgeInfo { link: Gate::show(gate.grant(Object::Bridge(BridgeLink::of(&link)))?, link), promisc })
}

/// Checks the name, which comes from the operator's configuration. A name that the kernel would refuse is reported
/// before anything is done.
fn check_name(name: &str) -> Result<(), OpError> {
    postern_cni::validate_interface_name(name)
        .map_err(|error| OpError::new(ErrorCode::InvalidArgument, name, format!("could not add \"{name}\": {error}")))
}

fn must_be_bridge(link: &Link) -> Result<(), OpError> {
    if link.kind == "bridge" {
        return Ok(());
    }
    Err(OpError::new(ErrorCode::Exists, &link.name, format!("\"{}\" already exists but is not a bridge", link.name))
        .hint("give the network another bridge name, or remove that link"))
}

/// Returns the error for a bridge that does not filter VLANs.
pub fn unfiltered(name: &str) -> OpError {
    let message = format!("bridge \"{name}\" does not filter VLANs: ports of different VLANs would reach each other");
    OpError::new(ErrorCode::Unsupported, name, message).hint(format!(
        "`ip link set {name} type bridge vlan_filtering 1` lets all ports filter; or give the network its own bridge"
    ))
}

/// Writes down that another plugin's link is about to join this bridge. Returns true if the link is still down.
fn take(gate: &mut Gate<'_>, index: u32, name: &str, bridge: &BridgeLink) -> Result<bool, OpError> {
    let find = |gate: &Gate<'_>| {
        gate.run.system.host()?.link_by_index(index).map_err(kernel_error)?.ok_or_else(|| link_gone(name))
    };
    let link = find(gate)?;
    let (master, bridge) = (bridge.index, bridge.name.clone());
    if let Some(port) = gate.run.journal.ports().first() {
        if (port.index, port.master) == (index, master) {
            return Ok(false);
        }
        let message = format!("this attachment has joined \"{}\" with \"{}\" already", port.bridge, port.name);
        return Err(OpError::new(ErrorCode::Exists, name, message).hint("run DEL first"));
    }
    gate.run.journal.join(gate.run.view())?;
    gate.run.journal.intend(gate.run.view(), Port { name: name.to_owned(), index, bridge, master, up: link.up })?;
    others::must_be_free(gate.run, &find(gate)?)?;
    Ok(!link.up)
}

fn set_vlans(netlink: &Netlink, index: u32, name: &str, port: &PortSpec) -> Result<(), OpError> {
    let failed = |error| native_error(error, name, format_args!("failed to setup vlan tag on interface \"{name}\""));
    let tagged = port.vlan.is_some() || !port.trunk.is_empty();
    if tagged && !port.preserve_default_vlan {
        for (id, _) in netlink.port_vlans(index).map_err(failed)? {
            netlink.delete_vlan(index, id).map_err(failed)?;
        }
    }
    if let Some(id) = port.vlan {
        netlink.add_vlan(index, id, true, true).map_err(failed)?;
    }
    if let Some(id) = port.vlan.filter(|id| port.trunk.contains(id)) {
        crate::say!(
            "postern: VLAN {id} is in `vlan` and in `vlanTrunk`: as with the native plugin, port \"{name}\" has the VLAN only with \
             tags, and drops the container's untagged frames; remove the VLAN from one of the two keys"
        );
    }
    // Each VLAN is added once, even if it is listed twice.
    for id in BTreeSet::from_iter(&port.trunk) {
        netlink.add_vlan(index, *id, false, false).map_err(failed)?;
    }
    if port.vlan.is_none() && tagged {
        netlink.add_vlan(index, 1, true, true).map_err(failed)?;
    }
    Ok(())
}

/// Checks that no DHCP server chooses an address of the node: the node would also get a route. A DHCP server is not
/// trusted, so the gateway of a lease must be on the bridge already.
fn spares_node(run: &Context, netlink: &Netlink, target: &BridgeLink) -> Result<(), OpError> {
    let (leased, bridge) = (dhcp::leased(run.journal), &target.name);
    if leased.is_empty() {
        return Ok(());
    }
    let there = netlink.addresses(target.index).map_err(about(bridge))?;
    for own in run.own.addresses.iter().filter(|own| leased.contains(&own.net)) {
        let gateway = own.gateway_on_bridge()?;
        if there.iter().any(|have| have.net == gateway) {
            continue;
        }
        let message = format!(
            "failed to set bridge addr: \"{bridge}\" does not get {gateway}, because a DHCP server chose it, and the node \
             would get this address and its route"
        );
        let hint = format!(
            "leave isGateway and isDefaultGateway out if a router of the network has the address; or first run \
             `ip address add {gateway} dev {bridge}`"
        );
        return Err(OpError::new(ErrorCode::Unsupported, bridge, message).hint(hint));
    }
    Ok(())
}

impl BridgeLink {
    fn of(link: &Link) -> Self {
        let asks = link.accept_dad != Some(0);
        Self { index: link.index, name: link.name.to_string(), mac: link.mac.map(Mac), mtu: link.mtu, asks }
    }
}

/// Sets the hardware address of a bridge to the address that it had before its first port.
///
/// A bridge takes the lowest address of its ports, but an address that was set stays. Pods have the gateway's address
/// in their neighbour tables. A bridge whose last port has left has no address (all zeros). Then it gets a random
/// address, like a new bridge.
fn pin_hardware_address(netlink: &Netlink, target: &BridgeLink) -> Result<(), OpError> {
    let Some(Mac(mac)) = target.mac else { return Ok(()) };
    let mac = if mac == [0; 6] { random_mac() } else { mac };
    netlink
        .set_mac(target.index, mac)
        .map_err(|error| native_error(error, &target.name, "failed to set bridge addr: could not set bridge's mac"))
}

/// Adds an address to the bridge, if the address is missing. Returns true if it was added.
///
/// The address is added without DAD: root in a container on the bridge could claim the address, and the kernel would
/// never use it. An address that failed DAD is added anew.
fn ensure_address(netlink: &Netlink, target: &BridgeLink, gateway: IpNet, force: bool) -> Result<bool, OpError> {
    for address in netlink.addresses(target.index).map_err(about(&target.name))? {
        let (have, want) = (address.net, gateway);
        if have == want {
            if address.dad_failed {
                let mended =
                    |error| native_error(error, &target.name, format_args!("failed to set bridge addr {have}"));
                netlink.delete_address(target.index, have).map_err(mended)?;
                netlink.add_known_address(target.index, have).map_err(mended)?;
            }
            return Ok(false);
        }
        let conflict = match (have.addr(), want.addr()) {
            (IpAddr::V4(_), IpAddr::V4(_)) => true,
            (IpAddr::V6(_), IpAddr::V6(_)) => have.contains(&want.network()) || want.contains(&have.network()),
            _ => false,
        };
        if conflict && force {
            let what = format!("failed to set bridge addr: could not remove {have} from \"{}\"", target.name);
            netlink.delete_address(target.index, have).map_err(|error| native_error(error, &target.name, what))?;
        } else if conflict {
            let name = &target.name;
            let message =
                format!("failed to set bridge addr: \"{name}\" already has an IP address different from {gateway}");
            return Err(OpError::new(ErrorCode::Exists, name, message)
                .hint("set \"forceAddress\": true in the network to replace the present address"));
        }
    }
    match netlink.add_known_address(target.index, gateway) {
        Ok(()) => Ok(true),
        Err(error) if error.is(Errno::EEXIST) => Ok(false),
        Err(error) => {
            let what = format!("failed to set bridge addr: could not add IP address {gateway} to \"{}\"", target.name);
            Err(cause::of_ip(native_error(error, &target.name, what), gateway.addr(), &target.name, Some(target.mtu)))
        }
    }
}

/// Makes `<bridge>.<vlan>`: one end of a pair in the host's namespace. The other end of the pair is an access port of
/// the bridge.
fn vlan_gateway(gate: &Gate<'_>, bridge: &BridgeLink, vlan: VlanId, port: &PortSpec) -> Result<Link, OpError> {
    let netlink = gate.run.system.host()?;
    let name = format!("{}.{vlan}", bridge.name);
    check_name(&name)?;
    let link = match netlink.link_by_name(&name).map_err(kernel_error)? {
        Some(link) => link,
        None => {
            let (peer_name, peer_mac) = (random_veth_name(), random_mac());
            let (peer_name, peer_ns) = (peer_name.as_str(), gate.run.system.home()?.fd());
            let spec = VethSpec { name: &name, mtu: Some(bridge.mtu), mac: None, peer_name, peer_mac, peer_ns };
            let create = || match netlink.create_veth(&spec) {
                // Another run has made the pair first.
                Err(error) if error.is(Errno::EEXIST) => Ok(false),
                other => other.map(|()| true),
            };
            node::noted(&gate.run.fixed.places.state, netlink, node::VLAN_GATEWAY, &name, create)
                .map_err(|error| native_error(error, &name, format_args!("failed to make VLAN gateway {name}")))?;
            netlink.link_by_name(&name).map_err(kernel_error)?.ok_or_else(|| link_gone(&name))?
        }
    };
    // An operator's link with this name is not changed. A pair of Postern is completed, because the run that began it
    // may have been killed.
    if link.up || link.kind != "veth" {
        return Ok(link);
    }
    let peer = link.peer_index.map(|index| netlink.link_by_index(index).map_err(kernel_error)).transpose()?.flatten();
    if let Some(peer) = peer.filter(|peer| peer.peer_index == Some(link.index)) {
        let preserve_default_vlan = port.preserve_default_vlan;
        let joins = PortSpec { vlan: Some(vlan), preserve_default_vlan, ..PortSpec::default() };
        netlink.attach_port(peer.index, bridge.index, false, false).map_err(about(&peer.name))?;
        set_vlans(netlink, peer.index, &peer.name.to_string(), &joins)?;
        netlink.set_up(peer.index).map_err(about(&peer.name))?;
    }
    ignore_router_advertisements(gate.run.system, &name)?;
    ask_for_no_address(gate.run.system, &name)?;
    netlink.set_up(link.index).map_err(about(&name))?;
    Ok(link)
}
