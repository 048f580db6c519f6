//! Links that have ports: bridges, and VRFs (virtual routing and forwarding). A VRF has its own routing table.

use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use netlink_packet_route::link::InfoBridge;
use nix::errno::Errno;
use rtnetlink::{LinkBridge, LinkMessageBuilder, LinkVrf};

impl Netlink {
    /// Creates a bridge, which stays down; false if a link of any kind has that name already.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel knows no bridges or no VLAN filtering, `EINVAL` for a bad name or MTU.
    pub fn create_bridge(&self, name: &str, mtu: Option<u32>, vlan_filtering: bool) -> Result<bool> {
        let mut bridge = LinkMessageBuilder::<LinkBridge>::new(name);
        if let Some(mtu) = mtu {
            bridge = bridge.mtu(mtu);
        }
        if vlan_filtering {
            bridge = bridge.append_info_data(InfoBridge::VlanFiltering(true));
        }
        let made = self.create(Subject { operation: "create bridge", object: &name }, name, bridge.build());
        Ok(unless(&[Errno::EEXIST], made)?.is_some())
    }

    /// Creates a VRF with this routing table. The VRF stays down.
    ///
    /// # Errors
    /// `EEXIST` if a link has that name, `EOPNOTSUPP` for a kernel without VRFs.
    pub fn create_vrf(&self, name: &str, table: u32) -> Result<()> {
        self.create(Subject { operation: "create VRF", object: &name }, name, LinkVrf::new(name, table).build())
    }
}
