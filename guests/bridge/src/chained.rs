//! The plugin bridge after a plugin that made a link on the host. This link joins the bridge. The plugin makes no pair.
//!
//! The link, and its end in the container, still belong to the other plugin. With an IPAM plugin, the container's link
//! gets the addresses. If the container has no link, the addresses are only in the result, for the program behind the
//! host's link.

use crate::config::Config;
use crate::{container_settings, gateways};
use postern_guest::bridge::{self, Bridge};
use postern_guest::cni::{CniResult, Interface};
use postern_guest::types::Mac;
use postern_guest::veth::HostEnd;
use postern_guest::{Error, Request, check, configure, forwarding, interface, ipam, link, mac, mac_guard};

/// Returns the link to attach. Asks the host only if `prevResult` names a link of the host.
///
/// # Errors
/// The host refuses the link.
pub fn find(request: &Request) -> Result<Option<HostEnd>, Error> {
    let previous = request.conf().ok().and_then(|conf| conf.previous_result().ok().flatten()).unwrap_or_default();
    match previous.interfaces.iter().any(|link| link.sandbox.is_empty()) {
        true => bridge::previous_link(),
        false => Ok(None),
    }
}

/// Runs ADD with the earlier plugin's link. `given` is the MAC address that the network gives the program behind the
/// link.
///
/// # Errors
/// The errors of the host.
pub fn add(
    config: &Config,
    request: &Request,
    bridge: &Bridge,
    end: &HostEnd,
    given: Option<Mac>,
) -> Result<CniResult, Error> {
    let mut result = request.conf()?.previous_result()?.unwrap_or_default();
    if config.mac_guard {
        // The rules come before the link is a port, because the program behind the link may already be sending.
        mac_guard::ensure(end, behind(request, &result, given)?)?;
    }
    bridge.attach(end, &config.port())?;
    let own = own_interface(request, &result);
    let mut vlan_gateway = None;
    if config.layer3 {
        let mut added = CniResult { interfaces: Vec::new(), ..ipam::add()? };
        gateways::complete(&mut added, config, own)?;
        if let Some(container) = own.map_or(Ok(None), |_| link::own())? {
            container_settings(&container, config)?;
            configure::configure(&container, &added.ips, &configure::kernel_routes(&added)?)?;
        }
        if config.is_gateway {
            vlan_gateway = bridge.ensure_gateways(&config.port(), config.force_address)?;
            forwarding::enable()?;
        }
        config.masquerade.ensure()?;
        result.ips.extend(added.ips);
        result.routes.extend(added.routes);
        result.dns = added.dns;
    }
    let links = [Some(interface(&bridge.attributes()?, "")), vlan_gateway.map(|link| interface(&link, ""))];
    result.interfaces.extend(links.into_iter().flatten());
    if let Some(dns) = &config.dns {
        result.dns = dns.clone();
    }
    Ok(result)
}

/// Runs CHECK with the earlier plugin's link: compares the link with the result. The host checks that the link is still
/// a port.
///
/// # Errors
/// Code 999 for the first difference.
pub fn check(config: &Config, request: &Request, result: &CniResult, end: &HostEnd) -> Result<(), Error> {
    let found = end.attributes()?;
    let name = &found.name;
    let expected = result.interfaces.iter().find(|link| link.name == *name && link.sandbox.is_empty());
    let Some(expected) = expected else {
        return Err(Error::new(format!("prevResult does not name {name}, which was attached to {}", config.bridge)));
    };
    if !expected.mac.is_empty() && expected.mac != mac(&found) {
        return Err(Error::new(format!("Interface {name} Mac doesn't match: {} not found", expected.mac)));
    }
    if let Some(own) = own_interface(request, result).and_then(|at| result.interfaces.get(at)) {
        let Some(container) = link::own()? else {
            return Err(Error::new(format!("Interface name {} not found", own.name)));
        };
        check::configuration(&container, &own.name, result)?;
    }
    if config.mac_guard {
        mac_guard::check(end, behind(request, result, config.address()?)?)?;
    }
    config.masquerade.check()
}

/// Returns the only MAC address that may send: the address of the container's interface, or else the address that the
/// network gives this interface.
fn behind(request: &Request, result: &CniResult, given: Option<Mac>) -> Result<Mac, Error> {
    let own = own_interface(request, result).and_then(|at| result.interfaces.get(at));
    own.and_then(|own: &Interface| own.mac.parse().ok()).or(given).ok_or_else(|| {
        Error::new("macspoofchk needs the address that may send, and neither prevResult nor the network's mac has it")
    })
}

/// Returns the index of the container's interface in the result.
fn own_interface(request: &Request, result: &CniResult) -> Option<usize> {
    // A link without a sandbox is on the host.
    let is_inside = |at: &usize| result.interfaces.get(*at).is_some_and(|link| !link.sandbox.is_empty());
    result.own_interfaces(&request.env.ifname, &request.env.netns).into_iter().find(is_inside)
}
