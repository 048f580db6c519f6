//! A leftover: its kind, its attachment, and its place.

use super::Recorded;
use super::cache::Cache;
use super::judge::{Cached, Claim, Names, YOUNG};
use crate::attachment::guard_ids;
use ipnet::IpNet;
use postern_firewall::hostport;
use postern_firewall::{iptables, masquerade};
use postern_state::{Header, HeldAddress, LeaseOwner};
use postern_types::Transport;
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

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
    /// Rules that forward packets of an address.
    Forwarding,
    /// A link of `bandwidth`, which limits the rate of a container's sent traffic.
    Ifb,
    /// A file of `flannel` or `tuning` about a container.
    StateFile,
}

impl Kind {
    /// Returns the kind's name, for scripts.
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

/// The reason why the object is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No live namespace has the object's address.
    NoNamespace,
    /// The object's bridge port is gone.
    NoPort,
    /// No link of the host is redirected to the ifb.
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

/// An unused object of a native plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The object's kind.
    pub kind: Kind,
    /// The reason why the object is not in use.
    pub reason: Reason,
    pub(super) object: LeftoverObject,
}

/// The data by which the removal finds the object again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeftoverObject {
    Lease {
        directory: PathBuf,
        network: String,
        owner: LeaseOwner,
        lease: HeldAddress,
    },
    Nftables(masquerade::SeenMasquerade),
    Iptables(iptables::SeenMasqueradeJump),
    MacGuard {
        id: String,
        ports: Vec<String>,
    },
    ForwardNftables(hostport::nft::SeenForward),
    ForwardIptables(iptables::hostport::SeenForwardChain),
    Forwarding(IpAddr),
    Ifb {
        index: u32,
        name: String,
        sources: Vec<String>,
    },
    /// The addresses are the addresses of the container's leases. flannel's file names no interface.
    StateFile {
        directory: &'static str,
        name: String,
        owner: LeaseOwner,
        addresses: Vec<IpAddr>,
        changed: SystemTime,
    },
}

impl LeftoverObject {
    pub(super) fn kind(&self) -> Kind {
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

    /// Returns the names in the object. `None` in three cases: spoofing protection (its names don't separate container
    /// from interface), rules without a name, and ifbs (their names are hashes).
    fn names(&self) -> Option<Names<'_>> {
        Some(match self {
            Self::Lease { network, owner: LeaseOwner { container_id: container, ifname }, .. } => {
                let ifname = (!ifname.is_empty()).then_some(ifname.as_str());
                Names { network: Some(network), container, cut: false, ifname }
            }
            Self::StateFile { owner: LeaseOwner { container_id: container, ifname }, .. } => {
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
            Self::ForwardNftables(seen) => Names {
                network: None,
                container: &seen.container_id,
                cut: hostport::nft::is_cut(&seen.container_id),
                ifname: None,
            },
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

    /// True if a record's attachment has one of the object's addresses. The names of forwards don't always contain the
    /// attachment.
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

    pub(super) fn claim(&self, records: &Recorded, cache: &Cache, now: SystemTime) -> Claim<'_> {
        let (addresses, ports, age) = match self {
            Self::Lease { lease, .. } => (
                vec![lease.address.into()],
                vec![],
                lease.taken().map_or(Some(Duration::ZERO), |taken| age(taken, now)),
            ),
            Self::Nftables(seen) => (vec![IpNet::from(seen.source)], vec![], None),
            Self::Iptables(seen) => (vec![seen.source], vec![], None),
            Self::MacGuard { ports, .. } => (vec![], ports.iter().map(String::as_str).collect(), None),
            Self::ForwardNftables(seen) => (vec![seen.target.into()], vec![], None),
            Self::ForwardIptables(seen) => (seen.targets.iter().map(|target| (*target).into()).collect(), vec![], None),
            Self::Forwarding(address) => (vec![(*address).into()], vec![], None),
            Self::Ifb { sources, .. } => (vec![], sources.iter().map(String::as_str).collect(), None),
            Self::StateFile { addresses, changed, .. } => {
                (addresses.iter().map(|address| (*address).into()).collect(), vec![], age(*changed, now))
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

/// Returns the age of a file. A time far in the future gives no age, because the clock was wrong. A time slightly in
/// the future counts as young: the clock may have been set back during the plugin's run.
fn age(time: SystemTime, now: SystemTime) -> Option<Duration> {
    match now.duration_since(time) {
        Ok(age) => Some(age),
        Err(ahead) => (ahead.duration() < YOUNG).then_some(Duration::ZERO),
    }
}

impl fmt::Display for LeftoverObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease { lease, .. } => write!(f, "lease {}", lease.path.display()),
            Self::Nftables(seen) => write!(f, "masquerading of {} (nftables)", seen.source),
            Self::Iptables(seen) => write!(f, "masquerading of {} (iptables)", seen.source),
            Self::ForwardNftables(hostport::nft::SeenForward { port: Some((protocol, port)), target, .. }) => {
                let name =
                    Transport::ALL.iter().find(|known| known.number() == *protocol).map_or("?", |known| known.name());
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

    /// Splits the ID at its hyphen into container and interface. `None` if the ID has several hyphens: container and
    /// interface may contain hyphens, so the right hyphen is unknown.
    fn split_id(&self) -> Option<(&str, &str)> {
        let LeftoverObject::MacGuard { id, .. } = &self.object else { return None };
        id.split_once('-').filter(|(_, interface)| !interface.contains('-'))
    }

    /// Returns the name that the object has on the node. A lease or a state file has its path, and an ifb its name.
    /// Forwards have the container's address. Other rules have their comment or ID (as in
    /// [`postern_firewall::account::Marked::mark`]).
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

    /// Returns the object's attachment: `network/container/interface`, with `?` for each unknown part.
    pub fn attachment(&self) -> String {
        let container = match (&self.object, self.object.names()) {
            (_, Some(names)) if names.cut => format!("{}…", names.container),
            (LeftoverObject::MacGuard { id, .. }, _) if self.split_id().is_none() => return format!("?/{id}"),
            _ => self.container().unwrap_or("?").to_owned(),
        };
        format!("{}/{container}/{}", self.network().unwrap_or("?"), self.interface().unwrap_or("?"))
    }
}
