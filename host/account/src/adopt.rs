//! Leftovers: objects of native plugins for attachments that are gone. They are leases, masquerading, spoofing
//! protection, port mappings, forwarding, ifbs that limit rates, and container files of flannel and tuning. The search
//! finds leftovers by the names that native plugins give. Their maker is unknown, so the search runs only when an
//! operator asks for it.
//!
//! [`find`] looks and changes nothing; [`remove`] removes the leftovers that were found, after another look. A lease or
//! a rule for an address is a leftover under three conditions. No link of a live namespace has the address. The
//! runtimes' cache knows no namespace of the attachment. Postern has no record of the attachment. Spoofing protection
//! is a leftover if its bridge port is gone. An ifb is a leftover if no link is redirected to it. A file names only a
//! container, so the addresses come from the container's leases. Without these leases, the file stays. If a namespace
//! can't be looked at, its addresses are unknown. Then no object that depends on an address is a leftover.

mod cache;
mod judge;
mod leftover;
mod live;
mod removal;

pub use judge::YOUNG;
pub use leftover::{Kind, Leftover, Reason};
pub use removal::remove;

use crate::namespaces::Namespaces;
use crate::{places, results};
use cache::Cache;
use ipnet::IpNet;
use judge::{Facts, Verdict, judge};
use leftover::LeftoverObject;
use live::Live;
use nix::errno::Errno;
use postern_cni::flannel::DATA_DIRECTORY;
use postern_confine::Direct;
use postern_firewall::iptables::{self, ProgramRunner};
use postern_firewall::{AttachmentKey, FirewallError, Nft, hostport, macguard, masquerade};
use postern_gate::capability::leases::DEFAULT_DIRECTORY;
use postern_gate::capability::link_settings;
use postern_gate::effect::{Bandwidth, Effect, Firewall, PortMappings};
use postern_gate::places::Places;
use postern_kernel::{KernelError, Link, Netlink};
use postern_state::{Backups, Header, HeldAddress, LeaseOwner, Summary};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The longest time for one step (a look, or the removal of one kind).
const WITHIN: Duration = Duration::from_secs(60);

/// The directories in which native plugins keep files about containers, each with the end of the files' names.
const STATE_FILES: [(&str, &str); 2] = [(DATA_DIRECTORY, ""), (link_settings::DEFAULT_DIRECTORY, ".json")];

/// The result of [`find`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The objects that can be removed.
    pub leftovers: Vec<Leftover>,
    /// The objects that stay, although they have no known user. Each has the reason.
    pub kept: Vec<(String, String)>,
    /// The places that could not be looked at: their leftovers are not in the report.
    pub problems: Vec<String>,
}

/// The places to look at.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Postern's own directories.
    pub places: &'a Places,
    /// Directories of leases (host-local's `dataDir`) besides the default one.
    pub directories: &'a [PathBuf],
    /// The search for live namespaces: [`crate::all_namespaces`], or a replacement by the caller.
    pub namespaces: fn() -> Result<Namespaces, String>,
}

/// Looks for leftovers of native plugins on the caller's node. Changes nothing.
///
/// # Errors
/// A text for people: the node's links, records or namespaces can't be looked at.
pub fn find(scope: Scope<'_>) -> Result<Report, String> {
    let mut report = Report::default();
    // Objects are read first, and then their users. Objects that are made between both steps are not in the list.
    let mut things = leases(scope, &mut report.problems);
    things.extend(state_files(&things, &mut report.problems));
    things.extend(noted(rules(), &mut report.problems));
    things.extend(noted(ifbs(), &mut report.problems));
    look(scope, things, &mut report)?;
    Ok(report)
}

/// Returns the number of leases that native plugins left, counted without running a program. Returns 0 if they can't be
/// counted.
pub fn count_leases(scope: Scope<'_>) -> usize {
    let mut report = Report::default();
    let things = leases(scope, &mut report.problems);
    look(scope, things, &mut report).map_or(0, |()| report.leftovers.len())
}

fn look(scope: Scope<'_>, things: Vec<LeftoverObject>, report: &mut Report) -> Result<(), String> {
    if things.is_empty() {
        return Ok(());
    }
    let host = Netlink::open().map_err(|e| e.to_string())?;
    let records = Recorded::of(postern_state::list(&scope.places.state).map_err(|e| e.to_string())?);
    let cache = Cache::open(Path::new(results::DIRECTORY));
    let namespaces = (scope.namespaces)()?;
    let doubt = cache.as_ref().err().cloned().or_else(|| namespaces.gap());
    let (links, here) = (host.links().map_err(|e| e.to_string())?, host.cookie().map_err(|e| e.to_string())?);
    let facts = Facts {
        live: doubt.is_none().then(|| Live::of(&namespaces, here, &links)),
        links: links.iter().map(|link| link.name.to_string()).collect(),
    };
    let cache = cache.unwrap_or_default();
    let now = SystemTime::now();
    let mut unknown = 0_usize;
    for object in things {
        match judge(&object.claim(&records, &cache, now), &facts) {
            Verdict::Leftover(reason) => report.leftovers.push(Leftover { kind: object.kind(), reason, object }),
            Verdict::Stays(why) => report.kept.push((object.to_string(), why)),
            Verdict::InUse => {}
            Verdict::Unknown => unknown += 1,
        }
    }
    if let (Some(doubt), 1..) = (doubt, unknown) {
        report.problems.push(format!(
            "{unknown} leases and masquerading rules were not judged: their addresses may be in use in places that \
             this user can't see ({doubt}); run the command as root on the host, in its PID namespace"
        ));
    }
    Ok(())
}

/// The attachments that have records.
struct Recorded {
    headers: Vec<Header>,
    addresses: HashSet<IpAddr>,
    ifbs: HashSet<String>,
}

impl Recorded {
    fn of(summaries: Vec<Summary>) -> Self {
        let of_sections = summaries.iter().flat_map(|summary| &summary.sections).flat_map(|section| &section.addresses);
        let mut addresses: HashSet<IpAddr> =
            of_sections.filter_map(|text| text.split('/').next()?.parse().ok()).collect();
        let effects = summaries.iter().flat_map(|summary| &summary.effects);
        let effects = effects.filter_map(|noted| serde_json::from_value::<Effect>(noted.effect.clone()).ok());
        let mut ifbs = HashSet::new();
        for effect in effects {
            let ifb = Bandwidth::of(&effect).and_then(|own| own.egress.as_ref());
            ifbs.extend(ifb.map(|(_, ifb)| ifb.clone()));
            addresses.extend(PortMappings::of(&effect).map(|own| own.address.addr()));
            addresses.extend(Firewall::of(&effect).into_iter().flat_map(|own| &own.addresses).map(IpNet::addr));
        }
        Self { headers: summaries.into_iter().filter_map(|summary| summary.header).collect(), addresses, ifbs }
    }
}

/// Returns the objects found. After an error, returns no objects, and adds a problem.
fn noted<T>(found: Result<Vec<T>, impl fmt::Display>, problems: &mut Vec<String>) -> Vec<T> {
    found.unwrap_or_else(|error| {
        problems.push(error.to_string());
        Vec::new()
    })
}

fn leases(scope: Scope<'_>, problems: &mut Vec<String>) -> Vec<LeftoverObject> {
    let default = PathBuf::from(DEFAULT_DIRECTORY);
    let mut things = Vec::new();
    for directory in std::iter::once(&default).chain(scope.directories.iter().filter(|other| **other != default)) {
        let networks = match postern_state::networks(directory) {
            Ok(Some(networks)) => networks,
            Ok(None) if *directory == default => continue,
            Ok(None) => {
                problems.push(format!("{}: no such directory", directory.display()));
                continue;
            }
            Err(error) => {
                problems.push(error.to_string());
                continue;
            }
        };
        for network in networks {
            // A file without a known owner may be something else than a lease.
            let object = |lease: HeldAddress| {
                let (directory, network, owner) = (directory.clone(), network.clone(), lease.owner.clone()?);
                Some(LeftoverObject::Lease { directory, network, owner, lease })
            };
            let leases = places::all_leases(scope.places, directory, &network);
            things.extend(noted(leases, problems).into_iter().filter_map(object));
        }
    }
    things
}

/// Returns the files of flannel and tuning about containers that have leases. Without a lease, it is unknown if the
/// container is alive.
fn state_files(leases: &[LeftoverObject], problems: &mut Vec<String>) -> Vec<LeftoverObject> {
    let mut of_containers: HashMap<&str, Vec<(&LeaseOwner, IpAddr)>> = HashMap::new();
    for object in leases {
        if let LeftoverObject::Lease { owner, lease, .. } = object {
            of_containers.entry(&owner.container_id).or_default().push((owner, lease.address));
        }
    }
    let mut files = Vec::new();
    for (directory, end) in STATE_FILES {
        let listed =
            Backups::open(Path::new(directory)).and_then(|files| files.map_or(Ok(Vec::new()), |files| files.list()));
        for (name, changed) in noted(listed.map(|files| vec![files]), problems).into_iter().flatten() {
            let Some(names) = name.strip_suffix(end) else { continue };
            let (container, ifname) = match end {
                "" => (names, ""),
                // Each part may contain underscores. Then the name does not show where the parts end.
                _ => match names.split_once('_') {
                    Some((container, ifname)) if !ifname.contains('_') => (container, ifname),
                    _ => continue,
                },
            };
            let leases = of_containers.get(container).map(Vec::as_slice).unwrap_or_default();
            // Old leases name no interface.
            let is_own = |owner: &LeaseOwner| ifname.is_empty() || owner.ifname.is_empty() || owner.ifname == ifname;
            let addresses: Vec<IpAddr> =
                leases.iter().filter(|(owner, _)| is_own(owner)).map(|(_, address)| *address).collect();
            if !addresses.is_empty() {
                let owner = LeaseOwner { container_id: container.to_owned(), ifname: ifname.to_owned() };
                files.push(LeftoverObject::StateFile { directory, name: name.clone(), owner, addresses, changed });
            }
        }
    }
    files
}

/// Returns the ifbs with names that the plugin `bandwidth` gives. An ifb without a limit is left out: its ADD may not
/// be complete.
fn ifbs() -> Result<Vec<LeftoverObject>, KernelError> {
    let host = Netlink::open()?;
    let links = host.links()?;
    let mut ifbs = Vec::new();
    for link in
        links.iter().filter(|link| link.kind == "ifb" && link.name.text().is_some_and(AttachmentKey::is_ifb_name))
    {
        if host.root_qdisc(link.index)?.is_some_and(|qdisc| qdisc.bucket.is_some()) {
            ifbs.push((link, Vec::new()));
        }
    }
    if ifbs.is_empty() {
        return Ok(Vec::new());
    }
    for source in links.iter().filter(|link| link.kind != "ifb") {
        let redirects = match host.redirects(source.index) {
            Ok(redirects) => redirects,
            Err(error) if error.is(Errno::ENODEV) => continue,
            Err(error) => return Err(error),
        };
        let sources = ifbs.iter_mut().filter(|(ifb, _)| redirects.contains(&Some(ifb.index)));
        sources.for_each(|(_, sources)| sources.push(source.name.to_string()));
    }
    let object =
        |(ifb, sources): (&Link, _)| LeftoverObject::Ifb { index: ifb.index, name: ifb.name.to_string(), sources };
    Ok(ifbs.into_iter().map(object).collect())
}

fn rules() -> Result<Vec<LeftoverObject>, FirewallError> {
    let mut nft = Nft::open(Instant::now() + WITHIN)?;
    let mut things: Vec<LeftoverObject> =
        masquerade::nft_list(&mut nft)?.into_iter().map(LeftoverObject::Nftables).collect();
    things.extend(hostport::nft::list(&mut nft)?.into_iter().map(LeftoverObject::ForwardNftables));
    if iptables::any_may_exist(&mut nft)? {
        things.extend(iptables::list(program_runner())?.into_iter().map(LeftoverObject::Iptables));
        things.extend(iptables::hostport::list(program_runner())?.into_iter().map(LeftoverObject::ForwardIptables));
    }
    if iptables::forward::may_be_admitted(&mut nft)? {
        things.extend(iptables::forward::list(program_runner())?.into_iter().map(LeftoverObject::Forwarding));
    }
    let mut guards: Vec<(String, Vec<String>)> = Vec::new();
    for port in macguard::list(&mut nft)? {
        match guards.iter_mut().find(|(id, _)| *id == port.id) {
            Some((_, ports)) => ports.push(port.ifname),
            None => guards.push((port.id, vec![port.ifname])),
        }
    }
    things.extend(guards.into_iter().map(|(id, ports)| LeftoverObject::MacGuard { id, ports }));
    Ok(things)
}

fn program_runner() -> ProgramRunner<'static> {
    ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: None }
}

#[cfg(test)]
mod tests;
