//! macvlan: gives the container a link with an address of its own on the wire of a link of the host.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `master` | link of the default route | the link to stack on |
//! | `mode` | `bridge` | `bridge`, `private`, `vepa`, `passthru` |
//! | `mtu` | the master's | in bytes, at most the master's |
//! | `mac` | random | address of the link; `CNI_ARGS` `MAC` goes before it, and `runtimeConfig.mac` before both |
//! | `linkInContainer` | false | the master is in the container |
//! | `bcqueuelen` | kernel's | frames that wait to be broadcast |
//! | `ipam` | none | with it the attachment has addresses |
//! | `dns` | none | in the result as it is: what IPAM says is dropped |
//!
//! * ADD: the link, addresses from IPAM, which the neighbours are told of. A failed one is undone by the host.
//! * DEL: gives back and removes whatever is there; all of it is tried, and the first failure is told.
//! * CHECK: IPAM's CHECK, the master, the link with mode and address, which must be up, addresses and routes.
//! * STATUS: the master is there; IPAM's. GC: what this plugin left for attachments that are gone, and IPAM's.

mod config;

use config::Config;
use postern_guest::cni::{CniResult, Version};
use postern_guest::{
    Error, Plugin, Request, all, attachments, check, configure, has_mac, interface, ipam, link, link_sysctl, mac,
    macvlan,
};
use std::process::ExitCode;

struct Macvlan;

impl Plugin for Macvlan {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        if !config.layer3 && request.version < Version::V0_3_0 {
            // Such a result can't be printed: better to say so before there is anything.
            return Err(Error::new("cannot convert: no valid IP addresses"));
        }
        let made = macvlan::create(&config.parent()?, &config.options()?)?;
        let mut result = CniResult::default();
        if config.layer3 {
            result = CniResult { interfaces: Vec::new(), ..ipam::add()? };
            if result.ips.is_empty() {
                return Err(Error::new("IPAM plugin returned missing IP config"));
            }
            result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
            // The neighbours learn at once who has the addresses now.
            configure::best_effort(link_sysctl::set_arp_notify(&made.link, true))?;
            configure::best_effort(link_sysctl::set_ndisc_notify(&made.link, true))?;
            configure::configure(&made.link, &result.ips, &configure::kernel_routes(&result)?)?;
        } else {
            made.link.up()?;
        }
        result.interfaces = vec![interface(&made.attributes, &request.env.netns)];
        result.dns = config.conf.dns;
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not keep DEL from its work.
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
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
        let Some(found) = macvlan::find()? else {
            return Err(match link::own()? {
                None => Error::new(format!("container Interface name in prevResult: {name} not found")),
                Some(_) => Error::new(format!("error: Container interface {name} not of type macvlan")),
            });
        };
        if found.mode != Some(config.mode) {
            let is = found.mode.map_or("another mode", |mode| mode.name());
            let wanted = config.mode.name();
            return Err(Error::new(format!("container macvlan mode {is} does not match expected value: {wanted}")));
        }
        let address = mac(&found.attributes);
        if !has_mac(&expected.mac, &found.attributes) {
            let mac = &expected.mac;
            return Err(Error::new(format!("interface {name} Mac {mac} doesn't match container Mac: {address}")));
        }
        if !found.attributes.up {
            return Err(Error::new(format!("Interface {name} is down")));
        }
        check::configuration(&found.link, name, &result)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        // There is no container to look into.
        if !config.in_container {
            config.parent().map_err(|error| Error::unavailable(error.object().msg.clone()))?;
        }
        if config.layer3 { ipam::status() } else { Ok(()) }
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
        all([attachments::collect().map(drop), if layer3 { ipam::gc() } else { Ok(()) }])
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Macvlan)
}

#[cfg(test)]
mod tests;
