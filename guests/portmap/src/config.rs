//! Reading the configuration. Messages are those of the native plugin.

use postern_guest::cni::{CniResult, IpConfig, NetConf, PortMap, PortMapping, parse_ip};
use postern_guest::types::{Forward, NatSources, Transport};
use postern_guest::{Error, Request};
use std::net::IpAddr;

/// The keys of this plugin.
#[derive(Debug)]
pub struct Config {
    /// The runtime's mappings; mappings of consecutive ports are joined.
    pub forwards: Vec<Forward>,
    pub masquerade: NatSources,
}

impl Config {
    /// Returns the keys, and `prevResult` if there is one.
    ///
    /// # Errors
    /// Code 999 for an unreadable or invalid configuration.
    pub fn read(conf: &NetConf) -> Result<(Self, Option<CniResult>), Error> {
        let map = PortMap::read(conf)?;
        let previous =
            conf.previous_result().map_err(|error| Error::from(error).context("could not parse prevResult"))?;
        map.backend()?;
        let forwards = map.mappings.iter().map(forward).collect::<Result<Vec<_>, _>>()?;
        let masquerade = match (map.snat, map.masq_all) {
            (false, _) => NatSources::None,
            (true, false) => NatSources::Own,
            (true, true) => NatSources::All,
        };
        Ok((Self { forwards: Forward::joined(forwards), masquerade }, previous))
    }

    /// Returns the first IPv4 and the first IPv6 address of the container's interface. Addresses without an interface
    /// count as the container's own. The text of `sandbox` is not used, because the host asks the kernel which
    /// addresses the container has.
    pub fn addresses(&self, request: &Request, previous: &CniResult) -> Vec<IpAddr> {
        let is_own =
            |ip: &&IpConfig| previous.interface_of(ip).is_none_or(|interface| interface.name == request.env.ifname);
        let own = || previous.ips.iter().filter(is_own).map(|ip| ip.address.addr());
        let first = |v4: bool| own().find(|address| address.is_ipv4() == v4);
        [first(true), first(false)].into_iter().flatten().collect()
    }
}

fn forward(mapping: &PortMapping) -> Result<Forward, Error> {
    let port = |what: &str, port: i64| {
        u16::try_from(port).map_err(|_| Error::new(format!("Invalid {what} port number: {port} (at most 65535)")))
    };
    Ok(Forward {
        transport: Transport::parse(&mapping.protocol).ok_or_else(|| {
            Error::new(format!("Invalid protocol: \"{}\" (tcp, udp and sctp have ports)", mapping.protocol))
        })?,
        host_address: match mapping.host_ip.as_str() {
            "" => None,
            text => Some(parse_ip(text).map_err(|_| Error::new(format!("Invalid host IP: \"{text}\"")))?),
        },
        host_port: port("host", mapping.host_port)?,
        container_port: port("container", mapping.container_port)?,
        count: 1,
    })
}

/// Adds the native plugin's text before the decoder's message.
pub fn unreadable(error: Error) -> Error {
    refused(error.context("failed to parse network configuration"))
}

/// Adds the native plugin's text before an error about an invalid configuration.
pub fn refused(error: Error) -> Error {
    error.context("failed to parse config")
}
