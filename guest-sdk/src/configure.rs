//! Configuring the attachment's link with the IPAM result: the common part of every plugin with its own link.

use crate::error::Error;
use crate::link::Link;
use crate::{addresses, link_sysctl, routes};
use ipnet::IpNet;
use postern_cni::{CniResult, Interface, IpConfig};
use postern_types::{ErrorCode, Route};
use std::net::IpAddr;

/// True if one of the addresses is an IPv6 address.
pub fn has_ipv6(ips: &[IpConfig]) -> bool {
    ips.iter().any(|ip| matches!(ip.address, IpNet::V6(_)))
}

/// Ignores the error of a missing setting: a kernel without IPv6 lacks some settings.
pub fn if_there(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.kind() == Some(ErrorCode::NotFound) => Ok(()),
        outcome => outcome,
    }
}

/// Ignores the error of a setting that is missing or read-only, for settings that are not essential.
pub fn best_effort(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.kind() == Some(ErrorCode::Io) => Ok(()),
        outcome => if_there(outcome),
    }
}

/// Adds the addresses, sets the link up, and adds the routes. If there is an IPv6 gateway, waits before the routes
/// until no IPv6 address is tentative.
pub fn configure(link: &Link, ips: &[IpConfig], kernel_routes: &[Route]) -> Result<(), Error> {
    if has_ipv6(ips) {
        // Runtimes may give a namespace in which IPv6 is off. If the setting is missing, adding the address fails
        // later.
        if_there(link_sysctl::set_disable_ipv6(link, false))?;
        if_there(link_sysctl::set_keep_addr_on_down(link, true))?;
    }
    let nets: Vec<IpNet> = ips.iter().map(|ip| ip.address).collect();
    addresses::add(link, &nets)?;
    link.up()?;
    if first_gateway(ips, false).is_some() {
        addresses::settle(link)?;
    }
    if !kernel_routes.is_empty() {
        routes::add(link, kernel_routes)?;
    }
    Ok(())
}

/// Turns IPAM's result into the result of a plugin with a single link, which gets all addresses. The interfaces in
/// IPAM's result are dropped.
///
/// # Errors
/// Code 999 if there is no address.
pub fn only_link(added: CniResult, link: Interface) -> Result<CniResult, Error> {
    if added.ips.is_empty() {
        return Err(Error::new("IPAM plugin returned missing IP config"));
    }
    let mut result = CniResult { interfaces: vec![link], ..added };
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
    Ok(result)
}

/// Gives the link all addresses and routes of `result`, as [`configure`] does.
pub fn with_result(link: &Link, result: &CniResult) -> Result<(), Error> {
    configure(link, &result.ips, &kernel_routes(result)?)
}

/// Makes the kernel announce the link's addresses to the neighbours as soon as the link is up.
pub fn announce(link: &Link) -> Result<(), Error> {
    best_effort(link_sysctl::set_arp_notify(link, true))?;
    best_effort(link_sysctl::set_ndisc_notify(link, true))
}

/// Returns the routes of `result` in the kernel's form. A route without a next hop goes through the first gateway of
/// its family, unless its scope excludes a next hop. Only the first of identical routes is kept.
///
/// # Errors
/// Code 999 for a route without destination, or an attribute outside the kernel's range.
pub fn kernel_routes(result: &CniResult) -> Result<Vec<Route>, Error> {
    let mut kernel_routes = Vec::with_capacity(result.routes.len());
    for route in &result.routes {
        push_new(&mut kernel_routes, kernel_route(route, &result.ips)?);
    }
    Ok(kernel_routes)
}

/// Appends `route`, unless the kernel would treat it as equal to a route in the list.
pub fn push_new(routes: &mut Vec<Route>, route: Route) {
    let same = |other: &Route| {
        (other.dst, other.gateway, other.priority, other.table)
            == (route.dst, route.gateway, route.priority, route.table)
    };
    if !routes.iter().any(same) {
        routes.push(route);
    }
}

/// Returns one route of a result in the kernel's form.
///
/// # Errors
/// The errors of [`kernel_routes`].
pub fn kernel_route(route: &postern_cni::CniRoute, ips: &[IpConfig]) -> Result<Route, Error> {
    let dst = route.dst.ok_or_else(|| Error::new("IPAM plugin returned a route without dst"))?;
    let scope = attribute("scope", route.scope, dst)?;
    let implied = || match scope {
        None | Some(0) => first_gateway(ips, matches!(dst, IpNet::V4(_))),
        Some(_) => None,
    };
    let some = |value: i64| (value != 0).then_some(value);
    Ok(Route {
        dst: dst.trunc(),
        gateway: route.gw.or_else(implied),
        source: None,
        mtu: attribute("mtu", some(route.mtu), dst)?,
        advmss: attribute("advmss", some(route.advmss), dst)?,
        priority: attribute("priority", some(route.priority), dst)?,
        table: attribute("table", route.table, dst)?,
        scope,
    })
}

fn attribute<T: TryFrom<i64>>(name: &str, value: Option<i64>, dst: IpNet) -> Result<Option<T>, Error> {
    match value.map(T::try_from) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(Error::new(format!("route to {dst}: {name} {} is out of range", value.unwrap_or(0)))),
    }
}

/// Returns the first gateway among the addresses of the family.
pub fn first_gateway(ips: &[IpConfig], v4: bool) -> Option<IpAddr> {
    ips.iter().filter(|ip| matches!(ip.address, IpNet::V4(_)) == v4).find_map(|ip| ip.gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(address: &str, gateway: Option<&str>) -> IpConfig {
        let gateway = gateway.map(|gateway| gateway.parse().unwrap());
        IpConfig { interface: None, address: address.parse().unwrap(), gateway }
    }

    fn route(dst: &str) -> postern_cni::CniRoute {
        postern_cni::CniRoute { dst: Some(dst.parse().unwrap()), ..Default::default() }
    }

    fn gateways(routes: Vec<postern_cni::CniRoute>) -> Vec<Option<String>> {
        let ips = vec![
            ip("10.1.2.3/24", None),
            ip("fd00::3/64", Some("fd00::1")),
            ip("10.1.3.3/24", Some("10.1.3.1")),
            ip("10.1.4.3/24", Some("10.1.4.1")),
        ];
        let result = CniResult { ips, routes, ..CniResult::default() };
        kernel_routes(&result).unwrap().iter().map(|route| route.gateway.map(|gateway| gateway.to_string())).collect()
    }

    #[test]
    fn routes_without_next_hop_take_the_familys_first() {
        let own = postern_cni::CniRoute { gw: Some("10.1.3.9".parse().unwrap()), ..route("0.0.0.0/0") };
        let linked = postern_cni::CniRoute { scope: Some(253), ..route("10.9.0.0/16") };
        assert_eq!(
            gateways(vec![route("0.0.0.0/0"), route("::/0"), own, linked]),
            [Some("10.1.3.1".to_owned()), Some("fd00::1".to_owned()), Some("10.1.3.9".to_owned()), None]
        );
    }

    #[test]
    fn identical_routes_are_one() {
        let same = postern_cni::CniRoute { gw: Some("10.1.3.1".parse().unwrap()), ..route("0.0.0.0/0") };
        let other = postern_cni::CniRoute { priority: 5, ..same.clone() };
        assert_eq!(gateways(vec![route("0.0.0.0/0"), same, other]).len(), 2);
    }

    #[test]
    fn impossible_attributes_are_named() {
        let message = |route| kernel_route(&route, &[]).unwrap_err().to_string();
        assert_eq!(message(postern_cni::CniRoute::default()), "IPAM plugin returned a route without dst");
        assert_eq!(
            message(postern_cni::CniRoute { mtu: -1, ..route("10.0.0.0/8") }),
            "route to 10.0.0.0/8: mtu -1 is out of range"
        );
        assert_eq!(
            message(postern_cni::CniRoute { scope: Some(256), ..route("::/0") }),
            "route to ::/0: scope 256 is out of range"
        );
    }
}
