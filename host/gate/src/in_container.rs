//! Undoes the changes that effects made in the container's namespace.
//!
//! Root in the container can influence the kernel's answers, and can make changes impossible. This may cost time, and
//! may leave objects unchanged in a namespace that root controls anyway. Root in the container can make a DEL fail in
//! only one case: if an address of the attachment may still be on a link in the container.

use crate::context::Context;
use crate::errors::kernel_error;
use crate::fixed::Fixed;
use ipnet::IpNet;
use nix::errno::Errno;
use postern_kernel::{KernelError, LinkAddress, Netlink};
use postern_types::{KeptRoute, OpError};
use std::collections::BTreeMap;

/// Temporary errors of a list: a later attempt may succeed. Timeouts and lists that are too long count as permanent,
/// because root in the container can cause them.
const PASSING_OF_LISTS: [Errno; 4] = [Errno::ENOMEM, Errno::ENOBUFS, Errno::EMFILE, Errno::ENFILE];

/// Runs `attempt` on one object in the container, and repeats it once after a failure. A permanent failure is reported
/// on standard error, and is no error of the run. A temporary failure is an error of the run, because a later DEL can
/// succeed.
pub(crate) fn as_far_as_possible<T: Default>(attempt: impl Fn() -> Result<T, KernelError>) -> Result<T, OpError> {
    unless_lasting(attempt().or_else(|_| attempt()))
}

/// Like [`as_far_as_possible`], for an attempt that was already made.
pub(crate) fn unless_lasting<T: Default>(done: Result<T, KernelError>) -> Result<T, OpError> {
    done.or_else(|error| if error.is_passing() { Err(kernel_error(error)) } else { Ok(left(&error)) })
}

/// Like [`as_far_as_possible`], for an attempt that lists objects.
pub(crate) fn listed_as_far_as_possible<T: Default>(
    attempt: impl Fn() -> Result<T, KernelError>,
) -> Result<T, OpError> {
    list_or_reason(attempt).map(|listed| listed.unwrap_or_else(|error| left(&error)))
}

/// Like [`listed_as_far_as_possible`], for a caller that needs the reason why there is no list, because unlisted
/// objects may exist.
pub(crate) fn list_or_reason<T>(
    attempt: impl Fn() -> Result<T, KernelError>,
) -> Result<Result<T, KernelError>, OpError> {
    match attempt().or_else(|_| attempt()) {
        Err(error) if PASSING_OF_LISTS.iter().any(|errno| error.is(*errno)) => Err(kernel_error(error)),
        listed => Ok(listed),
    }
}

fn left<T: Default>(error: &KernelError) -> T {
    crate::say!("postern: impossible in the container, and skipped: {error}");
    T::default()
}

/// Returns the global IPv6 addresses and the IPv6 routes of a link. The kernel removes them when the link goes down, or
/// when IPv6 is switched off for the link.
pub(crate) fn losable(netlink: &Netlink, index: u32) -> Result<Losable, KernelError> {
    let addresses = netlink.addresses(index)?.into_iter().filter(is_losable);
    let routes = routes_of(netlink, index)?.into_iter().filter(|kept| kept.route.dst.addr().is_ipv6());
    Ok((addresses.map(|address| address.net).collect(), routes.collect()))
}

/// Addresses and routes of a link.
pub(crate) type Losable = (Vec<IpNet>, Vec<KeptRoute>);

/// Like [`losable`], for all links of the namespace, by their indices.
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

/// Restores lost addresses of a link. A failure is no error: root in the container may have made an address impossible,
/// or the kernel may have restored it.
pub(crate) fn give_addresses(fixed: &Fixed, netlink: &Netlink, index: u32, addresses: &[IpNet]) -> Result<(), OpError> {
    for address in addresses {
        fixed.deadline.in_time()?;
        // No duplicate address detection is needed: the link had the address until now, so no other host has it.
        let _ = netlink.add_known_address(index, *address);
    }
    Ok(())
}

/// Restores the lost addresses of a link, and then its lost routes. The kernel adds a route to the network of each
/// address. If the link had no such route (the container's end of a routed pair), the route is removed again.
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

/// Like [`give_addresses`], for the link's routes.
pub(crate) fn give_routes<'r>(
    fixed: &Fixed,
    netlink: &Netlink,
    index: u32,
    routes: impl Iterator<Item = &'r KeptRoute>,
) -> Result<(), OpError> {
    // Routes without gateway come first, because a gateway needs a route to its network.
    let (near, far): (Vec<_>, Vec<_>) = routes.partition(|kept| kept.route.gateway.is_none());
    for kept in near.into_iter().chain(far) {
        fixed.deadline.in_time()?;
        let _ = netlink.put_route(index, kept, false);
    }
    Ok(())
}
