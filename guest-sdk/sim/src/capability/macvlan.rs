//! `macvlan`, simulated.

use crate::kernel::{Kernel, Place};
use crate::links::{EEXIST, refused};
use postern_types::{ErrorCode, Handle, Mac, MacvlanInfo, MacvlanMode, OpError, host};

impl host::Macvlan for Kernel {
    fn create(
        &mut self,
        parent: Handle,
        mode: MacvlanMode,
        mtu: Option<u32>,
        mac: Option<Mac>,
        _: Option<u32>,
    ) -> Result<MacvlanInfo, OpError> {
        self.namespace()?;
        let lower = self.held(parent)?.info.clone();
        self.takes_links("macvlan", parent)?;
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
        link.macvlan_mode = Some(mode);
        link.info.mtu = mtu.unwrap_or(lower.mtu);
        link.info.mac = if mode == MacvlanMode::Passthru { lower.mac } else { mac.or(link.info.mac) };
        Ok(MacvlanInfo { link: link.info.clone(), mode: Some(mode) })
    }

    fn find(&mut self) -> Result<Option<MacvlanInfo>, OpError> {
        let own = self.own().filter(|own| own.info.kind == "macvlan");
        Ok(own.map(|own| MacvlanInfo { link: own.info.clone(), mode: own.macvlan_mode }))
    }
}
