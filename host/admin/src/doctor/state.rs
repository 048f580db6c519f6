//! State that leaked: records, leases, and notes on node objects whose owners are gone.

use super::directories::lease_directories;
use super::{Examination, MOST, Node, Remedy, Severity};
use crate::account;
use postern_account::adopt::YOUNG;
use postern_account::attachment::{Account, Deviation, State};
use postern_account::busy;
use postern_account::namespaces::LiveNamespace;
use postern_account::node_state::NodeState;
use postern_gate::capability::device::held;
use postern_gate::capability::leases::collecting;
use postern_gate::effect::Veth;
use postern_gate::node::{BRIDGE, VLAN_GATEWAY};
use postern_gate::shell::quoted;
use postern_kernel::Link;
use postern_state::HeldAddress;
use postern_types::LinkName;
use std::path::{Path, PathBuf};

pub fn examine(examination: &mut Examination, node: &Node) {
    let node_state = match &node.node_state {
        Ok(node_state) => node_state,
        Err(reason) => return examination.leave_out(format!("links, namespaces, leases and rules: {reason}")),
    };
    let namespaces = node_state.namespaces.found.len();
    let gap = node_state.namespaces.gap();
    examination.look("state", format!("attachments: {}; network namespaces: {namespaces}", node.accounts.len()));
    if let Some(gap) = &gap {
        examination.leave_out(format!("some namespaces, so an object that seems to be gone may be in use: {gap}"));
    }
    records(examination, node);
    for directory in lease_directories(node).iter().filter(|directory| directory.is_dir()) {
        match postern_state::networks(directory) {
            Ok(networks) => {
                for network in networks.iter().flatten().take(MOST) {
                    leases(examination, node, node_state, directory, network);
                }
            }
            Err(error) => examination.leave_out(format!("leases: {error}")),
        }
    }
    locks(examination, node);
    objects(examination, node_state);
    half_down_pairs(examination, node, node_state);
}

fn records(examination: &mut Examination, node: &Node) {
    let mut shared: Vec<Shared<'_>> = Vec::new();
    // If native plugins have detached the container or attached it anew, its record does no harm. The next DEL or ADD
    // removes the record.
    let looked_at = |account: &&Account| match account.state {
        State::Replaced => false,
        State::Stuck => true,
        _ => !account.is_held,
    };
    for account in node.accounts.iter().filter(looked_at) {
        let place = match &account.header {
            Some(header) => account::name(header),
            None => account.path.display().to_string(),
        };
        let (severity, why) = match account.state {
            State::ContainerGone if account.doubt.is_some() => {
                (Severity::Warning, "perhaps no container uses its addresses and ports any more")
            }
            State::ContainerGone if account.is_released() => {
                (Severity::Warning, "its record names ports and addresses that no container uses")
            }
            State::ContainerGone => (Severity::Error, "no container uses its addresses and ports"),
            State::Incomplete => (Severity::Error, "no container uses the objects of its ADD"),
            State::PreviousBoot => (Severity::Error, "no container uses its leases"),
            State::Damaged => (Severity::Error, "DEL can't remove the objects that the record listed"),
            // No record has this state.
            State::Held => continue,
            State::Stuck => {
                (Severity::Error, "the runtime waits for this run, and so does every other call for the container")
            }
            State::Drift | State::Replaced | State::Ok => {
                (Severity::Error, "the container's network does not work as it was set up")
            }
        };
        for deviation in &account.deviations {
            // Deviations that one command repairs have one cause, for example a bridge that is down.
            let same =
                |known: &&mut Shared<'_>| known.deviation == deviation && deviation.is_command && known.why == why;
            match shared.iter_mut().find(same).filter(|_| account.state == State::Drift) {
                Some(known) => known.more = known.more.saturating_add(1),
                None => shared.push(Shared { severity, why, place: place.clone(), more: 0, deviation }),
            }
        }
    }
    for Shared { severity, why, place, more, deviation } in shared {
        let Deviation { what, remedy, is_command } = deviation.clone();
        let place = if more == 0 { place } else { format!("{place} and {more} more") };
        let remedy = if is_command { Remedy::Command(remedy) } else { Remedy::Words(remedy) };
        examination.found(severity, &place, what, why, remedy);
    }
}

/// A deviation of one attachment, or the same deviation of several attachments.
struct Shared<'a> {
    severity: Severity,
    why: &'static str,
    place: String,
    more: usize,
    deviation: &'a Deviation,
}

/// Finds leases without an owner.
fn leases(examination: &mut Examination, node: &Node, node_state: &NodeState, directory: &Path, network: &str) {
    let listed = node_state.leases(directory, network);
    let leases = match listed.as_ref() {
        Ok(leases) => leases,
        Err(reason) => return examination.leave_out(format!("leases of network {network}: {reason}")),
    };
    let is_recorded = |held: &HeldAddress| {
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
        // The lease was released meanwhile.
        if held.path.symlink_metadata().is_err() {
            continue;
        }
        if is_recorded(held) || node_state.namespaces.with_address(held.address).is_some() {
            continue;
        }
        let path = held.path.display().to_string();
        if is_young(held) {
            let why = "the lease may belong to a container that is being made at this moment";
            let remedy = Remedy::Words(format!("look again when the lease is {} s old", YOUNG.as_secs()));
            examination.found(Severity::Note, path, "a new lease without a record", why, remedy);
            continue;
        }
        let is_complete = node_state.namespaces.is_complete();
        let elsewhere = || Remedy::Words(super::ELSEWHERE.to_owned());
        let Some(owner) = &held.owner else {
            let why = "no container can get the address";
            let remedy = if is_complete { Remedy::Command(format!("rm {}", quoted(&path))) } else { elsewhere() };
            examination.found(Severity::Warning, path, "is no lease, and belongs to no attachment", why, remedy);
            continue;
        };
        let what = format!(
            "leased to {} {}, which has no record; no namespace has the address",
            owner.container_id, owner.ifname
        );
        if node.is_offered(&path) {
            let remedy = Remedy::Command(collecting(&directory.to_string_lossy()));
            examination.found(doubt(node_state), path, what, "no container uses the address", remedy);
        } else if is_complete {
            let why = "the runtime still knows the container, or its namespace can't be looked at";
            let command = collecting(&directory.to_string_lossy());
            let remedy = Remedy::Words(format!("`{command}` says why the lease stays"));
            examination.found(Severity::Note, path, what, why, remedy);
        } else {
            let why = "the address may be unused: not all namespaces could be looked at";
            examination.found(Severity::Warning, path, what, why, elsewhere());
        }
    }
}

/// Finds locks that a hung program keeps. Every run that needs the lock waits.
fn locks(examination: &mut Examination, node: &Node) {
    let mut paths = vec![PathBuf::from("/run/xtables.lock")];
    for directory in lease_directories(node) {
        let networks = postern_state::networks(&directory).ok().flatten().unwrap_or_default();
        paths.extend(networks.iter().take(MOST).map(|network| directory.join(network).join("lock")));
    }
    let held: Vec<_> = paths.iter().filter_map(|path| Some((path, postern_account::locked(path)?))).collect();
    let files: Vec<busy::File> = held.iter().map(|(_, file)| *file).collect();
    let holders = busy::holders(&files);
    for (path, file) in held {
        let Some(holders) = holders.get(&file) else { continue };
        if holders.iter().all(|holder| holder.age < busy::PATIENCE) {
            continue;
        }
        let why = "every run that needs the lock waits, and fails at its deadline";
        // The age of a process shows the age of its lock only for a run of the host executable.
        let (severity, remedy) = match holders.iter().all(|holder| holder.verb().is_some()) {
            true => (Severity::Error, Remedy::Command(busy::remedy(holders))),
            false => {
                let processes: Vec<String> = holders.iter().map(|holder| holder.pid.to_string()).collect();
                let processes = processes.join(",");
                let words = format!("check the process (`ps -fp {processes}`), and end it if it hangs");
                (Severity::Warning, Remedy::Words(words))
            }
        };
        examination.found(severity, path.display(), busy::words(holders, "the file"), why, remedy);
    }
}

/// True if the lease may belong to a current run.
fn is_young(held: &HeldAddress) -> bool {
    held.taken().and_then(|taken| taken.elapsed().ok()).is_some_and(|passed| passed < YOUNG)
}

/// Returns the severity of a leak. A leak is certain only if all namespaces could be looked at.
fn doubt(node_state: &NodeState) -> Severity {
    if node_state.namespaces.is_complete() { Severity::Error } else { Severity::Warning }
}

/// Finds notes on node objects that don't exist.
fn objects(examination: &mut Examination, node_state: &NodeState) {
    let (objects, problems) = match postern_state::node::list(&node_state.places.state) {
        Ok(listed) => listed,
        Err(error) => return examination.leave_out(format!("notes on node objects: {error}")),
    };
    for problem in problems {
        let why = "`postern gc --node` does not know of the object";
        examination.found(Severity::Warning, "notes on node objects", problem.to_string(), why, Remedy::None);
    }
    for object in objects.iter().filter(|object| object.host_netns_cookie == node_state.here) {
        if let Some(held) = held::of(object, node_state.here, &node_state.boot) {
            let what = format!(
                "it is held since {}/{}/{} used it: {}",
                held.network,
                held.container_id,
                held.ifname,
                held.why.join("; ")
            );
            let why = "a device stays down, and no container gets it, until it is certainly clean";
            examination.found(Severity::Error, held.to_string(), what, why, Remedy::Words(held.remedy()));
            continue;
        }
        let is_link = [BRIDGE, VLAN_GATEWAY].contains(&object.kind.as_str());
        if object.boot_id != node_state.boot || is_link && node_state.link(&object.name).is_none() {
            let place = format!("{} {}", object.kind, object.name);
            let why = "the next ADD that needs the object makes it again";
            let remedy = Remedy::Words(
                "nothing has to be done; `postern gc --node` removes the note, and other objects that no attachment \
                uses"
                    .to_owned(),
            );
            examination.found(Severity::Note, place, "the object that Postern made is gone", why, remedy);
        }
    }
}

/// Finds pairs that no record lists, that have a native plugin's name, and whose other end is down.
fn half_down_pairs(examination: &mut Examination, node: &Node, node_state: &NodeState) {
    let known = |name: &str| {
        let mut effects = node.accounts.iter().flat_map(|account| &account.effects);
        effects.any(|effect| Veth::of(effect).is_some_and(|pair| pair.host == name))
    };
    for link in node_state.links.iter().filter(|link| link.kind == "veth" && is_other_end_down(link)) {
        let name = link.name.to_string();
        let digits = name.strip_prefix("veth").unwrap_or_default();
        if digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && !known(&name) {
            // The other end is in a living namespace: only a person can find out its owner.
            let why = "an interrupted ADD of a native plugin may have left it, or a container has set its end down";
            let (what, remedy) = match other_end(node_state, link) {
                Some((found, name)) => (
                    format!("a pair that no record lists; its other end, {name}, is down"),
                    format!("find the owner of {name}: {} (processes: {})", found.path.display(), found.processes),
                ),
                None => (
                    "a pair that no record lists, with its other end down".to_owned(),
                    "find the owner of the other end, which is in no namespace that could be looked at".to_owned(),
                ),
            };
            examination.found(Severity::Note, &name, what, why, Remedy::Words(remedy));
        }
    }
}

/// True if this end is up and the other end is down. If both ends have the same index by chance, the kernel reports
/// `down`.
fn is_other_end_down(link: &Link) -> bool {
    link.up && ["down", "lower-layer-down"].contains(&link.operstate)
}

/// Returns the namespace of the other end of a pair, and the name of this end.
fn other_end<'a>(node_state: &'a NodeState, link: &Link) -> Option<(&'a LiveNamespace, &'a LinkName)> {
    let away = node_state.namespaces.found.iter().filter(|found| found.cookie != node_state.here);
    away.flat_map(|found| found.links.iter().map(move |end| (found, end)))
        .find(|(_, end)| end.kind == "veth" && link.peer_index == Some(end.index) && end.peer_index == Some(link.index))
        .map(|(found, end)| (found, &end.name))
}
