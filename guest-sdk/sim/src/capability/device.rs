//! `device`, simulated.

use crate::kernel::{Kernel, Link, Place};
use crate::links::{EEXIST, refused};
use postern_types::{DeviceKey, ErrorCode, Handle, LinkInfo, Mac, OpError, host};

impl host::Device for Kernel {
    fn find(&mut self, by: DeviceKey, value: &str) -> Result<Option<LinkInfo>, OpError> {
        if matches!(by, DeviceKey::Pci | DeviceKey::Id) && self.userspace.iter().any(|device| device == value) {
            return Ok(None);
        }
        let found = self.device(by, value)?.info.clone();
        Ok(Some(LinkInfo { handle: Handle::MAX, ..found }))
    }

    fn take(&mut self, by: DeviceKey, value: &str) -> Result<LinkInfo, OpError> {
        self.namespace()?;
        let name = self.ifname.clone();
        if self.own().is_some() {
            let text = format!("failed to move link: the container has \"{name}\" already");
            return Err(refused(EEXIST, &name, &text));
        }
        let handle = self.device(by, value)?.info.handle;
        let link = self.held_mut(handle)?;
        link.home = Some(std::mem::replace(&mut link.info.name, name));
        link.place = Place::Container;
        link.info.up = true;
        link.addresses.clear();
        link.routes.clear();
        Ok(link.info.clone())
    }

    fn give_back(&mut self) -> Result<(), OpError> {
        let Some(handle) = self.own().filter(|link| link.home.is_some()).map(|link| link.info.handle) else {
            return Ok(());
        };
        let link = self.held_mut(handle)?;
        link.info.name = link.home.take().unwrap_or_default();
        link.place = Place::Host;
        link.addresses.clear();
        link.routes.clear();
        Ok(())
    }
}

impl Kernel {
    fn device(&self, by: DeviceKey, value: &str) -> Result<&Link, OpError> {
        let mac = value.parse::<Mac>().ok();
        let is_meant = |link: &&Link| match by {
            DeviceKey::Name => link.info.name == value,
            DeviceKey::Address => mac.is_some() && link.info.mac == mac,
            DeviceKey::Path => {
                let device = link.path.as_ref().and_then(|path| path.rsplit_once("/net/"));
                device.is_some_and(|(device, _)| device == value.trim_end_matches('/'))
            }
            DeviceKey::Pci | DeviceKey::Id => link.pci.as_deref() == Some(value),
        };
        let mut on_host = self.links.values().filter(|link| link.place == Place::Host);
        on_host.find(is_meant).ok_or_else(|| OpError::new(ErrorCode::NotFound, value, "Link not found"))
    }
}
