//! Finds the reason why the kernel refuses a new link on a parent: the kernel gives only an error number.

use crate::capability::inner::NewLink;
use crate::cause::{Asked, LARGEST_MTU, because};
use crate::effect::InnerKind;
use nix::errno::Errno;
use postern_kernel::{InnerLinkKind, Link, Netlink};
use postern_types::{MacvlanMode, OpError};

/// The hardware type of Ethernet (`ARPHRD_ETHER`).
const ETHERNET: u16 = 1;

/// The kinds of links that take all frames of their parent. A master also takes all frames of its port.
const TAKERS: [InnerKind; 2] = [InnerKind::Macvlan, InnerKind::Ipvlan];

/// The kinds of masters that can be the parent of further links.
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

    /// Adds the cause to the kernel's refusal. `netlink` is the socket of the parent's namespace.
    pub fn explain(&self, error: OpError, netlink: &Netlink) -> OpError {
        let kind = self.kind().name();
        if error.errno == Some(Errno::EOPNOTSUPP as i32) && error.message.ends_with("Unknown device type") {
            let module = if self.kind() == InnerKind::Vlan { "8021q" } else { kind };
            return error.hint(format!(
                "the kernel has no {kind} links: `modprobe {module}` loads the module, if there is one"
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

    /// Returns the reason, and a hint. Links in other namespaces are not among `links`.
    fn reason(&self, errno: Errno, below: &Link, links: &[Link]) -> Option<(String, String)> {
        // The kernel puts the new link on the parent of a macvlan or ipvlan, so the reason is at that parent.
        if below.kind == "macvlan" || below.kind == "ipvlan" && errno == Errno::EBUSY {
            return None;
        }
        let (name, kind) = (&below.name, self.kind().name());
        if below.hardware != ETHERNET {
            let why = format!("\"{name}\" is no Ethernet link");
            return Some((why, format!("{kind} needs an Ethernet link: name another `master`")));
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
                    format!("\"{name}\" is a port of {} \"{}\", which takes all frames", master.kind, master.name);
                // Other masters, such as the datapath of openvswitch, can't be the parent of a container's link.
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
                "a `master` has macvlan or ipvlan links, not both: use one kind for all networks".to_owned(),
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
                format!("mode {passthru} needs \"{name}\" for itself, but \"{name}\" has the macvlan {who}"),
                "name another `mode` or `master`, or run DEL of the attachment that has this macvlan".to_owned(),
            ));
        }
        let is_seen = macvlans.peek().is_some();
        let who = match macvlans.find(|link| link.macvlan_mode == Some(MacvlanMode::Passthru)) {
            Some(link) => format!("\"{}\"", link.name),
            None if !is_seen => "a macvlan of a container".to_owned(),
            // If the parent has a link in another mode, no link uses the parent exclusively. Then the kernel refused
            // for another reason.
            None => return None,
        };
        Some((
            format!("{who} has \"{name}\" for itself, in mode {passthru}"),
            "name another `master`, or run DEL of the attachment that has this macvlan".to_owned(),
        ))
    }
}
