//! macvlan: gives the container a link with its own address, on the network of a link of the host.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `master` | link of the default route | the link to stack on |
//! | `mode` | `bridge` | `bridge`, `private`, `vepa`, `passthru` |
//! | `mtu` | the master's | in bytes, at most the master's |
//! | `mac` | random | address of the link; `MAC` of `CNI_ARGS` overrides `mac`, `runtimeConfig.mac` overrides both |
//! | `linkInContainer` | false | the master is in the container |
//! | `bcqueuelen` | kernel's | the most frames that wait to be broadcast |
//! | `ipam` | none | the IPAM plugin; without `ipam` the attachment has no addresses |
//! | `dns` | none | copied to the result; the DNS of IPAM is dropped |
//!
//! * ADD: the link, addresses from IPAM, and an announcement to the neighbours. The host undoes a failed ADD.
//! * DEL: removes the link and releases the addresses. Both steps are tried, and the first failure is reported.
//! * CHECK: calls IPAM's CHECK. The master must exist. The link must be up, and have its mode, link-layer address,
//!   addresses and routes.
//! * STATUS: calls IPAM's STATUS. The master must exist. GC: removes this plugin's garbage, and calls IPAM's GC.

mod config;

use config::Config;
use postern_guest::cni::{CniResult, Version};
use postern_guest::{Error, Plugin, Request, all, attachments, check, configure, interface, ipam, link, macvlan};
use std::process::ExitCode;

struct Macvlan;

const WORDS: check::Words = check::Words { missing: "container Interface", kind: "error", mac: "interface" };

impl Plugin for Macvlan {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        if !config.layer3 && request.version < Version::V0_3_0 {
            // CNI 0.1.0 and 0.2.0 have no result without addresses. The error must come before ADD makes anything.
            return Err(Error::new("cannot convert: no valid IP addresses"));
        }
        let made = macvlan::create(&config.parent()?, &config.options()?)?;
        let own = interface(&made.attributes, &request.env.netns);
        let mut result = if config.layer3 {
            let result = configure::only_link(ipam::add()?, own)?;
            configure::announce(&made.link)?;
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
        let layer3 = !request.ipam_type().map_err(config::del_error)?.is_empty();
        all([link::delete_own(), if layer3 { ipam::del() } else { Ok(()) }])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        config.parent()?;
        if config.layer3 {
            ipam::check()?;
        }
        let result = check::previous_result(&config.conf, "required prevResult missing")?;
        let expected = request.own_interface(&result)?;
        let name = &expected.name;
        let found = macvlan::find()?.ok_or_else(|| WORDS.absent("macvlan", name))?;
        if found.mode != Some(config.mode) {
            let is = found.mode.map_or("another mode", |mode| mode.name());
            let wanted = config.mode.name();
            return Err(Error::new(format!("container macvlan mode {is} does not match expected value: {wanted}")));
        }
        WORDS.same_mac(expected, &found.attributes)?;
        check::is_up(name, &found.attributes)?;
        check::configuration(&found.link, name, &result)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        // STATUS has no container to look into.
        if !config.in_container {
            config.parent().map_err(|error| Error::unavailable(error.object().msg.clone()))?;
        }
        if config.layer3 { ipam::status() } else { Ok(()) }
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        let layer3 = !request.ipam_type().map_err(config::del_error)?.is_empty();
        all([attachments::collect().map(drop), if layer3 { ipam::gc() } else { Ok(()) }])
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Macvlan)
}

#[cfg(test)]
mod tests;
