//! `postern:cni/dhcp`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{DhcpLease, LeaseGrant, Reply, Route, ops};
use wit::dhcp::{Lease, LeasedAddress, LeasedRoute, NameServers};

impl wit::dhcp::Host for State {
    fn acquire(&mut self) -> Result<Lease, Failure> {
        self.lease(ops::Dhcp::Acquire)
    }

    fn check(&mut self) -> Result<Lease, Failure> {
        self.lease(ops::Dhcp::Check)
    }

    fn release(&mut self) -> Result<(), Failure> {
        self.done(ops::Dhcp::Release)
    }

    fn status(&mut self) -> Result<(), Failure> {
        self.done(ops::Dhcp::Status)
    }
}

impl State {
    fn lease(&mut self, operation: ops::Dhcp) -> Result<Lease, Failure> {
        match self.call(operation)? {
            Reply::Lease(lease) => Ok(lease.into()),
            other => Err(other.unexpected().into()),
        }
    }
}

impl From<DhcpLease> for Lease {
    fn from(lease: DhcpLease) -> Self {
        let DhcpLease { addresses, routes, dns, mtu, server, seconds } = lease;
        Self {
            addresses: addresses.into_iter().map(Into::into).collect(),
            routes: routes.into_iter().map(Into::into).collect(),
            dns: NameServers { nameservers: dns.nameservers, domain: dns.domain, search: dns.search },
            mtu,
            server: server.map(|server| server.to_string()),
            seconds,
        }
    }
}

impl From<LeaseGrant> for LeasedAddress {
    fn from(grant: LeaseGrant) -> Self {
        Self { address: grant.address.to_string(), gateway: grant.gateway.map(|gateway| gateway.to_string()) }
    }
}

impl From<Route> for LeasedRoute {
    fn from(route: Route) -> Self {
        Self {
            destination: route.dst.to_string(),
            gateway: route.gateway.map(|gateway| gateway.to_string()),
            scope: route.scope,
            priority: route.priority,
        }
    }
}
