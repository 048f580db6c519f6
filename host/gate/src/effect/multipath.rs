//! IPv4 routes with several next hops. The kernel keeps such a route as one, and a next hop alone can't be deleted: a request to
//! delete the first one deletes them all. So the route is replaced by one with other next hops. Of an IPv6 route the kernel
//! keeps each next hop as a route of its own.

use postern_kernel::{KernelError, Netlink};
use postern_types::{KeptRoute, WholeRoute};

/// True for an IPv4 route with several next hops, some of them of this link.
pub(crate) fn is_multipath(whole: &WholeRoute, index: u32) -> bool {
    whole.hops.len() > 1 && whole.hops.iter().any(|hop| hop.link == index) && whole.kept.route.dst.addr().is_ipv4()
}

/// True if a route is a next hop of one of these.
pub(crate) fn has(multipath: &[WholeRoute], kept: &KeptRoute) -> bool {
    multipath.iter().any(|whole| whole.is_of(kept))
}

/// Takes the link's next hops out of a route that has those of other links too.
///
/// # Errors
/// The kernel refuses what is left.
pub(crate) fn take_out(netlink: &Netlink, index: u32, whole: &WholeRoute) -> Result<(), KernelError> {
    whole.with(|hop| hop.link != index).map_or(Ok(()), |others| netlink.put_whole_route(&others, true))
}

/// Makes a route whole again from which the link's next hops were taken out. False if it can't be done: root in the container,
/// or another plugin, can have replaced what was left. Their route stays.
pub(crate) fn put_back(netlink: &Netlink, index: u32, whole: &WholeRoute) -> bool {
    let Some(others) = whole.with(|hop| hop.link != index) else { return false };
    let (Some(first), Some(table)) = (others.hops.first(), whole.kept.route.table) else { return false };
    let is_left = netlink.whole_routes_through(first.link, table).is_ok_and(|all| all.contains(&others));
    is_left && netlink.put_whole_route(whole, true).is_ok()
}
