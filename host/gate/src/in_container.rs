//! The way back of what effects changed in the container's namespace.
//!
//! Root in the container decides what its kernel answers, and what it still takes. That may cost time and leave something as it
//! is, in a namespace that root controls anyway. It keeps a DEL from succeeding in one case only: where an address would be given
//! back that a link in there may have still.

use crate::context::Context;
use crate::errors::kernel_error;
use crate::fixed::Fixed;
use ipnet::IpNet;
use nix::errno::Errno;
use postern_kernel::{KernelError, LinkAddress, Netlink};
use postern_types::{KeptRoute, OpError};
use std::collections::BTreeMap;

/// Errors of a list that a later attempt need not meet. Root in the container can make any list late, or too long for its
/// buffer: these are lasting.
const PASSING_OF_LISTS: [Errno; 4] = [Errno::ENOMEM, Errno::ENOBUFS, Errno::EMFILE, Errno::ENFILE];

/// Does or asks something about one object in the container on the way back, and tries it again if it fails. What is not
/// possible for good is said, and is no error. After a passing error a later DEL can do it.
pub(crate) fn as_far_as_possible<T: Default>(attempt: impl Fn() -> Result<T, KernelError>) -> Result<T, OpError> {
    unless_lasting(attempt().or_else(|_| attempt()))
}

/// As [`as_far_as_possible`], for what was tried already.
pub(crate) fn unless_lasting<T: Default>(done: Result<T, KernelError>) -> Result<T, OpError> {
    done.or_else(|error| if error.is_passing() { Err(kernel_error(error)) } else { Ok(left(&error)) })
}

/// As [`as_far_as_possible`], for an attempt that lists objects.
pub(crate) fn listed_as_far_as_possible<T: Default>(
    attempt: impl Fn() -> Result<T, KernelError>,
) -> Result<T, OpError> {
    list_or_reason(attempt).map(|listed| listed.unwrap_or_else(|error| left(&error)))
}

/// The same, for a caller that has to know why it has no list: what is not listed may be there.
pub(crate) fn list_or_reason<T>(
    attempt: impl Fn() -> Result<T, KernelError>,
) -> Result<Result<T, KernelError>, OpError> {
    match attempt().or_else(|_| attempt()) {
        Err(error) if PASSING_OF_LISTS.iter().any(|errno| error.is(*errno)) => Err(kernel_error(error)),
        listed => Ok(listed),
    }
}

fn left<T: Default>(error: &KernelError) -> T {
    crate::say!("postern: not possible in the container, and left: {error}");
    T::default()
}

/// Returns the global IPv6 addresses of a link, and its IPv6 routes: the kernel removes them when the link goes down, or
/// when IPv6 is switched off for it.
pub(crate) fn losable(netlink: &Netlink, index: u32) -> Result<Losable, KernelError> {
    let addresses = netlink.addresses(index)?.into_iter().filter(is_losable);
    let routes = routes_of(netlink, index)?.into_iter().filter(|kept| kept.route.dst.addr().is_ipv6());
    Ok((addresses.map(|address| address.net).collect(), routes.collect()))
}

/// Addresses and routes of a link.
pub(crate) type Losable = (Vec<IpNet>, Vec<KeptRoute>);

/// As [`losable`], of all links of the namespace, by their indices.
pub(crate) fn losable_of_all(netlink: &Netlink) -> Result<BTreeMap<u32, Losable>, KernelError> {
    let mut all: BTreeMap<u32, Losable> = BTreeMap::new();
    for (index, address) in netlink.all_addresses()?.into_iter().filter(|(_, address)| is_losable(address)) {
        all.entry(index).or_default().0.push(address.net);
    }
    for (index, kept) in netlink.kept_routes()?.into_iter().filter(|(_, kept)| kept.route.dst.addr().is_ipv6()) {
        all.entry(index).or_default().1.push(kept);
    }
    Ok(all)
}

fn is_losable(address: &LinkAddress) -> bool {
    address.net.addr().is_ipv6() && address.scope == 0
}

/// Returns the routes of all tables through a link.
pub(crate) fn routes_of(netlink: &Netlink, index: u32) -> Result<Vec<KeptRoute>, KernelError> {
    let routes = netlink.kept_routes()?;
    Ok(routes.into_iter().filter(|(link, _)| *link == index).map(|(_, kept)| kept).collect())
}

/// Gives a link addresses that it lost. Root in the container may have made some impossible, and the kernel has made some by
/// itself: these stay away.
pub(crate) fn give_addresses(fixed: &Fixed, netlink: &Netlink, index: u32, addresses: &[IpNet]) -> Result<(), OpError> {
    for address in addresses {
        fixed.deadline.in_time()?;
        // The link had it until now, so that nobody else has.
        let _ = netlink.add_known_address(index, *address);
    }
    Ok(())
}

/// Gives a link what it lost: its addresses, and then its routes. The kernel makes a route to an address's network by itself.
/// Where the link had none (the container end of a routed pair), that goes again.
pub(crate) fn give_back(
    run: &Context,
    netlink: &Netlink,
    index: u32,
    (addresses, routes): (&[IpNet], &[KeptRoute]),
) -> Result<(), OpError> {
    for address in addresses {
        run.fixed.deadline.in_time()?;
        let is_connected = |kept: &KeptRoute| {
            kept.route.dst == address.trunc() && kept.route.gateway.is_none() && kept.route.table != Some(LOCAL_TABLE)
        };
        if netlink.add_known_address(index, *address).is_ok() && !routes.iter().any(is_connected) {
            let _ = netlink.delete_connected(index, *address);
        }
    }
    give_routes(run.fixed, netlink, index, routes.iter())
}

/// The kernel's table of local addresses (`RT_TABLE_LOCAL` of linux/rtnetlink.h).
const LOCAL_TABLE: u32 = 255;

/// The same as [`give_addresses`] for its routes, in this order.
pub(crate) fn give_routes<'r>(
    fixed: &Fixed,
    netlink: &Netlink,
    index: u32,
    routes: impl Iterator<Item = &'r KeptRoute>,
) -> Result<(), OpError> {
    // A next hop needs the route to its own network first.
    let (near, far): (Vec<_>, Vec<_>) = routes.partition(|kept| kept.route.gateway.is_none());
    for kept in near.into_iter().chain(far) {
        fixed.deadline.in_time()?;
        let _ = netlink.put_route(index, kept, false);
    }
    Ok(())
}
