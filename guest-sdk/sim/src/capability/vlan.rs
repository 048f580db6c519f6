//! `vlan`, simulated.

use crate::kernel::Kernel;
use crate::links::{EEXIST, refused};
use postern_types::{ErrorCode, Handle, LinkInfo, OpError, VlanId, VlanInfo, host};

impl host::Vlan for Kernel {
    fn create(&mut self, parent: Handle, id: VlanId, mtu: Option<u32>) -> Result<LinkInfo, OpError> {
        let lower = self.held(parent)?.info.clone();
        if id > 4094 {
            let message = format!("invalid VLAN ID {id} (must be between 0 and 4094 inclusive)");
            return Err(OpError::new(ErrorCode::InvalidArgument, id.to_string(), message));
        }
        if let Some(mtu) = mtu.filter(|mtu| *mtu > lower.mtu) {
            let message = format!("invalid MTU {mtu}, must be [0, master MTU({})]", lower.mtu);
            return Err(OpError::new(ErrorCode::InvalidArgument, mtu.to_string(), message));
        }
        let mut others = self.links.values();
        if let Some(other) = others.find(|link| link.vlan_id == Some(id) && link.stands_on == Some(parent)) {
            let (below, other) = (&lower.name, &other.info.name);
            let text =
                format!("failed to create vlan: file exists: VLAN {id} of \"{below}\" is in use, \"{other}\" has it");
            return Err(refused(EEXIST, id, &text));
        }
        let made = self.add_inner("vlan")?;
        let link = self.held_mut(made)?;
        link.vlan_id = Some(id);
        link.stands_on = Some(parent);
        link.info.mtu = mtu.unwrap_or(lower.mtu);
        link.info.mac = lower.mac;
        Ok(link.info.clone())
    }

    fn find(&mut self) -> Result<Option<VlanInfo>, OpError> {
        let own = self.own().filter(|own| own.info.kind == "vlan");
        Ok(own.map(|own| VlanInfo { link: own.info.clone(), id: own.vlan_id.unwrap_or_default() }))
    }
}
