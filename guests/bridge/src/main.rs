//! bridge: connects the container with a bridge of the host.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `bridge` | `cni0` | name of the bridge; a missing bridge is made |
//! | `ipam` | none | with it the attachment has addresses (layer 3), without it only a link (layer 2) |
//! | `isGateway` | false | the bridge gets the gateway's address, and the node forwards |
//! | `isDefaultGateway` | false | as `isGateway`, and the container gets a default route through the bridge |
//! | `forceAddress` | false | replace a conflicting address of the bridge |
//! | `ipMasq` | false | traffic to other networks leaves under the node's address; layer 3 only |
//! | `ipMasqBackend` | the node's default | `nftables` or `iptables` |
//! | `mtu` | kernel's | MTU of the pair and of a new bridge, in bytes |
//! | `hairpinMode` | false | frames may leave by the port through which they came |
//! | `promiscMode` | false | the bridge takes every frame; not together with `hairpinMode` |
//! | `vlan` | none | access VLAN of the port, 1 to 4094 |
//! | `vlanTrunk` | none | VLANs carried tagged: list of `{id}` and `{minID, maxID}`, 1 to 4094 |
//! | `preserveDefaultVlan` | false | keep the VLANs that the port has by default |
//! | `portIsolation` | false | no traffic to other isolated ports |
//! | `macspoofchk` | false | only frames with the container's own address may leave the container |
//! | `enabledad` | false | look for duplicates of IPv6 addresses |
//! | `disableContainerInterface` | false | leave the container's end down; layer 2 only |
//! | `dns` | IPAM's | replaces IPAM's `dns`, if this key is not empty |
//! | `CNI_ARGS` `MAC` | random | address of the container's end, if no other key gives it |
//! | `args.cni.mac`, `runtimeConfig.mac` (capability `mac`) | | address of the container's end; `runtimeConfig.mac` counts first |
//!
//! * ADD: bridge, pair, port, spoofing protection, addresses, gateway, masquerading. ADD then waits until the port is
//!   operational. The result has the bridge, the host end, the container's end, and the VLAN gateway `<bridge>.<vlan>`
//!   if there is one.
//! * ADD after a plugin that made a link of the host (`prevResult`): this link joins the bridge instead of a
//!   pair, if policy allows the link. All keys except `mtu` and `disableContainerInterface` are used. DEL releases the link.
//! * DEL: removes everything of the attachment; all parts are tried, and the first failure is reported. The bridge stays.
//! * CHECK: calls IPAM's CHECK (layer 3). Bridge and pair must be up. Compares addresses, routes, spoofing protection
//!   and masquerading. The host looks for the gateways.
//! * STATUS: calls IPAM's STATUS. GC: removes this plugin's garbage, and calls IPAM's GC.

mod chained;
mod check;
mod config;
mod gateways;

use config::Config;
use postern_guest::cni::{CniResult, Version};
use postern_guest::{
    Error, Plugin, Request, all, attachments, bridge, configure, forwarding, interface, ipam, link, link_sysctl,
    mac_guard, masquerade, veth,
};
use std::process::ExitCode;

struct Bridge;

/// The index of the container's end in the result.
const CONTAINER: usize = 2;

impl Plugin for Bridge {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        let mac = config.validate()?;
        if !config.layer3 && request.version < Version::V0_3_0 {
            // This version can't print a result without addresses. The error must come before ADD makes anything.
            return Err(Error::new("cannot convert: no valid IP addresses"));
        }

        let name = &config.bridge;
        let bridge = bridge::ensure(name, &config.options())
            .map_err(|error| error.context(format!("failed to create bridge \"{name}\"")))?;
        if let Some(end) = chained::find(request)? {
            return chained::add(&config, request, &bridge, &end, mac);
        }
        let pair = veth::create(&veth::Options::default().mtu(config.mtu).mac(mac))?;
        bridge.attach(&pair.host, &config.port())?;
        if config.mac_guard {
            let mac = pair.container_attributes.mac;
            mac_guard::ensure(&pair.host, mac.ok_or_else(|| Error::new("the container's end has no address"))?)?;
        }

        let mut result = CniResult::default();
        let mut vlan_gateway = None;
        if config.layer3 {
            result = CniResult { interfaces: Vec::new(), ..ipam::add()? };
            gateways::complete(&mut result, &config, Some(CONTAINER))?;
            container_settings(&pair.container, &config)?;
            configure::configure(&pair.container, &result.ips, &configure::kernel_routes(&result)?)?;
            if config.is_gateway {
                vlan_gateway = bridge.ensure_gateways(&config.port(), config.force_address)?;
                forwarding::enable()?;
            }
            config.masquerade.ensure()?;
        } else if config.container_up {
            pair.container.up()?;
        }

        // If the container's end is down, the port never becomes operational.
        let host = if config.container_up { pair.host.wait_running()? } else { pair.host.attributes()? };
        let links = [
            interface(&bridge.attributes()?, ""),
            interface(&host, ""),
            interface(&pair.container_attributes, &request.env.netns),
        ];
        result.interfaces = links.into_iter().chain(vlan_gateway.map(|link| interface(&link, ""))).collect();
        result.dns = config.dns.unwrap_or(result.dns);
        Ok(result)
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A configuration that ADD would refuse must not stop DEL.
        let conf = request.conf().map_err(config::load_error)?;
        let fields = conf.fields();
        let layer3 = !conf.ipam_type.is_empty();
        let on = |key| matches!(fields.bool(key), Ok(Some(true)));
        all([
            // Rules are removed first. So the kernel's wait for readers of the old rules overlaps with the wait at the
            // link's removal.
            if on("macspoofchk") { mac_guard::remove() } else { Ok(()) },
            if layer3 && on("ipMasq") { masquerade::remove() } else { Ok(()) },
            link::delete_own(),
            if layer3 { ipam::del() } else { Ok(()) },
        ])
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        check::check(&Config::read(request)?, request)
    }

    fn status(&self, request: &Request) -> Result<(), Error> {
        match Config::read(request)?.layer3 {
            true => ipam::status(),
            false => Ok(()),
        }
    }

    fn gc(&self, request: &Request) -> Result<(), Error> {
        let layer3 = !request.ipam_type().map_err(config::load_error)?.is_empty();
        all([attachments::collect().map(drop), if layer3 { ipam::gc() } else { Ok(()) }])
    }
}

/// Sets the address settings of the container's end, before it has an address. The kernel itself gives the end an IPv6
/// address, so the settings matter for every attachment.
fn container_settings(end: &link::Link, config: &Config) -> Result<(), Error> {
    if config.duplicate_detection {
        configure::best_effort(link_sysctl::set_enhanced_dad(end, true))?;
    }
    configure::best_effort(link_sysctl::set_accept_dad(end, config.duplicate_detection))?;
    // The neighbours learn the new owner of the address at once.
    configure::best_effort(link_sysctl::set_arp_notify(end, true))
}

fn main() -> ExitCode {
    postern_guest::run(&Bridge)
}

#[cfg(test)]
mod tests;
