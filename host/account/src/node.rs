//! Node objects that are not in use: `postern gc --node` finds and removes them. The gate has noted the objects that it
//! made ([`postern_gate::node`]).

use crate::alive::all_namespaces;
use ipnet::IpNet;
use postern_confine::Direct;
use postern_firewall::iptables::{ProgramRunner, forward};
use postern_firewall::{Nft, Served, SharedTable, hostport, macguard, masquerade};
use postern_gate::capability::port_mappings::effect::localnet_is_on;
use postern_gate::effect::{Effect, Isolation, PortMappings, Veth};
use postern_gate::node::{BRIDGE, FORWARDING, INDEX, ISOLATION, LOCALNET, VLAN_GATEWAY};
use postern_gate::places::Places;
use postern_gate::upkeep::Audit;
use postern_kernel::{Link, Netlink, Sysctl, sysctl};
use postern_state::node::{self, NodeObject};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The longest time for the packet filter.
const WITHIN: Duration = Duration::from_secs(30);

/// True if a link is the noted link. Some notes have only the name: a run was killed before it noted the index, or an
/// earlier version wrote the note. Then a link with this name that has only link-local addresses is the noted link.
fn is_noted(host: &Netlink, object: &NodeObject, link: &Link) -> Result<bool, String> {
    if let Some(index) = object.detail.get(INDEX).and_then(Value::as_u64) {
        return Ok(index == u64::from(link.index));
    }
    let addresses = host.addresses(link.index).map_err(|e| e.to_string())?;
    Ok(addresses.iter().all(|address| is_link_local(address.net.addr())))
}

/// True for a link-local address (RFC 4291, section 2.5.6): the kernel gives every link such an address.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// A node object that Postern made and that is not in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unused {
    /// [`BRIDGE`], [`VLAN_GATEWAY`], [`FORWARDING`], [`ISOLATION`], [`LOCALNET`], or `nftables`.
    pub kind: &'static str,
    /// The object's name.
    pub name: String,
    #[serde(skip)]
    what: UnusedObject,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum UnusedObject {
    Isolation,
    Localnet,
    Link(u32),
    Table(BaseTable),
    Forwarding(Sysctl),
}

/// A table that the plugins make and no attachment removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseTable {
    /// `inet cni_plugins_masquerade`, with its two chains.
    Masquerade,
    /// `bridge nat`, with its chain `PREROUTING`.
    MacGuard,
    /// `ip cni_hostport`, with its chains.
    Forwards,
    /// `ip6 cni_hostport`, with its chains.
    ForwardsV6,
    /// `ip postern_localnet`. The table is in use while a link has `route_localnet`.
    Localnet,
}

impl BaseTable {
    const ALL: [Self; 5] = [Self::Masquerade, Self::MacGuard, Self::Forwards, Self::ForwardsV6, Self::Localnet];

    fn shared(self) -> &'static SharedTable {
        match self {
            Self::Masquerade => &masquerade::SHARED,
            Self::MacGuard => &macguard::SHARED,
            Self::Forwards => hostport::nft::shared_of(false),
            Self::ForwardsV6 => hostport::nft::shared_of(true),
            Self::Localnet => &hostport::localnet::SHARED,
        }
    }
}

impl Display for Unused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            UnusedObject::Table(_) => write!(f, "nftables {}", self.name),
            UnusedObject::Localnet => write!(f, "{} of link {}, which is switched off", self.kind, self.name),
            UnusedObject::Isolation => write!(f, "isolation of bridge {}", self.name),
            UnusedObject::Link(_) => write!(f, "{} {}", self.kind, self.name),
            UnusedObject::Forwarding(_) => write!(f, "{}, which is switched off", self.name),
        }
    }
}

/// The result of [`find`].
#[derive(Debug, Default)]
pub struct Report {
    /// The objects that can be removed, in the order of their removal.
    pub unused: Vec<Unused>,
    /// The objects that stay, with the reason.
    pub kept: Vec<String>,
    /// The users, other than attachments, that the removal could affect, in words.
    pub notes: Vec<String>,
    /// The places that could not be looked at.
    pub problems: Vec<String>,
    /// Notes on objects that are gone.
    gone: Vec<NodeObject>,
}

/// Looks for node objects of the caller's namespace that Postern made and that are not in use. Changes nothing.
/// Forwarding is included only on request: other programs may depend on forwarding by now, and the kernel does not show
/// them.
///
/// # Errors
/// A text for people: the kernel or the state directory gives an error.
pub fn find(places: &Places, forwarding: bool) -> Result<Report, String> {
    let text = |error: &dyn Display| error.to_string();
    let host = Netlink::open().map_err(|e| text(&e))?;
    let here = host.cookie().map_err(|e| text(&e))?;
    let boot = postern_state::boot_id().map_err(|e| text(&e))?;
    let (objects, problems) = node::list(&places.state).map_err(|e| text(&e))?;
    let mut report = Report { problems: problems.iter().map(ToString::to_string).collect(), ..Report::default() };
    let (mine, gone): (Vec<NodeObject>, Vec<NodeObject>) = objects
        .into_iter()
        .filter(|object| object.host_netns_cookie == here)
        .partition(|object| object.boot_id == boot);
    report.gone = gone;
    let links = host.links().map_err(|e| text(&e))?;
    for object in &mine {
        let link = links.iter().find(|link| link.name == object.name);
        match (object.kind.as_str(), link) {
            (BRIDGE, Some(link)) if link.kind == "bridge" => {
                bridge(&mut report, &host, object, link, &mine, &links)?;
            }
            (BRIDGE, _) => {
                report.kept.push(format!("bridge {} is gone already", object.name));
                report.gone.push(object.clone());
            }
            (VLAN_GATEWAY | LOCALNET, None) => report.gone.push(object.clone()),
            _ => {}
        }
    }
    for object in mine.iter().filter(|object| object.kind == ISOLATION) {
        isolation(&mut report, places, &object.name, &links)?;
    }
    let mut nft = Nft::open(Instant::now() + WITHIN).map_err(|e| text(&e))?;
    for object in mine.iter().filter(|object| object.kind == LOCALNET) {
        let Some(link) = links.iter().find(|link| link.name == object.name) else { continue };
        localnet(&mut report, places, &host, &mut nft, link)?;
    }
    // Without the table `localnet`, a link with `route_localnet` would open the node's 127.0.0.0/8 to containers.
    let is_off = |link: &&Link| report.unused.iter().any(|unused| unused.kind == LOCALNET && unused.name == link.name);
    let stays_open = |link: &Link| localnet_is_on(&link.name.to_string()).unwrap_or(true);
    let is_guarding = links.iter().filter(|link| !is_off(link)).any(stays_open);
    for table in BaseTable::ALL {
        if table == BaseTable::Localnet && is_guarding {
            continue;
        }
        if table.shared().is_unused(&mut nft).map_err(|e| text(&e))? {
            let name = table.shared().to_string();
            report.unused.push(Unused { kind: "nftables", name, what: UnusedObject::Table(table) });
        }
    }
    for family in mine.iter().filter(|object| object.kind == FORWARDING) {
        let (key, name) = match family.name.as_str() {
            "ipv4" => (Sysctl::Ipv4Forward, "net.ipv4.ip_forward"),
            _ => (Sysctl::Ipv6Forwarding, "net.ipv6.conf.all.forwarding"),
        };
        let on_links = OnLinks::of(&host, &links, family.name == "ipv4")?;
        let user = user_of_forwarding(places, &links, (here, &boot), &on_links)?;
        if let Some(user) = user {
            report.kept.push(format!("{name} stays on: {user}"));
        } else if forwarding {
            report.unused.push(Unused { kind: FORWARDING, name: name.to_owned(), what: UnusedObject::Forwarding(key) });
            report.notes.extend(on_links.between(name));
        } else {
            report.kept.push(format!(
                "{name} stays on: Postern switched it on, but other programs may rely on it by now; `postern gc --node \
                 --forwarding` switches it off"
            ));
        }
    }
    Ok(report)
}

/// The kinds of links that lead to other machines, or to programs. A node with an address on such a link is the router
/// of these machines or programs.
const TUNNELS: [&str; 19] = [
    "tun",
    "wireguard",
    "ovpn",
    "ppp",
    "vxlan",
    "geneve",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "erspan",
    "ip6erspan",
    "ipip",
    "sit",
    "ip6tnl",
    "vti",
    "vti6",
    "xfrm",
    "wwan",
];

/// The node's own addresses of one family, with their links. Addresses of `lo` and link-local addresses are left out.
struct OnLinks<'a> {
    v4: bool,
    all: Vec<(&'a Link, IpNet)>,
}

impl<'a> OnLinks<'a> {
    fn of(host: &Netlink, links: &'a [Link], v4: bool) -> Result<Self, String> {
        let addresses = host.all_addresses().map_err(|e| e.to_string())?;
        let of_family = addresses.into_iter().map(|(index, address)| (index, address.net)).filter(|(_, net)| {
            let address = net.addr();
            address.is_ipv4() == v4 && !address.is_loopback() && !is_link_local(address)
        });
        let all = of_family.filter_map(|(index, net)| Some((links.iter().find(|link| link.index == index)?, net)));
        Ok(Self { v4, all: all.collect() })
    }

    /// Returns the node's address that is in the same network as an attachment's address. The node can then be the
    /// attachment's router.
    fn beside(&self, address: IpNet) -> Option<&(&'a Link, IpNet)> {
        self.all.iter().find(|(_, own)| own.contains(&address.addr()) || address.contains(&own.addr()))
    }

    fn tunnel(&self) -> Option<&'a Link> {
        let is_tunnel = |link: &&Link| link.master.is_none() && TUNNELS.contains(&link.kind.as_str());
        self.all.iter().map(|(link, _)| *link).find(is_tunnel)
    }

    /// Names the links between which the node may forward packets of other machines. The kernel does not show whether
    /// the node does so.
    fn between(&self, setting: &str) -> Option<String> {
        let mut names: Vec<String> = self.all.iter().map(|(link, _)| link.name.to_string()).collect();
        names.sort();
        names.dedup();
        (names.len() > 1).then(|| {
            format!(
                "note: without {setting}, this node is no router between {}; Postern does not know whether other \
                 machines need this router",
                names.join(", ")
            )
        })
    }
}

/// Returns the user of forwarding of one family. This is an attachment whose packets the node forwards (by its record),
/// a link that leads to a container without a record, or a tunnel. The cookie and the boot ID identify the namespace.
fn user_of_forwarding(
    places: &Places,
    links: &[Link],
    (here, boot): (u64, &str),
    on_links: &OnLinks<'_>,
) -> Result<Option<String>, String> {
    let v4 = on_links.v4;
    let mut known: Vec<String> = Vec::new();
    for record in postern_state::list(&places.state).map_err(|e| e.to_string())? {
        let Some(header) = &record.header else {
            return Ok(Some(format!("the record {} can't be read, and may need forwarding", record.path.display())));
        };
        if header.host_netns_cookie != here || header.boot_id != boot {
            continue;
        }
        let effects = record.effects.iter();
        let effects: Vec<Effect> =
            effects.filter_map(|noted| serde_json::from_value(noted.effect.clone()).ok()).collect();
        known.extend(effects.iter().filter_map(|effect| Veth::of(effect).map(|pair| pair.host.clone())));
        // The node forwards packets of these links only if it is a router on their wire.
        let passes_by =
            |effect: &Effect| matches!(effect, Effect::Macvlan(_) | Effect::InnerLink(_) | Effect::Device(_));
        let addresses: Vec<&String> = record.sections.iter().flat_map(|section| &section.addresses).collect();
        let of_family: Vec<IpNet> = addresses
            .iter()
            .filter_map(|text| text.parse().ok())
            .filter(|net: &IpNet| net.addr().is_ipv4() == v4)
            .collect();
        let name = format!("{}/{}/{}", header.network, header.container_id, header.ifname);
        if !effects.iter().any(passes_by) {
            if addresses.is_empty() || addresses.iter().any(|text| text.contains(':') != v4) {
                return Ok(Some(format!("packets of attachment {name} are forwarded, by its record")));
            }
        } else if let Some((link, own)) = of_family.into_iter().find_map(|address| on_links.beside(address)) {
            return Ok(Some(format!("{} with {own} can be the router of attachment {name}", link.name)));
        }
    }
    if let Some(tunnel) = on_links.tunnel() {
        return Ok(Some(format!("{} is a tunnel with an address of this node", tunnel.name)));
    }
    let is_bridge = |index: u32| links.iter().any(|link| link.index == index && link.kind == "bridge");
    let leads_elsewhere = |link: &&Link| {
        link.kind == "veth" && link.peer_netnsid.is_some() || link.kind == "tun" && link.master.is_some_and(is_bridge)
    };
    let mut strangers = links.iter().filter(leads_elsewhere).filter(|link| !known.contains(&link.name.to_string()));
    Ok(strangers.next().map(|link| format!("{} leads to a container without a record", link.name)))
}

/// Judges the isolation of a bridge by its name, because the rules contain the name. Rules for a bridge that is gone
/// would apply to the next link of its name.
fn isolation(report: &mut Report, places: &Places, name: &str, links: &[Link]) -> Result<(), String> {
    let records = postern_state::list(&places.state).map_err(|e| e.to_string())?;
    let effects = records.iter().flat_map(|record| &record.effects);
    let mut effects = effects.filter_map(|noted| serde_json::from_value::<Effect>(noted.effect.clone()).ok());
    let bridge = links.iter().find(|link| link.name == name && link.kind == "bridge");
    let port = bridge.and_then(|bridge| links.iter().find(|link| link.master == Some(bridge.index)));
    if effects.any(|effect| Isolation::of(&effect).is_some_and(|isolation| isolation.bridge == name)) {
        report.kept.push(format!("isolation of bridge {name} stays: a record lists this isolation"));
    } else if let Some(port) = port {
        report.kept.push(format!("isolation of bridge {name} stays: {} is a port of the bridge", port.name));
    } else {
        report.unused.push(Unused { kind: ISOLATION, name: name.to_owned(), what: UnusedObject::Isolation });
    }
    Ok(())
}

/// Judges `route_localnet` of a link. Port mappings to a container behind the link may need this setting.
fn localnet(report: &mut Report, places: &Places, host: &Netlink, nft: &mut Nft, link: &Link) -> Result<(), String> {
    let name = link.name.to_string();
    let records = postern_state::list(&places.state).map_err(|e| e.to_string())?;
    let effects = records.iter().flat_map(|record| &record.effects);
    let effects = effects.filter_map(|noted| serde_json::from_value::<Effect>(noted.effect.clone()).ok());
    let recorded = effects.filter_map(|effect| PortMappings::of(&effect).map(|own| own.address.addr()));
    let runner = ProgramRunner { runner: &Direct, nft: None, deadline: Instant::now() + WITHIN };
    // Native plugins write no records, so the rules themselves are read too.
    let served = Served::look(nft, runner).map_err(|e| e.to_string())?;
    let of_plugins = served.of_plugins().into_iter().map(|(address, _)| address);
    for address in recorded.chain(of_plugins).filter(|address| address.is_ipv4() && !address.is_loopback()) {
        if host.link_towards(address).map_err(|e| e.to_string())? == Some(link.index) {
            report.kept.push(format!("{LOCALNET} of link {name} stays: ports of the node lead to {address}"));
            return Ok(());
        }
    }
    // The setting is removed before the link, which may be unused too.
    report.unused.insert(0, Unused { kind: LOCALNET, name, what: UnusedObject::Localnet });
    Ok(())
}

/// Returns the sysctl `route_localnet` of a link.
fn route_localnet(link: &str) -> Sysctl {
    Sysctl::Ipv4Conf(link.to_owned(), "route_localnet")
}

/// Judges one existing bridge, with the VLAN gateways on it.
fn bridge(
    report: &mut Report,
    host: &Netlink,
    object: &NodeObject,
    link: &Link,
    mine: &[NodeObject],
    links: &[Link],
) -> Result<(), String> {
    let name = &object.name;
    if !is_noted(host, object, link)? {
        let why = "it is not the bridge that Postern made, or it got addresses from another program";
        report.kept.push(format!("bridge {name} stays: {why}"));
        return Ok(());
    }
    let mut gateways: Vec<&Link> = Vec::new();
    for gateway in mine.iter().filter(|object| object.kind == VLAN_GATEWAY) {
        let own = gateway.name.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'));
        if let Some(link) = links.iter().find(|link| own && link.name == gateway.name)
            && is_noted(host, gateway, link)?
        {
            gateways.push(link);
        }
    }
    if let Some(why) = stands_on(link, &gateways, links)? {
        report.kept.push(format!("bridge {name} stays: {why}"));
        return Ok(());
    }
    let is_gateway = |port: &Link| gateways.iter().any(|gateway| gateway.peer_index == Some(port.index));
    if let Some(used) = links.iter().find(|port| port.master == Some(link.index) && !is_gateway(port)) {
        report.kept.push(format!("bridge {name} stays: {} is a port of the bridge", used.name));
        return Ok(());
    }
    let unused = |kind: &'static str, link: &Link| Unused {
        kind,
        name: link.name.to_string(),
        what: UnusedObject::Link(link.index),
    };
    report.unused.extend(gateways.into_iter().map(|gateway| unused(VLAN_GATEWAY, gateway)));
    report.unused.push(unused(BRIDGE, link));
    Ok(())
}

/// Returns the reason why a bridge, or its VLAN gateway, can't be removed: another link is stacked on it (macvlan,
/// ipvlan, an operator's VLAN). The kernel would delete the upper link too. The upper link may be in a container. The
/// kernel shows the lower link's namespace only from the upper link's namespace. So an equal index in another namespace
/// counts as a match, except for pairs.
fn stands_on(bridge: &Link, gateways: &[&Link], links: &[Link]) -> Result<Option<String>, String> {
    let is_own = |link: &Link| gateways.iter().any(|gateway| gateway.index == link.index);
    let below = |link: &Link| {
        let is_below = |lower: &Link| link.peer_index == Some(lower.index);
        link.kind != "veth" && (is_below(bridge) || gateways.iter().any(|gateway| is_below(gateway)))
    };
    if let Some(upper) = links.iter().find(|link| link.peer_netnsid.is_none() && below(link) && !is_own(link)) {
        return Ok(Some(format!("{} is stacked on it", upper.name)));
    }
    let namespaces = all_namespaces()?;
    for found in &namespaces.found {
        if let Some(upper) = found.links.iter().find(|link| link.peer_netnsid.is_some() && below(link)) {
            return Ok(Some(format!("{} in {} may be stacked on it", upper.name, found.path.display())));
        }
    }
    Ok(None)
}

/// Removes the objects of the report that a second look still finds unused. Returns the objects that are gone now. The
/// audit log gets a line for each removed object. Notes on objects that are gone are removed as well.
///
/// # Errors
/// A text for people: the kernel or the state directory gives an error.
pub fn remove(places: &Places, shown: &Report, forwarding: bool) -> Result<Vec<Unused>, String> {
    let text = |error: &dyn Display| error.to_string();
    let host = Netlink::open().map_err(|e| text(&e))?;
    let here = host.cookie().map_err(|e| text(&e))?;
    let mut audit = Audit::new(&places.logs, String::new());
    let mut now = find(places, forwarding)?;
    now.unused.retain(|unused| shown.unused.contains(unused));
    for object in &now.unused {
        let start = Instant::now();
        let outcome = match &object.what {
            UnusedObject::Isolation => {
                let runner = ProgramRunner { runner: &Direct, nft: None, deadline: start + WITHIN };
                forward::open(&object.name, runner).map(drop).map_err(|e| text(&e))
            }
            UnusedObject::Localnet => sysctl::set(&route_localnet(&object.name), "0").map(drop).map_err(|e| text(&e)),
            UnusedObject::Link(index) => host.delete_link(*index).map(drop).map_err(|e| text(&e)),
            UnusedObject::Forwarding(key) => sysctl::set(key, "0").map(drop).map_err(|e| text(&e)),
            UnusedObject::Table(table) => Nft::open(Instant::now() + WITHIN)
                .and_then(|mut nft| table.shared().remove_if_unused(&mut nft))
                .map(drop)
                .map_err(|e| text(&e)),
        };
        let (kind, name) = object.note().unwrap_or((object.kind, &object.name));
        let noted = json!({"kind": kind, "name": name});
        audit.note_own("GC", "node.remove", &noted, "note", &outcome, start.elapsed());
        outcome?;
        if object.note().is_some() {
            node::remove(&places.state, kind, name, here).map_err(|e| text(&e))?;
        }
    }
    for object in &now.gone {
        node::remove(&places.state, &object.kind, &object.name, here).map_err(|e| text(&e))?;
    }
    Ok(now.unused)
}

impl Unused {
    /// Returns kind and name of the object's note; tables have no notes.
    fn note(&self) -> Option<(&'static str, &str)> {
        match &self.what {
            UnusedObject::Link(_) | UnusedObject::Isolation | UnusedObject::Localnet => Some((self.kind, &self.name)),
            UnusedObject::Forwarding(Sysctl::Ipv4Forward) => Some((FORWARDING, "ipv4")),
            UnusedObject::Forwarding(_) => Some((FORWARDING, "ipv6")),
            UnusedObject::Table(_) => None,
        }
    }
}
