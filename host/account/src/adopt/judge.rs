//! Whether something that a native plugin made is a leftover, from given facts alone.

use super::{Kind, Reason};
use ipnet::IpNet;
use postern_state::Header;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

/// Younger leases stay: the plugin that took one may not have come to give the address to a link yet.
pub const YOUNG: Duration = Duration::from_secs(300);

/// Whose something is, as far as its name tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) network: &'a str,
    pub(super) container: &'a str,
    /// Of the container ID this is the beginning only.
    pub(super) cut: bool,
    /// `None` if the name doesn't tell.
    pub(super) ifname: Option<&'a str>,
}

impl Names<'_> {
    /// Whether this may be the attachment of that record.
    pub(super) fn are_of(&self, header: &Header) -> bool {
        let container = header.container_id.trim();
        header.network == self.network
            && (container == self.container || self.cut && container.starts_with(self.container))
            && self.ifname.is_none_or(|ifname| ifname == header.ifname)
    }

    /// Whether this may be the attachment of that entry in the runtimes' cache: `<network>-<container>-<interface>`.
    pub(super) fn are_of_entry(&self, entry: &str) -> bool {
        let Some(rest) = entry.strip_prefix(self.network).and_then(|rest| rest.strip_prefix('-')) else { return false };
        let Some(rest) = rest.strip_prefix(self.container) else { return false };
        match (self.cut, self.ifname) {
            (false, Some(ifname)) => rest.strip_prefix('-') == Some(ifname),
            (false, None) => rest.starts_with('-'),
            (true, Some(ifname)) => rest.strip_suffix(ifname).is_some_and(|rest| rest.ends_with('-')),
            (true, None) => true,
        }
    }
}

/// What the cache of the runtimes says of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cached {
    /// It has no entry, or one with the path of a namespace where nothing is any more.
    Gone,
    /// An entry with the path of a namespace where something is.
    Alive,
    /// An entry that doesn't tell, and why.
    Unclear(String),
}

/// What is known of one thing.
#[derive(Clone, Debug)]
pub(super) struct Claim<'a> {
    pub(super) kind: Kind,
    /// Addresses that it is about; none for [`Kind::MacGuard`].
    pub(super) addresses: Vec<IpNet>,
    /// Bridge ports that it is about, for [`Kind::MacGuard`] alone.
    pub(super) ports: Vec<&'a str>,
    /// How long ago it was made, for [`Kind::Lease`] alone.
    pub(super) age: Option<Duration>,
    /// Whether Postern has a record of its attachment.
    pub(super) recorded: bool,
    pub(super) cached: Cached,
}

/// What is known of the node.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The addresses of all links of all live namespaces, the host's own included; `None` if not all could be looked at.
    pub(super) live: Option<HashSet<IpAddr>>,
    /// The names of the host's links.
    pub(super) links: HashSet<String>,
}

/// What is to be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nobody uses it.
    Leftover(Reason),
    /// Somebody uses it, or it is Postern's own, which goes by its record.
    InUse,
    /// It stays for this reason, which people should know.
    Stays(String),
    /// That can't be told while not all namespaces can be looked at.
    Unknown,
}

/// The whole decision: nothing that anybody may use is a leftover.
pub(super) fn judge(claim: &Claim<'_>, facts: &Facts) -> Verdict {
    if claim.recorded {
        return Verdict::InUse;
    }
    if claim.kind == Kind::MacGuard {
        let used = claim.ports.iter().any(|port| facts.links.contains(*port));
        // Without a port nothing is known of it.
        return if used || claim.ports.is_empty() { Verdict::InUse } else { Verdict::Leftover(Reason::NoPort) };
    }
    let Some(live) = &facts.live else { return Verdict::Unknown };
    if claim.addresses.is_empty() || live.iter().any(|ip| claim.addresses.iter().any(|net| net.contains(ip))) {
        return Verdict::InUse;
    }
    match &claim.cached {
        Cached::Alive => return Verdict::InUse,
        Cached::Unclear(why) => return Verdict::Stays(why.clone()),
        Cached::Gone => {}
    }
    match claim.age {
        Some(age) if age < YOUNG => Verdict::Stays(format!(
            "the lease is {} s old, and whoever took it may still be at work; it counts as left after {} s",
            age.as_secs(),
            YOUNG.as_secs()
        )),
        _ => Verdict::Leftover(Reason::NoNamespace),
    }
}
