//! `point-to-point`: the host end of a routed pair.

pub(crate) use crate::capability::facts::WITH_ADDRESSES as FACTS;
use crate::cause;
use crate::errors::{kernel_error, native_error};
use crate::gate::Gate;
use ipnet::IpNet;
use nix::errno::Errno;
use postern_types::{ErrorCode, Handle, OpError, Route, host};

/// `RT_SCOPE_HOST` of `linux/rtnetlink.h`: the scope of the native ptp plugin's routes.
const SCOPE_HOST: u8 = 254;

impl host::PointToPoint for Gate<'_> {
    fn ensure(&mut self, host: Handle) -> Result<(), OpError> {
        let (index, name) = self.guest.host_end(host)?;
        let netlink = self.run.system.host()?;
        let mut gateways = Vec::new();
        for own in &self.run.own.addresses {
            let address = own.net;
            let Some(gateway) = own.gateway else {
                let message = format!("{address} has no gateway, which would be the host's address of the pair");
                return Err(OpError::new(ErrorCode::InvalidArgument, address.to_string(), message)
                    .hint("let IPAM give a gateway"));
            };
            if !own.is_one_family() {
                let message = format!("{gateway} can't be the gateway of {address}: they are of different IP versions");
                return Err(OpError::new(ErrorCode::InvalidArgument, address.to_string(), message)
                    .hint("let IPAM give a gateway of the address's own version"));
            }
            gateways.push(format!("{name} {}", IpNet::from(gateway)));
            // The address is added without DAD, as on a bridge, because the container could claim the address.
            match netlink.add_known_address(index, IpNet::from(gateway)) {
                Ok(()) => {}
                // Two addresses of one attachment may share their gateway.
                Err(error) if error.is(Errno::EEXIST) => {}
                Err(error) => {
                    let error = native_error(error, &name, format_args!("failed to add IP addr {gateway} to veth"));
                    let mtu = netlink.link_by_index(index).ok().flatten().map(|link| link.mtu);
                    return Err(cause::of_ip(error, gateway, &name, mtu));
                }
            }
            if netlink.is_local(address.addr()).map_err(kernel_error)? {
                let message =
                    format!("{} is an address of this host: it can't be routed into a container", address.addr());
                return Err(OpError::new(ErrorCode::Exists, address.to_string(), message));
            }
            let route = Route { dst: IpNet::from(address.addr()), scope: Some(SCOPE_HOST), ..Route::default() };
            // An existing route is an error too, because it leads to another container.
            netlink.add_first_route(index, &route).map_err(|error| {
                let words = format!("{} dev {name}", route.dst);
                let error = native_error(error, &words, format_args!("failed to add route on host '{words}'"));
                cause::of_ip(error, address.addr(), &name, None)
            })?;
        }
        gateways.dedup();
        (self.run.own.path.gateways, self.run.own.path.routed) = (gateways, true);
        Ok(())
    }
}
