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

/// Takes the link's next hops out of a route that has those of other links too. Where the kernel would replace another route in
/// its place, they stay in it, and that is said.
pub(crate) fn take_out(netlink: &Netlink, index: u32, whole: &WholeRoute) -> Result<(), KernelError> {
    let Some(others) = whole.with(|hop| hop.link != index) else { return Ok(()) };
    match like(netlink, whole)?.first() {
        Some(first) if first.hops != whole.hops => {
            let dst = &whole.kept.route.dst;
            crate::say!(
                "postern: a route to {dst} keeps its next hops: there is another one to {dst} of this metric before it"
            );
            Ok(())
        }
        // Where the kernel has dropped it, the next hops of other links are put there again.
        Some(_) | None => netlink.put_whole_route(&others, true),
    }
}

/// Makes a route whole again from which the link's next hops were taken out. False if it can't be done: root in the container,
/// or another plugin, can have replaced what was left, or put another route before it. Their routes stay.
pub(crate) fn put_back(netlink: &Netlink, index: u32, whole: &WholeRoute) -> bool {
    let Some(others) = whole.with(|hop| hop.link != index) else { return false };
    let Ok(there) = like(netlink, whole) else { return false };
    // Where they could not be taken out, they are there still.
    if there.iter().any(|route| route.hops == whole.hops) {
        return true;
    }
    there.first().is_some_and(|first| first.hops == others.hops) && netlink.put_whole_route(whole, true).is_ok()
}

/// Returns the routes of the table to that destination with that metric. A request to replace one replaces the first one,
/// whatever its next hops are. Nor can the kernel be told to delete the one with exactly these next hops.
fn like(netlink: &Netlink, whole: &WholeRoute) -> Result<Vec<WholeRoute>, KernelError> {
    let Some(table) = whole.kept.route.table else { return Ok(Vec::new()) };
    let mut all = netlink.whole_routes_in(table)?;
    all.retain(|route| route.is_of(&whole.kept));
    Ok(all)
}
