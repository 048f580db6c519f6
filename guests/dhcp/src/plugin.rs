//! The IPAM plugin: it asks the node's DHCP service for the attachment's lease, and makes a CNI result of it.
//!
//! | key | meaning |
//! |---|---|
//! | `ipam.daemonSocketPath` | socket of the service; only the host uses it |
//! | `ipam.families` | `"ipv4"`, `"ipv6"` or both; the host and the service use it |
//! | `ipam.request`, `ipam.provide`, `ipam.priority` | the plugin reads these keys to refuse wrong values early; the client in the service's sandbox uses them ([`postern_dhcp::config`]) |
//! | `CNI_ARGS` | any key, for `provide[].fromArg` |
//!
//! * ADD: address, gateway and routes of the lease, for each family. The result has DNS and MTU only if the network
//!   requests them. The MTU is set on all routes, because an IPAM result has no link.
//! * DEL: gives the lease back. It does not read the configuration, and succeeds without a service.
//! * CHECK: the service must have the lease, and `prevResult` must have the lease's addresses.
//! * STATUS: code 50 if the service does not answer.
//! * GC: gives back the leases of attachments that the runtime no longer has.

use postern_dhcp::config::Options;
use postern_dhcp::families;
use postern_guest::cni::{CniResult, CniRoute, IpConfig};
use postern_guest::types::{DhcpLease, ErrorCode, Route as LeasedRoute};
use postern_guest::{Error, Plugin, Request, attachments, dhcp};
use std::process::ExitCode;

/// The plugin.
pub struct Dhcp;

impl Plugin for Dhcp {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        read(request)?;
        Ok(result(dhcp::acquire()?))
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        dhcp::release()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        read(request)?;
        let lease = dhcp::check()?;
        // As in the native plugin, `prevResult` may be absent.
        let Some(previous) = request.conf()?.previous_result()? else { return Ok(()) };
        match lease.addresses.iter().find(|grant| !previous.ips.iter().any(|ip| ip.address == grant.address)) {
            Some(grant) => Err(Error::new(format!(
                "dhcp: the lease now has {}, which is not in prevResult: the container has another address",
                grant.address
            ))),
            None => Ok(()),
        }
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        read(request).map_err(|error| Error::unavailable(error.object().msg.clone()))?;
        dhcp::status().map_err(|error| match error.kind() {
            Some(ErrorCode::Denied) => error,
            _ => unavailable(&error),
        })
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        attachments::collect().map(drop)
    }
}

/// Runs the plugin.
pub fn run() -> ExitCode {
    postern_guest::run(&Dhcp)
}

/// Converts an error to the answer of STATUS: code 50, with the same message.
fn unavailable(error: &Error) -> Error {
    let object = error.object();
    let unavailable = Error::unavailable(object.msg.clone());
    postern_guest::cni::Error { details: object.details.clone(), ..unavailable.object().clone() }.into()
}

/// Reads all keys. Wrong keys are refused before the service is asked.
fn read(request: &Request) -> Result<(), Error> {
    let conf = request.conf()?;
    if let Some(ipam) = conf.fields().object("ipam")?
        && let Some(path) = ipam.str("daemonSocketPath")?
        && !path.is_empty()
        && !path.starts_with('/')
    {
        let message = format!("dhcp: ipam.daemonSocketPath {path:?} does not begin with `/`: give an absolute path");
        return Err(Error::config(message));
    }
    let configuration = String::from_utf8_lossy(&request.stdin);
    families(&configuration)?;
    Options::read(&configuration, &request.env.args)?;
    Ok(())
}

/// Makes a result from a lease.
fn result(lease: DhcpLease) -> CniResult {
    let DhcpLease { addresses, routes, dns, mtu, .. } = lease;
    let mtu = mtu.map_or(0, i64::from);
    let route = |route: LeasedRoute| CniRoute {
        dst: Some(route.dst),
        gw: route.gateway,
        mtu,
        priority: route.priority.map_or(0, i64::from),
        scope: route.scope.map(i64::from),
        ..CniRoute::default()
    };
    CniResult {
        ips: addresses
            .into_iter()
            .map(|grant| IpConfig { interface: None, address: grant.address, gateway: grant.gateway })
            .collect(),
        routes: routes.into_iter().map(route).collect(),
        dns,
        ..CniResult::default()
    }
}

#[cfg(test)]
mod tests;
