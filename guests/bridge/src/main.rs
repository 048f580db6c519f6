//! bridge: connects the container with a bridge of the host.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `bridge` | `cni0` | name of the bridge; it is made if it is missing |
//! | `ipam` | none | with it the attachment has addresses (layer 3), without it it is a cable (layer 2) |
//! | `isGateway` | false | the bridge gets the gateway's address, and the node forwards |
//! | `isDefaultGateway` | false | the same, and the container a default route through it |
//! | `forceAddress` | false | replace an address of the bridge that is in the way |
//! | `ipMasq` | false | traffic to other networks leaves under the node's address; layer 3 only |
//! | `ipMasqBackend` | nftables | `nftables` or `iptables` |
//! | `mtu` | kernel's | of the pair, and of the bridge when it is made |
//! | `hairpinMode` | false | frames may leave by the port they came in by |
//! | `promiscMode` | false | the bridge takes every frame; not together with `hairpinMode` |
//! | `vlan` | none | access VLAN of the port, 1 to 4094 |
//! | `vlanTrunk` | none | VLANs carried tagged: list of `{id}` and `{minID, maxID}`, 1 to 4094 |
//! | `preserveDefaultVlan` | false | keep the VLANs that the port has by default |
//! | `portIsolation` | false | no traffic to other isolated ports |
//! | `macspoofchk` | false | only frames under the container's own address leave it |
//! | `enabledad` | false | look for duplicates of IPv6 addresses |
//! | `disableContainerInterface` | false | leave the container's end down; layer 2 only |
//! | `dns` | IPAM's | replaces what IPAM says, if any key of it is given |
//! | `CNI_ARGS` `MAC` | random | address of the container's end; `args.cni.mac` silences it, |
//! | `args.cni.mac`, `runtimeConfig.mac` (capability `mac`) | | and `runtimeConfig.mac` before both |
//!
//! * ADD: bridge, pair, port, guard, addresses, gateway, masquerading; then it waits until the port is operational. The
//!   result has the bridge, the host's end, the container's end, and the VLAN gateway `<bridge>.<vlan>` if there is one.
//! * ADD behind a plugin that made a link of the host (`prevResult`), where policy lets that be attached: it joins instead of a
//!   pair, with all keys but `mtu` and `disableContainerInterface`, and DEL lets go of it.
//! * DEL: removes whatever is there; all of it is tried, and the first failure is told. The bridge stays.
//! * CHECK: IPAM's CHECK (layer 3), bridge and pair, which must be up, addresses, routes, guard, masquerading; the host
//!   looks for the gateways.
//! * STATUS: IPAM's. GC: what this plugin left for attachments that are gone, and IPAM's.

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

/// Index of the container's end in the result.
const CONTAINER: usize = 2;

impl Plugin for Bridge {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let config = Config::read(request)?;
        let mac = config.validate()?;
        if !config.layer3 && request.version < Version::V0_3_0 {
            // Such a result can't be printed: better to say so before there is anything.
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

        // Without its other end the port never gets operational.
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
        // A configuration that ADD would refuse must not keep DEL from its work.
        let conf = request.conf().map_err(config::load_error)?;
        let fields = conf.fields();
        let layer3 = !conf.ipam_type.is_empty();
        let on = |key| matches!(fields.bool(key), Ok(Some(true)));
        all([
            // Rules first: the kernel then waits for its readers while it takes the link apart, and not once more.
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

/// How the container's end treats its addresses: set before it has any. IPv6 has one of its own making, so this matters
/// to everybody.
fn container_settings(end: &link::Link, config: &Config) -> Result<(), Error> {
    if config.duplicate_detection {
        configure::best_effort(link_sysctl::set_enhanced_dad(end, true))?;
    }
    configure::best_effort(link_sysctl::set_accept_dad(end, config.duplicate_detection))?;
    // The neighbours learn at once who has the address now.
    configure::best_effort(link_sysctl::set_arp_notify(end, true))
}

fn main() -> ExitCode {
    postern_guest::run(&Bridge)
}

#[cfg(test)]
mod tests;
