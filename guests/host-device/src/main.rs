//! host-device: moves a link of the host into the container, and back.
//!
//! | key | meaning |
//! |---|---|
//! | `device` | name of the link |
//! | `hwaddr` | link-layer address of the link |
//! | `kernelpath` | directory of the link's device below `/sys/devices` |
//! | `pciBusID` | PCI address of the device; `runtimeConfig.deviceID` goes before this key, and may also name an auxiliary device |
//! | `ipam` | the IPAM plugin that gives the attachment addresses |
//! | `dns` | copied to the result; the DNS of IPAM is dropped |
//!
//! If several of the first four keys are given, the first in this order counts. A PCI device of a user-space driver
//! (vfio-pci, uio_pci_generic, igb_uio) stays on the host: the result's interface then has only its name and sandbox.
//! The same holds for a network with `DPDKMode` and no PCI device.
//!
//! * ADD: moves the link, and gives it addresses from IPAM. The host undoes a failed ADD.
//! * DEL: moves the link back and gives the addresses back. Both steps are tried, and the first failure is reported.
//! * CHECK: calls IPAM's CHECK. The link must have its link-layer address, addresses and routes.
//! * STATUS: calls IPAM's STATUS. GC: removes this plugin's garbage, and calls IPAM's GC.

mod config;

use config::Config;
use postern_guest::cni::{CniResult, Interface, Version};
use postern_guest::{Error, Plugin, Request, all, attachments, check, configure, device, interface, ipam, link};
use std::process::ExitCode;

struct HostDevice;

impl Plugin for HostDevice {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        if !config.layer3 && request.version < Version::V0_3_0 {
            // This version can't print a result without addresses. The error comes before the link moves.
            return Err(Error::new("cannot convert: no valid IP addresses"));
        }
        let taken = match config.is_userspace()? {
            true => None,
            false => {
                let (by, value) = &config.device;
                Some(device::take(*by, value).map_err(config::take_error)?)
            }
        };
        let netns = &request.env.netns;
        let own = match &taken {
            Some(taken) => interface(&taken.attributes, netns),
            None => Interface { name: request.env.ifname.clone(), sandbox: netns.clone(), ..Interface::default() },
        };
        let mut result = if config.layer3 {
            let result = configure::only_link(ipam::add()?, own)?;
            if let Some(taken) = &taken {
                configure::with_result(&taken.link, &result)?;
            }
            result
        } else {
            CniResult { interfaces: vec![own], ..CniResult::default() }
        };
        result.dns = config.conf.dns;
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse, or a missing device, must not prevent DEL.
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
        all([device::give_back(), if layer3 { ipam::del() } else { Ok(()) }])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        if config.layer3 {
            ipam::check()?;
        }
        let result = check::previous_result(&config.conf, "Required prevResult missing")?;
        let expected = request.own_interface(&result)?;
        if config.is_userspace()? {
            return Ok(());
        }
        let name = &expected.name;
        let words = check::Words::COMMON;
        let found = link::own()?.ok_or_else(|| words.gone(name))?;
        words.same_mac(expected, &found.attributes()?)?;
        check::configuration(&found, name, &result)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        // STATUS does not look for the device: a container may have it.
        let config = Config::read(request)?;
        if config.layer3 { ipam::status() } else { Ok(()) }
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
        all([attachments::collect().map(drop), if layer3 { ipam::gc() } else { Ok(()) }])
    }
}

fn main() -> ExitCode {
    postern_guest::run(&HostDevice)
}

#[cfg(test)]
mod tests;
