//! `vrf`, simulated.

use crate::kernel::{Kernel, Place};
use postern_types::{ErrorCode, Handle, OpError, Reply, ops};

/// The kernel's name for such links.
const KIND: &str = "vrf";

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Vrf) -> Result<Reply, OpError> {
    match operation {
        ops::Vrf::Join { link, name, table } => kernel.join_vrf(*link, name, *table),
        ops::Vrf::Check { name } => kernel.check_vrf(name),
        ops::Vrf::Leave => kernel.leave_vrf(),
    }
}

impl Kernel {
    fn join_vrf(&mut self, handle: Handle, name: &str, table: Option<u32>) -> Result<Reply, OpError> {
        let exists = |message: String| OpError::new(ErrorCode::Exists, name, message);
        if let Some(table) = table.filter(|table| matches!(table, 0 | 253..=255)) {
            let message = format!("table {table} is the kernel's own");
            return Err(OpError::new(ErrorCode::InvalidArgument, table.to_string(), message));
        }
        if let Some(master) = self.held(handle)?.master {
            let (own, master) = (&self.held(handle)?.info.name, &self.held(master)?.info.name);
            return Err(exists(format!("interface {own} has already a master set: {master}")));
        }
        let found = self.find(Place::Container, name).map(|link| (link.info.handle, link.info.kind.clone()));
        let vrf = match found {
            Some((vrf, kind)) if kind == KIND => vrf,
            Some(_) => return Err(exists(format!("Netlink {name} is not a VRF"))),
            None => self.add_link(Place::Container, name, KIND),
        };
        self.held_mut(handle)?.master = Some(vrf);
        Ok(Reply::Done)
    }

    fn check_vrf(&self, name: &str) -> Result<Reply, OpError> {
        let Some(vrf) = self.find(Place::Container, name) else {
            return Err(OpError::new(ErrorCode::NotFound, name, "Link not found"));
        };
        match self.own().is_some_and(|own| own.master == Some(vrf.info.handle)) {
            true => Ok(Reply::Done),
            false => {
                let message = format!("failed to find {} associated to vrf {name}", self.ifname);
                Err(OpError::new(ErrorCode::Mismatch, name, message))
            }
        }
    }

    fn leave_vrf(&mut self) -> Result<Reply, OpError> {
        let Some((own, master)) = self.own().and_then(|own| Some((own.info.handle, own.master?))) else {
            return Ok(Reply::Done);
        };
        self.held_mut(own)?.master = None;
        if !self.links.values().any(|link| link.master == Some(master)) {
            self.links.remove(&master);
        }
        Ok(Reply::Done)
    }
}
