//! ipvlan: gives the container a link on a link of the host. Both links have the host link's link-layer address.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `master` | link of the default route; with `prevResult`, its only link | the parent link |
//! | `mode` | `l2` | `l2`, `l3`, `l3s`; all links of a master have the same mode |
//! | `mtu` | the master's | in bytes |
//! | `linkInContainer` | false | the master is in the container |
//! | `ipam` | addresses of `prevResult` | the attachment's addresses |
//! | `dns` | none | copied to the result; the DNS of IPAM is dropped |
//!
//! * ADD: the link, addresses from IPAM or `prevResult`, and an announcement to the neighbours. The host undoes a
//!   failed ADD.
//! * DEL: removes the link and releases the addresses. Both steps are tried, and the first failure is reported. DEL
//!   needs no master.
//! * CHECK: calls IPAM's CHECK. A master that the network names must exist. The link must be up, and have the expected
//!   mode, link-layer address, addresses and routes.
//! * STATUS: a master of the host that the network names must exist. Calls IPAM's STATUS.
//! * GC: removes this plugin's garbage. Calls IPAM's GC.

use postern_guest::cni::{CniResult, NetConf};
use postern_guest::types::IpvlanMode;
use postern_guest::{
    Error, Plugin, Request, all, attachments, check, configure, interface, ipam, ipvlan, link, parent,
};
use std::process::ExitCode;

struct Ipvlan;

/// The keys of this plugin.
#[derive(Debug)]
struct Config {
    /// Empty if the network names no master.
    master: String,
    mode: IpvlanMode,
    mtu: Option<u32>,
    in_container: bool,
    conf: NetConf,
}

impl Config {
    /// # Errors
    /// Code 999 for an unreadable or invalid configuration.
    fn read(request: &Request) -> Result<Self, Error> {
        request.conf().and_then(Self::decode).map_err(load_error)
    }

    fn decode(conf: NetConf) -> Result<Self, Error> {
        let fields = conf.fields();
        let mode = fields.string("mode")?.filter(|mode| !mode.is_empty()).unwrap_or_else(|| "l2".to_owned());
        Ok(Self {
            master: fields.string("master")?.unwrap_or_default(),
            mode: IpvlanMode::parse(&mode).ok_or_else(|| Error::new(format!("unknown ipvlan mode: \"{mode}\"")))?,
            // As in the native plugin, an invalid MTU counts as absent.
            mtu: fields.int("mtu")?.and_then(|mtu| u32::try_from(mtu).ok()).filter(|mtu| *mtu > 0),
            in_container: fields.bool("linkInContainer")?.unwrap_or(false),
            conf,
        })
    }

    /// Returns the link to stack on: `master`, or else the only link of `previous`, or else the link of the default
    /// route.
    ///
    /// # Errors
    /// The link is missing, or `previous` does not have exactly one link.
    fn parent(&self, previous: Option<&CniResult>) -> Result<parent::Parent, Error> {
        let master = match (self.master.as_str(), previous) {
            ("", Some(previous)) => match previous.interfaces.as_slice() {
                [only] if !only.name.is_empty() => &only.name,
                _ => {
                    return Err(Error::new("chained master failure. PrevResult lacks a single named interface"));
                }
            },
            (master, _) => master,
        };
        parent::find(master, self.in_container).map_err(|error| match master {
            "" => error,
            master => error.context(format!("failed to lookup master \"{master}\"")),
        })
    }
}

impl Plugin for Ipvlan {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        let previous = config.conf.previous_result()?;
        let parent = config.parent(previous.as_ref())?;
        let has_ipam = !config.conf.ipam_type.is_empty();
        let previous = previous.filter(|previous| !has_ipam && !previous.ips.is_empty());
        if !has_ipam && previous.is_none() {
            // The native plugin reports this error after it has made the link, and leaves the link behind.
            return Err(Error::new("no plugin name provided"));
        }
        let made = ipvlan::create(&parent, config.mode, config.mtu)?;
        let result = match previous {
            Some(previous) => previous,
            None => ipam::add()?,
        };
        let mut result = configure::only_link(result, interface(&made.attributes, &request.env.netns))?;
        configure::announce(&made.link)?;
        configure::with_result(&made.link, &result)?;
        result.dns = config.conf.dns;
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        all([link::delete_own(), if has_ipam(request)? { ipam::del() } else { Ok(()) }])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        // Only a named master is checked. The default route may use another link by now, and after an ADD `prevResult`
        // names the attachment's own link.
        if !config.master.is_empty() {
            config.parent(None)?;
        }
        if !config.conf.ipam_type.is_empty() {
            ipam::check()?;
        }
        let result = check::previous_result(&config.conf, "Required prevResult missing")?;
        let expected = request.own_interface(&result)?;
        let name = &expected.name;
        let words = check::Words::COMMON;
        let found = ipvlan::find()?.ok_or_else(|| words.absent("ipvlan", name))?;
        if found.mode != Some(config.mode) {
            let is = found.mode.map_or("another mode", IpvlanMode::name);
            let wanted = config.mode.name();
            return Err(Error::new(format!("Container IPVlan mode {is} does not match expected value: {wanted}")));
        }
        words.same_mac(expected, &found.attributes)?;
        check::is_up(name, &found.attributes)?;
        check::configuration(&found.link, name, &result)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        // STATUS has no container to look into, and no `prevResult`.
        if !config.in_container && !config.master.is_empty() {
            config.parent(None).map_err(|error| Error::unavailable(error.object().msg.clone()))?;
        }
        if config.conf.ipam_type.is_empty() { Ok(()) } else { ipam::status() }
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        all([attachments::collect().map(drop), if has_ipam(request)? { ipam::gc() } else { Ok(()) }])
    }
}

fn has_ipam(request: &Request) -> Result<bool, Error> {
    Ok(!request.ipam_type().map_err(load_error)?.is_empty())
}

/// Adds the native plugin's text before the decoder's message.
fn load_error(error: Error) -> Error {
    error.decoding("failed to load netconf")
}

fn main() -> ExitCode {
    postern_guest::run(&Ipvlan)
}

#[cfg(test)]
mod tests;
