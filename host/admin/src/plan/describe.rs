//! Operations in words, each with the objects that it would act on. (What an interface amounts to whatever the node is
//! like, `crate::sentences` says.)

use super::node::HOST_END;
use postern_gate::capability::{leases, resolv_conf};
use postern_gate::rehearsal::{Front, Object, OwnAddress, Request};
use postern_sim::{Kernel, Place};
use postern_types::{Backend, Handle, LeaseRange, LinkSysctl, OpError, Operation, PortSpec, Reply, Route, ops};

/// Whether what an operation makes was there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    /// Something of that name is.
    Other,
    /// No, or nothing can be said.
    Unknown,
}

/// Looks before the operation.
pub fn is_there(kernel: &Kernel, operation: &Operation) -> There {
    match operation {
        Operation::Bridge(ops::Bridge::Ensure { name, .. }) if kernel.find(Place::Host, name).is_some() => There::Other,
        _ => There::Unknown,
    }
}

/// What objects are called.
pub struct Names<'a> {
    /// The node after the operation.
    pub kernel: &'a Kernel,
    /// What the guest was given.
    pub front: &'a Front<'a>,
    /// The run's request.
    pub request: &'a Request,
    /// The attachment's addresses.
    pub own: &'a [OwnAddress],
}

impl Names<'_> {
    fn link(&self, handle: Handle) -> String {
        match self.front.object(handle) {
            Ok(Object::Own { .. }) => self.request.ifname.clone(),
            Ok(Object::HostEnd { .. }) => HOST_END.to_owned(),
            Ok(Object::Bridge { index, .. }) => {
                let bridge = self.kernel.links.get(index).map_or("(gone)", |link| &link.info.name);
                format!("bridge {bridge}")
            }
            Err(_) => format!("a link that it was not given (handle {handle})"),
        }
    }

    fn addresses(&self) -> String {
        list(self.own.iter().map(|own| own.net), "no address")
    }

    fn gateways(&self, prefix: bool) -> String {
        let gateway = |own: &OwnAddress| {
            let gateway = own.gateway_or_first()?;
            Some(if prefix { format!("{gateway}/{}", own.net.prefix_len()) } else { gateway.to_string() })
        };
        let mut gateways: Vec<String> = self.own.iter().filter_map(gateway).collect();
        gateways.dedup();
        list(gateways, "no gateway")
    }

    fn families(&self) -> &'static str {
        let has = |v4| self.own.iter().any(|own| own.net.addr().is_ipv4() == v4);
        match (has(true), has(false)) {
            (true, true) => "IPv4 and IPv6",
            (false, true) => "IPv6",
            (true, false) => "IPv4",
            (false, false) => "no",
        }
    }

    fn leases(&self) -> String {
        format!("{}/{}", leases::directory(&self.request.conf), self.request.conf.name)
    }
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}

/// What the operation does, for people.
pub fn words(operation: &Operation, names: &Names<'_>, outcome: &Result<Reply, OpError>) -> String {
    let own = &names.request.ifname;
    let ipam = match names.request.conf.ipam_type.as_str() {
        "" => "no IPAM plugin, since the network names none",
        name => name,
    };
    match operation {
        Operation::Link(ops::Link::Own) => format!("look whether the container has {own}"),
        Operation::Link(ops::Link::Attributes { link }) => format!("look at {}", names.link(*link)),
        Operation::Link(ops::Link::Up { link }) => format!("set {} up, in the container", names.link(*link)),
        Operation::Link(ops::Link::Delete { link }) => {
            format!("delete {}, and with it its other end", names.link(*link))
        }
        Operation::Veth(ops::Veth::Create { mtu, mac }) => {
            let mtu = mtu.map(|mtu| format!(", with MTU {mtu}")).unwrap_or_default();
            let mac = mac.map(|mac| format!(", with address {mac}")).unwrap_or_default();
            format!("make a veth pair: {own} in the container{mac}, {HOST_END} on the host{mtu}")
        }
        Operation::Veth(ops::Veth::Find) => "look for the attachment's veth pair".to_owned(),
        Operation::Veth(ops::Veth::WaitRunning { host }) => format!("wait until {} is operational", names.link(*host)),
        Operation::Addresses(ops::Addresses::Add { link, addresses }) => {
            format!("put {} on {}, in the container", list(addresses, "no address"), names.link(*link))
        }
        Operation::Addresses(ops::Addresses::List { link }) => {
            format!("look at the addresses of {}", names.link(*link))
        }
        Operation::Addresses(ops::Addresses::Settle { link }) => {
            format!("wait until {} can use its addresses (duplicate address detection)", names.link(*link))
        }
        Operation::Routes(ops::Routes::Add { link, routes }) => {
            let routes = list(routes.iter().map(route), "nothing");
            format!("route {routes} through {}, in the container", names.link(*link))
        }
        Operation::Routes(ops::Routes::RemoveConnected { link, networks }) => {
            let networks = list(networks, "no network");
            format!("remove the kernel's own routes to {networks} through {}, in the container", names.link(*link))
        }
        Operation::Routes(ops::Routes::List { link }) => format!("look at the routes through {}", names.link(*link)),
        Operation::LinkSysctl(ops::LinkSysctl::Set { link, key, value }) => {
            let (key, value) = (sysctl(*key), if *value { "on" } else { "off" });
            format!("switch {key} of {} {value}, in the container", names.link(*link))
        }
        Operation::Bridge(ops::Bridge::Ensure { name, mtu, vlan_filtering, promisc }) => {
            let mtu = mtu.map(|mtu| format!(" with MTU {mtu}")).unwrap_or_default();
            let filtering = if *vlan_filtering { ", filtering VLANs" } else { "" };
            let promisc = if *promisc { ", promiscuous" } else { "" };
            format!("make bridge {name}{mtu} if it is missing{filtering}, and set it up{promisc}")
        }
        Operation::Bridge(ops::Bridge::Find { name }) => format!("look at bridge {name}"),
        Operation::Bridge(ops::Bridge::Attach { bridge, host, port }) => {
            format!("attach {} to {}{}", names.link(*host), names.link(*bridge), joins(port))
        }
        Operation::Bridge(ops::Bridge::EnsureGateways { bridge, port, force }) => {
            let bridge = names.link(*bridge);
            let on = match (port.vlan, bridge.strip_prefix("bridge ")) {
                (Some(vlan), Some(name)) => format!("VLAN gateway {name}.{vlan}"),
                _ => bridge,
            };
            let force = if *force { ", in the place of an address that is in the way" } else { "" };
            format!("put gateway {} on {on}{force}", names.gateways(true))
        }
        Operation::PointToPoint(ops::PointToPoint::Ensure { host }) => {
            let host = names.link(*host);
            format!("put gateway {} on {host}, and route {} there", names.gateways(false), names.addresses())
        }
        Operation::Forwarding(ops::Forwarding::Enable) => format!("switch {} forwarding on", names.families()),
        Operation::Masquerade(ops::Masquerade::Ensure { backend }) => {
            format!("masquerade {} towards other networks, by {}", names.addresses(), filter(*backend))
        }
        Operation::Masquerade(ops::Masquerade::Check { backend }) => {
            format!("compare the masquerading of {} in {}", names.addresses(), filter(*backend))
        }
        Operation::Masquerade(ops::Masquerade::Remove) => "remove the attachment's masquerading".to_owned(),
        Operation::MacGuard(ops::MacGuard::Ensure { host, mac }) => {
            format!("drop frames that come by {} from another address than {mac}", names.link(*host))
        }
        Operation::MacGuard(ops::MacGuard::Check { host, mac }) => {
            format!("compare the rules by which {} takes frames from {mac} only", names.link(*host))
        }
        Operation::MacGuard(ops::MacGuard::Remove) => "remove the attachment's spoofing protection".to_owned(),
        Operation::Ipam(ops::Ipam::Add) => format!("have addresses given by {ipam}"),
        Operation::Ipam(ops::Ipam::Del) => format!("have addresses taken back by {ipam}"),
        Operation::Ipam(ops::Ipam::Check) => format!("have addresses compared by {ipam}"),
        Operation::Ipam(ops::Ipam::Status) => format!("ask {ipam} whether it is ready"),
        Operation::Ipam(ops::Ipam::Gc) => format!("have leftovers removed by {ipam}"),
        Operation::Leases(ops::Leases::Reserve { sets, .. }) => match outcome {
            Ok(Reply::Leases(grants)) => {
                let taken = list(grants.iter().map(|grant| grant.address), "no address");
                format!("take {taken}, in {}", names.leases())
            }
            _ => format!(
                "take an address out of {}, in {}",
                list(sets.iter().map(|set| ranges(set)), "no range"),
                names.leases()
            ),
        },
        Operation::Leases(ops::Leases::Held) => format!("look at the attachment's leases in {}", names.leases()),
        Operation::Leases(ops::Leases::Release) => format!("give the attachment's leases in {} back", names.leases()),
        Operation::Leases(ops::Leases::Retain) => format!("free leases in {} whose owners are gone", names.leases()),
        Operation::Leases(ops::Leases::Available { sets }) => {
            format!("look whether an address of {} is free", list(sets.iter().map(|set| ranges(set)), "no range"))
        }
        Operation::ResolvConf(ops::ResolvConf::Read) => {
            format!("read the name servers of {}", resolv_conf::file(&names.request.conf))
        }
        Operation::Loopback(ops::Loopback::Up) => "set lo up, in the container".to_owned(),
        Operation::Loopback(ops::Loopback::Down) => "set lo down, in the container".to_owned(),
        Operation::Loopback(ops::Loopback::Addresses) => "look at lo, in the container".to_owned(),
        Operation::Attachments(ops::Attachments::Collect) => {
            "remove what is left of attachments that are gone".to_owned()
        }
    }
}

fn filter(backend: Option<Backend>) -> &'static str {
    match backend.unwrap_or(Backend::Nftables) {
        Backend::Nftables => "nftables",
        Backend::Iptables => "iptables",
    }
}

fn route(route: &Route) -> String {
    let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
    let source = route.source.map(|source| format!(" from {source}")).unwrap_or_default();
    let metric = route.priority.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    let table = route.table.map(|table| format!(" in table {table}")).unwrap_or_default();
    format!("{}{via}{source}{metric}{table}", route.dst)
}

fn sysctl(key: LinkSysctl) -> &'static str {
    match key {
        LinkSysctl::AcceptDad => "accept_dad",
        LinkSysctl::EnhancedDad => "enhanced_dad",
        LinkSysctl::ArpNotify => "arp_notify",
        LinkSysctl::KeepAddrOnDown => "keep_addr_on_down",
        LinkSysctl::DisableIpv6 => "disable_ipv6",
    }
}

fn joins(port: &PortSpec) -> String {
    let mut how = Vec::new();
    how.extend(port.vlan.map(|vlan| format!("VLAN {vlan}")));
    if !port.trunk.is_empty() {
        how.push(format!("tagged VLANs {}", list(&port.trunk, "")));
    }
    let switches =
        [(port.preserve_default_vlan, "the default VLAN kept"), (port.hairpin, "hairpin"), (port.isolated, "isolated")];
    how.extend(switches.iter().filter(|(on, _)| *on).map(|(_, word)| (*word).to_owned()));
    if how.is_empty() { String::new() } else { format!(" ({})", how.join("; ")) }
}

fn ranges(set: &[LeaseRange]) -> String {
    let range = |range: &LeaseRange| match (range.start, range.end) {
        (None, None) => range.subnet.to_string(),
        (start, end) => {
            let text = |ip: Option<std::net::IpAddr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
            format!("{} ({}-{})", range.subnet, text(start), text(end))
        }
    };
    list(set.iter().map(range), "no range")
}
