//! State that leaked: records, leases, and notes on node objects whose owners are gone.

use super::directories::lease_directories;
use super::{Examination, MOST, Node, Remedy, Severity};
use crate::account;
use postern_gate::adopt::YOUNG;
use postern_gate::drift::{Deviation, State, quoted};
use postern_gate::node::{BRIDGE, VLAN_GATEWAY};
use postern_gate::sight::Sight;
use postern_state::Held;
use std::path::Path;

pub fn examine(examination: &mut Examination, node: &Node) {
    let sight = match &node.sight {
        Ok(sight) => sight,
        Err(reason) => return examination.leave_out(format!("links, namespaces, leases and rules: {reason}")),
    };
    let namespaces = sight.namespaces.found.len();
    let gap = sight.namespaces.gap();
    examination.look("state", format!("attachments: {}; network namespaces: {namespaces}", node.accounts.len()));
    if let Some(gap) = &gap {
        examination.leave_out(format!("some namespaces, so that what seems to be gone may not be: {gap}"));
    }
    records(examination, node);
    for directory in lease_directories(node).iter().filter(|directory| directory.is_dir()) {
        match postern_state::networks(directory) {
            Ok(networks) => {
                for network in networks.iter().flatten().take(MOST) {
                    leases(examination, node, sight, directory, network);
                }
            }
            Err(error) => examination.leave_out(format!("leases: {error}")),
        }
    }
    objects(examination, sight);
    lonely_pairs(examination, node, sight);
}

fn records(examination: &mut Examination, node: &Node) {
    for account in node.accounts.iter().filter(|account| !account.is_held) {
        let place = match &account.header {
            Some(header) => account::name(header),
            None => account.path.display().to_string(),
        };
        let (severity, why) = match account.state {
            State::ContainerGone if account.doubt.is_some() => {
                (Severity::Warning, "what it had may be held for nobody")
            }
            State::ContainerGone => (Severity::Error, "what it had is held for nobody"),
            State::Incomplete => (Severity::Error, "what it made is held for nobody"),
            State::PreviousBoot => (Severity::Error, "its leases are held for nobody"),
            State::Damaged => (Severity::Error, "what it told of can't be removed by DEL"),
            State::Drift | State::Ok => (Severity::Error, "the container's network does not work as it was set up"),
        };
        for Deviation { what, remedy, is_command } in &account.deviations {
            let remedy = if *is_command { Remedy::Command(remedy.clone()) } else { Remedy::Words(remedy.clone()) };
            examination.found(severity, &place, what.clone(), why, remedy);
        }
    }
}

/// Leases of nobody.
fn leases(examination: &mut Examination, node: &Node, sight: &Sight, directory: &Path, network: &str) {
    let listed = sight.leases(directory, network);
    let leases = match listed.as_ref() {
        Ok(leases) => leases,
        Err(reason) => return examination.leave_out(format!("leases of network {network}: {reason}")),
    };
    let is_recorded = |held: &Held| {
        node.accounts.iter().filter_map(|account| account.header.as_ref()).any(|header| {
            let owner = held.owner.as_ref();
            header.network == network
                && owner.is_some_and(|owner| {
                    owner.container_id == header.container_id
                        && (owner.ifname == header.ifname || owner.ifname.is_empty())
                })
        })
    };
    for held in leases {
        // Given back meanwhile.
        if held.path.symlink_metadata().is_err() {
            continue;
        }
        if is_recorded(held) || sight.namespaces.with_address(held.address).is_some() {
            continue;
        }
        let path = held.path.display().to_string();
        if is_young(held) {
            let why = "it may be that of a container which is being made at this moment";
            let remedy = Remedy::Words(format!("look again when it is {} s old", YOUNG.as_secs()));
            examination.found(Severity::Note, path, "a new lease without a record", why, remedy);
            continue;
        }
        let remedy = node.removal(&path, Remedy::Command(format!("rm {}", quoted(&path))));
        match &held.owner {
            Some(owner) => {
                let what = format!(
                    "leased to {} {}, which has no record; no namespace has the address",
                    owner.container_id, owner.ifname
                );
                let why = "the address is held for nobody";
                examination.found(doubt(sight), path, what, why, remedy);
            }
            None => {
                let why = "the address can't be given to anybody";
                examination.found(Severity::Warning, path, "is no lease, and nobody's", why, remedy);
            }
        }
    }
}

/// Whether it may be that of a run which is under way.
fn is_young(held: &Held) -> bool {
    held.taken().and_then(|taken| taken.elapsed().ok()).is_some_and(|passed| passed < YOUNG)
}

/// A leak is one for certain if everything could be looked at.
fn doubt(sight: &Sight) -> Severity {
    if sight.namespaces.is_complete() { Severity::Error } else { Severity::Warning }
}

/// Notes on node objects that are not there.
fn objects(examination: &mut Examination, sight: &Sight) {
    let (objects, problems) = match postern_state::node::list(&sight.places.state) {
        Ok(listed) => listed,
        Err(error) => return examination.leave_out(format!("notes on node objects: {error}")),
    };
    for problem in problems {
        let why = "`postern gc --node` does not know of the object";
        examination.found(Severity::Warning, "notes on node objects", problem.to_string(), why, Remedy::None);
    }
    for object in objects.iter().filter(|object| object.host_netns_cookie == sight.here) {
        let is_link = [BRIDGE, VLAN_GATEWAY].contains(&object.kind.as_str());
        if object.boot_id != sight.boot || is_link && sight.link(&object.name).is_none() {
            let place = format!("{} {}", object.kind, object.name);
            let why = "the next ADD makes it again if it needs it";
            let remedy = Remedy::Command("postern gc --node".to_owned());
            examination.found(Severity::Note, place, "Postern made it, and it is gone", why, remedy);
        }
    }
}

/// Pairs with the native plugins' names whose other end is down and of which no record tells.
fn lonely_pairs(examination: &mut Examination, node: &Node, sight: &Sight) {
    let known = |name: &str| {
        let effects = node.accounts.iter().flat_map(|account| &account.effects);
        effects.into_iter().any(|effect| matches!(effect, postern_gate::Effect::Veth { host, .. } if host == name))
    };
    for link in sight.links.iter().filter(|link| link.kind == "veth" && link.operstate == "lower-layer-down") {
        let digits = link.name.strip_prefix("veth").unwrap_or_default();
        if digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && !known(&link.name) {
            let why = "it may be what an interrupted ADD of a native plugin left, or belong to another program";
            let what = "a pair of which no record tells, with its other end down";
            let remedy = Remedy::Words(format!("if nobody knows it: `ip link delete {}`", quoted(&link.name)));
            examination.found(Severity::Note, &link.name, what, why, remedy);
        }
    }
}
