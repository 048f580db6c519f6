//! `veth`, simulated.

use crate::kernel::{Kernel, Place};
use crate::links::{EEXIST, ENODEV, refused};
use postern_types::{ErrorCode, Handle, LinkInfo, Mac, OpError, VethPair, host};

impl host::Veth for Kernel {
    fn wait_running(&mut self, host: Handle) -> Result<LinkInfo, OpError> {
        let link = self.held(host)?;
        if link.info.running {
            return Ok(link.info.clone());
        }
        Err(OpError::new(ErrorCode::Kernel, &link.info.name, "bridge port in error state: lowerlayerdown"))
    }

    fn create(&mut self, mtu: Option<u32>, mac: Option<Mac>) -> Result<VethPair, OpError> {
        self.namespace()?;
        if self.own().is_some() {
            let peer = self.host_end_name.as_deref().unwrap_or("vethfake");
            let text = format!("container veth name (\"{}\") peer provided (\"{peer}\") already exists", self.ifname);
            return Err(refused(EEXIST, &self.ifname, &text));
        }
        let name = self.ifname.clone();
        let container = self.add_link(Place::Container, &name, "veth");
        let host_name = self.host_end_name.clone().unwrap_or_else(|| format!("veth{container:08x}"));
        let host = self.add_link(Place::Host, &host_name, "veth");
        for (end, other) in [(container, host), (host, container)] {
            let link = self.held_mut(end)?;
            link.peer = Some(other);
            link.info.mtu = mtu.unwrap_or(1500);
        }
        if let Some(mac) = mac {
            self.held_mut(container)?.info.mac = Some(mac);
        }
        self.held_mut(host)?.info.up = true;
        self.pair().ok_or_else(|| refused(ENODEV, &name, "no such device"))
    }

    fn find(&mut self) -> Result<Option<VethPair>, OpError> {
        Ok(self.pair())
    }
}

impl Kernel {
    fn pair(&self) -> Option<VethPair> {
        let container = self.own()?;
        let host = self.host_end()?;
        let bridge = host.master.and_then(|master| self.links.get(&master)).map(|bridge| bridge.info.name.clone());
        Some(VethPair { container: container.info.clone(), host: host.info.clone(), bridge })
    }
}
