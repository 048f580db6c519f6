//! `dhcp`, simulated.

use crate::kernel::Kernel;
use postern_types::{DhcpLease, ErrorCode, LeaseGrant, OpError, Route, host};

impl host::Dhcp for Kernel {
    fn acquire(&mut self) -> Result<DhcpLease, OpError> {
        let lease = self.offered()?;
        // Undo and DEL give the lease back, even if the service is gone.
        self.leased = true;
        Ok(lease)
    }

    fn check(&mut self) -> Result<DhcpLease, OpError> {
        let lease = self.offered()?;
        if self.leased {
            return Ok(lease);
        }
        Err(OpError::new(ErrorCode::NotFound, "lease", "the DHCP service has no lease for this attachment"))
    }

    fn release(&mut self) -> Result<(), OpError> {
        self.leased = false;
        Ok(())
    }

    fn status(&mut self) -> Result<(), OpError> {
        self.offered().map(|_| ())
    }
}

impl Kernel {
    fn offered(&self) -> Result<DhcpLease, OpError> {
        self.dhcp.clone().ok_or_else(|| {
            OpError::new(ErrorCode::Unsupported, "/run/cni/dhcp.sock", "no DHCP service answers at /run/cni/dhcp.sock")
        })
    }
}

/// Returns a lease as a server could give it, for IPv4, IPv6 or both. The addresses are for documentation (RFC 5737,
/// RFC 3849).
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
