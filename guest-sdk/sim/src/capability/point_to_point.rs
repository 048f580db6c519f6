//! `point-to-point`, simulated.

use crate::kernel::{Kernel, Link, Place};
use crate::links::{EEXIST, refused, to};
use ipnet::IpNet;
use postern_types::{Address, ErrorCode, Handle, OpError, Route, host};

impl host::PointToPoint for Kernel {
    fn ensure(&mut self, host: Handle) -> Result<(), OpError> {
        for (address, gateway) in self.own_addresses() {
            let Some(gateway) = gateway else {
                let message = format!("{address} has no gateway");
                return Err(OpError::new(ErrorCode::InvalidArgument, address.to_string(), message));
            };
            if gateway.is_ipv4() != address.addr().is_ipv4() {
                let message = format!("{gateway} can't be the gateway of {address}: they are of different IP versions");
                return Err(OpError::new(ErrorCode::InvalidArgument, address.to_string(), message));
            }
            let local = |link: &Link| link.addresses.iter().any(|known| known.net.addr() == address.addr());
            if self.links.values().any(|link| link.place == Place::Host && local(link)) {
                let message =
                    format!("{} is an address of this host: it can't be routed into a container", address.addr());
                return Err(OpError::new(ErrorCode::Exists, address.to_string(), message));
            }
            let route = Route { scope: Some(254), ..to(IpNet::from(address.addr())) };
            let taken = |link: &Link| link.routes.iter().any(|known| known.dst == route.dst);
            if self.links.values().any(|link| link.place == Place::Host && taken(link)) {
                let words = format!("{} dev {}", route.dst, self.held(host)?.info.name);
                let text = format!("failed to add route on host '{words}': file exists");
                return Err(refused(EEXIST, words, &text));
            }
            let link = self.held_mut(host)?;
            let net = IpNet::from(gateway);
            if !link.addresses.iter().any(|known| known.net == net) {
                link.addresses.push(Address { net, scope: 0, tentative: false });
            }
            link.routes.push(route);
        }
        Ok(())
    }
}
