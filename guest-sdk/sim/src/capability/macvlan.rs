//! `macvlan`, simulated.

use crate::kernel::{Kernel, Place};
use crate::links::{EEXIST, refused};
use postern_types::{ErrorCode, MacvlanInfo, MacvlanMode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Macvlan) -> Result<Reply, OpError> {
    match operation {
        ops::Macvlan::Create { .. } => kernel.macvlan_create(operation),
        ops::Macvlan::Find => Ok(Reply::MaybeMacvlan(kernel.macvlan())),
    }
}

impl Kernel {
    fn macvlan_create(&mut self, operation: &ops::Macvlan) -> Result<Reply, OpError> {
        let ops::Macvlan::Create { parent, mode, mtu, mac, queue: _ } = operation else {
            return Ok(Reply::MaybeMacvlan(self.macvlan()));
        };
        self.namespace()?;
        let lower = self.held(*parent)?.info.clone();
        self.takes_links("macvlan", *parent)?;
        let name = self.ifname.clone();
        if let Some(mtu) = mtu.filter(|mtu| *mtu > lower.mtu) {
            let message = format!("invalid MTU {mtu}, must be [0, master MTU({})]", lower.mtu);
            return Err(OpError::new(ErrorCode::InvalidArgument, mtu.to_string(), message));
        }
        if self.own().is_some() {
            let text = format!("failed to create macvlan: the container has \"{name}\" already");
            return Err(refused(EEXIST, &name, &text));
        }
        let made = self.add_link(Place::Container, &name, "macvlan");
        let link = self.held_mut(made)?;
        link.macvlan_mode = Some(*mode);
        link.info.mtu = mtu.unwrap_or(lower.mtu);
        link.info.mac = if *mode == MacvlanMode::Passthru { lower.mac } else { mac.or(link.info.mac) };
        let info = link.info.clone();
        Ok(Reply::Macvlan(MacvlanInfo { link: info, mode: Some(*mode) }))
    }

    fn macvlan(&self) -> Option<MacvlanInfo> {
        let own = self.own().filter(|link| link.info.kind == "macvlan")?;
        Some(MacvlanInfo { link: own.info.clone(), mode: own.macvlan_mode })
    }
}
