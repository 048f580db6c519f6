//! `postern:cni/dhcp`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{DhcpLease, Dns, LeaseGrant, Route, ops};

impl wit::dhcp::Host for State {
    fn acquire(&mut self) -> Result<wit::dhcp::Lease, Failure> {
        let reply: DhcpLease = self.call(ops::Dhcp::Acquire)?;
        Ok(show_lease(reply))
    }

    fn check(&mut self) -> Result<wit::dhcp::Lease, Failure> {
        let reply: DhcpLease = self.call(ops::Dhcp::Check)?;
        Ok(show_lease(reply))
    }

    fn release(&mut self) -> Result<(), Failure> {
        self.call(ops::Dhcp::Release)
    }

    fn status(&mut self) -> Result<(), Failure> {
        self.call(ops::Dhcp::Status)
    }
}

fn show_leased_address(shown: LeaseGrant) -> wit::dhcp::LeasedAddress {
    wit::dhcp::LeasedAddress {
        address: shown.address.to_string(),
        gateway: shown.gateway.map(|shown| shown.to_string()),
    }
}

fn show_leased_route(shown: Route) -> wit::dhcp::LeasedRoute {
    wit::dhcp::LeasedRoute {
        destination: shown.dst.to_string(),
        gateway: shown.gateway.map(|shown| shown.to_string()),
        scope: shown.scope,
        priority: shown.priority,
    }
}

fn show_name_servers(shown: Dns) -> wit::dhcp::NameServers {
    wit::dhcp::NameServers { nameservers: shown.nameservers, domain: shown.domain, search: shown.search }
}

fn show_lease(shown: DhcpLease) -> wit::dhcp::Lease {
    wit::dhcp::Lease {
        addresses: shown.addresses.into_iter().map(show_leased_address).collect(),
        routes: shown.routes.into_iter().map(show_leased_route).collect(),
        dns: show_name_servers(shown.dns),
        mtu: shown.mtu,
        server: shown.server.map(|shown| shown.to_string()),
        seconds: shown.seconds,
    }
}
