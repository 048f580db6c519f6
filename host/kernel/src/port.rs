//! Bridge ports and their VLANs (`bridge(8)`; attributes of `linux/if_link.h` and `linux/if_bridge.h`).

use crate::error::{Result, Subject};
use crate::netlink::Netlink;
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{AfSpecBridge, BridgeFlag, BridgeVlanInfoFlags, LinkMessage};
use nix::libc;
use postern_netlink::NetlinkRequest;
use postern_netlink::{Attributes, u16_at, u32_at};
use postern_types::VlanId;
use rtnetlink::{LinkBridgePort, LinkBridgeVlan, LinkUnspec};

/// `RTM_GETVLAN` of `linux/rtnetlink.h`, since Linux 5.6.
const RTM_GETVLAN: u16 = 114;
/// Length of `struct br_vlan_msg`: family, three reserved bytes, interface index.
const VLAN_HEADER: usize = 8;
const BRIDGE_VLANDB_ENTRY: u16 = 1;
const BRIDGE_VLANDB_ENTRY_INFO: u16 = 1;
const BRIDGE_VLANDB_ENTRY_RANGE: u16 = 2;

impl Netlink {
    /// Makes `port` a port of `bridge` and sets both flags, whatever their old values. `hairpin` lets a frame leave by
    /// the port where it entered. `isolated` keeps the port from reaching other isolated ports.
    ///
    /// The kernel reads a port's options before its new master, so one message can't set options and master. One
    /// datagram has two messages, with one acknowledgement.
    ///
    /// # Errors
    /// `ENODEV` if the port or the bridge is missing. `EINVAL` if `bridge` is not a bridge. `ELOOP` for a bridge in a
    /// bridge. `EBUSY` if the port belongs to another master.
    pub fn attach_port(&self, port: u32, bridge: u32, hairpin: bool, isolated: bool) -> Result<()> {
        let subject = Subject { operation: "attach", object: &format_args!("link {port} to bridge {bridge}") };
        let attach = LinkUnspec::new_with_index(port).controller(bridge).build();
        // The order of rtnetlink's builder is kept: the kind has to come before the data.
        let options = LinkBridgePort::new(port).hairpin(hairpin).isolated(isolated).build();
        self.batch(
            subject,
            &[
                NetlinkRequest::new(&RouteNetlinkMessage::SetLink(attach), 0),
                NetlinkRequest::new(&RouteNetlinkMessage::NewLink(options), NLM_F_ACK),
            ],
        )
    }

    /// Returns the VLANs of a port, ascending. The flag is true if incoming untagged frames belong to the VLAN (PVID).
    /// The request is for this port alone: the older request, an `AF_BRIDGE` dump of links, lists every port of the
    /// node.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel has no VLAN filtering, `EINVAL` if the link is not a port, `ENODEV` if the link is
    /// gone.
    pub fn port_vlans(&self, port: u32) -> Result<Vec<(VlanId, bool)>> {
        let subject = Subject { operation: "list VLANs of", object: &format_args!("link {port}") };
        let mut header = vec![0; VLAN_HEADER - size_of::<u32>()];
        header.splice(..1, [AF_BRIDGE]);
        header.extend(port.to_ne_bytes());
        self.dump(subject, NetlinkRequest::raw(RTM_GETVLAN, 0, header), |payload| decode_vlans(payload, port))
    }

    /// Adds a VLAN to a port (`bridge vlan add … master`). `pvid` puts incoming untagged frames into the VLAN.
    /// `untagged` removes the tag from the VLAN's outgoing frames.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel has no VLAN filtering or the link is not a port, `EINVAL` for 0 and above 4094.
    pub fn add_vlan(&self, port: u32, vid: VlanId, pvid: bool, untagged: bool) -> Result<()> {
        let subject = Subject { operation: "add", object: &format_args!("VLAN {vid} to link {port}") };
        let mut flags = BridgeVlanInfoFlags::empty();
        flags.set(BridgeVlanInfoFlags::Pvid, pvid);
        flags.set(BridgeVlanInfoFlags::Untagged, untagged);
        self.acknowledged(subject, &RouteNetlinkMessage::SetLink(vlan_message(port, vid, flags)), 0)
    }

    /// Takes a VLAN off a port.
    ///
    /// # Errors
    /// The errors of [`Netlink::add_vlan`], and `ENOENT` if the port is not in that VLAN.
    pub fn delete_vlan(&self, port: u32, vid: VlanId) -> Result<()> {
        let subject = Subject { operation: "delete", object: &format_args!("VLAN {vid} of link {port}") };
        let message = vlan_message(port, vid, BridgeVlanInfoFlags::empty());
        self.acknowledged(subject, &RouteNetlinkMessage::DelLink(message), 0)
    }
}

/// `AF_BRIDGE` as the single byte used in headers.
const AF_BRIDGE: u8 = libc::AF_BRIDGE.to_le_bytes()[0];

fn vlan_message(port: u32, vid: VlanId, flags: BridgeVlanInfoFlags) -> LinkMessage {
    // "Controller" is BRIDGE_FLAGS_MASTER: the bridge carries out the request, not the port's own driver.
    LinkBridgeVlan::new(port).append_af_spec(AfSpecBridge::Flags(BridgeFlag::Controller)).vlan(vid, flags).build()
}

/// Reads an `RTM_NEWVLAN`. Neighbouring VLANs with the same options come as one entry with the last VLAN of the range.
fn decode_vlans(payload: &[u8], port: u32) -> Option<Vec<(VlanId, bool)>> {
    let mut vlans = Vec::new();
    if u32_at(payload, 4)? != port {
        return Some(vlans);
    }
    let entries = Attributes(payload.get(VLAN_HEADER..)?).iter();
    for entry in entries.filter(|entry| entry.kind == BRIDGE_VLANDB_ENTRY) {
        // struct bridge_vlan_info: flags, VLAN.
        let info = entry.nested().first(BRIDGE_VLANDB_ENTRY_INFO)?;
        let first = u16_at(info.value, 2)?;
        let range = entry.nested().first(BRIDGE_VLANDB_ENTRY_RANGE);
        let last = range.map_or(Some(first), |range| range.u16())?;
        let is_pvid = u16_at(info.value, 0)? & BridgeVlanInfoFlags::Pvid.bits() != 0;
        vlans.extend((first..=last).map(|id| (id, is_pvid)));
    }
    Some(vlans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NLM_F_REQUEST;
    use postern_netlink::attribute;

    /// `struct ifinfomsg` with family and index only.
    fn header(index: u32) -> Vec<u8> {
        let mut header = vec![0; 16];
        header[0] = 7;
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        header
    }

    // The kernel of the test machine has no VLAN filtering. So the messages are compared with the format of `bridge
    // vlan add`: IFLA_AF_SPEC (26) holds IFLA_BRIDGE_FLAGS (0) = BRIDGE_FLAGS_MASTER (1) and IFLA_BRIDGE_VLAN_INFO (2)
    // = flags (PVID 2, untagged 4), VLAN.
    #[test]
    fn vlan_messages_are_those_of_bridge_vlan() {
        let expected = |info: [u16; 2]| {
            let info = info.map(u16::to_ne_bytes).concat();
            let spec = [attribute(0, &1u16.to_ne_bytes()), attribute(2, &info)].concat();
            [header(9), attribute(26, &spec)].concat()
        };
        for (flags, bits) in [
            (BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged, 6),
            (BridgeVlanInfoFlags::empty(), 0),
            (BridgeVlanInfoFlags::Untagged, 4),
        ] {
            let message = vlan_message(9, 100, flags);
            let add = NetlinkRequest::new(&RouteNetlinkMessage::SetLink(message.clone()), NLM_F_ACK);
            assert_eq!(add.parts(), (19, NLM_F_REQUEST | NLM_F_ACK, expected([bits, 100]).as_slice()));
            let delete = NetlinkRequest::new(&RouteNetlinkMessage::DelLink(message), NLM_F_ACK);
            assert_eq!(delete.parts().0, 17);
        }
    }

    #[test]
    fn lists_are_expanded_and_malformed_ones_refused() {
        let vlan_header = [7u32.to_ne_bytes(), 9u32.to_ne_bytes()].concat();
        let entry = |parts: &[Vec<u8>]| attribute(BRIDGE_VLANDB_ENTRY, &parts.concat());
        let flagged = |flags: u16, vid: u16| {
            attribute(BRIDGE_VLANDB_ENTRY_INFO, &[flags.to_ne_bytes(), vid.to_ne_bytes()].concat())
        };
        let info = |vid: u16| flagged(0, vid);
        let range = |vid: u16| attribute(BRIDGE_VLANDB_ENTRY_RANGE, &vid.to_ne_bytes());
        let message = [vlan_header.clone(), entry(&[flagged(6, 1)]), entry(&[info(10), range(12)])].concat();
        let vlans = vec![(1, true), (10, false), (11, false), (12, false)];
        assert_eq!(decode_vlans(&message, 9), Some(vlans));
        assert_eq!(decode_vlans(&message, 8), Some(Vec::new()), "another port's");
        let without_info = [vlan_header, entry(&[range(12)])].concat();
        assert_eq!(decode_vlans(&without_info, 9), None);
        for end in 0..message.len() {
            let _ = decode_vlans(&message[..end], 9);
        }
    }
}
