//! `dhcp`, simulated.

use crate::kernel::Kernel;
use postern_types::{DhcpLease, Dns, ErrorCode, LeaseGrant, OpError, Reply, Route, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Dhcp) -> Result<Reply, OpError> {
    match operation {
        ops::Dhcp::Acquire => {
            let lease = kernel.offered()?;
            // Undo and DEL give it back, whatever has become of the service.
            kernel.leased = true;
            Ok(Reply::Lease(lease))
        }
        ops::Dhcp::Check if kernel.leased => kernel.offered().map(Reply::Lease),
        ops::Dhcp::Check => {
            kernel.offered()?;
            Err(OpError::new(ErrorCode::NotFound, "lease", "the DHCP service has no lease for this attachment"))
        }
        ops::Dhcp::Release => {
            kernel.leased = false;
            Ok(Reply::Done)
        }
        ops::Dhcp::Status => kernel.offered().map(|_| Reply::Done),
    }
}

impl Kernel {
    fn offered(&self) -> Result<DhcpLease, OpError> {
        self.dhcp.clone().ok_or_else(|| {
            OpError::new(ErrorCode::Unsupported, "/run/cni/dhcp.sock", "no DHCP service answers at /run/cni/dhcp.sock")
        })
    }
}

/// Returns a lease as a server could give it: addresses for documentation (RFC 5737).
pub fn example() -> DhcpLease {
    let gateway = "192.0.2.1".parse().ok();
    let route =
        |dst| Route { dst, gateway, source: None, mtu: None, advmss: None, priority: None, table: None, scope: None };
    DhcpLease {
        addresses: "192.0.2.2/24".parse().map(|address| LeaseGrant { address, gateway }).into_iter().collect(),
        routes: "0.0.0.0/0".parse().map(route).into_iter().collect(),
        dns: Dns::default(),
        mtu: None,
        server: gateway,
        seconds: Some(3600),
    }
}
