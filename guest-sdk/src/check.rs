//! CHECK: a comparison of the attachment's link with `prevResult`. The messages are those of the native plugins.

use crate::error::Error;
use crate::link::{self, Link};
use crate::result::{has_mac, mac};
use crate::{addresses, routes};
use ipnet::IpNet;
use postern_cni::{CniResult, Interface, IpConfig, NetConf};
use postern_types::{LinkInfo, Route};

/// Returns `prevResult`, which CHECK requires.
///
/// # Errors
/// Code 999. The message is `missing` if `prevResult` is absent, or else the reason why it is invalid.
pub fn previous_result(conf: &NetConf, missing: &str) -> Result<CniResult, Error> {
    conf.previous_result()?.ok_or_else(|| Error::new(missing))
}

/// Checks that every address of the result is on the link with the same prefix and has a route to its network. Every
/// route of the result must be in the main table. The function asks only for these addresses and routes, because root
/// in the container can add any number of other addresses and routes.
///
/// # Errors
/// Code 999 for the first missing address or route.
pub fn configuration(link: &Link, ifname: &str, result: &CniResult) -> Result<(), Error> {
    let networks = result.ips.iter().filter_map(network);
    let asked: Vec<Route> = networks.chain(result.routes.iter().filter_map(in_main_table)).collect();
    let wanted: Vec<IpNet> = result.ips.iter().map(|ip| ip.address).collect();
    let mut has_route = routes::has(link, &asked)?.into_iter();
    let mut has_address = addresses::has(link, &wanted)?.into_iter();
    for ip in &result.ips {
        if has_address.next() != Some(true) {
            let address = ip.address;
            return Err(Error::new(format!("Failed to match addr {address} on interface {ifname}")));
        }
        if network(ip).is_some() && has_route.next() != Some(true) {
            let gateway = ip.gateway.map_or("<nil>".to_owned(), |gateway| gateway.to_string());
            return Err(Error::new(format!("Failed to find Gateway {gateway} for interface {ifname}")));
        }
    }
    for route in &result.routes {
        let is_there = match in_main_table(route) {
            Some(_) => has_route.next() == Some(true),
            None => is_in_other_table(route),
        };
        if !is_there {
            let dst = route.dst.map_or("<nil>".to_owned(), |dst| dst.to_string());
            let via = route.gw.map(|gw| format!(" via {gw}")).unwrap_or_default();
            return Err(Error::new(format!("Expected Route {dst}{via} not found in routing table")));
        }
    }
    Ok(())
}

/// Words in the messages of CHECK that differ between native plugins.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The words before "name in prevResult".
    pub missing: &'static str,
    /// The words before "Container interface", for a link of another kind.
    pub kind: &'static str,
    /// The words before the name and "Mac".
    pub mac: &'static str,
}

impl Words {
    /// The texts of most plugins.
    pub const COMMON: Self = Self { missing: "Container Interface", kind: "Error", mac: "Interface" };

    /// Returns the error for a link named `name` that is gone.
    pub fn gone(&self, name: &str) -> Error {
        Error::new(format!("{} name in prevResult: {name} not found", self.missing))
    }

    /// Returns the error for a link that does not have the type `kind`.
    pub fn no(&self, kind: &str, name: &str) -> Error {
        Error::new(format!("{}: Container interface {name} not of type {kind}", self.kind))
    }

    /// Returns the error if the attachment has no link of the type `kind`.
    pub fn absent(&self, kind: &str, name: &str) -> Error {
        match link::own() {
            Ok(None) => self.gone(name),
            Ok(Some(_)) => self.no(kind, name),
            Err(error) => error,
        }
    }

    /// Fails if the link's address differs from the address in `prevResult`.
    ///
    /// # Errors
    /// Code 999.
    pub fn same_mac(&self, expected: &Interface, link: &LinkInfo) -> Result<(), Error> {
        match has_mac(&expected.mac, link) {
            true => Ok(()),
            false => {
                let (words, name, wanted, is) = (self.mac, &expected.name, &expected.mac, mac(link));
                Err(Error::new(format!("{words} {name} Mac {wanted} doesn't match container Mac: {is}")))
            }
        }
    }
}

/// Fails if the link is down.
///
/// # Errors
/// Code 999.
pub fn is_up(name: &str, link: &LinkInfo) -> Result<(), Error> {
    match link.up {
        true => Ok(()),
        false => Err(Error::new(format!("Interface {name} is down"))),
    }
}

/// Returns the route to the network of an address. For an address with the full prefix length the kernel keeps the
/// route in the table `local`, which CHECK does not read.
fn network(ip: &IpConfig) -> Option<Route> {
    (ip.address.prefix_len() != ip.address.max_prefix_len()).then(|| routes::to(ip.address.trunc()))
}

/// True for a route outside the main table. CHECK reads only the main table, so the route counts as present.
fn is_in_other_table(route: &postern_cni::CniRoute) -> bool {
    route.table.is_some_and(|table| table != 254 && table != 0)
}

/// Returns the route to look for in the main table: the destination, and the next hop if one is given. For a default
/// route, only the destination counts.
fn in_main_table(route: &postern_cni::CniRoute) -> Option<Route> {
    let dst = route.dst.filter(|_| !is_in_other_table(route))?.trunc();
    Some(Route { gateway: route.gw.filter(|_| dst.prefix_len() != 0), ..routes::to(dst) })
}
