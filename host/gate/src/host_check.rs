//! The host's part of CHECK: a comparison of objects on the host with the attachment's record. A plugin can't check
//! these objects, because it has no handle for them. For an attachment without a record, only the plugin's CHECK runs.

use crate::context::{Context, System};
use crate::effect::Port;
use crate::others;
use crate::shell::quoted;
use ipnet::IpNet;
use postern_kernel::{Link, Netlink};
use postern_state::DataPath;

/// Compares the host with the record. The error is the first difference in words, with the command that repairs it. The
/// error can also be the reason why the kernel does not show an object.
pub fn check(run: &Context) -> Result<(), String> {
    let sections = run.journal.sections();
    let Some(section) = sections.iter().find(|section| section.name == run.journal.section()) else { return Ok(()) };
    let path = &section.path;
    run.journal.ports().iter().try_for_each(|port| joined(run.system, port))?;
    if path.gateways.is_empty() && !path.routed {
        return Ok(());
    }
    let host = run.system.host().map_err(words)?;
    gateways(host, path)?;
    let addresses = section.addresses.iter().filter_map(|text| text.parse::<IpNet>().ok());
    match others::living_pair(run).map_err(words)?.filter(|_| path.routed) {
        Some(end) => addresses.into_iter().try_for_each(|address| is_routed(host, &end, address)),
        // The plugin itself reports that the pair is gone.
        None => Ok(()),
    }
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

/// Checks that another plugin's link is still a port of the bridge that it joined.
fn joined(system: &System, port: &Port) -> Result<(), String> {
    let link = port.link(system.host().map_err(words)?).map_err(words)?;
    let Port { name, bridge, .. } = port;
    match link {
        None => Err(format!("{name}, the attachment's port of {bridge}, is gone")),
        Some(link) if link.master != Some(port.master) => {
            Err(format!("{name}, the attachment's port, has left its bridge {bridge}"))
        }
        Some(link) if !link.up => {
            Err(format!("{name}, the attachment's port, is down; run `ip link set dev {} up`", quoted(name)))
        }
        Some(_) => Ok(()),
    }
}

/// Checks that the gateways are still on their links, and that these links are up.
fn gateways(host: &Netlink, path: &DataPath) -> Result<(), String> {
    for (name, address) in path.gateways.iter().filter_map(|text| text.split_once(' ')) {
        let Ok(address) = address.parse::<IpNet>() else { continue };
        let Some(link) = host.link_by_name(name).map_err(words)? else {
            return Err(format!("{name}, which had the gateway {address}, is gone"));
        };
        let named = quoted(name);
        if !link.up {
            let mended = format!("run `ip link set dev {named} up`");
            return Err(format!("{name}, which has the gateway {address}, is down; {mended}"));
        }
        if !host.addresses(link.index).map_err(words)?.iter().any(|have| have.net == address) {
            let mended = format!("run `ip address add {address} dev {named}`");
            return Err(format!("{name} does not have the gateway {address}; {mended}"));
        }
    }
    Ok(())
}

/// Checks that packets of the node to the attachment's address go to the attachment's pair.
fn is_routed(host: &Netlink, end: &Link, address: IpNet) -> Result<(), String> {
    let address = address.addr();
    if host.link_towards(address).map_err(words)? == Some(end.index) {
        return Ok(());
    }
    let (link, mended) = (&end.name, format!("ip route add {} dev {}", IpNet::from(address), quoted(&end.name)));
    Err(format!("packets of this node to {address} do not go to {link}; run `{mended}`"))
}
