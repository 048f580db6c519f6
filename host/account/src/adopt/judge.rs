//! Decides from given facts alone if an object of a native plugin is a leftover.

use super::live::{Live, Use};
use super::{Kind, Reason};
use ipnet::IpNet;
use postern_firewall::AttachmentKey;
use postern_state::Header;
use std::collections::HashSet;
use std::time::Duration;

/// A lease below this age stays, because the plugin may not have given the address to a link yet.
pub const YOUNG: Duration = Duration::from_secs(300);

/// The parts of an attachment's name that an object's name contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    /// `None` if the object's name doesn't contain the network.
    pub(super) network: Option<&'a str>,
    pub(super) container: &'a str,
    /// True if `container` is only the beginning of the container ID.
    pub(super) cut: bool,
    /// `None` if the object's name doesn't contain the interface.
    pub(super) ifname: Option<&'a str>,
}

impl<'a> Names<'a> {
    /// Returns the names in a key, without the interface.
    pub(super) fn of_key(key: &'a AttachmentKey) -> Self {
        Self { network: Some(&key.network), container: &key.container_id, cut: false, ifname: None }
    }
}

impl Names<'_> {
    /// True if the record's attachment may have these names.
    pub(super) fn are_of(&self, header: &Header) -> bool {
        let container = header.container_id.trim();
        self.network.is_none_or(|network| header.network == network)
            && (container == self.container || self.cut && container.starts_with(self.container))
            && self.ifname.is_none_or(|ifname| ifname == header.ifname)
    }

    /// True if the attachment of an entry in the runtimes' cache may have these names:
    /// `<network>-<container>-<interface>`.
    pub(super) fn are_of_entry(&self, entry: &str) -> bool {
        let Some(network) = self.network else {
            let end = if self.cut { "" } else { "-" };
            return entry.contains(&format!("-{}{end}", self.container));
        };
        let Some(rest) = entry.strip_prefix(network).and_then(|rest| rest.strip_prefix('-')) else { return false };
        let Some(rest) = rest.strip_prefix(self.container) else { return false };
        match (self.cut, self.ifname) {
            (false, Some(ifname)) => rest.strip_prefix('-') == Some(ifname),
            (false, None) => rest.starts_with('-'),
            (true, Some(ifname)) => rest.strip_suffix(ifname).is_some_and(|rest| rest.ends_with('-')),
            (true, None) => true,
        }
    }
}

/// The state of an attachment in the runtimes' cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cached {
    /// The attachment has no entry, or the path of its namespace no longer exists.
    Gone,
    /// The attachment has an entry, and the path of its namespace exists.
    Alive,
    /// The entry shows neither state. The text has the reason.
    Unclear(String),
}

/// The facts about one object.
#[derive(Clone, Debug)]
pub(super) struct Claim<'a> {
    pub(super) kind: Kind,
    /// The addresses that the object refers to; none for [`Kind::MacGuard`] and [`Kind::Ifb`].
    pub(super) addresses: Vec<IpNet>,
    /// For [`Kind::MacGuard`], the bridge ports that the object refers to. For [`Kind::Ifb`], the links that are
    /// redirected to the ifb.
    pub(super) ports: Vec<&'a str>,
    /// The time since the object was made, if its file shows the time. Only for [`Kind::Lease`] and
    /// [`Kind::StateFile`].
    pub(super) age: Option<Duration>,
    /// True if Postern has a record of the object's attachment.
    pub(super) recorded: bool,
    pub(super) cached: Cached,
}

/// The facts about the node.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The addresses of all links of all live namespaces, including the host's own; `None` if some namespaces could not
    /// be looked at.
    pub(super) live: Option<Live>,
    /// The names of the host's links.
    pub(super) links: HashSet<String>,
}

/// The decision about the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object is not in use.
    Leftover(Reason),
    /// The object is in use, or is an object of Postern. Postern removes its objects by its records.
    InUse,
    /// The object stays, for a reason that people should know.
    Stays(String),
    /// Unknown, because some namespaces can't be looked at.
    Unknown,
}

/// Decides about one object: an object that may be in use is never a leftover.
pub(super) fn judge(claim: &Claim<'_>, facts: &Facts) -> Verdict {
    if claim.recorded {
        return Verdict::InUse;
    }
    if claim.kind == Kind::MacGuard {
        let used = claim.ports.iter().any(|port| facts.links.contains(*port));
        // Without a port, the state of the object is unknown.
        return if used || claim.ports.is_empty() { Verdict::InUse } else { Verdict::Leftover(Reason::NoPort) };
    }
    if claim.kind == Kind::Ifb {
        return if claim.ports.is_empty() { Verdict::Leftover(Reason::NoRedirect) } else { Verdict::InUse };
    }
    let Some(live) = &facts.live else { return Verdict::Unknown };
    if claim.addresses.is_empty() || claim.cached == Cached::Alive {
        return Verdict::InUse;
    }
    match live.use_of(&claim.addresses) {
        Some(Use::Plain) => return Verdict::InUse,
        Some(Use::Strange(place)) => return Verdict::Stays(place),
        None => {}
    }
    if let Cached::Unclear(why) = &claim.cached {
        return Verdict::Stays(why.clone());
    }
    match claim.age {
        Some(age) if age < YOUNG => Verdict::Stays(format!(
            "the {} is {} s old, and its plugin may still be running; it counts as a leftover after {} s",
            if claim.kind == Kind::StateFile { "file" } else { "lease" },
            age.as_secs(),
            YOUNG.as_secs()
        )),
        _ => Verdict::Leftover(Reason::NoNamespace),
    }
}
