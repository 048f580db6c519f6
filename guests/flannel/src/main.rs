//! flannel: one network over many nodes. flanneld gives each node a subnet, and writes it into a file. This plugin
//! calls a delegate, which makes the attachment with this subnet.
//!
//! | key | meaning |
//! |---|---|
//! | `subnetFile` | the file of flanneld (default: `/run/flannel/subnet.env`) |
//! | `delegate` | keys of the delegate's configuration; default of `type`: `bridge` |
//! | `ipam` | keys of the delegate's `ipam`; default of `type`: `host-local` |
//! | `dataDir` | directory of the native plugin's files (default: `/var/lib/cni/flannel`); the host takes it from the configuration |
//! | `runtimeConfig` | passed on |
//!
//! In the delegate's configuration the plugin sets `name`, `cniVersion` and `runtimeConfig`. In `ipam` it sets the
//! node's subnets as `ranges`, and routes to the networks of all nodes. It also sets keys that `delegate`
//! lacks: `ipMasq` (unless flanneld masquerades), `mtu`, and for bridge `isGateway`.
//!
//! * ADD: runs the delegate with this configuration. The host also makes the configuration, and compares the two.
//! * DEL, CHECK: runs the delegate with the configuration of its ADD.
//! * STATUS: the subnet file can be read, and the delegate is ready. GC: runs the delegate's GC.

use postern_guest::cni::{CniResult, Flannel, Json, NetConf};
use postern_guest::{Error, Plugin, Request, delegate};
use std::process::ExitCode;

struct Delegating;

impl Plugin for Delegating {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let (conf, flannel) = read(request)?;
        delegate::add(&configuration(&conf, &flannel)?)
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        delegate::del()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        read(request)?;
        delegate::check()
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        let made = read(request).and_then(|(conf, flannel)| configuration(&conf, &flannel));
        made.map_err(|error| Error::unavailable(error.to_string()))?;
        delegate::status()
    }

    fn gc(&self, _request: &Request) -> Result<(), Error> {
        delegate::gc()
    }
}

/// Reads the keys of this plugin. The messages are those of the native plugin.
fn read(request: &Request) -> Result<(NetConf, Flannel), Error> {
    let read = request.conf().and_then(|conf| Ok((Flannel::read(&conf)?, conf)));
    let (flannel, conf) = read.map_err(|error| error.decoding("failed to load netconf"))?;
    Ok((conf, flannel))
}

/// Makes the delegate's configuration.
fn configuration(conf: &NetConf, flannel: &Flannel) -> Result<Json, Error> {
    Ok(flannel.configuration(conf, &delegate::subnet_file()?)?)
}

fn main() -> ExitCode {
    postern_guest::run(&Delegating)
}

#[cfg(test)]
mod tests;
