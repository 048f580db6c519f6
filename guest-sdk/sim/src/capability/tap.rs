//! `tap`, simulated.

use crate::kernel::{Kernel, Place};
use postern_types::{ErrorCode, Handle, OpError, Reply, TapSettings, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Tap) -> Result<Reply, OpError> {
    match operation {
        ops::Tap::Create { settings } => kernel.create_tap(settings),
        ops::Tap::Join { link, bridge } => kernel.join_bridge(*link, bridge),
    }
}

impl Kernel {
    fn create_tap(&mut self, settings: &TapSettings) -> Result<Reply, OpError> {
        let made = self.add_inner("tap")?;
        let link = self.held_mut(made)?;
        link.info.kind = "tun".to_owned();
        link.info.mtu = settings.mtu.unwrap_or(link.info.mtu);
        link.info.mac = settings.mac.or(link.info.mac);
        Ok(Reply::Made(link.info.clone()))
    }

    fn join_bridge(&mut self, handle: Handle, bridge: &str) -> Result<Reply, OpError> {
        let own = self.held(handle)?.info.name.clone();
        let Some(found) = self.find(Place::Container, bridge) else {
            let message = format!("failed to get bridge {bridge}: Link not found");
            return Err(OpError::new(ErrorCode::NotFound, bridge, message));
        };
        if found.info.kind != "bridge" {
            let message = format!("failed to set tap {own} as a port of bridge {bridge}: operation not supported");
            return Err(OpError::new(ErrorCode::Unsupported, bridge, message));
        }
        let bridge = found.info.handle;
        self.held_mut(handle)?.master = Some(bridge);
        Ok(Reply::Done)
    }
}
