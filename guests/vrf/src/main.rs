//! vrf: puts the attachment's link into a VRF of the container. The VRF separates the link's routes from the routes of
//! other links. vrf follows the plugin that made the link.
//!
//! | key | meaning |
//! |---|---|
//! | `vrfname` | the VRF, required. It is made if it is missing, and removed with its last link |
//! | `table` | routing table of the VRF; by default the lowest unused table |
//! | `prevResult` | required on ADD and CHECK; passed on unchanged |
//!
//! * ADD: puts the link into the VRF. Global IPv6 addresses stay on the link, and the link's routes move into the VRF's
//!   table. The host undoes a failed ADD.
//! * DEL: takes the link out of the VRF. CHECK: the link is in the VRF.
//! * STATUS: the configuration can be read. GC: removes this plugin's garbage.

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
        // A configuration that ADD would refuse must not stop DEL.
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
    /// Code 999 for an unreadable configuration, with the native plugin's texts.
    fn read(request: &Request) -> Result<Self, Error> {
        let conf = request.conf()?;
        let fields = conf.fields();
        let decoding = |error: postern_guest::cni::Error| error.context("failed to load netconf");
        let name = fields.string("vrfname").map_err(decoding)?.unwrap_or_default();
        let table = fields.uint32("table").map_err(decoding)?;
        if name.is_empty() {
            return Err(Error::new("configuration is expected to have a valid vrf name"));
        }
        // As with the native plugin, 0 means no table: the host chooses a table.
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
