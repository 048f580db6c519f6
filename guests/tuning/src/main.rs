//! tuning: sysctls of the container's namespace, and attributes of the attachment's own link. tuning follows the plugin
//! that made the link.
//!
//! | key | meaning |
//! |---|---|
//! | `sysctl` | keys below `net` with their values; the first `IFNAME` of a key stands for `CNI_IFNAME` |
//! | `mac`, `mtu`, `txQLen` | address, MTU in bytes, queue length in packets |
//! | `promisc`, `allmulti` | `promisc`: the link takes frames for any address; `allmulti`: all multicast frames |
//! | `dataDir` | directory of the native plugin's files (default: `/run/cni/tuning`); the host takes it from the configuration |
//! | `prevResult` | required; passed on with the new address |
//!
//! The address has four sources: `args.cni.mac` counts first, then `runtimeConfig.mac`, then `MAC` in `CNI_ARGS`, then
//! `mac`. The other keys can be in `args.cni`, too; a sysctl in `args.cni` replaces only the same
//! sysctl.
//!
//! * ADD: sets the sysctls and attributes. The host undoes a failed ADD.
//! * DEL: puts back the attributes of the link. Sysctls stay as they are until the namespace ends.
//! * CHECK: compares the sysctls and attributes.
//! * STATUS: the configuration can be read. GC: removes this plugin's garbage.

mod config;

use config::Config;
use postern_guest::cni::CniResult;
use postern_guest::{Error, Plugin, Request, attachments, link, link_settings, namespace_sysctl};
use std::process::ExitCode;

struct Tuning;

impl Plugin for Tuning {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let (config, previous) = Config::read(request)?;
        let mut result = previous.ok_or_else(|| Error::new("Required prevResult missing"))?;
        let settings = config.to_set()?;
        // Sysctls that change other links come last, so that most failures come before such a change.
        let (far, near): (Vec<_>, Vec<_>) = config.sysctls.iter().partition(|(key, _)| reaches_far(key));
        let set = |keys: Vec<(&String, &String)>| {
            keys.into_iter().try_for_each(|(key, value)| namespace_sysctl::set(key, value))
        };
        set(near)?;
        let ifname = &request.env.ifname;
        if !settings.is_empty() {
            let link = link::own()?.ok_or_else(|| Error::new(format!("failed to get \"{ifname}\": Link not found")))?;
            link_settings::change(&link, &settings)?;
        }
        set(far)?;
        if let Some(mac) = config.mac {
            for own in result.own_interfaces(ifname, &request.env.netns) {
                result.interfaces.get_mut(own).into_iter().for_each(|link| mac.clone_into(&mut link.mac));
            }
        }
        Ok(result)
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        link_settings::restore()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let (config, previous) = Config::read(request)?;
        previous.ok_or_else(|| Error::new("Required prevResult missing"))?;
        for (key, value) in &config.sysctls {
            namespace_sysctl::check(key, value)?;
        }
        let ifname = &request.env.ifname;
        let link = link::own()?.ok_or_else(|| Error::new(format!("Cannot find container link {ifname}")))?;
        let settings = config.to_check()?;
        if settings.is_empty() { Ok(()) } else { link_settings::check(&link, &settings) }
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let read = Config::read(request).and_then(|(config, _)| config.to_set());
        read.map(drop).map_err(|error| Error::unavailable(error.object().msg.clone()))
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        attachments::collect().map(drop)
    }
}

/// True for a sysctl that makes the kernel change other settings, or remove addresses and routes of links.
fn reaches_far(key: &str) -> bool {
    ["forwarding", "ip_forward", "disable_ipv6"].iter().any(|name| key.ends_with(name))
}

fn main() -> ExitCode {
    postern_guest::run(&Tuning)
}

#[cfg(test)]
mod tests;
