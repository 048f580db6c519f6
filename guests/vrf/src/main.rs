//! vrf: the attachment's link in a VRF of the container, where its routes are apart from those of other links. It follows
//! the plugin that made the link.
//!
//! | key | meaning |
//! |---|---|
//! | `vrfname` | the VRF, required. It is made if it is not there, and goes with the last link in it |
//! | `table` | its routing table; without it, the lowest one that nothing uses |
//! | `prevResult` | required on ADD and CHECK; passed on unchanged |
//!
//! * ADD: puts the link into the VRF. Global IPv6 addresses stay, and routes go along. A failed one is undone by the host.
//! * DEL: takes the link out. CHECK: it is in.
//! * STATUS: the configuration can be read. GC: what this plugin left for attachments that the runtime no longer has.

use postern_guest::cni::{CniResult, Version};
use postern_guest::{Error, Plugin, Request, attachments, link, vrf};
use std::process::ExitCode;

struct Vrf;

impl Plugin for Vrf {
    const VERSIONS: &'static [Version] = &[Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let (config, result) = Config::with_result(request)?;
        let failed = |error: Error| error.context("cmdAdd failed");
        let ifname = &request.env.ifname;
        let link = link::own()?.ok_or_else(|| failed(Error::new(format!("could not get link by name {ifname}"))))?;
        vrf::join(&link, &config.name, config.table).map_err(failed)?;
        Ok(result)
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not keep DEL from its work.
        vrf::leave()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let (config, _) = Config::with_result(request)?;
        vrf::check(&config.name)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        Config::read(request).map(drop).map_err(|error| Error::unavailable(error.object().msg.clone()))
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        attachments::collect().map(drop)
    }
}

/// The keys of this plugin.
struct Config {
    name: String,
    table: Option<u32>,
}

impl Config {
    /// # Errors
    /// Code 999 for what can't be read, with the native plugin's texts.
    fn read(request: &Request) -> Result<Self, Error> {
        let conf = request.conf()?;
        let fields = conf.fields();
        let decoding = |error: postern_guest::cni::Error| error.context("failed to load netconf");
        let name = fields.string("vrfname").map_err(decoding)?.unwrap_or_default();
        let table = fields.uint32("table").map_err(decoding)?;
        if name.is_empty() {
            return Err(Error::new("configuration is expected to have a valid vrf name"));
        }
        // As with the native plugin 0 is no table: the host chooses one.
        Ok(Self { name, table: table.filter(|table| *table != 0) })
    }

    fn with_result(request: &Request) -> Result<(Self, CniResult), Error> {
        let config = Self::read(request)?;
        let previous = request.conf()?.previous_result()?;
        let result = previous.ok_or_else(|| Error::new("missing prevResult from earlier plugin"))?;
        Ok((config, result))
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Vrf)
}

#[cfg(test)]
mod tests;
