//! The host's part of CHECK: a comparison of the host with the attachment's record. A plugin can't check these objects,
//! because it has no handle for them. An attachment without a record has only its plugin's CHECK.

use crate::context::{Context, System};
use crate::effect::Port;
use crate::others;
use crate::shell::quoted;
use ipnet::IpNet;
use postern_kernel::{KernelError, Link, Netlink};
use postern_state::DataPath;
use postern_types::OpError;
use std::net::IpAddr;

/// A difference between host and record, with the command that repairs it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The object can't be read.
    #[error("{0}")]
    Unseen(OpError),
    /// The kernel refuses to show it.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The link with a gateway is gone.
    #[error("{link} is gone, which had the gateway {address}")]
    Gone {
        /// Its name.
        link: String,
        /// The gateway.
        address: IpNet,
    },
    /// The link with a gateway is down.
    #[error("{link}, which has the gateway {address}, is down; `ip link set dev {} up` mends it", quoted(link))]
    Down {
        /// Its name.
        link: String,
        /// The gateway.
        address: IpNet,
    },
    /// A link has lost its gateway.
    #[error("{link} does not have the gateway {address}; `ip address add {address} dev {}` mends it", quoted(link))]
    NoGateway {
        /// Its name.
        link: String,
        /// The gateway.
        address: IpNet,
    },
    /// The link that joined is gone.
    #[error("{name} is gone, which was the attachment's port of {bridge}")]
    PortGone {
        /// Its name.
        name: String,
        /// The bridge.
        bridge: String,
    },
    /// The link that joined is no longer a port, or is a port of another bridge.
    #[error("{name} is no port of {bridge}, which the attachment joined with it")]
    NoPort {
        /// Its name.
        name: String,
        /// The bridge.
        bridge: String,
    },
    /// The link that joined is down.
    #[error("{name}, the attachment's port, is down; `ip link set dev {} up` mends it", quoted(name))]
    PortDown {
        /// Its name.
        name: String,
    },
    /// The node's packets go to another link.
    #[error(
        "packets of this node to {address} do not go to {link}; `ip route add {} dev {}` mends it",
        IpNet::from(*.address), quoted(link)
    )]
    Elsewhere {
        /// The link where they should go.
        link: String,
        /// The attachment's address.
        address: IpAddr,
    },
}

/// Compares the host with the record.
///
/// # Errors
/// The first difference.
pub fn check(run: &Context) -> Result<(), Damage> {
    let sections = run.journal.sections();
    let Some(section) = sections.iter().find(|section| section.name == run.journal.section()) else { return Ok(()) };
    let path = &section.path;
    run.journal.ports().iter().try_for_each(|port| joined(run.system, port))?;
    if path.gateways.is_empty() && !path.routed {
        return Ok(());
    }
    let host = run.system.host().map_err(Damage::Unseen)?;
    gateways(host, path)?;
    let addresses = section.addresses.iter().filter_map(|text| text.parse::<IpNet>().ok());
    match others::living_pair(run).map_err(Damage::Unseen)?.filter(|_| path.routed) {
        Some(end) => addresses.into_iter().try_for_each(|address| is_routed(host, &end, address)),
        // The plugin itself reports that the pair is gone.
        None => Ok(()),
    }
}

/// Checks that the link of another plugin is a port of the bridge that it joined.
fn joined(system: &System, port: &Port) -> Result<(), Damage> {
    let link = port.link(system.host().map_err(Damage::Unseen)?).map_err(Damage::Unseen)?;
    let (name, bridge) = (port.name.clone(), port.bridge.clone());
    match link {
        None => Err(Damage::PortGone { name, bridge }),
        Some(link) if link.master != Some(port.master) => Err(Damage::NoPort { name, bridge }),
        Some(link) if !link.up => Err(Damage::PortDown { name }),
        Some(_) => Ok(()),
    }
}

/// Checks that the gateways are where they were put, on links that are up.
fn gateways(host: &Netlink, path: &DataPath) -> Result<(), Damage> {
    for (name, address) in path.gateways.iter().filter_map(|text| text.split_once(' ')) {
        let Ok(address) = address.parse::<IpNet>() else { continue };
        let link = host.link_by_name(name)?;
        let named = name.to_owned();
        let Some(link) = link else { return Err(Damage::Gone { link: named, address }) };
        if !link.up {
            return Err(Damage::Down { link: named, address });
        }
        if !host.addresses(link.index)?.iter().any(|have| have.net == address) {
            return Err(Damage::NoGateway { link: named, address });
        }
    }
    Ok(())
}

/// Checks that packets of the node to the attachment's address go to its pair.
fn is_routed(host: &Netlink, end: &Link, address: IpNet) -> Result<(), Damage> {
    let towards = host.link_towards(address.addr())?;
    if towards == Some(end.index) {
        return Ok(());
    }
    Err(Damage::Elsewhere { link: end.name.to_string(), address: address.addr() })
}
