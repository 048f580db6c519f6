//! `vrf`, simulated.

use crate::kernel::{Kernel, Place};
use postern_types::{ErrorCode, Handle, OpError, host};

/// The kernel's name for this kind of link.
const KIND: &str = "vrf";

impl host::Vrf for Kernel {
    fn join(&mut self, link: Handle, name: &str, table: Option<u32>) -> Result<(), OpError> {
        let exists = |message: String| OpError::new(ErrorCode::Exists, name, message);
        if let Some(table) = table.filter(|table| matches!(table, 0 | 253..=255)) {
            let message = format!("table {table} is the kernel's own");
            return Err(OpError::new(ErrorCode::InvalidArgument, table.to_string(), message));
        }
        if let Some(master) = self.held(link)?.master {
            let (own, master) = (&self.held(link)?.info.name, &self.held(master)?.info.name);
            return Err(exists(format!("interface {own} has already a master set: {master}")));
        }
        let found = self.find(Place::Container, name).map(|link| (link.info.handle, link.info.kind.clone()));
        let vrf = match found {
            Some((vrf, kind)) if kind == KIND => vrf,
            Some(_) => return Err(exists(format!("Netlink {name} is not a VRF"))),
            None => self.add_link(Place::Container, name, KIND),
        };
        self.held_mut(link)?.master = Some(vrf);
        Ok(())
    }

    fn check(&mut self, name: &str) -> Result<(), OpError> {
        let Some(vrf) = self.find(Place::Container, name) else {
            return Err(OpError::new(ErrorCode::NotFound, name, "Link not found"));
        };
        match self.own().is_some_and(|own| own.master == Some(vrf.info.handle)) {
            true => Ok(()),
            false => {
                let message = format!("failed to find {} associated to vrf {name}", self.ifname);
                Err(OpError::new(ErrorCode::Mismatch, name, message))
            }
        }
    }

    fn leave(&mut self) -> Result<(), OpError> {
        let Some((own, master)) = self.own().and_then(|own| Some((own.info.handle, own.master?))) else {
            return Ok(());
        };
        self.held_mut(own)?.master = None;
        if !self.links.values().any(|link| link.master == Some(master)) {
            self.links.remove(&master);
        }
        Ok(())
    }
}
