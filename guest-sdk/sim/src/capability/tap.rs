//! `tap`, simulated.

use crate::kernel::{Kernel, Place};
use postern_types::{ErrorCode, Handle, LinkInfo, OpError, TapSettings, host};

impl host::Tap for Kernel {
    fn create(&mut self, settings: &TapSettings) -> Result<LinkInfo, OpError> {
        let made = self.add_inner("tap")?;
        let link = self.held_mut(made)?;
        link.info.kind = "tun".to_owned();
        link.info.mtu = settings.mtu.unwrap_or(link.info.mtu);
        link.info.mac = settings.mac.or(link.info.mac);
        Ok(link.info.clone())
    }

    fn join(&mut self, link: Handle, bridge: &str) -> Result<(), OpError> {
        let own = self.held(link)?.info.name.clone();
        let Some(found) = self.find(Place::Container, bridge) else {
            let message = format!("failed to get bridge {bridge}: Link not found");
            return Err(OpError::new(ErrorCode::NotFound, bridge, message));
        };
        if found.info.kind != "bridge" {
            let message = format!("failed to set tap {own} as a port of bridge {bridge}: operation not supported");
            return Err(OpError::new(ErrorCode::Unsupported, bridge, message));
        }
        let bridge = found.info.handle;
        self.held_mut(link)?.master = Some(bridge);
        Ok(())
    }
}
