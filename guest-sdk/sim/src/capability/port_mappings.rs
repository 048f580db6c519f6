//! `port-mappings`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Forward, NatSources, OpError, host};
use std::net::IpAddr;

impl host::PortMappings for Kernel {
    fn ensure(&mut self, addresses: &[IpAddr], forwards: &[Forward], _: NatSources) -> Result<(), OpError> {
        if let Some(taken) = self.taken_ports.iter().find(|taken| forwards.iter().any(|own| own.overlaps(taken))) {
            let message = format!("the node's port is taken: {taken}");
            return Err(OpError::new(ErrorCode::Exists, taken.to_string(), message));
        }
        let made = addresses.iter().flat_map(|address| forwards.iter().map(|forward| (*address, *forward)));
        self.forwards = made.collect();
        Ok(())
    }

    fn check(&mut self, addresses: &[IpAddr], forwards: &[Forward], _: NatSources) -> Result<(), OpError> {
        let has = |address, forward| self.forwards.contains(&(address, forward));
        if addresses.iter().all(|address| forwards.iter().all(|forward| has(*address, *forward))) {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Mismatch, "", "the forwards are incomplete"))
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.forwards.clear();
        Ok(())
    }
}
