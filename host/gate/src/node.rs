//! Node objects: what Postern made that attachments share. They outlive attachments; `postern gc --node` removes those
//! that nothing uses. A note that can't be written costs that removal only, so it is no error of the attachment.

use crate::audit::Audit;
use crate::places::Places;
use crate::session::now;
use postern_firewall::Nft;
use postern_kernel::{Link, Netlink, Sysctl, sysctl};
use postern_state::node::{self, NodeObject};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kind of a bridge that was created.
pub const BRIDGE: &str = "bridge";
/// Kind of a VLAN gateway that was created.
pub const VLAN_GATEWAY: &str = "vlan-gateway";
/// Kind of a family whose forwarding was switched on.
pub const FORWARDING: &str = "forwarding";

/// Notes an object, and makes it: in this order, as one that nobody noted would never be collected. If it can't be made,
/// the note goes again.
///
/// # Errors
/// What `make` says.
pub fn noted<T, E>(
    state: &Path,
    host: &Netlink,
    kind: &str,
    name: &str,
    make: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let is_new = note(state, host, kind, name);
    make().inspect_err(|_| {
        if let Some(here) = is_new.then(|| host.cookie().ok()).flatten()
            && let Err(error) = node::remove(state, kind, name, here)
        {
            crate::say!("postern: {error}");
        }
    })
}

/// Whether the note is new.
fn note(state: &Path, host: &Netlink, kind: &str, name: &str) -> bool {
    let noted = host.cookie().map_err(|e| e.to_string()).and_then(|host_netns_cookie| {
        let boot_id = postern_state::boot_id().map_err(|e| e.to_string())?;
        let (kind, name) = (kind.to_owned(), name.to_owned());
        let object = NodeObject { kind, name, boot_id, host_netns_cookie, created: now(), detail: Value::Null };
        node::note(state, &object).map_err(|e| e.to_string())
    });
    noted.unwrap_or_else(|reason| {
        crate::say!("postern: `postern gc --node` will not know of {kind} {name}: {reason}");
        false
    })
}

/// Removes the node objects of the caller's namespace that Postern made and nothing uses. Forwarding is switched off only
/// if asked for: nobody can tell who else has come to rely on it. Returns a line for people per object; what is removed is
/// in the audit log too.
///
/// # Errors
/// A text for people: the kernel or the state directory refuses.
pub fn collect(places: &Places, forwarding: bool) -> Result<Vec<String>, String> {
    let state = &places.state;
    let mut audit = Audit::new(&places.logs, String::new());
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let host = Netlink::open().map_err(|e| text(&e))?;
    let here = host.cookie().map_err(|e| text(&e))?;
    let boot = postern_state::boot_id().map_err(|e| text(&e))?;
    let (objects, problems) = node::list(state).map_err(|e| text(&e))?;
    let mut said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let mine = |kind: &str| -> Vec<NodeObject> {
        let ours = |object: &&NodeObject| object.kind == kind && object.host_netns_cookie == here;
        objects.iter().filter(ours).cloned().collect()
    };
    let forget = |object: &NodeObject| {
        node::remove(state, &object.kind, &object.name, here).map(|_| ()).map_err(|e| e.to_string())
    };
    let vlan_gateways = mine(VLAN_GATEWAY);
    for bridge in mine(BRIDGE) {
        if bridge.boot_id != boot {
            forget(&bridge)?;
            continue;
        }
        let links = host.links().map_err(|e| text(&e))?;
        let Some(link) = links.iter().find(|link| link.name == bridge.name && link.kind == "bridge") else {
            said.push(format!("bridge {} is gone already", bridge.name));
            forget(&bridge)?;
            continue;
        };
        let gateways: Vec<&Link> = links
            .iter()
            .filter(|link| vlan_gateways.iter().any(|noted| noted.name == link.name))
            .filter(|link| link.name.strip_prefix(&bridge.name).is_some_and(|rest| rest.starts_with('.')))
            .collect();
        let is_gateway = |port: &Link| gateways.iter().any(|gateway| gateway.peer_index == Some(port.index));
        let ports: Vec<&Link> = links.iter().filter(|port| port.master == Some(link.index)).collect();
        if let Some(used) = ports.iter().find(|port| !is_gateway(port)) {
            said.push(format!("bridge {} stays: {} is a port of it", bridge.name, used.name));
            continue;
        }
        for gateway in &gateways {
            remove(&mut audit, VLAN_GATEWAY, &gateway.name, || host.delete_link(gateway.index))?;
            said.push(format!("removed VLAN gateway {}", gateway.name));
        }
        remove(&mut audit, BRIDGE, &bridge.name, || host.delete_link(link.index))?;
        said.push(format!("removed bridge {}", bridge.name));
        forget(&bridge)?;
    }
    for gateway in vlan_gateways {
        if host.link_by_name(&gateway.name).map_err(|e| text(&e))?.is_none() {
            forget(&gateway)?;
        }
    }
    let mut nft = Nft::open(Instant::now() + Duration::from_secs(30)).map_err(|e| text(&e))?;
    for object in postern_firewall::node::remove_unused(&mut nft).map_err(|e| text(&e))? {
        remove(&mut audit, "nftables", &object.to_string(), || Ok::<_, String>(()))?;
        said.push(format!("removed nftables {object}"));
    }
    for family in mine(FORWARDING) {
        let (key, name) = match family.name.as_str() {
            "ipv4" => (Sysctl::Ipv4Forward, "net.ipv4.ip_forward"),
            _ => (Sysctl::Ipv6Forwarding, "net.ipv6.conf.all.forwarding"),
        };
        if forwarding || family.boot_id != boot {
            if family.boot_id == boot {
                remove(&mut audit, FORWARDING, &family.name, || sysctl::set(&key, "0"))?;
                said.push(format!("switched {name} off"));
            }
            forget(&family)?;
        } else {
            said.push(format!(
                "{name} stays on: Postern switched it on, but others may rely on it by now; `postern gc --node \
                 --forwarding` switches it off"
            ));
        }
    }
    Ok(said)
}

/// Removes one object, and writes it down.
fn remove<T, E: Display>(
    audit: &mut Audit,
    kind: &str,
    name: &str,
    act: impl FnOnce() -> Result<T, E>,
) -> Result<(), String> {
    let start = Instant::now();
    let outcome = act().map(drop).map_err(|e| e.to_string());
    audit.note_node_removal(&json!({"kind": kind, "name": name}), &outcome, start.elapsed());
    outcome
}
