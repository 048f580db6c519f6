//! CHECK: compares the attachment with `prevResult`. The error texts are those of the native plugin.

use crate::chained;
use crate::config::Config;
use postern_guest::cni::{CniResult, Interface};
use postern_guest::types::ErrorCode;
use postern_guest::veth::Pair;
use postern_guest::{Error, Request, bridge, check, has_mac, ipam, link, mac, mac_guard, veth};

/// # Errors
/// Code 999 for the first difference.
pub fn check(config: &Config, request: &Request) -> Result<(), Error> {
    // Without IPAM, native plugins fail here, because the IPAM plugin's name is missing.
    if config.layer3 {
        ipam::check()?;
    }
    let result = check::previous_result(&request.conf()?, "Required prevResult missing")?;
    check_bridge(config, &result)?;
    match with_pair(config, request, &result) {
        // If no pair fits, the guest asks the host for the previous link in the record.
        Err(error) => match bridge::previous_link() {
            Ok(Some(end)) => chained::check(config, request, &result, &end),
            _ => Err(error),
        },
        fits => fits,
    }
}

fn with_pair(config: &Config, request: &Request, result: &CniResult) -> Result<(), Error> {
    let expected = request.own_interface(result)?;
    let pair = container_end(expected)?;
    // A pair with one end down passes no packets. Without addresses, the container itself sets its end up.
    if config.container_up && !pair.container_attributes.up {
        return Err(Error::new(format!("Interface {} is down", expected.name)));
    }
    host_end(config, result, &pair)?;
    check::configuration(&pair.container, &expected.name, result)?;
    if let (true, Some(mac)) = (config.mac_guard, pair.container_attributes.mac) {
        mac_guard::check(&pair.host, mac)?;
    }
    config.masquerade.check()
}

fn check_bridge(config: &Config, result: &CniResult) -> Result<(), Error> {
    let name = &config.bridge;
    let expected = result.interfaces.iter().rfind(|interface| interface.name == *name);
    let Some(expected) = expected.filter(|interface| !interface.name.is_empty()) else {
        return Err(Error::new("Interface name missing "));
    };
    let bridge = match bridge::find(name) {
        Ok(Some(bridge)) => bridge,
        Ok(None) => return Err(Error::new(format!("Interface name {name} not found"))),
        Err(error) if error.kind() == Some(ErrorCode::Exists) => {
            return Err(Error::new(format!("Interface {name} does not have link type of bridge")));
        }
        Err(error) => return Err(error),
    };
    if !expected.sandbox.is_empty() {
        return Err(Error::new(format!("Interface {name} should not be in sandbox")));
    }
    let found = bridge.attributes()?;
    if !expected.mac.is_empty() && expected.mac != mac(&found) {
        return Err(Error::new(format!("Bridge interface {name} Mac doesn't match: {}", expected.mac)));
    }
    if !found.up {
        return Err(Error::new(format!("Bridge interface {name} is down")));
    }
    let (wanted, promisc) = (config.promisc, bridge.promisc());
    if wanted != promisc {
        return Err(Error::new(format!(
            "Bridge interface {name} configured Promisc Mode {wanted} doesn't match current state: {promisc} "
        )));
    }
    Ok(())
}

/// Checks that the container's end is still the same veth.
fn container_end(expected: &Interface) -> Result<Pair, Error> {
    let name = &expected.name;
    let Some(pair) = veth::find()? else {
        return Err(match link::own()? {
            None => Error::new(format!("Interface name {name} not found")),
            Some(_) => Error::new(format!("Error: Container interface {name} not of type veth")),
        });
    };
    let found = mac(&pair.container_attributes);
    if !has_mac(&expected.mac, &pair.container_attributes) {
        let mac = &expected.mac;
        return Err(Error::new(format!("Interface {name} Mac {mac} doesn't match container Mac: {found}")));
    }
    Ok(pair)
}

/// Checks that the host end is in the result, and still a port of the bridge.
fn host_end(config: &Config, result: &CniResult, pair: &Pair) -> Result<(), Error> {
    let name = &pair.host_attributes.name;
    let expected = result.interfaces.iter().find(|link| link.name == *name && link.sandbox.is_empty());
    let bridge = &config.bridge;
    let Some(expected) = expected.filter(|_| pair.bridge.as_ref() == Some(bridge)) else {
        return Err(Error::new(format!("CNI veth created for bridge {bridge} was not found")));
    };
    if !expected.mac.is_empty() && expected.mac != mac(&pair.host_attributes) {
        return Err(Error::new(format!("Interface {name} Mac doesn't match: {} not found", expected.mac)));
    }
    if !pair.host_attributes.up {
        return Err(Error::new(format!("Interface {name} is down")));
    }
    Ok(())
}
