//! What CHECK looks at beside the plugin: what the gate has put on the host for this attachment, as its record says. A plugin
//! can't see it, since no handle leads there. An attachment without such a record has its plugin's CHECK only.

use crate::capability::veth;
use crate::session::Session;
use crate::shell::quoted;
use ipnet::IpNet;
use postern_kernel::{Link, Netlink};
use postern_state::DataPath;

/// Compares the host with the record.
///
/// # Errors
/// The first difference, for people, with the command that mends it.
pub fn check(session: &Session) -> Result<(), String> {
    let sections = session.record().map(|record| record.sections()).unwrap_or_default();
    let Some(section) = sections.iter().find(|section| section.name == session.section()) else { return Ok(()) };
    let path = &section.path;
    if path.gateways.is_empty() && !path.routed {
        return Ok(());
    }
    let host = session.host().map_err(|e| e.to_string())?;
    gateways(host, path)?;
    let addresses = section.addresses.iter().filter_map(|text| text.parse::<IpNet>().ok());
    match veth::living(session).map_err(|e| e.to_string())?.filter(|_| path.routed) {
        Some(end) => addresses.into_iter().try_for_each(|address| is_routed(host, &end, address)),
        // That the pair is gone is the plugin's to say.
        None => Ok(()),
    }
}

/// The gateways are where they were put, on links that are up.
fn gateways(host: &Netlink, path: &DataPath) -> Result<(), String> {
    for (name, address) in path.gateways.iter().filter_map(|text| text.split_once(' ')) {
        let Ok(address) = address.parse::<IpNet>() else { continue };
        let link = host.link_by_name(name).map_err(|e| e.to_string())?;
        let link = link.ok_or_else(|| format!("{name} is gone, which had the gateway {address}"))?;
        let quoted = quoted(name);
        if !link.up {
            return Err(format!(
                "{name}, which has the gateway {address}, is down; `ip link set dev {quoted} up` mends it"
            ));
        }
        let have = host.addresses(link.index).map_err(|e| e.to_string())?;
        if !have.iter().any(|have| have.net == address) {
            return Err(format!(
                "{name} does not have the gateway {address}; `ip address add {address} dev {quoted}` mends it"
            ));
        }
    }
    Ok(())
}

/// Packets of the node to the attachment's address go to its pair.
fn is_routed(host: &Netlink, end: &Link, address: IpNet) -> Result<(), String> {
    let towards = host.link_towards(address.addr()).map_err(|e| e.to_string())?;
    if towards == Some(end.index) {
        return Ok(());
    }
    let (name, route) = (&end.name, IpNet::from(address.addr()));
    Err(format!(
        "packets of this node to {} do not go to {name}; `ip route add {route} dev {}` mends it",
        address.addr(),
        quoted(name)
    ))
}
