//! firewall: lets the node forward packets of the attachment, and isolates the attachment's bridge from other bridges.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `backend` | firewalld where it runs, else iptables | `iptables` or `firewalld` |
//! | `iptablesAdminChainName` | `CNI-ADMIN` | the chain of the operator's rules, which come first |
//! | `firewalldZone` | `trusted` | the zone of firewalld that the addresses are put in |
//! | `ingressPolicy` | `open` | `open`, `same-bridge` or `isolated`: the places from which the bridge may be reached |
//!
//! firewall follows a plugin that makes an interface, and returns the earlier result unchanged.
//!
//! * ADD: rules for each address of `prevResult`, then the isolation of the bridge. The host undoes a failed ADD.
//! * DEL: removes the rules by the record, or else by `prevResult`. The isolation of the bridge stays.
//! * CHECK: compares rules and isolation.
//! * STATUS: the configuration can be read, and the packet filter is available. GC: removes this plugin's garbage.

mod config;

use config::Config;
use ipnet::IpNet;
use postern_guest::cni::{CniResult, Version};
use postern_guest::{Error, Plugin, Request, attachments, firewall};
use std::process::ExitCode;

struct Firewall;

impl Plugin for Firewall {
    const VERSIONS: &'static [Version] = &[Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        let ingress = config.ingress();
        let result = config.required()?;
        if !result.ips.is_empty() {
            firewall::admit(&addresses(&result))?;
        }
        if let Some(ingress) = ingress? {
            let Some(bridge) = result.interfaces.first() else {
                let message = format!(
                    "interface needs to be set for ingress policy \"{}\", make sure to chain \"firewall\" plugin with \
                     \"bridge\"",
                    ingress.name()
                );
                return Err(Error::new(message));
            };
            if bridge.name.is_empty() {
                return Err(Error::new("got empty bridge name"));
            }
            // Rules are made for the IP versions of the addresses: without addresses there are no rules.
            if !result.ips.is_empty() {
                firewall::isolate(ingress)?;
            }
        }
        Ok(result)
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        firewall::remove()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let result = Config::read(request)?.required()?;
        if result.ips.is_empty() { Ok(()) } else { firewall::check(&addresses(&result)) }
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        config.ingress().map(drop).map_err(|error| Error::unavailable(error.object().msg.clone()))
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        attachments::collect().map(drop)
    }
}

fn addresses(result: &CniResult) -> Vec<IpNet> {
    result.ips.iter().map(|ip| ip.address).collect()
}

fn main() -> ExitCode {
    postern_guest::run(&Firewall)
}

#[cfg(test)]
mod tests;
