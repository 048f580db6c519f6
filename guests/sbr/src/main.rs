//! sbr: source routing. Packets from an address of the attachment leave by the link that has the address. sbr follows
//! the plugin that made the link.
//!
//! | key | meaning |
//! |---|---|
//! | `table` | the routing table, whose routes another program makes. Without this key each address gets its own table |
//! | `gateways` | next hops instead of the next hops in `prevResult`, at most one of each IP version |
//! | `addSourceHints` | the main table keeps the routes to the link's own networks, with the address as the source |
//! | `prevResult` | required on ADD; passed on unchanged |
//!
//! If `table` is given, `gateways` and `addSourceHints` have no effect, as with the native plugin.
//!
//! * ADD: rules and tables. The host undoes a failed ADD.
//! * DEL: removes rules and tables, and puts the link's routes back into the main table.
//! * CHECK: rules and tables must exist.
//! * STATUS: the configuration can be read. GC: removes this plugin's garbage.

use postern_guest::cni::{CniResult, IpConfig};
use postern_guest::types::RouteSource;
use postern_guest::{Error, Plugin, Request, attachments, link, source_routes};
use std::net::IpAddr;
use std::process::ExitCode;

/// The Go type of the configuration, which the native plugin's messages name.
const STRUCTURE: &str = "PluginConf";

struct Sbr;

impl Plugin for Sbr {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        let previous = request.conf()?.previous_result()?;
        let result = previous.ok_or_else(|| Error::new("This plugin must be called as chained plugin"))?;
        let ifname = &request.env.ifname;
        if result.ips.is_empty() {
            return Err(Error::new(format!("No IP addresses supplied on interface: {ifname}")));
        }
        let sources = config.sources(&result, ifname);
        let link = link::own()?
            .ok_or_else(|| Error::new(format!("Cannot find network interface {ifname}: Link not found")))?;
        source_routes::apply(&link, &sources, config.table, config.hints)?;
        Ok(result)
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        source_routes::remove()
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        // The native plugin's CHECK reads nothing. This CHECK compares rules and routes with the host's record.
        source_routes::check()
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
    table: Option<u32>,
    gateways: Vec<IpAddr>,
    hints: bool,
}

impl Config {
    /// # Errors
    /// Code 999 for an unreadable configuration and for a table that the kernel can't have, code 7 for gateways.
    fn read(request: &Request) -> Result<Self, Error> {
        let conf = request.conf()?;
        let fields = conf.raw().fields(STRUCTURE)?;
        let decoding = |error: postern_guest::cni::Error| error.context("failed to parse network configuration");
        let table = fields.int("table").map_err(decoding)?;
        let gateways = fields.strings("gateways").map_err(decoding)?.unwrap_or_default();
        let hints = fields.bool("addSourceHints").map_err(decoding)?.unwrap_or_default();
        let table = table.map(|table| {
            u32::try_from(table).map_err(|_| Error::new(format!("table {table} is out of range: invalid argument")))
        });
        Ok(Self { table: table.transpose()?, gateways: gateways_of(&gateways)?, hints })
    }

    /// Returns the addresses of this link with their gateways: addresses without an interface, and addresses whose
    /// interface has the link's name.
    fn sources(&self, result: &CniResult, ifname: &str) -> Vec<RouteSource> {
        let is_own = |ip: &&IpConfig| result.interface_of(ip).is_none_or(|link| link.name == ifname);
        let own = result.ips.iter().filter(is_own);
        own.map(|ip| {
            let is_v4 = ip.address.addr().is_ipv4();
            let named = self.gateways.iter().find(|gateway| gateway.is_ipv4() == is_v4).copied();
            // If the network names a table, this plugin makes no routes.
            let gateway = named.or(ip.gateway).filter(|_| self.table.is_none());
            RouteSource { address: ip.address, gateway }
        })
        .collect()
    }
}

/// Reads `gateways`: at most one of each IP version.
fn gateways_of(texts: &[String]) -> Result<Vec<IpAddr>, Error> {
    if texts.len() > 2 {
        return Err(Error::config(format!(
            "`gateways` has {} entries: at most one for each IP version is allowed",
            texts.len()
        )));
    }
    let mut gateways: Vec<IpAddr> = Vec::new();
    for text in texts {
        let gateway: IpAddr =
            text.parse().map_err(|_| Error::config(format!("`gateways` has {text:?}, which is no IP address")))?;
        if gateways.iter().any(|have| have.is_ipv4() == gateway.is_ipv4()) {
            return Err(Error::config("`gateways` has two addresses of one IP version".to_owned()));
        }
        gateways.push(gateway);
    }
    Ok(gateways)
}

fn main() -> ExitCode {
    postern_guest::run(&Sbr)
}

#[cfg(test)]
mod tests;
