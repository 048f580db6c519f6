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

/// The words of a native plugin's CHECK of its only link, as far as plugins differ in them.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Before "name in prevResult".
    pub missing: &'static str,
    /// Before "Container interface" of a link of another kind.
    pub kind: &'static str,
    /// Before the name and "Mac".
    pub mac: &'static str,
}

impl Words {
    /// The words of most plugins.
    pub const COMMON: Self = Self { missing: "Container Interface", kind: "Error", mac: "Interface" };

    /// The error for a link named `name` that is gone.
    pub fn gone(&self, name: &str) -> Error {
        Error::new(format!("{} name in prevResult: {name} not found", self.missing))
    }

    /// The error for a link that is no `kind`.
    pub fn no(&self, kind: &str, name: &str) -> Error {
        Error::new(format!("{}: Container interface {name} not of type {kind}", self.kind))
    }

    /// The error for the attachment's link, which was not found as a `kind`.
    pub fn absent(&self, kind: &str, name: &str) -> Error {
        match link::own() {
            Ok(None) => self.gone(name),
            Ok(Some(_)) => self.no(kind, name),
            Err(error) => error,
        }
    }

    /// Fails if the link has another address than the one in `prevResult`.
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
