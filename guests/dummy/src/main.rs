//! dummy: gives the container a link that leads nowhere, with addresses that programs in the container can listen on.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `ipam` | – | the attachment's addresses; without it ADD and CHECK fail |
//!
//! The result's `dns` is always IPAM's.
//!
//! * ADD: makes the link, and then adds addresses from IPAM. The host undoes a failed ADD.
//! * DEL: removes the link and releases the addresses. Both steps are tried, and the first failure is reported.
//! * CHECK: calls IPAM's CHECK. The link must be up, and have its link-layer address and the attachment's addresses.
//! * STATUS: calls IPAM's STATUS. GC: removes this plugin's garbage, and calls IPAM's GC.

use postern_guest::cni::{CniResult, NetConf};
use postern_guest::{Error, Plugin, Request, all, attachments, check, configure, dummy, interface, ipam, link};
use std::process::ExitCode;

struct Dummy;

impl Plugin for Dummy {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        configuration(request)?;
        let made = dummy::create()?;
        let result = configure::only_link(ipam::add()?, interface(&made.attributes, &request.env.netns))?;
        configure::with_result(&made.link, &result)?;
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        all([link::delete_own(), if has_ipam(request)? { ipam::del() } else { Ok(()) }])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let conf = configuration(request)?;
        ipam::check()?;
        let result = check::previous_result(&conf, "dummy: Required prevResult missing")?;
        let expected = request.own_interface(&result)?;
        let name = &expected.name;
        let words = check::Words::COMMON;
        let own = link::own()?.ok_or_else(|| words.gone(name))?;
        let attributes = own.attributes()?;
        if attributes.kind != "dummy" {
            return Err(words.no("dummy", name));
        }
        words.same_mac(expected, &attributes)?;
        check::is_up(name, &attributes)?;
        // Like the native plugin, this plugin does not compare routes.
        let addresses = CniResult { ips: result.ips.clone(), ..CniResult::default() };
        check::configuration(&own, name, &addresses)
    }

    fn status(&self, _: &Request) -> Result<(), Error> {
        ipam::status()
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        all([attachments::collect().map(drop), if has_ipam(request)? { ipam::gc() } else { Ok(()) }])
    }
}

/// Reads the configuration of an ADD or a CHECK.
fn configuration(request: &Request) -> Result<NetConf, Error> {
    let conf = request.conf().map_err(load_error)?;
    match conf.ipam_type.is_empty() {
        true => Err(Error::new("dummy interface requires an IPAM configuration")),
        false => Ok(conf),
    }
}

fn has_ipam(request: &Request) -> Result<bool, Error> {
    Ok(!request.ipam_type().map_err(load_error)?.is_empty())
}

/// Adds the native plugins' text before the decoder's message.
fn load_error(error: Error) -> Error {
    error.context("failed to parse network config")
}

fn main() -> ExitCode {
    postern_guest::run(&Dummy)
}

#[cfg(test)]
mod tests;
