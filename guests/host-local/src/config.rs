//! Reading of the configuration. Messages are those of the native plugin, without a prefix.

use postern_guest::cni::{CniRoute, Fields, Json, Version, parse_cidr, parse_ip};
use postern_guest::types::LeaseRange;
use postern_guest::{Error, Request, routes_of};
use std::net::IpAddr;

/// The addresses that the plugin may assign.
#[derive(Debug)]
pub struct Config {
    /// Sets of ranges: the runtime's sets, the old-style set, the configuration's sets.
    pub sets: Vec<Vec<LeaseRange>>,
    /// Requested addresses: from `CNI_ARGS`, from `args`, from the runtime; all of them count.
    pub requested: Vec<IpAddr>,
    pub routes: Vec<CniRoute>,
    /// True if a file with name servers is configured.
    pub resolv_conf: bool,
    /// True if the network asks the runtime for ranges.
    pub ranges_at_run_time: bool,
    /// `cniVersion` as written.
    cni_version: String,
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Code 999 for everything that can't be read.
    pub fn read(request: &Request) -> Result<Self, Error> {
        let conf = request.conf()?;
        let fields = conf.fields();
        let Some(ipam) = fields.object("ipam")? else {
            return Err(Error::new("IPAM config missing 'ipam' key"));
        };
        let runtime = conf.runtime_config()?;
        // As in the native decoder, all keys are decoded before any value is checked.
        let mut texts = texts(&conf.args_cni()?)?;
        texts.extend(self::texts(&runtime)?);
        let mut sets = range_sets(&runtime, "ipRanges")?;
        // Without a subnet the other keys of the old style mean nothing, but must have the right types.
        let old_style = Some(range(&ipam)?).filter(|range| range.subnet.is_some()).map(|range| vec![range]);
        let ranges = range_sets(&ipam, "ranges")?;
        let routes = routes_of(&ipam)?;
        // Only the host uses the directory of the leases.
        ipam.str("dataDir")?;
        let resolv_conf = ipam.str("resolvConf")?.is_some_and(|path| !path.is_empty());

        let mut requested = Vec::from_iter(request.args(&["IP"])?.read("IP", requested_ip)?);
        requested.extend(texts);
        sets.extend(old_style);
        sets.extend(ranges);
        let sets = complete(sets)?;
        let ranges_at_run_time = conf.capabilities.get("ipRanges").is_some_and(|on| *on);
        Ok(Self { sets, requested, routes, resolv_conf, ranges_at_run_time, cni_version: conf.cni_version })
    }

    /// Checks everything except the ranges; the host checks the ranges.
    ///
    /// # Errors
    /// Code 999.
    pub fn validate(&self, version: Version) -> Result<(), Error> {
        if self.sets.is_empty() {
            return Err(Error::new("no IP ranges specified"));
        }
        let family = |v4: bool| {
            let of_family = |range: &&LeaseRange| range.subnet.addr().is_ipv4() == v4;
            self.sets.iter().filter_map(|set| set.first()).filter(of_family).count()
        };
        if version < Version::V0_3_0 && (family(true) > 1 || family(false) > 1) {
            let version = &self.cni_version;
            return Err(Error::new(format!("CNI version {version} does not support more than 1 address per family")));
        }
        Ok(())
    }
}

/// A range whose subnet may still be missing.
struct Range {
    subnet: Option<ipnet::IpNet>,
    start: Option<IpAddr>,
    end: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

fn range(fields: &Fields<'_>) -> Result<Range, Error> {
    Ok(Range {
        start: fields.ip("rangeStart")?,
        end: fields.ip("rangeEnd")?,
        subnet: fields.cidr("subnet")?,
        gateway: fields.ip("gateway")?,
    })
}

/// Reads a list of lists of ranges; `null` is an empty set.
fn range_sets(fields: &Fields<'_>, key: &str) -> Result<Vec<Vec<Range>>, Error> {
    let mut sets = Vec::new();
    for item in fields.list(key)?.unwrap_or_default() {
        let set = match item {
            Json::Array(ranges) => ranges.as_slice(),
            Json::Null => &[],
            other => return Err(fields.mismatch(key, other, "allocator.RangeSet").into()),
        };
        sets.push(set.iter().map(|json| range(&json.fields("Range")?)).collect::<Result<_, Error>>()?);
    }
    Ok(sets)
}

/// Returns the ranges in the form of the host.
fn complete(sets: Vec<Vec<Range>>) -> Result<Vec<Vec<LeaseRange>>, Error> {
    let complete = |(number, set): (usize, Vec<Range>)| {
        let missing = || Error::new(format!("invalid range set {number}: IP <nil> not v4 nor v6"));
        let range = |range: Range| {
            let subnet = range.subnet.ok_or_else(missing)?;
            Ok(LeaseRange { subnet, start: range.start, end: range.end, gateway: range.gateway })
        };
        set.into_iter().map(range).collect()
    };
    sets.into_iter().enumerate().map(complete).collect()
}

/// Reads the requested addresses under the key `ips`.
fn texts(fields: &Fields<'_>) -> Result<Vec<IpAddr>, Error> {
    let texts = fields.strings("ips")?.unwrap_or_default();
    texts.iter().map(|text| requested_ip(text).map_err(Error::new)).collect()
}

/// Reads an address with or without prefix length.
fn requested_ip(text: &str) -> Result<IpAddr, String> {
    let ip = match text.contains('/') {
        true => parse_cidr(text).map(|net| net.addr()),
        false => parse_ip(text),
    };
    ip.map_err(|_| format!("invalid IP address {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_addresses_lose_their_prefix() {
        assert_eq!(requested_ip("10.1.2.3/24"), Ok(IpAddr::from([10, 1, 2, 3])));
        assert_eq!(requested_ip("fd00::3"), Ok("fd00::3".parse().unwrap()));
        for wrong in ["foo", "", "10.1.2.3/33", "10.1.2/8"] {
            assert_eq!(requested_ip(wrong), Err(format!("invalid IP address {wrong}")));
        }
    }
}
