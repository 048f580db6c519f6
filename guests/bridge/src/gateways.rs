//! What IPAM left open: who the gateway is, and what goes there.

use crate::config::Config;
use ipnet::IpNet;
use postern_guest::cni::{CniResult, IpConfig, Route};
use postern_guest::{Error, configure};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Index of the container's end in the result.
const CONTAINER: usize = 2;

/// Ties the addresses to the container's end, names their gateways, and adds default routes.
///
/// # Errors
/// Code 999 if there is no address.
pub fn complete(result: &mut CniResult, config: &Config) -> Result<(), Error> {
    if result.ips.is_empty() {
        return Err(Error::new("IPAM plugin returned missing IP config"));
    }
    for ip in &mut result.ips {
        ip.interface = Some(CONTAINER);
        if config.is_gateway && ip.gateway.is_none() {
            ip.gateway = Some(first_address(&ip.address));
        }
    }
    if config.is_default_gateway {
        for v4 in [true, false] {
            add_default_route(result, v4)?;
        }
        // Of a result with both families, routes follow the order of the addresses.
        if result.ips.first().is_some_and(|ip| !is_v4(ip)) {
            swap_appended_defaults(result);
        }
    }
    Ok(())
}
