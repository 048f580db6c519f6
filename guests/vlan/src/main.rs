//! vlan: gives the container a link in a VLAN of a link of the host.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `master` | – | the link that carries the VLAN; required |
//! | `vlanId` | 0 | 0 to 4094 |
//! | `mtu` | the master's | in bytes, at most the master's |
//! | `linkInContainer` | false | the master is in the container |
//! | `ipam` | – | the attachment's addresses; without it ADD fails |
//! | `dns` | none | copied to the result; the DNS of IPAM is dropped |
//!
//! * ADD: the link, then addresses from IPAM. The host undoes a failed ADD.
//! * DEL: removes the link and releases the addresses. Both steps are tried, and the first failure is reported. DEL
//!   needs no master.
//! * CHECK: calls IPAM's CHECK. The master must exist. The link must be up, and have the expected link-layer address,
//!   VLAN, MTU, addresses and routes.
//! * STATUS: the master must exist; calls IPAM's STATUS. GC: removes this plugin's garbage, and calls IPAM's GC.

use postern_guest::cni::{CniResult, NetConf};
use postern_guest::types::LinkInfo;
use postern_guest::{Error, Plugin, Request, all, attachments, check, configure, interface, ipam, link, parent, vlan};
use std::process::ExitCode;

struct Vlan;

const WORDS: check::Words =
    check::Words { missing: "vlan: Container Interface", mac: "vlan: Interface", ..check::Words::COMMON };

/// The keys of this plugin.
#[derive(Debug)]
struct Config {
    master: String,
    id: u16,
    /// The MTU as written: it is compared with the master's MTU later.
    mtu: i64,
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
        let master = fields.string("master")?.unwrap_or_default();
        let id = fields.int("vlanId")?.unwrap_or(0);
        let mtu = fields.int("mtu")?.unwrap_or(0);
        let in_container = fields.bool("linkInContainer")?.unwrap_or(false);
        if master.is_empty() {
            return Err(Error::new(
                "\"master\" field is required. It specifies the host interface name to create the VLAN for",
            ));
        }
        // The native plugin accepts the same numbers, although its message says 4095.
        let id = u16::try_from(id).ok().filter(|id| *id <= 4094);
        let id = id.ok_or_else(|| {
            let id = fields.int("vlanId").ok().flatten().unwrap_or(0);
            Error::new(format!("invalid VLAN ID {id} (must be between 0 and 4095 inclusive)"))
        })?;
        Ok(Self { master, id, mtu, in_container, conf })
    }

    /// Returns the link that carries the VLAN.
    ///
    /// # Errors
    /// The link is missing, or the network wants a larger MTU than the link has.
    fn parent(&self) -> Result<parent::Parent, Error> {
        let parent = parent::find(&self.master, self.in_container)?;
        let LinkInfo { mtu: most, .. } = parent.attributes()?;
        if self.mtu < 0 || self.mtu > i64::from(most) {
            return Err(Error::new(format!("invalid MTU {}, must be [0, master MTU({most})]", self.mtu)));
        }
        Ok(parent)
    }

    fn mtu(&self) -> Option<u32> {
        u32::try_from(self.mtu).ok().filter(|mtu| *mtu > 0)
    }
}

impl Plugin for Vlan {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        let parent = config.parent()?;
        if config.conf.ipam_type.is_empty() {
            // The native plugin reports this error after it has made the link, and leaves the link behind.
            return Err(Error::new("failed to execute IPAM delegate: no plugin name provided"));
        }
        let made = vlan::create(&parent, config.id, config.mtu())?;
        let added = ipam::add().map_err(|error| error.context("failed to execute IPAM delegate"));
        let mut result = configure::only_link(added?, interface(&made.attributes, &request.env.netns))?;
        configure::with_result(&made.link, &result)?;
        result.dns = config.conf.dns;
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        all([link::delete_own(), if has_ipam(request)? { ipam::del() } else { Ok(()) }])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        // The comparison of the link's own MTU also finds an MTU that is larger than the master's.
        parent::find(&config.master, config.in_container)
            .map_err(|error| error.context(format!("failed to lookup master \"{}\"", config.master)))?;
        ipam::check()?;
        let result = check::previous_result(&config.conf, "vlan: Required prevResult missing")?;
        let expected = request.own_interface(&result)?;
        let name = &expected.name;
        let found = vlan::find()?.ok_or_else(|| WORDS.absent("vlan", name))?;
        WORDS.same_mac(expected, &found.attributes)?;
        if found.id != config.id {
            let (is, wanted) = (found.id, config.id);
            return Err(Error::new(format!("Error: Tuning link {name} configured VLAN ID {wanted}, has {is}")));
        }
        if let Some(mtu) = config.mtu().filter(|mtu| *mtu != found.attributes.mtu) {
            let is = found.attributes.mtu;
            return Err(Error::new(format!("Error: Tuning configured MTU of {name} is {mtu}, current value is {is}")));
        }
        check::is_up(name, &found.attributes)?;
        check::configuration(&found.link, name, &result)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        // STATUS has no container to look into.
        if !config.in_container {
            config.parent().map_err(|error| Error::unavailable(error.object().msg.clone()))?;
        }
        ipam::status()
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
    postern_guest::run(&Vlan)
}

#[cfg(test)]
mod tests;
