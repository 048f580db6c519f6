//! Leftovers: objects of native plugins for attachments that are gone. They are found by the names that these plugins
//! are known to give: leases, masquerading, spoofing protection, port mappings, forwarding, ifbs that limit rates, files of
//! flannel and tuning about containers.
//! Nothing shows the maker of such an object, so this is done only when an operator asks for it.
//!
//! [`find`] looks and changes nothing; [`remove`] removes the leftovers that were found, after another look. Three
//! conditions make a lease or a rule for an address a leftover. No link of a live namespace has its address, the
//! runtimes' cache knows no namespace of its attachment, and Postern has no record of it. Spoofing protection is a
//! leftover if its bridge port is gone, an ifb if no link is redirected to it. A file names a container: its leases tell the
//! addresses, and without one the file stays. If a namespace can't be looked at, its addresses are unknown. Then nothing that
//! depends on an address is a leftover.

mod cache;
mod judge;

pub use judge::YOUNG;

use crate::namespaces::Namespaces;
use crate::{places, results};
use cache::Cache;
use ipnet::IpNet;
use judge::{Cached, Claim, Facts, Names, Verdict, judge};
use nix::errno::Errno;
use postern_cni::flannel::DATA_DIRECTORY;
use postern_confine::Direct;
use postern_firewall::hostport::{self, Protocol};
use postern_firewall::iptables::{self, ProgramRunner};
use postern_firewall::{AttachmentKey, FirewallError, Nft, macguard, masquerade};
use postern_gate::capability::leases::DEFAULT_DIRECTORY;
use postern_gate::capability::link_settings;
use postern_gate::effect::{Bandwidth, Effect, Firewall, PortMappings};
use postern_gate::places::Places;
use postern_gate::upkeep::{Audit, guard_ids};
use postern_kernel::{KernelError, Link, Netlink};
use postern_state::{Backups, Header, Held, Owner, Summary};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The longest time for one step (a look, or the removal of one kind).
const WITHIN: Duration = Duration::from_secs(60);

/// The kind of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An address that host-local gave out.
    Lease,
    /// A rule of `ipMasq` in nftables.
    MasqueradeNftables,
    /// A rule of `ipMasq` in iptables, with its chain.
    MasqueradeIptables,
    /// Rules and chains of `macspoofchk`.
    MacGuard,
    /// A rule of `portMappings` in nftables.
    ForwardNftables,
    /// A chain of `portMappings` in iptables, with the rules that lead to it.
    ForwardIptables,
    /// Rules that let an address be forwarded.
    Forwarding,
    /// A link of `bandwidth`, which limits what a container sends.
    Ifb,
    /// A file of `flannel` or `tuning` about a container.
    StateFile,
}

impl Kind {
    /// Returns its name, for scripts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::MasqueradeNftables => "masquerade-nftables",
            Self::MasqueradeIptables => "masquerade-iptables",
            Self::MacGuard => "mac-guard",
            Self::ForwardNftables => "forward-nftables",
            Self::ForwardIptables => "forward-iptables",
            Self::Forwarding => "forwarding",
            Self::Ifb => "ifb",
            Self::StateFile => "state-file",
        }
    }
}

/// The reason why it is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No live namespace has its address.
    NoNamespace,
    /// Its bridge port is gone.
    NoPort,
    /// No link of the host is redirected to it.
    NoRedirect,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNamespace => "no live namespace has its address",
            Self::NoPort => "its bridge port is gone",
            Self::NoRedirect => "no link is redirected to it",
        })
    }
}

/// An object of a native plugin that is not in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its kind.
    pub kind: Kind,
    /// The reason why it is not in use.
    pub reason: Reason,
    object: LeftoverObject,
}

/// The data for finding it again.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LeftoverObject {
    Lease {
        directory: PathBuf,
        network: String,
        owner: Owner,
        lease: Held,
    },
    Nftables(masquerade::Seen),
    Iptables(iptables::Seen),
    MacGuard {
        id: String,
        ports: Vec<String>,
    },
    ForwardNftables(hostport::nft::Seen),
    ForwardIptables(iptables::hostport::Seen),
    Forwarding(IpAddr),
    Ifb {
        index: u32,
        name: String,
        sources: Vec<String>,
    },
    /// The addresses are those of the container's leases. flannel's file names no interface.
    StateFile {
        directory: &'static str,
        name: String,
        owner: Owner,
        addresses: Vec<IpAddr>,
        changed: SystemTime,
    },
}

/// The directories of the native plugins' files about containers, and the end of the files' names.
const STATE_FILES: [(&str, &str); 2] = [(DATA_DIRECTORY, ""), (link_settings::DEFAULT_DIRECTORY, ".json")];

impl LeftoverObject {
    fn kind(&self) -> Kind {
        match self {
            Self::Lease { .. } => Kind::Lease,
            Self::Nftables(_) => Kind::MasqueradeNftables,
            Self::Iptables(_) => Kind::MasqueradeIptables,
            Self::MacGuard { .. } => Kind::MacGuard,
            Self::ForwardNftables(_) => Kind::ForwardNftables,
            Self::ForwardIptables(_) => Kind::ForwardIptables,
            Self::Forwarding(_) => Kind::Forwarding,
            Self::Ifb { .. } => Kind::Ifb,
            Self::StateFile { .. } => Kind::StateFile,
        }
    }

    /// Returns the names in it. `None` for spoofing protection, whose names don't separate container from interface; for
    /// rules without a name; for ifbs, whose names are hashes.
    fn names(&self) -> Option<Names<'_>> {
        Some(match self {
            Self::Lease { network, owner: Owner { container_id: container, ifname }, .. } => {
                let ifname = (!ifname.is_empty()).then_some(ifname.as_str());
                Names { network: Some(network), container, cut: false, ifname }
            }
            Self::StateFile { owner: Owner { container_id: container, ifname }, .. } => {
                let ifname = (!ifname.is_empty()).then_some(ifname.as_str());
                Names { network: None, container, cut: false, ifname }
            }
            Self::Nftables(seen) => Names {
                network: Some(&seen.key.network),
                container: &seen.key.container_id,
                cut: !seen.whole,
                ifname: Some(&seen.key.ifname),
            },
            Self::Iptables(seen) => Names::of_key(&seen.key),
            Self::ForwardNftables(seen) => {
                Names { network: None, container: &seen.container_id, cut: seen.is_cut(), ifname: None }
            }
            Self::ForwardIptables(seen) => Names::of_key(seen.key.as_ref()?),
            Self::MacGuard { .. } | Self::Forwarding(_) | Self::Ifb { .. } => return None,
        })
    }

    fn is_of(&self, header: &Header) -> bool {
        match (self, self.names()) {
            (Self::MacGuard { id, .. }, _) => guard_ids(header).contains(id),
            (_, names) => names.is_some_and(|names| names.are_of(header)),
        }
    }

    /// True if a record's attachment has one of its addresses. The names of forwards don't always tell the attachment.
    fn has_recorded_address(&self, recorded: &HashSet<IpAddr>) -> bool {
        match self {
            Self::ForwardNftables(seen) => recorded.contains(&seen.target),
            Self::ForwardIptables(seen) => seen.targets.iter().any(|target| recorded.contains(target)),
            Self::Forwarding(address) => recorded.contains(address),
            Self::StateFile { addresses, .. } => addresses.iter().any(|address| recorded.contains(address)),
            Self::Lease { .. } | Self::Nftables(_) | Self::Iptables(_) | Self::MacGuard { .. } | Self::Ifb { .. } => {
                false
            }
        }
    }

    fn claim(&self, records: &Recorded, cache: &Cache, now: SystemTime) -> Claim<'_> {
        let (addresses, ports, age) = match self {
            Self::Lease { lease, .. } => {
                // A time in the future is no age.
                let age = lease.taken().and_then(|taken| now.duration_since(taken).ok()).unwrap_or_default();
                (vec![lease.address.into()], vec![], Some(age))
            }
            Self::Nftables(seen) => (vec![IpNet::from(seen.source)], vec![], None),
            Self::Iptables(seen) => (vec![seen.source], vec![], None),
            Self::MacGuard { ports, .. } => (vec![], ports.iter().map(String::as_str).collect(), None),
            Self::ForwardNftables(seen) => (vec![seen.target.into()], vec![], None),
            Self::ForwardIptables(seen) => (seen.targets.iter().map(|target| (*target).into()).collect(), vec![], None),
            Self::Forwarding(address) => (vec![(*address).into()], vec![], None),
            Self::Ifb { sources, .. } => (vec![], sources.iter().map(String::as_str).collect(), None),
            Self::StateFile { addresses, changed, .. } => {
                let age = now.duration_since(*changed).unwrap_or_default();
                (addresses.iter().map(|address| (*address).into()).collect(), vec![], Some(age))
            }
        };
        Claim {
            kind: self.kind(),
            addresses,
            ports,
            age,
            recorded: records.headers.iter().any(|header| self.is_of(header))
                || self.has_recorded_address(&records.addresses)
                || matches!(self, Self::Ifb { name, .. } if records.ifbs.contains(name)),
            cached: self.names().map_or(Cached::Gone, |names| cache.of(&names)),
        }
    }
}

impl fmt::Display for LeftoverObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease { lease, .. } => write!(f, "lease {}", lease.path.display()),
            Self::Nftables(seen) => write!(f, "masquerading of {} (nftables)", seen.source),
            Self::Iptables(seen) => write!(f, "masquerading of {} (iptables)", seen.source),
            Self::ForwardNftables(hostport::nft::Seen { port: Some((protocol, port)), target, .. }) => {
                let name =
                    Protocol::ALL.iter().find(|known| known.number() == *protocol).map_or("?", |known| known.name());
                write!(f, "forward of {name} port {port} to {target} (nftables)")
            }
            Self::ForwardNftables(seen) => write!(f, "masquerading of forwards to {} (nftables)", seen.target),
            Self::ForwardIptables(seen) => {
                let targets: Vec<String> = seen.targets.iter().map(ToString::to_string).collect();
                write!(f, "forwards to {} (iptables, {})", targets.join(", "), seen.chain)
            }
            Self::Forwarding(address) => write!(f, "forwarding of {address} (iptables)"),
            Self::Ifb { name, .. } => write!(f, "ifb {name}"),
            Self::StateFile { directory, name, .. } => write!(f, "file {directory}/{name}"),
            Self::MacGuard { id, ports } => write!(f, "spoofing protection {id} of port {}", ports.join(", ")),
        }
    }
}

impl Leftover {
    /// Returns the network's name, if known.
    pub fn network(&self) -> Option<&str> {
        self.object.names().and_then(|names| names.network)
    }

    /// Returns the container ID, if the complete ID is known.
    pub fn container(&self) -> Option<&str> {
        match &self.object {
            LeftoverObject::MacGuard { .. } => self.split_id().map(|(container, _)| container),
            object => object.names().filter(|names| !names.cut).map(|names| names.container),
        }
    }

    /// Returns the interface in the container, if known.
    pub fn interface(&self) -> Option<&str> {
        match &self.object {
            LeftoverObject::MacGuard { .. } => self.split_id().map(|(_, interface)| interface),
            object => object.names().and_then(|names| names.ifname),
        }
    }

    /// Splits the ID at a hyphen; each part may contain further hyphens.
    fn split_id(&self) -> Option<(&str, &str)> {
        let LeftoverObject::MacGuard { id, .. } = &self.object else { return None };
        id.split_once('-').filter(|(_, interface)| !interface.contains('-'))
    }

    /// Returns its name at its place: the lease's file, or the comment or ID of its rules, as in
    /// [`postern_firewall::account::Marked::mark`]; for forwards their address, for an ifb its name.
    pub fn mark(&self) -> String {
        match &self.object {
            LeftoverObject::Lease { lease, .. } => lease.path.display().to_string(),
            LeftoverObject::Nftables(seen) => seen.mark(),
            LeftoverObject::Iptables(seen) => seen.mark(),
            LeftoverObject::MacGuard { id, .. } => id.clone(),
            LeftoverObject::ForwardNftables(seen) => seen.target.to_string(),
            LeftoverObject::ForwardIptables(seen) => {
                seen.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
            LeftoverObject::Forwarding(address) => address.to_string(),
            LeftoverObject::Ifb { name, .. } => name.clone(),
            LeftoverObject::StateFile { directory, name, .. } => format!("{directory}/{name}"),
        }
    }

    /// Returns the object in words.
    pub fn object(&self) -> String {
        self.object.to_string()
    }

    /// Returns its attachment, as far as it is known: `network/container/interface`.
    pub fn attachment(&self) -> String {
        let container = match (&self.object, self.object.names()) {
            (_, Some(names)) if names.cut => format!("{}…", names.container),
            (LeftoverObject::MacGuard { id, .. }, _) if self.split_id().is_none() => return format!("?/{id}"),
            _ => self.container().unwrap_or("?").to_owned(),
        };
        format!("{}/{container}/{}", self.network().unwrap_or("?"), self.interface().unwrap_or("?"))
    }
}

/// The result of [`find`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The objects that can be removed.
    pub leftovers: Vec<Leftover>,
    /// The objects that stay though no use of them is known, each with the reason.
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
    // First the objects, then their users: an object that is made between the two is not among the objects.
    let mut things = leases(scope, &mut report.problems);
    things.extend(state_files(&things, &mut report.problems));
    things.extend(noted(rules(), &mut report.problems));
    things.extend(noted(ifbs(), &mut report.problems));
    look(scope, things, &mut report)?;
    Ok(report)
}

/// Returns the number of leases that native plugins left, counted without running a program; 0 if it can't be counted.
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
    let addresses = || namespaces.found.iter().flat_map(|found| &found.addresses).map(|(_, have)| have.net.addr());
    let facts = Facts {
        live: doubt.is_none().then(|| addresses().collect()),
        links: host.links().map_err(|e| e.to_string())?.into_iter().map(|link| link.name).collect(),
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
            "{unknown} leases and masquerading rules were not judged: their addresses may be in use where this user can't \
             look ({doubt}); run it as root on the host, in its PID namespace"
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

/// Returns the objects found, or none and adds a problem.
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
            // A file without a known owner may not be a lease.
            let object = |lease: Held| {
                let (directory, network, owner) = (directory.clone(), network.clone(), lease.owner.clone()?);
                Some(LeftoverObject::Lease { directory, network, owner, lease })
            };
            let leases = places::all_leases(scope.places, directory, &network);
            things.extend(noted(leases, problems).into_iter().filter_map(object));
        }
    }
    things
}

/// Returns the files of flannel and tuning about containers that have leases. Nothing tells of others if they are alive.
fn state_files(leases: &[LeftoverObject], problems: &mut Vec<String>) -> Vec<LeftoverObject> {
    let mut of_containers: HashMap<&str, Vec<(&Owner, IpAddr)>> = HashMap::new();
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
                // Either part may have underscores: then the name does not tell them apart.
                _ => match names.split_once('_') {
                    Some((container, ifname)) if !ifname.contains('_') => (container, ifname),
                    _ => continue,
                },
            };
            let leases = of_containers.get(container).map(Vec::as_slice).unwrap_or_default();
            // Earlier leases name no interface.
            let is_own = |owner: &Owner| ifname.is_empty() || owner.ifname.is_empty() || owner.ifname == ifname;
            let addresses: Vec<IpAddr> =
                leases.iter().filter(|(owner, _)| is_own(owner)).map(|(_, address)| *address).collect();
            if !addresses.is_empty() {
                let owner = Owner { container_id: container.to_owned(), ifname: ifname.to_owned() };
                files.push(LeftoverObject::StateFile { directory, name: name.clone(), owner, addresses, changed });
            }
        }
    }
    files
}

/// Returns the ifbs that the plugin `bandwidth` names. One without a limit is left out: its ADD may not be complete.
fn ifbs() -> Result<Vec<LeftoverObject>, KernelError> {
    let host = Netlink::open()?;
    let links = host.links()?;
    let mut ifbs = Vec::new();
    for link in links.iter().filter(|link| link.kind == "ifb" && AttachmentKey::is_ifb_name(&link.name)) {
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
        sources.for_each(|(_, sources)| sources.push(source.name.clone()));
    }
    let object = |(ifb, sources): (&Link, _)| LeftoverObject::Ifb { index: ifb.index, name: ifb.name.clone(), sources };
    Ok(ifbs.into_iter().map(object).collect())
}

fn rules() -> Result<Vec<LeftoverObject>, FirewallError> {
    let mut nft = Nft::open(Instant::now() + WITHIN)?;
    let mut things: Vec<LeftoverObject> =
        masquerade::nft_list(&mut nft)?.into_iter().map(LeftoverObject::Nftables).collect();
    things.extend(hostport::nft::list(&mut nft)?.into_iter().map(LeftoverObject::ForwardNftables));
    // Without a program, no plugin has used iptables.
    let unless_missing = |listed: Result<Vec<LeftoverObject>, FirewallError>| match listed {
        Err(error) if error.is_program_missing() => Ok(Vec::new()),
        listed => listed,
    };
    if iptables::any_may_exist(&mut nft)? {
        let seen =
            iptables::list(program_runner()).map(|seen| seen.into_iter().map(LeftoverObject::Iptables).collect());
        things.extend(unless_missing(seen)?);
        let seen = iptables::hostport::list(program_runner());
        things
            .extend(unless_missing(seen.map(|seen| seen.into_iter().map(LeftoverObject::ForwardIptables).collect()))?);
    }
    if iptables::forward::may_be_admitted(&mut nft)? {
        let seen = iptables::forward::list(program_runner());
        things.extend(unless_missing(seen.map(|seen| seen.into_iter().map(LeftoverObject::Forwarding).collect()))?);
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

/// Removes the leftovers that were found and still are leftovers, each with a line in the audit log. Returns the number
/// of objects removed, and a text for people for each that could not be removed.
///
/// # Errors
/// As [`find`].
pub fn remove(scope: Scope<'_>, found: &[Leftover]) -> Result<(usize, Vec<String>), String> {
    let again = find(scope)?.leftovers;
    let still: Vec<&Leftover> = found.iter().filter(|leftover| again.contains(leftover)).collect();
    let host = Netlink::open().map_err(|e| e.to_string())?;
    // One socket for all: closing it takes milliseconds after a deletion.
    let mut nft = Nft::open(Instant::now() + WITHIN).map_err(|e| e.to_string())?;
    let mut removal = Removal { places: scope.places, removed: 0, failed: Vec::new() };
    let (mut nftables, mut tables) = (Vec::new(), Vec::new());
    let (mut forwards, mut chains, mut forwarding) = (Vec::new(), Vec::new(), Vec::new());
    for leftover in &still {
        match &leftover.object {
            LeftoverObject::Nftables(seen) => nftables.push((*leftover, seen.clone())),
            LeftoverObject::Iptables(seen) => tables.push((*leftover, seen.clone())),
            LeftoverObject::ForwardNftables(seen) => forwards.push((*leftover, seen.clone())),
            LeftoverObject::ForwardIptables(seen) => chains.push((*leftover, seen.clone())),
            LeftoverObject::Forwarding(address) => forwarding.push((*leftover, IpNet::from(*address))),
            LeftoverObject::Lease { .. }
            | LeftoverObject::MacGuard { .. }
            | LeftoverObject::Ifb { .. }
            | LeftoverObject::StateFile { .. } => {}
        }
    }
    // Forwards go before leases: they would reach the next container that gets the address. All of a kind go together,
    // because each look at the rules reads all of them.
    removal.together(&forwards, |seen| hostport::nft::remove_seen(&mut nft, seen).map(drop));
    removal.together(&chains, |seen| iptables::hostport::remove_seen(seen, program_runner()).map(drop));
    removal.together(&forwarding, |seen| iptables::forward::withdraw(seen, &[], program_runner()).map(drop));
    for leftover in &still {
        let start = Instant::now();
        let outcome = match &leftover.object {
            LeftoverObject::Lease { directory, network, lease, .. } => remove_lease(scope, directory, network, lease),
            LeftoverObject::MacGuard { id, .. } => remove_guard(&host, &mut nft, id),
            LeftoverObject::Ifb { index, .. } => host.delete_link(*index).map_err(|error| error.to_string()),
            LeftoverObject::StateFile { directory, name, .. } => remove_state_file(directory, name),
            LeftoverObject::Nftables(_)
            | LeftoverObject::Iptables(_)
            | LeftoverObject::ForwardNftables(_)
            | LeftoverObject::ForwardIptables(_)
            | LeftoverObject::Forwarding(_) => continue,
        };
        removal.note(leftover, &outcome, start.elapsed());
    }
    nft.set_deadline(Instant::now() + WITHIN);
    removal.together(&nftables, |seen| masquerade::nft_remove_seen(&mut nft, seen).map(drop));
    removal.together(&tables, |seen| iptables::remove_seen(seen, program_runner()).map(drop));
    Ok((removal.removed, removal.failed))
}

fn remove_lease(scope: Scope<'_>, directory: &Path, network: &str, lease: &Held) -> Result<bool, String> {
    let Some(leases) = places::leases(scope.places, directory, network)? else { return Ok(false) };
    leases.remove(lease, Instant::now() + WITHIN).map_err(|e| e.to_string())
}

fn remove_state_file(directory: &str, name: &str) -> Result<bool, String> {
    let files = Backups::open(Path::new(directory)).map_err(|e| e.to_string())?;
    files.map_or(Ok(false), |files| files.unlink(name)).map_err(|e| e.to_string())
}

fn remove_guard(host: &Netlink, nft: &mut Nft, id: &str) -> Result<bool, String> {
    // An unknown answer counts as "exists".
    let exists = |port: &str| host.link_by_name(port).map_or(true, |link| link.is_some());
    nft.set_deadline(Instant::now() + WITHIN);
    macguard::remove_unused(nft, id, exists).map_err(|e| e.to_string())
}

/// A removal under way.
struct Removal<'a> {
    places: &'a Places,
    removed: usize,
    failed: Vec<String>,
}

impl Removal<'_> {
    fn together<T: Clone>(&mut self, some: &[(&Leftover, T)], act: impl FnOnce(&[T]) -> Result<(), FirewallError>) {
        let seen: Vec<T> = some.iter().map(|(_, seen)| seen.clone()).collect();
        if seen.is_empty() {
            return;
        }
        let start = Instant::now();
        let outcome = act(&seen).map(|()| true).map_err(|error| error.to_string());
        for (leftover, _) in some {
            self.note(leftover, &outcome, start.elapsed());
        }
    }

    /// Notes an outcome. `Ok(false)`: the object was gone, or in use again.
    fn note(&mut self, leftover: &Leftover, outcome: &Result<bool, String>, took: Duration) {
        match outcome {
            Ok(false) => return,
            Ok(true) => self.removed += 1,
            Err(error) => self.failed.push(format!("{}: {error}", leftover.object())),
        }
        let object = json!({"kind": leftover.kind.as_str(), "object": leftover.object()});
        let outcome = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
        let mut audit = Audit::new(&self.places.logs, leftover.attachment());
        audit.note_own("GC", "native.remove", &object, "unused", &outcome, took);
    }
}

#[cfg(test)]
mod tests;
