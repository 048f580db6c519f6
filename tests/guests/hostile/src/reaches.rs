//! Operations that the host must refuse, most of them because policy does not grant the operation. A success fails the
//! test.

use ipnet::IpNet;
use postern_guest::types::{Backend, LeaseRange, Route};
use postern_guest::{
    Error, addresses, bridge, forwarding, ipam, leases, link, masquerade, notes, resolv_conf, routes, veth,
};
use std::net::{IpAddr, Ipv4Addr};

const FOREIGN: Ipv4Addr = Ipv4Addr::new(10, 66, 6, 6);

/// Tries the operation `behaviour`.
///
/// # Errors
/// The host's refusal.
pub fn reach(behaviour: &str) -> Result<(), Error> {
    match behaviour {
        "bridge" => bridge::ensure("cni0", &bridge::Options::default()).map(drop),
        "bridge-path" => bridge::find("../hostile0").map(drop),
        "bridge-forgery" => bridge::find("x\n\x1b[2JADD    bridge      allowed everything").map(drop),
        "bridge-kilobytes" => bridge::find(&"b".repeat(2 << 10)).map(drop),
        "bridge-megabytes" => bridge::find(&"b".repeat(8 << 20)).map(drop),
        "force" => match bridge::find("hostile0")? {
            Some(bridge) => bridge.ensure_gateways(&Default::default(), true).map(drop),
            None => Err(Error::new("the test has made no hostile0")),
        },
        "capability" => forwarding::enable(),
        "backend" => masquerade::ensure(Some(Backend::Iptables)),
        "ipam" => ipam::add().map(drop),
        "leases" => leases::reserve(&[vec![range()]], &[]).map(drop),
        "note" => notes::set("a secret"),
        "read-note" => notes::get().map(drop),
        "file" => resolv_conf::read().map(drop),
        "address" => addresses::add(&own_link()?, &[IpNet::from(IpAddr::from(FOREIGN))]),
        "source" => routes::add(
            &own_link()?,
            &[Route { source: Some(FOREIGN.into()), ..routes::to(IpNet::from(IpAddr::from(Ipv4Addr::UNSPECIFIED))) }],
        ),
        // Repeats an operation until the host refuses.
        "operations" => loop {
            link::own()?;
        },
        "twice" => {
            own_link()?;
            own_link().map(drop)
        }
        other => Err(Error::config(format!("the hostile plugin knows no \"{other}\""))),
    }
}

fn own_link() -> Result<link::Link, Error> {
    Ok(veth::create(&veth::Options::default())?.container)
}

fn range() -> LeaseRange {
    let subnet = IpNet::new_assert(Ipv4Addr::new(10, 66, 6, 0).into(), 24);
    LeaseRange { subnet, start: None, end: None, gateway: None }
}
