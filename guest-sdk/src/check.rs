//! CHECK: a comparison of the attachment's link with `prevResult`. The messages are those of the native plugins.

use crate::error::Error;
use crate::link::Link;
use crate::{addresses, routes};
use ipnet::IpNet;
use postern_cni::{CniResult, IpConfig, NetConf};
use postern_types::Route;

/// Returns `prevResult`, which CHECK requires.
///
/// # Errors
/// Code 999 with `missing` as its message if there is none, or with the reason why it is invalid.
pub fn previous_result(conf: &NetConf, missing: &str) -> Result<CniResult, Error> {
    conf.previous_result()?.ok_or_else(|| Error::new(missing))
}

/// Checks that every address of the result is on the link with the same prefix and has a route to its network. Every
/// route of the result must be in the main table.
///
/// # Errors
/// Code 999 for the first one that is missing.
pub fn configuration(link: &Link, ifname: &str, result: &CniResult) -> Result<(), Error> {
    if result.ips.is_empty() && result.routes.is_empty() {
        return Ok(());
    }
    let routes = routes::list(link)?;
    let addresses = if result.ips.is_empty() { Vec::new() } else { addresses::list(link)? };
    for ip in &result.ips {
        if !addresses.iter().any(|address| address.net == ip.address) {
            let address = ip.address;
            return Err(Error::new(format!("Failed to match addr {address} on interface {ifname}")));
        }
        let network = ip.address.trunc();
        if !routes.iter().any(|route| route.dst == network) && !is_host_route(ip) {
            let gateway = ip.gateway.map_or("<nil>".to_owned(), |gateway| gateway.to_string());
            return Err(Error::new(format!("Failed to find Gateway {gateway} for interface {ifname}")));
        }
    }
    for route in &result.routes {
        if !routes.iter().any(|found| matches(found, route)) {
            let dst = route.dst.map_or("<nil>".to_owned(), |dst| dst.to_string());
            let via = route.gw.map(|gw| format!(" via {gw}")).unwrap_or_default();
            return Err(Error::new(format!("Expected Route {dst}{via} not found in routing table")));
        }
    }
    Ok(())
}

/// True for an address with the full prefix length. The kernel keeps its route in the table `local`, which is not read
/// here.
fn is_host_route(ip: &IpConfig) -> bool {
    ip.address.prefix_len() == ip.address.max_prefix_len()
}

/// Compares the destination, and the next hop if one is given; for default routes only the destination. A route in
/// another table than the main one can't be seen from here, and counts as present.
fn matches(found: &Route, expected: &postern_cni::Route) -> bool {
    if expected.table.is_some_and(|table| table != 254 && table != 0) {
        return true;
    }
    let Some(dst) = expected.dst.map(|dst: IpNet| dst.trunc()) else { return false };
    found.dst == dst && (dst.prefix_len() == 0 || expected.gw.is_none() || found.gateway == expected.gw)
}
