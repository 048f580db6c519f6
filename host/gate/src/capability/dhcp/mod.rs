//! `dhcp`: the lease that the node's DHCP service keeps for this attachment.
//!
//! A server's answer is not trusted. A sandbox has parsed the answer, and this module checks the answer before its use.

pub mod effect;

use crate::capability::facts::{ALWAYS, Facts};
use crate::capability::leaves::EffectKind;
use crate::capability::shared::link_state::{LinkKey, write_setting};
use crate::context::{Context, Journal, View};
use crate::effect::Dhcp;
use crate::errors::kernel_error;
use crate::gate::Gate;
use crate::own::OwnAddress;
use crate::request::Request;
use crate::right::Right;
use crate::{collect, others};
use ipnet::IpNet;
use postern_cni::Verb;
use postern_dhcp_channel::{Answer, Ask, Attachment, Family, INFINITE, Lease, families};
pub use postern_policy::capability::dhcp::{DEFAULT_SOCKET, socket};
use postern_types::{DhcpLease, Dns, ErrorCode, LeaseGrant, OpError, Route, host};
use std::net::{IpAddr, Ipv4Addr};

/// The most routes of a lease. A packet of 4 KiB has room for more routes, but no honest server needs more.
const MOST_ROUTES: usize = 128;

/// The shortest prefix of a network with a lease. A shorter prefix would be a large part of the Internet. For IPv6 a
/// router announces the prefix, and network providers have prefixes of 32 bits.
const SHORTEST_PREFIX: u8 = 8;
const SHORTEST_PREFIX_V6: u8 = 32;

/// The least MTU of IPv4, and of IPv6.
const LEAST_MTU: u32 = 68;
const LEAST_MTU_V6: u32 = 1280;

pub(crate) const FACTS: Facts = Facts {
    keeps: |request, granted| {
        let socket = socket(&request.conf);
        let is_allowed = granted.is_some_and(|granted| granted.has_object("dhcp.sockets", &socket));
        let gives_up = request.verb == Verb::Del && request.conf.ipam_type == "dhcp";
        (gives_up || is_allowed).then(|| Right::Dhcp(socket.into()))
    },
    ..ALWAYS
};

impl host::Dhcp for Gate<'_> {
    fn acquire(&mut self) -> Result<DhcpLease, OpError> {
        if self.run.journal.has_made(|undo| Dhcp::is(&undo.effect)) {
            return Err(OpError::new(ErrorCode::Exists, "lease", "this run has a DHCP lease already"));
        }
        let socket = socket(&self.run.request.conf);
        let wanted = wanted(self.run.request)?;
        // A second ADD without a DEL in between gets the lease of the first ADD. If the second ADD fails, it must not
        // give this lease back.
        if !self.run.journal.dhcp_leases().iter().any(|dhcp| dhcp.socket == socket) {
            self.run.journal.intend(self.run.view(), Dhcp { socket: socket.clone(), addresses: Vec::new() })?;
        }
        if wanted.contains(&Family::Ipv6) {
            prepare_link(self.run)?;
        }
        // The audit log is written first, because the answer may take as long as the run.
        self.run.audit.flush();
        let given = lease_of(ask(self.run, Ask::Acquire)?)?;
        let mtu = given.mtu;
        let lease = checked(given, &wanted)?;
        if let Some(words) = mtu_left_out(mtu, &lease) {
            crate::say!("postern: {words}");
        }
        for grant in &lease.addresses {
            if !self.guest.granted().allows_dhcp_address(&grant.address) {
                let message = format!("the DHCP server offers {}, which policy does not allow", grant.address);
                return Err(OpError::new(ErrorCode::Denied, grant.address.to_string(), message)
                    .hint(self.guest.granted().object_hint("dhcp.addresses", &grant.address.trunc().to_string())));
            }
        }
        // The record gets the addresses before other attachments are checked for the same addresses. So two attachments
        // that get an offer of the same address see each other's record.
        let addresses = lease.addresses.iter().map(|grant| grant.address).collect();
        self.run.journal.intend(self.run.view(), Dhcp { socket: socket.clone(), addresses })?;
        self.run
            .journal
            .gone(|effect| Dhcp::of(effect).is_some_and(|dhcp| dhcp.socket == socket && dhcp.addresses.is_empty()));
        for grant in &lease.addresses {
            is_free(self.run.view(), grant.address)?;
        }
        let own = lease.addresses.iter().map(|grant| OwnAddress { net: grant.address, gateway: grant.gateway });
        self.run.own.addresses.extend(own);
        Ok(lease)
    }

    fn check(&mut self) -> Result<DhcpLease, OpError> {
        let wanted = wanted(self.run.request)?;
        checked(lease_of(ask(self.run, Ask::Check)?)?, &wanted)
    }

    fn release(&mut self) -> Result<(), OpError> {
        collect::before_release(self.run)?;
        let socket = socket(&self.run.request.conf);
        Dhcp { socket: socket.clone(), addresses: Vec::new() }.remove(self.run)?;
        self.run.journal.gone(|effect| Dhcp::of(effect).is_some_and(|dhcp| dhcp.socket == socket));
        Ok(())
    }

    fn status(&mut self) -> Result<(), OpError> {
        ask(self.run, |_| Ask::Alive).map(drop)
    }
}

fn ask(run: &Context, about: impl FnOnce(Attachment) -> Ask) -> Result<Answer, OpError> {
    run.system.dhcp.ask_service(run.request, &run.fixed.deadline, &socket(&run.request.conf), about)
}

fn wanted(request: &Request) -> Result<Vec<Family>, OpError> {
    families(&request.stdin).map_err(|error| OpError::new(ErrorCode::InvalidArgument, "ipam.families", error.msg))
}

/// Prepares the attachment's link for DHCPv6: IPv6 is on, and the kernel takes no address and no route from router
/// advertisements. The lease has address and routes, and the result shows them.
fn prepare_link(run: &mut Context) -> Result<(), OpError> {
    let link = run.request.ifname.clone();
    let netlink = run.system.container_netlink()?;
    let index = match run.journal.has_made_link() {
        true => 0,
        false => netlink.link_by_name(&link).map_err(kernel_error)?.map_or(0, |link| link.index),
    };
    for key in ["accept_ra", "disable_ipv6"] {
        match write_setting(run, index, &link, LinkKey::V6(key), "0") {
            // Without the link, or without IPv6 in the kernel, the service reports the missing part.
            Err(error) if error.code == ErrorCode::NotFound => {}
            written => written?,
        }
    }
    Ok(())
}

pub(crate) fn leased(journal: &Journal) -> Vec<IpNet> {
    journal.dhcp_leases().into_iter().flat_map(|dhcp| dhcp.addresses).collect()
}

fn lease_of(answer: Answer) -> Result<Lease, OpError> {
    match answer {
        Answer::Lease(lease) => Ok(lease),
        Answer::Done | Answer::Leases(_) | Answer::Refused { .. } => {
            Err(OpError::new(ErrorCode::Io, "lease", "the DHCP service gave an answer of the wrong kind"))
        }
    }
}

/// Checks that neither the node nor another attachment has this address.
fn is_free(view: View<'_>, address: IpNet) -> Result<(), OpError> {
    let host = view.system.host()?;
    let own = address.addr();
    if host.is_local(own).map_err(kernel_error)? || host.has_address(own).map_err(kernel_error)? {
        return Err(refused(address, "the node itself has this address").hint(
            "the DHCP server of this network must not give out addresses of its nodes: exclude these addresses",
        ));
    }
    match others::holder_in_words(view, own)? {
        Some(other) => Err(refused(address, &other).hint(
            "an attachment that is gone is removed by `postern gc`; networks with the same addresses need two nodes",
        )),
        None => Ok(()),
    }
}

fn refused(address: IpNet, why: &str) -> OpError {
    let message = format!("the DHCP server offers {address}, which the container can't have: {why}");
    OpError::new(ErrorCode::InvalidArgument, address.to_string(), message)
}

/// Converts a lease, and makes all checks that do not need the node.
fn checked(lease: Lease, wanted: &[Family]) -> Result<DhcpLease, OpError> {
    for family in Family::ALL {
        let is_of = |address: IpAddr| address.is_ipv4() == (family == Family::Ipv4);
        let found = lease.addresses.iter().filter(|leased| is_of(leased.address.addr())).count();
        let name = family.name();
        let expected = usize::from(wanted.contains(&family));
        if found != expected {
            let message =
                format!("the DHCP service has {found} {name} addresses for the attachment, and not {expected}");
            let error = OpError::new(ErrorCode::InvalidArgument, "lease", message);
            return Err(match (family, found) {
                (Family::Ipv6, 0) => error.hint("the service is of an older version: restart it"),
                _ => error,
            });
        }
    }
    let has_ipv6 = wanted.contains(&Family::Ipv6);
    let mut addresses = Vec::new();
    for leased in lease.addresses {
        let address = leased.address;
        if let Some(why) = not_a_containers(&address) {
            return Err(refused(address, why));
        }
        if let Some(gateway) = leased.gateway {
            hop(gateway, &address)?;
        }
        addresses.push(LeaseGrant { address, gateway: leased.gateway });
    }
    if lease.routes.len() > MOST_ROUTES {
        let message = format!("the DHCP server names {} routes, and {MOST_ROUTES} are allowed", lease.routes.len());
        return Err(OpError::new(ErrorCode::InvalidArgument, "routes", message));
    }
    let mut routes = Vec::new();
    for route in lease.routes {
        let of_family = |grant: &&LeaseGrant| grant.address.addr().is_ipv4() == route.dst.addr().is_ipv4();
        let Some(own) = addresses.iter().find(of_family).map(|grant| grant.address) else {
            let message =
                format!("the DHCP server names a route to {} without an address of this IP version", route.dst);
            return Err(OpError::new(ErrorCode::InvalidArgument, route.dst.to_string(), message));
        };
        if let Some(gateway) = route.gw {
            hop(gateway, &own)?;
        }
        routes.push(Route {
            dst: route.dst.trunc(),
            gateway: route.gw,
            priority: route.priority,
            scope: route.scope,
            ..Route::default()
        });
    }
    Ok(DhcpLease {
        addresses,
        routes,
        dns: Dns {
            nameservers: lease.dns.nameservers.iter().map(IpAddr::to_string).collect(),
            // A text that is not a plain domain name is left out: it could be a second line in a resolver's file.
            domain: lease.dns.domain.filter(|name| is_name(name)).unwrap_or_default(),
            search: lease.dns.search.into_iter().filter(|name| is_name(name)).collect(),
            options: Vec::new(),
        },
        mtu: lease.mtu.filter(|mtu| (if has_ipv6 { LEAST_MTU_V6 } else { LEAST_MTU }..=65535).contains(mtu)),
        server: lease.server,
        seconds: Some(lease.seconds).filter(|seconds| *seconds != INFINITE),
    })
}

fn mtu_left_out(given: Option<u32>, lease: &DhcpLease) -> Option<String> {
    let mtu = given.filter(|_| lease.mtu.is_none())?;
    let has_ipv6 = lease.addresses.iter().any(|grant| grant.address.addr().is_ipv6());
    let (least, family) = if has_ipv6 { (LEAST_MTU_V6, "IPv6") } else { (LEAST_MTU, "IPv4") };
    Some(format!("the DHCP server names an MTU of {mtu}, and {family} needs {least} to 65535: the link keeps its MTU"))
}

/// Returns the reason why no container can have this address of a server.
fn not_a_containers(net: &IpNet) -> Option<&'static str> {
    let address = net.addr();
    let (is_link_local, is_no_hosts, has_ends, shortest) = match net {
        IpNet::V4(net) => {
            let is_no_hosts = net.addr().is_broadcast() || net.addr().octets().starts_with(&[0]);
            (net.addr().is_link_local(), is_no_hosts, net.prefix_len() < 31, SHORTEST_PREFIX)
        }
        IpNet::V6(net) => {
            (net.addr().is_unicast_link_local(), net.addr().to_ipv4_mapped().is_some(), false, SHORTEST_PREFIX_V6)
        }
    };
    let reasons = [
        (address.is_loopback(), "it is a loopback address"),
        (address.is_unspecified(), "it is no address"),
        (address.is_multicast(), "it is a multicast address"),
        (is_no_hosts, "it is no address of a host"),
        (is_link_local, "it is a link-local address"),
        (net.prefix_len() < shortest, "its network is most of the Internet"),
        (
            has_ends && (address == net.network() || address == net.broadcast()),
            "it is the network's own address, or its broadcast address",
        ),
    ];
    reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
}

fn hop(gateway: IpAddr, own: &IpNet) -> Result<(), OpError> {
    let ends_own = own.addr().is_ipv4() && own.prefix_len() < 31 && own.broadcast() == gateway;
    let is_broadcast = ends_own || gateway == IpAddr::V4(Ipv4Addr::BROADCAST);
    let is_none = gateway.is_loopback() || gateway.is_unspecified() || gateway.is_multicast() || is_broadcast;
    // For an IPv6 router nothing else can be checked.
    let is_on_link = if let IpAddr::V6(gateway) = gateway { gateway.is_unicast_link_local() } else { true };
    let reasons = [
        (gateway.is_ipv4() != own.addr().is_ipv4(), "the router has the other IP version"),
        (gateway == own.addr(), "the router has the container's own address"),
        (is_none, "no router has that address"),
        (!is_on_link, "a router advertises itself by its link-local address"),
    ];
    let Some((_, why)) = reasons.into_iter().find(|(is_so, _)| *is_so) else { return Ok(()) };
    let message = format!("the DHCP server names router {gateway} for {own}: {why}");
    Err(OpError::new(ErrorCode::InvalidArgument, gateway.to_string(), message))
}

/// True for a domain name that is safe in a resolver's file.
fn is_name(name: &str) -> bool {
    let is_own = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= 253 && name.bytes().all(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_dhcp_channel::{LeaseAddress, LeaseDns, LeaseRoute};

    fn lease(address: &str, gateway: Option<&str>) -> Lease {
        let gateway = gateway.map(|gateway| gateway.parse().unwrap());
        Lease {
            addresses: vec![LeaseAddress { address: address.parse().unwrap(), gateway }],
            seconds: 60,
            ..Lease::default()
        }
    }

    /// The families of a lease.
    fn families_of(lease: &Lease) -> Vec<Family> {
        let of = |leased: &LeaseAddress| if leased.address.addr().is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
        lease.addresses.iter().map(of).collect()
    }

    fn words(lease: Lease) -> String {
        let wanted = families_of(&lease);
        checked(lease, &wanted).map_or_else(|error| error.message, |_| String::new())
    }

    #[test]
    fn addresses_that_no_server_may_give() {
        for (address, why) in [
            ("127.0.0.2/8", "loopback"),
            ("224.0.0.9/24", "multicast"),
            ("169.254.169.254/16", "link-local"),
            ("0.0.0.0/8", "no address"),
            ("0.1.2.3/8", "of a host"),
            ("255.255.255.255/24", "of a host"),
            ("10.0.0.2/0", "most of the Internet"),
            ("10.0.0.2/7", "most of the Internet"),
            ("10.0.0.0/24", "the network's own"),
            ("10.0.0.255/24", "broadcast"),
            ("::1/128", "loopback"),
            ("fe80::2/64", "link-local"),
            ("ff02::1/64", "multicast"),
            ("::ffff:10.0.0.2/128", "of a host"),
            ("2001:db8::2/31", "most of the Internet"),
        ] {
            let words = words(lease(address, None));
            assert!(words.contains(why) && words.contains("can't have"), "{address}: {words}");
        }
        for address in
            ["10.0.0.2/24", "192.168.0.255/16", "10.0.0.0/31", "10.0.0.255/32", "100.64.0.9/10", "fd00::2/64"]
        {
            assert_eq!(words(lease(address, None)), "", "{address}");
        }
    }

    #[test]
    fn a_lease_has_one_address_of_each_family_that_is_wanted() {
        use Family::{Ipv4, Ipv6};
        let dual = Lease {
            addresses: [lease("10.0.0.2/24", None), lease("fd00::2/64", None)]
                .into_iter()
                .flat_map(|it| it.addresses)
                .collect(),
            ..lease("10.0.0.2/24", None)
        };
        for (given, wanted, expected) in [
            (Lease::default(), vec![Ipv4], "has 0 IPv4 addresses for the attachment, and not 1"),
            (lease("10.0.0.2/24", None), vec![Ipv6], "has 1 IPv4 addresses for the attachment, and not 0"),
            (lease("10.0.0.2/24", None), vec![Ipv4, Ipv6], "has 0 IPv6 addresses for the attachment, and not 1"),
            (dual.clone(), vec![Ipv4], "has 1 IPv6 addresses for the attachment, and not 0"),
            (dual.clone(), vec![Ipv4, Ipv6], ""),
        ] {
            let found = checked(given, &wanted).map_or_else(|error| error.message, |_| String::new());
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{wanted:?}: {found}");
        }
        let of_mtu = |mtu| checked(Lease { mtu: Some(mtu), ..dual.clone() }, &[Ipv4, Ipv6]).unwrap().mtu;
        assert_eq!((of_mtu(1279), of_mtu(1280)), (None, Some(1280)));
        let said = |lease: Lease, families: &[Family], mtu| {
            mtu_left_out(mtu, &checked(Lease { mtu, ..lease }, families).unwrap()).unwrap_or_default()
        };
        let both = said(dual.clone(), &[Ipv4, Ipv6], Some(1279));
        assert!(both.contains("an MTU of 1279, and IPv6 needs 1280"), "{both}");
        let four = said(lease("10.0.0.2/24", None), &[Ipv4], Some(67));
        assert!(four.contains("an MTU of 67, and IPv4 needs 68"), "{four}");
        assert_eq!(said(dual.clone(), &[Ipv4, Ipv6], Some(1280)) + &said(dual.clone(), &[Ipv4, Ipv6], None), "");
    }

    #[test]
    fn routers_that_no_server_may_name() {
        for gateway in ["10.0.0.2", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "10.0.0.255", "fd00::1"] {
            assert!(words(lease("10.0.0.2/24", Some(gateway))).contains("names router"), "{gateway}");
            let route =
                LeaseRoute { dst: "0.0.0.0/0".parse().unwrap(), gw: gateway.parse().ok(), scope: None, priority: None };
            let routed = Lease { routes: vec![route], ..lease("10.0.0.2/24", None) };
            assert!(words(routed).contains("names router"), "{gateway}");
        }
        for (gateway, why) in [
            ("2001:db8::1", "advertises itself by its link-local address"),
            ("fd00::2", "own address"),
            ("ff02::2", "no router has"),
            ("10.0.0.1", "other IP version"),
        ] {
            let found = words(lease("fd00::2/64", Some(gateway)));
            assert!(found.contains("names router") && found.contains(why), "{gateway}: {found}");
        }
        assert_eq!(words(lease("fd00::2/64", Some("fe80::1"))), "");
        // As with the native plugin, a router may be outside of the network.
        assert_eq!(words(lease("10.0.0.2/24", Some("10.0.1.1"))), "");
        let many = LeaseRoute { dst: "10.9.0.0/16".parse().unwrap(), gw: None, scope: Some(253), priority: None };
        assert!(words(Lease { routes: vec![many; 129], ..lease("10.0.0.2/24", None) }).contains("129 routes"));
    }

    #[test]
    fn what_counts_of_a_lease() {
        let given = Lease {
            dns: LeaseDns {
                nameservers: vec!["10.0.0.53".parse().unwrap()],
                domain: Some("example.net\nnameserver 192.0.2.66".to_owned()),
                search: vec!["a.example".to_owned(), "b c".to_owned(), String::new()],
            },
            mtu: Some(67),
            seconds: INFINITE,
            ..lease("10.0.0.2/24", Some("10.0.0.1"))
        };
        let lease = checked(given.clone(), &[Family::Ipv4]).unwrap();
        assert_eq!((lease.dns.domain.as_str(), lease.mtu, lease.seconds), ("", None, None));
        assert_eq!(
            (lease.dns.nameservers, lease.dns.search),
            (vec!["10.0.0.53".to_owned()], vec!["a.example".to_owned()])
        );
        let lease = checked(Lease { mtu: Some(1400), seconds: 60, ..given }, &[Family::Ipv4]).unwrap();
        assert_eq!((lease.mtu, lease.seconds), (Some(1400), Some(60)));
    }
}
