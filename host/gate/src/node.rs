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
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kind of a bridge that was created.
pub const BRIDGE: &str = "bridge";
/// Kind of a VLAN gateway that was created.
pub const VLAN_GATEWAY: &str = "vlan-gateway";
/// Kind of a family whose forwarding was switched on.
pub const FORWARDING: &str = "forwarding";

/// Notes an object, and has it made: in this order, as one that nobody noted would never be collected. `make` says whether it
/// was this run that made it; if not, the note goes again, and of a link that it made the index is noted as well: somebody
/// else's may have its name one day.
///
/// # Errors
/// What `make` says.
pub fn noted<E>(
    state: &Path,
    host: &Netlink,
    kind: &str,
    name: &str,
    make: impl FnOnce() -> Result<bool, E>,
) -> Result<bool, E> {
    let object = object(host, kind, name);
    let is_new = object.clone().and_then(|object| node::note(state, &object).map_err(|e| e.to_string()));
    let made = make();
    let kept = match (&made, is_new, object) {
        (_, Err(reason), _) | (_, _, Err(reason)) => Err(reason),
        (Ok(true), _, Ok(object)) => match host.link_by_name(name) {
            Ok(Some(link)) if kind != FORWARDING => {
                let detail = json!({ INDEX: link.index });
                node::update(state, &NodeObject { detail, ..object }).map_err(|e| e.to_string())
            }
            _ => Ok(()),
        },
        // Another run that made it meanwhile has noted its index.
        (_, Ok(true), Ok(object)) => node::find(state, kind, name, object.host_netns_cookie)
            .and_then(|noted| match noted {
                Some(noted) if noted.detail.is_null() => node::remove(state, kind, name, object.host_netns_cookie),
                _ => Ok(false),
            })
            .map(drop)
            .map_err(|e| e.to_string()),
        (_, Ok(false), Ok(_)) => Ok(()),
    };
    if let Err(reason) = kept {
        crate::say!("postern: `postern gc --node` will not know all of {kind} {name}: {reason}");
    }
    made
}

/// The key of the link's index in [`NodeObject::detail`].
const INDEX: &str = "index";

fn object(host: &Netlink, kind: &str, name: &str) -> Result<NodeObject, String> {
    Ok(NodeObject {
        kind: kind.to_owned(),
        name: name.to_owned(),
        boot_id: postern_state::boot_id().map_err(|e| e.to_string())?,
        host_netns_cookie: host.cookie().map_err(|e| e.to_string())?,
        created: now(),
        detail: Value::Null,
    })
}

/// Whether a link is the one that was noted. Of one whose maker was killed before it could note the index, and of those of
/// earlier versions, only the name is known: it is, as long as nobody gave it an address.
fn is_noted(host: &Netlink, object: &NodeObject, link: &Link) -> Result<bool, String> {
    if let Some(index) = object.detail.get(INDEX).and_then(Value::as_u64) {
        return Ok(index == u64::from(link.index));
    }
    let addresses = host.addresses(link.index).map_err(|e| e.to_string())?;
    Ok(addresses.iter().all(|address| is_link_local(address.net.addr())))
}

/// RFC 4291, section 2.5.6: the kernel gives one to every link.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
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
        if !is_noted(&host, &bridge, link)? {
            said.push(format!(
                "bridge {} stays: it is not the one that Postern made, or somebody gave it addresses",
                bridge.name
            ));
            continue;
        }
        let mut own = Vec::new();
        for gateway in &vlan_gateways {
            if let Some(link) = links.iter().find(|link| link.name == gateway.name)
                && is_noted(&host, gateway, link)?
            {
                own.push(link);
            }
        }
        let gateways: Vec<&Link> = own
            .into_iter()
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
