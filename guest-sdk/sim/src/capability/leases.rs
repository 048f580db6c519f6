//! `leases`, simulated.

use crate::kernel::Kernel;
use crate::services::{Lease, after, first_address};
use ipnet::IpNet;
use postern_types::{ErrorCode, LeaseGrant, LeaseRange, OpError, host};
use std::net::IpAddr;

impl host::Leases for Kernel {
    fn reserve(&mut self, sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, OpError> {
        let mut grants = Vec::new();
        let mut unused = requested.to_vec();
        for (number, set) in sets.iter().enumerate() {
            let wanted = unused.iter().position(|ip| set.iter().any(|range| range.subnet.contains(ip)));
            let wanted = wanted.map(|at| unused.remove(at));
            let free = match wanted {
                Some(ip) => self.candidates(number, set)?.into_iter().find(|(address, _)| *address == ip),
                None => self.candidates(number, set)?.into_iter().next(),
            };
            let Some((address, range)) = free else {
                let code = if wanted.is_some() { ErrorCode::Exists } else { ErrorCode::Exhausted };
                let message = format!("failed to allocate for range {number}: no IP addresses available in range set");
                return Err(OpError::new(code, number.to_string(), message));
            };
            let net = IpNet::new(address, range.subnet.prefix_len()).unwrap_or_else(|_| address.into());
            grants.push(LeaseGrant { address: net, gateway: Some(gateway_of(&range)) });
            self.leases.push(Lease { own: true, valid: true, address });
        }
        if let Some(ip) = unused.first() {
            self.leases.retain(|lease| !lease.own);
            let message = format!("failed to allocate all requested IPs: {ip}");
            return Err(OpError::new(ErrorCode::InvalidArgument, ip.to_string(), message));
        }
        Ok(grants)
    }

    fn held(&mut self) -> Result<Vec<LeaseGrant>, OpError> {
        let own = self.leases.iter().filter(|lease| lease.own);
        Ok(own.map(|lease| LeaseGrant { address: lease.address.into(), gateway: None }).collect())
    }

    fn release(&mut self) -> Result<(), OpError> {
        self.leases.retain(|lease| !lease.own);
        Ok(())
    }

    fn retain(&mut self) -> Result<u32, OpError> {
        let before = self.leases.len();
        self.leases.retain(|lease| lease.own || lease.valid);
        Ok(u32::try_from(before - self.leases.len()).unwrap_or(u32::MAX))
    }

    fn available(&mut self, sets: &[Vec<LeaseRange>]) -> Result<bool, OpError> {
        for (number, set) in sets.iter().enumerate() {
            if self.candidates(number, set)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Kernel {
    /// Returns free addresses of a set. Only the first 1024 addresses of each range are looked at.
    fn candidates(&self, number: usize, set: &[LeaseRange]) -> Result<Vec<(IpAddr, LeaseRange)>, OpError> {
        let invalid = |text: &str| {
            let message = format!("invalid range set {number}: {text}");
            OpError::new(ErrorCode::InvalidArgument, number.to_string(), message)
        };
        if set.is_empty() {
            return Err(invalid("empty range set"));
        }
        let mut free = Vec::new();
        for range in set {
            if range.subnet != range.subnet.trunc() {
                return Err(invalid("Network has host bits set"));
            }
            let last = range.end.unwrap_or_else(|| range.subnet.broadcast());
            let wanted =
                |ip: &IpAddr| *ip != gateway_of(range) && !self.leases.iter().any(|lease| lease.address == *ip);
            let first = range.start.unwrap_or_else(|| first_address(&range.subnet));
            let all = std::iter::successors(Some(first), |ip| Some(after(*ip)));
            let inside = all.take(1024).take_while(|ip| *ip < last || range.end == Some(*ip));
            free.extend(inside.filter(wanted).map(|ip| (ip, range.clone())));
        }
        Ok(free)
    }
}

fn gateway_of(range: &LeaseRange) -> IpAddr {
    range.gateway.unwrap_or_else(|| first_address(&range.subnet))
}
