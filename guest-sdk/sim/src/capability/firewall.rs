//! `firewall`, simulated.

use crate::kernel::Kernel;
use ipnet::IpNet;
use postern_types::{ErrorCode, IngressPolicy, OpError, host};

impl host::Firewall for Kernel {
    fn admit(&mut self, addresses: &[IpNet]) -> Result<(), OpError> {
        let own = self.own_addresses();
        for net in addresses {
            if !own.iter().any(|(address, _)| address == net) {
                let message = format!("{net} is not an address of this attachment");
                return Err(OpError::new(ErrorCode::Denied, net.to_string(), message));
            }
            if !self.admitted.contains(net) {
                self.admitted.push(*net);
            }
        }
        Ok(())
    }

    fn isolate(&mut self, ingress: IngressPolicy) -> Result<(), OpError> {
        self.isolated = Some(ingress);
        Ok(())
    }

    fn check(&mut self, addresses: &[IpNet]) -> Result<(), OpError> {
        match addresses.iter().find(|net| !self.admitted.contains(net)) {
            None => Ok(()),
            Some(missing) => {
                let message = format!("expected rule [-s {} -j ACCEPT] not found", IpNet::from(missing.addr()));
                Err(OpError::new(ErrorCode::Mismatch, missing.to_string(), message))
            }
        }
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.admitted.clear();
        Ok(())
    }
}
