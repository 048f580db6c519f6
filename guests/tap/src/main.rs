//! tap: gives the container a tap. A program in the container, such as a virtual machine, reads and writes the frames.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `multiQueue` | false | several descriptors can be open at once, each with a queue |
//! | `mtu` | kernel's | in bytes |
//! | `mac` | random | address of the link; `CNI_ARGS` `MAC` goes before this key, and `runtimeConfig.mac` before both |
//! | `owner`, `group` | none | IDs of user and group that may open the tap; without both keys, every user may open it |
//! | `bridge` | none | the existing bridge in the container that the tap joins |
//! | `selinuxContext` | the host's | SELinux context of the tap; a node without SELinux refuses this key |
//! | `ipam` | none | the IPAM plugin that gives the attachment addresses |
//! | `dns` | none | copied to the result; the DNS of IPAM is dropped |
//!
//! * ADD: the tap, its bridge, addresses from IPAM, and an announcement to the neighbours. The host undoes a failed
//!   ADD.
//! * DEL: removes the link and releases the addresses. Both steps are tried, and the first failure is reported.
//! * CHECK: calls IPAM's CHECK. The tap must be up, and have its link-layer address, addresses and routes.
//! * STATUS: calls IPAM's STATUS. GC: removes this plugin's garbage, and calls IPAM's GC.

mod config;

use config::Config;
use postern_guest::cni::{CniResult, Version};
use postern_guest::{
    Error, Plugin, Request, all, attachments, check, configure, interface, ipam, link, link_sysctl, tap,
};
use std::process::ExitCode;

/// The texts of most native plugins.
const WORDS: check::Words = check::Words::COMMON;
/// The kernel's name for this kind of link.
const KIND: &str = "tun";

struct Tap;

impl Plugin for Tap {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        if !config.layer3 && request.version < Version::V0_3_0 {
            // Before 0.3.0, a result must have addresses. The error must come before ADD makes anything.
            return Err(Error::new("cannot convert: no valid IP addresses"));
        }
        let made = tap::create(&config.settings()?)?;
        if let Some(bridge) = &config.bridge {
            tap::join(&made.link, bridge)?;
        }
        let own = interface(&made.attributes, &request.env.netns);
        let mut result = if config.layer3 {
            let result = configure::only_link(ipam::add()?, own)?;
            // Like the native plugin, this plugin does not announce addresses to IPv6 neighbours.
            configure::best_effort(link_sysctl::set_arp_notify(&made.link, true))?;
            configure::with_result(&made.link, &result)?;
            result
        } else {
            made.link.up()?;
            CniResult { interfaces: vec![own], ..CniResult::default() }
        };
        result.dns = config.conf.dns;
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
        all([link::delete_own(), if layer3 { ipam::del() } else { Ok(()) }])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        if config.layer3 {
            ipam::check()?;
        }
        let result = check::previous_result(&config.conf, "Required prevResult missing")?;
        let expected = request.own_interface(&result)?;
        let name = &expected.name;
        let own = link::own()?.ok_or_else(|| WORDS.gone(name))?;
        let attributes = own.attributes()?;
        if attributes.kind != KIND {
            return Err(WORDS.no("tap", name));
        }
        WORDS.same_mac(expected, &attributes)?;
        check::is_up(name, &attributes)?;
        check::configuration(&own, name, &result)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        if Config::read(request)?.layer3 { ipam::status() } else { Ok(()) }
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
        all([attachments::collect().map(drop), if layer3 { ipam::gc() } else { Ok(()) }])
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Tap)
}

#[cfg(test)]
mod tests;
