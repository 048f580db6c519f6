//! bandwidth: limits the rate of the container's traffic in both directions.
//!
//! | key | meaning |
//! |---|---|
//! | `ingressRate`, `ingressBurst` | bits per second to the container, and bits that may be sent at once |
//! | `egressRate`, `egressBurst` | bits per second from the container, and bits that may be sent at once |
//! | `runtimeConfig.bandwidth` | these four keys from the runtime, used if the network has none of the four keys |
//!
//! bandwidth follows a plugin that makes a pair, and returns the earlier plugin's result. If bandwidth limits traffic
//! from the container, the result has one more interface: the host's link (ifb) with this limit.
//!
//! * ADD: sets the limits at the host end. The host undoes a failed ADD. Without any rate, the result is passed on.
//! * DEL: removes the limits that the record lists. Without a record, the limits are found by name.
//! * CHECK: compares the limits.
//! * STATUS: reads the configuration. GC: removes this plugin's garbage.

use postern_guest::cni::{BandwidthConf as Configured, CniResult, Version};
use postern_guest::{Error, Plugin, Request, attachments, bandwidth, interface};
use std::process::ExitCode;

struct Bandwidth;

impl Plugin for Bandwidth {
    const VERSIONS: &'static [Version] =
        &[Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let (limits, mut result) = read(request, "must be called as chained plugin")?;
        if limits.is_unlimited() {
            return Ok(result);
        }
        if result.interfaces.is_empty() {
            return Err(Error::new("no interfaces provided"));
        }
        if let Some(link) = bandwidth::limit(limits.ingress, limits.egress)? {
            result.interfaces.push(interface(&link, ""));
        }
        Ok(result)
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        bandwidth::remove()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let (limits, result) = read(request, "must be called as a chained plugin")?;
        if limits.is_unlimited() {
            return Ok(());
        }
        if result.interfaces.is_empty() {
            return Err(Error::new("no interfaces provided"));
        }
        bandwidth::check(limits.ingress, limits.egress)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        Configured::read(&request.conf()?).map(drop).map_err(|error| Error::unavailable(error.msg))
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        attachments::collect().map(drop)
    }
}

/// Reads the limits and `prevResult`. Without `prevResult`, `missing` is the error.
fn read(request: &Request, missing: &str) -> Result<(Configured, CniResult), Error> {
    let conf = request.conf()?;
    let limits = Configured::read(&conf)?;
    let result = conf.previous_result()?.ok_or_else(|| Error::new(missing))?;
    Ok((limits, result))
}

fn main() -> ExitCode {
    postern_guest::run(&Bandwidth)
}

#[cfg(test)]
mod tests;
