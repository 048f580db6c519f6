//! Completes IPAM's result: the gateways and the default routes.

use crate::config::Config;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use postern_guest::cni::{CniResult, CniRoute};
use postern_guest::{Error, configure};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Assigns the addresses to the container's end, sets their gateways, and adds default routes. `container` is the index
/// of that end in the result.
///
/// # Errors
/// Code 999 if there is no address, or for a route that the kernel can't have.
pub fn complete(result: &mut CniResult, config: &Config, container: Option<usize>) -> Result<(), Error> {
    if result.ips.is_empty() {
        return Err(Error::new("IPAM plugin returned missing IP config"));
    }
    for ip in &mut result.ips {
        ip.interface = container.and_then(|index| i64::try_from(index).ok());
        if config.is_gateway && ip.gateway.is_none() {
            ip.gateway = Some(first_address(&ip.address));
        }
    }
    if config.is_default_gateway {
        let mut families = result.ips.iter().map(|ip| ip.address.addr().is_ipv4()).collect::<Vec<_>>();
        families.dedup();
        for v4 in families {
            add_default_route(result, v4)?;
        }
    }
    Ok(())
}

/// Adds a default route through the family's first gateway. Adds nothing if there is a default route with its own
/// gateway, or an equivalent route.
fn add_default_route(result: &mut CniResult, v4: bool) -> Result<(), Error> {
    let dst = default_destination(v4);
    let route = CniRoute { dst: Some(dst), gw: configure::first_gateway(&result.ips, v4), ..CniRoute::default() };
    let wanted = configure::kernel_route(&route, &result.ips)?;
    for known in result.routes.iter().filter(|known| known.dst.is_some_and(|known| known.trunc() == dst)) {
        if known.gw.is_some() || configure::kernel_route(known, &result.ips)? == wanted {
            return Ok(());
        }
    }
    result.routes.push(route);
    Ok(())
}

fn default_destination(v4: bool) -> IpNet {
    match v4 {
        true => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)),
        false => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0)),
    }
}

/// Returns the first address after the network's own address. If IPAM names no gateway, this address is the gateway.
/// The host has the same default.
fn first_address(net: &IpNet) -> IpAddr {
    match net.network() {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).saturating_add(1).into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).saturating_add(1).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_the_first_address() {
        for (net, first) in [
            ("10.1.2.3/24", "10.1.2.1"),
            ("10.1.2.3/32", "10.1.2.4"),
            ("255.255.255.255/32", "255.255.255.255"),
            ("fd00::3/64", "fd00::1"),
        ] {
            assert_eq!(first_address(&net.parse().unwrap()).to_string(), first, "{net}");
        }
    }
}
