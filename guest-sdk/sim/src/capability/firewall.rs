//! `firewall`, simulated.

use crate::kernel::Kernel;
use ipnet::IpNet;
use postern_types::{ErrorCode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Firewall) -> Result<Reply, OpError> {
    match operation {
        ops::Firewall::Admit { addresses } => kernel.firewall_admit(addresses),
        ops::Firewall::Isolate { ingress } => {
            kernel.isolated = Some(*ingress);
            Ok(Reply::Done)
        }
        ops::Firewall::Check { addresses } => kernel.firewall_check(addresses),
        ops::Firewall::Remove => {
            kernel.admitted.clear();
            Ok(Reply::Done)
        }
    }
}

impl Kernel {
    fn firewall_admit(&mut self, nets: &[IpNet]) -> Result<Reply, OpError> {
        let own = self.own_addresses();
        for net in nets {
            if !own.iter().any(|(address, _)| address == net) {
                let message = format!("{net} is not an address of this attachment");
                return Err(OpError::new(ErrorCode::Denied, net.to_string(), message));
            }
            if !self.admitted.contains(net) {
                self.admitted.push(*net);
            }
        }
        Ok(Reply::Done)
    }

    fn firewall_check(&self, nets: &[IpNet]) -> Result<Reply, OpError> {
        match nets.iter().find(|net| !self.admitted.contains(net)) {
            None => Ok(Reply::Done),
            Some(missing) => {
                let message = format!("expected rule [-s {} -j ACCEPT] not found", IpNet::from(missing.addr()));
                Err(OpError::new(ErrorCode::Mismatch, missing.to_string(), message))
            }
        }
    }
}
