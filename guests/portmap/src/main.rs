//! portmap: ports of the node that lead to the container. portmap follows a plugin that gave the container its
//! addresses.
//!
//! | key | meaning |
//! |---|---|
//! | `runtimeConfig.portMappings` | `hostPort`, `containerPort`, `protocol` (tcp, udp, sctp) and `hostIP` of each mapping |
//! | `snat` | senders in the container's own network, and the node's 127.0.0.1, appear as the node (default: true) |
//! | `masqAll` | every sender appears as the node |
//! | `backend` | `iptables` or `nftables`; the host takes it from the configuration |
//! | `markMasqBit`, `externalSetMarkChain`, `conditionsV4`, `conditionsV6` | the host takes them from the configuration |
//! | `prevResult` | required; passed on unchanged |
//!
//! portmap ignores `CNI_ARGS`. Errors are those of the native plugin.
//!
//! * ADD: forwards to the first IPv4 and the first IPv6 address of the container's interface.
//! * DEL: needs only the names of the attachment.
//! * CHECK: compares the rules.
//! * STATUS: the configuration is valid. GC: removes the rules of attachments that the runtime no longer has.

mod config;

use config::Config;
use postern_guest::cni::{CniResult, NetConf};
use postern_guest::{Error, Plugin, Request, attachments, port_mappings};
use std::process::ExitCode;

struct Portmap;

impl Plugin for Portmap {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let conf = request.conf().map_err(config::unreadable)?;
        let (config, previous) = Config::read(&conf).map_err(config::refused)?;
        let previous = previous.ok_or_else(|| Error::new("must be called as chained plugin"))?;
        let addresses = config.addresses(request, &previous);
        if !addresses.is_empty() && !config.forwards.is_empty() {
            port_mappings::ensure(&addresses, &config.forwards, config.masquerade)?;
        }
        Ok(previous)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A changed configuration does not matter: the host finds the rules by the attachment's names.
        let asks_for_none = |conf: &NetConf| {
            conf.runtime_config().is_ok_and(|runtime| {
                runtime.list("portMappings").is_ok_and(|mappings| mappings.is_none_or(<[_]>::is_empty))
            })
        };
        match request.conf() {
            Ok(conf) if asks_for_none(&conf) => Ok(()),
            _ => port_mappings::remove(),
        }
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let conf = request.conf().map_err(config::unreadable)?;
        let (config, previous) = Config::read(&conf)?;
        let previous = previous.ok_or_else(|| Error::new("Required prevResult missing"))?;
        let addresses = config.addresses(request, &previous);
        if addresses.is_empty() || config.forwards.is_empty() {
            return Ok(());
        }
        port_mappings::check(&addresses, &config.forwards, config.masquerade)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let conf = request.conf().map_err(config::unreadable)?;
        Config::read(&conf).map(drop).map_err(|error| Error::unavailable(config::refused(error).object().msg.clone()))
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        attachments::collect().map(drop)
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Portmap)
}

#[cfg(test)]
mod tests;
