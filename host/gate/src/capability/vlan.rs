//! `vlan`: the attachment's own link, a VLAN of a granted parent. The kernel lets a parent have each VLAN only once, in
//! all namespaces together.

use super::inner::{self, NewLink};
use crate::capability::device::held::{self, HeldNote, HeldObject};
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::effect::InnerKind;
use crate::gate::Gate;
use postern_kernel::{InnerLinkKind, Link};
use postern_types::{ErrorCode, Handle, LinkInfo, LinkName, OpError, VlanId, VlanInfo, host};

/// The highest VLAN (IEEE 802.1Q).
const LAST: VlanId = 4094;

impl host::Vlan for Gate<'_> {
    fn create(&mut self, parent: Handle, id: u16, mtu: Option<u32>) -> Result<LinkInfo, OpError> {
        let parent = self.guest.parent(parent)?;
        if id > LAST {
            let message = format!("invalid VLAN ID {id} (must be between 0 and {LAST} inclusive)");
            return Err(OpError::new(ErrorCode::InvalidArgument, id.to_string(), message));
        }
        parent.can_carry(mtu)?;
        let below = parent.link(self)?;
        // The kernel would also refuse a VLAN that is in use, but can't name the link that uses it.
        let is_it = |link: &Link| link.vlan_id == Some(id) && !link.is_provider_vlan;
        if let Some(other) = parent.stacked(self)?.find(is_it) {
            return Err(taken(&below.name, id, &format!("\"{}\" has it", other.name)));
        }
        let wanted = NewLink::on(&parent, InnerLinkKind::Vlan { parent: parent.index, id }, mtu);
        let made = inner::create(self, &wanted, |_| Ok(()));
        // `Exists` means that the VLAN is in use: the name was free, and a link that is made from the host has a random
        // name.
        let is_taken = |error: &OpError| {
            error.code == ErrorCode::Exists && error.errno.is_some() && error.message.starts_with("failed to create")
        };
        match made {
            Err(error) if is_taken(&error) => Err(taken(&below.name, id, &holder_elsewhere(self, parent.index, id))),
            made => made,
        }
    }

    fn find(&mut self) -> Result<Option<VlanInfo>, OpError> {
        let Some(own) = inner::find(self, InnerKind::Vlan)? else { return Ok(None) };
        let id = own.vlan_id.unwrap_or_default();
        Ok(Some(VlanInfo { link: inner::show(self, own)?, id }))
    }
}

/// Names the holder of a VLAN that no link in the parent's namespace has.
fn holder_elsewhere(gate: &Gate<'_>, parent: u32, id: VlanId) -> String {
    let is_meant = |held: &HeldNote| matches!(held.object, HeldObject::Vlan { index, id: other, .. } if (index, other) == (parent, id));
    match held::known(gate.run.view()).unwrap_or_default().into_iter().find(is_meant) {
        Some(held) => format!("{} of container {} had this VLAN, and the VLAN is held", held.ifname, held.container_id),
        None => "a container has it".to_owned(),
    }
}

fn taken(parent: &LinkName, id: VlanId, by: &str) -> OpError {
    let message = format!("failed to create vlan: file exists: VLAN {id} of \"{parent}\" is in use, {by}");
    OpError::new(ErrorCode::Exists, id.to_string(), message).hint(
        "a link has each VLAN once: name another `vlanId` or `master`, or run DEL of the attachment with this VLAN",
    )
}
