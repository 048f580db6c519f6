//! IPv4 routes with several next hops. The kernel keeps the next hops as one route, and can't delete a single next hop.
//! A request to delete the first next hop deletes the whole route. So the route is replaced by a route with other next
//! hops. For IPv6 the kernel keeps each next hop as a separate route.

use postern_kernel::{KernelError, Netlink};
use postern_types::{KeptRoute, WholeRoute};

/// True for an IPv4 route with several next hops, some of them of this link.
pub(crate) fn is_multipath(whole: &WholeRoute, index: u32) -> bool {
    whole.hops.len() > 1 && whole.hops.iter().any(|hop| hop.link == index) && whole.kept.route.dst.addr().is_ipv4()
}

/// True if a route is a next hop of one of these routes.
pub(crate) fn has(multipath: &[WholeRoute], kept: &KeptRoute) -> bool {
    multipath.iter().any(|whole| whole.is_of(kept))
}

/// Takes the link's next hops out of a route that also has next hops of other links. If the kernel would replace a
/// different route, the next hops stay, and a message says so.
pub(crate) fn take_out(netlink: &Netlink, index: u32, whole: &WholeRoute) -> Result<(), KernelError> {
    let Some(others) = whole.with(|hop| hop.link != index) else { return Ok(()) };
    match like(netlink, whole)?.first() {
        Some(first) if first.hops != whole.hops => {
            let dst = &whole.kept.route.dst;
            crate::say!(
                "postern: a route to {dst} keeps its next hops: another route to {dst} of this metric comes first"
            );
            Ok(())
        }
        // If the kernel has dropped the route, the next hops of other links are added again.
        Some(_) | None => netlink.put_whole_route(&others, true),
    }
}

/// Puts the link's next hops back into a route. Returns false if this is impossible. Root in the container or another
/// plugin may have replaced the other next hops, or added another route before this route. These changes stay.
pub(crate) fn put_back(netlink: &Netlink, index: u32, whole: &WholeRoute) -> bool {
    let Some(others) = whole.with(|hop| hop.link != index) else { return false };
    let Ok(there) = like(netlink, whole) else { return false };
    // The next hops may still be in the route, if they could not be taken out.
    if there.iter().any(|route| route.hops == whole.hops) {
        return true;
    }
    there.first().is_some_and(|first| first.hops == others.hops) && netlink.put_whole_route(whole, true).is_ok()
}

/// Returns the routes of the same table with the same destination and metric. A request to replace a route replaces the
/// first of these routes, whatever its next hops are. A request to delete a route can't name exactly these next hops
/// either.
fn like(netlink: &Netlink, whole: &WholeRoute) -> Result<Vec<WholeRoute>, KernelError> {
    let Some(table) = whole.kept.route.table else { return Ok(Vec::new()) };
    let mut all = netlink.whole_routes_in(table)?;
    all.retain(|route| route.is_of(&whole.kept));
    Ok(all)
}
