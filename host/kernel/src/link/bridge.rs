//! Bridges.

use super::is_link_name;
use crate::error::{Result, Subject};
use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::InfoBridge;
use nix::errno::Errno;
use rtnetlink::{LinkBridge, LinkMessageBuilder};

impl Netlink {
    /// Creates a bridge, which stays down; false if a link of any kind has that name already.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel knows no bridges or no VLAN filtering, `EINVAL` for a bad name or MTU.
    pub fn create_bridge(&self, name: &str, mtu: Option<u32>, vlan_filtering: bool) -> Result<bool> {
        let subject = Subject { operation: "create bridge", object: &name };
        if !is_link_name(name) {
            return Err(subject.invalid("no link can have this name"));
        }
        let mut bridge = LinkMessageBuilder::<LinkBridge>::new(name);
        if let Some(mtu) = mtu {
            bridge = bridge.mtu(mtu);
        }
        if vlan_filtering {
            bridge = bridge.append_info_data(InfoBridge::VlanFiltering(true));
        }
        match self.acknowledged(subject, &RouteNetlinkMessage::NewLink(bridge.build()), NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(true),
            Err(error) if error.is(Errno::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
