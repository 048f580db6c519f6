//! What is in the way of a new link on another one, when the kernel refuses it with a bare number.

use crate::capability::inner::NewLink;
use crate::cause::{Asked, LARGEST_MTU, because};
use crate::effect::InnerKind;
use nix::errno::Errno;
use postern_kernel::{InnerLinkKind, Link, Netlink};
use postern_types::{MacvlanMode, OpError};

/// The hardware type of Ethernet (`ARPHRD_ETHER`).
const ETHERNET: u16 = 1;

/// The kinds that take all frames of a link, besides the master that it is a port of.
const TAKERS: [InnerKind; 2] = [InnerKind::Macvlan, InnerKind::Ipvlan];

/// The kinds of masters that can have further links.
const MASTERS: [&str; 3] = ["bridge", "bond", "team"];

impl NewLink {
    const fn parent(&self) -> Option<u32> {
        match self.spec {
            InnerLinkKind::Macvlan { parent, .. }
            | InnerLinkKind::Vlan { parent, .. }
            | InnerLinkKind::Ipvlan { parent, .. } => Some(parent),
            InnerLinkKind::Dummy => None,
        }
    }

    /// Adds the cause to the kernel's refusal. `netlink` shows the namespace of the link below.
    pub fn explain(&self, error: OpError, netlink: &Netlink) -> OpError {
        let kind = self.kind().name();
        if error.errno == Some(Errno::EOPNOTSUPP as i32) && error.message.ends_with("Unknown device type") {
            let module = if self.kind() == InnerKind::Vlan { "8021q" } else { kind };
            return error.hint(format!(
                "the kernel has no {kind} links: `modprobe {module}` loads them, if it was built with them"
            ));
        }
        let error = Asked { mac: self.mac, mtu: self.mtu, largest: LARGEST_MTU }.explain(error);
        let errno = error.errno.map(Errno::from_raw).filter(|_| error.hint.is_empty());
        let below = self.parent().and_then(|index| netlink.link_by_index(index).ok().flatten());
        let (Some(errno @ (Errno::EBUSY | Errno::EINVAL)), Some(below)) = (errno, below) else { return error };
        match self.reason(errno, &below, &netlink.links().unwrap_or_default()) {
            Some((why, way_out)) => because(error, &why).hint(way_out),
            None => error,
        }
    }

    /// Returns what is in the way, and the way out. Links in other namespaces are not among `links`.
    fn reason(&self, errno: Errno, below: &Link, links: &[Link]) -> Option<(String, String)> {
        // The kernel takes the link below such a link instead. What is in the way is there.
        if below.kind == "macvlan" || below.kind == "ipvlan" && errno == Errno::EBUSY {
            return None;
        }
        let (name, kind) = (&below.name, self.kind().name());
        if below.hardware != ETHERNET {
            let why = format!("\"{name}\" is no Ethernet link");
            return Some((why, format!("a {kind} needs one: name another `master`")));
        }
        let stacked = |wanted: InnerKind| {
            links.iter().filter(move |link| {
                link.peer_index == Some(below.index) && link.peer_netnsid.is_none() && link.kind == wanted.in_kernel()
            })
        };
        if errno == Errno::EBUSY {
            let master = below.master.and_then(|index| links.iter().find(|link| link.index == index));
            if let Some(master) = master.filter(|master| master.kind != "vrf") {
                let why =
                    format!("\"{name}\" is a port of {} \"{}\", which gets all its frames", master.kind, master.name);
                // Other masters are no links for a container's frames, such as the datapath of openvswitch.
                let way_out = match MASTERS.contains(&master.kind.as_str()) {
                    true => format!("name \"{}\" as `master`, or a link that is no port", master.name),
                    false => "name a link as `master` that is no port".to_owned(),
                };
                return Some((why, way_out));
            }
            let other = TAKERS.into_iter().find(|other| *other != self.kind())?;
            let why = match stacked(other).next() {
                Some(link) => format!("\"{name}\" has the {} \"{}\"", other.name(), link.name),
                None => {
                    format!("something else gets all frames of \"{name}\", perhaps an {} of a container", other.name())
                }
            };
            return Some((
                why,
                "a `master` has macvlan or ipvlan links, not both: use one kind for all its networks".to_owned(),
            ));
        }
        if self.kind() != InnerKind::Macvlan {
            return None;
        }
        let passthru = MacvlanMode::Passthru.name();
        let mut macvlans = stacked(InnerKind::Macvlan).peekable();
        if matches!(self.spec, InnerLinkKind::Macvlan { mode: MacvlanMode::Passthru, .. }) {
            let who = macvlans.next().map_or_else(|| "of a container".to_owned(), |link| format!("\"{}\"", link.name));
            return Some((
                format!("mode {passthru} needs \"{name}\" alone, and there is the macvlan {who}"),
                "name another `mode` or `master`, or run DEL of the attachment that has it".to_owned(),
            ));
        }
        let is_seen = macvlans.peek().is_some();
        let who = match macvlans.find(|link| link.macvlan_mode == Some(MacvlanMode::Passthru)) {
            Some(link) => format!("\"{}\"", link.name),
            None if !is_seen => "a macvlan of a container".to_owned(),
            // With one in another mode there, none has the link alone: the cause is something else.
            None => return None,
        };
        Some((
            format!("{who} has \"{name}\" alone, in mode {passthru}"),
            "name another `master`, or run DEL of the attachment that has it".to_owned(),
        ))
    }
}
