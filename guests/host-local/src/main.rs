//! host-local: assigns addresses from ranges, and keeps them in files on this host.
//!
//! | key | meaning |
//! |---|---|
//! | `ipam.ranges` | list of range sets, each a list of ranges; **one address is taken from each set** |
//! | range: `subnet` | network with prefix length, required; host bits must be zero |
//! | range: `rangeStart`, `rangeEnd` | first and last address; default: the first and last address of the network |
//! | range: `gateway` | never assigned; default: the first address of the network |
//! | `ipam.subnet`, `rangeStart`, `rangeEnd`, `gateway` | a single range in the old style; comes before `ranges`, and counts only with `subnet` |
//! | `ipam.routes` | routes, passed on unchanged, attributes of 1.1.0 included |
//! | `ipam.resolvConf` | a resolv.conf(5) file, which becomes the result's `dns` |
//! | `ipam.dataDir` | the directory of the store; only the host uses it, this plugin never sees a file |
//! | `runtimeConfig.ipRanges` (capability `ipRanges`) | like `ranges`; these sets come before all other sets |
//! | `runtimeConfig.ips` (capability `ips`), `args.cni.ips`, `CNI_ARGS` `IP` | requested addresses; a prefix length is ignored. All requests count, as in the native plugin, although by the conventions `args` replaces `CNI_ARGS` |
//!
//! * ADD: one address of each set: the requested address in the set, or the next free address, round robin. The host
//!   checks ranges and requests. The host's messages are those of the native plugin.
//! * DEL: releases the addresses. DEL does not read the configuration, so a broken configuration does not stop it.
//! * CHECK: the attachment must have an address.
//! * STATUS: code 50 if the configuration has no ranges, unless the runtime gives them. A set without a free address is
//!   code 50 only if the node's settings say so. The native plugin reports neither fault.
//! * GC: frees the addresses of attachments that the runtime no longer has.

mod config;

use config::Config;
use postern_guest::cni::{CniResult, Dns, IpConfig};
use postern_guest::{Error, Plugin, Request, leases, resolv_conf};
use std::process::ExitCode;

struct HostLocal;

impl Plugin for HostLocal {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        config.validate(request.version)?;
        let dns = if config.resolv_conf { resolv_conf::read()? } else { Dns::default() };
        let ips = leases::reserve(&config.sets, &config.requested)?
            .into_iter()
            .map(|lease| IpConfig { interface: None, address: lease.address, gateway: lease.gateway })
            .collect();
        Ok(CniResult { ips, routes: config.routes, dns, ..CniResult::default() })
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        leases::release()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        Config::read(request)?.validate(request.version)?;
        if leases::held()?.is_empty() {
            let container = &request.env.container_id;
            return Err(Error::new(format!("host-local: Failed to find address added by container {container}")));
        }
        Ok(())
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        // If the runtime brings the ranges with each ADD, there is nothing to check yet.
        if config.sets.is_empty() && config.ranges_at_run_time {
            return Ok(());
        }
        config.validate(request.version).map_err(|error| Error::unavailable(error.object().msg.clone()))?;
        match leases::available(&config.sets)? {
            true => Ok(()),
            false => Err(Error::unavailable("no IP addresses available")),
        }
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        leases::retain()?;
        Ok(())
    }
}

fn main() -> ExitCode {
    postern_guest::run(&HostLocal)
}

#[cfg(test)]
mod tests;
