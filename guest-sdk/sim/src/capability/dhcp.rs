//! `dhcp`, simulated.

use crate::kernel::Kernel;
use postern_types::{DhcpLease, ErrorCode, LeaseGrant, OpError, Reply, Route, ops};

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

/// Returns a lease as a server could give it, for IPv4, IPv6 or both: addresses for documentation (RFC 5737, RFC 3849).
pub fn example(has_ipv4: bool, has_ipv6: bool) -> DhcpLease {
    let route = |dst, gateway| Route {
        dst,
        gateway,
        source: None,
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
        scope: None,
    };
    let mut lease = DhcpLease { seconds: Some(3600), ..DhcpLease::default() };
    let four = has_ipv4.then_some(("192.0.2.2/24", "192.0.2.1", "0.0.0.0/0"));
    let six = has_ipv6.then_some(("2001:db8::2/64", "fe80::1", "::/0"));
    for (address, gateway, all) in four.into_iter().chain(six) {
        let gateway = gateway.parse().ok();
        lease.addresses.extend(address.parse().map(|address| LeaseGrant { address, gateway }));
        lease.routes.extend(all.parse().map(|all| route(all, gateway)));
    }
    lease.server = lease.addresses.iter().find_map(|grant| grant.gateway).filter(|_| has_ipv4);
    lease
}
