//! The effect of a VRF: the attachment's own link is in the VRF, and so are the link's routes.
//!
//! Attachments of one container share the VRF, like attachments of a node share a bridge. The VRF is removed with its
//! last link. An ADD takes the same lock as this removal. Root in the container can change the VRF and its links. So
//! the host looks for the VRF in three ways: by its recorded index, as the recorded link's master, and by name and
//! table.

use crate::capability::leaves::EffectKind;
use crate::capability::shared::multipath;
use crate::capability::source_routes::effect as source_routes;
use crate::context::{Context, Fixed};
use crate::errors::{kernel_error, native_error};
use crate::in_container::{as_far_as_possible, listed_as_far_as_possible};
use crate::right::Right;
use ipnet::IpNet;
use nix::errno::Errno;
use postern_cni::Verb;
use postern_kernel::{KernelError, Link, MAIN_TABLE, Netlink};
use postern_types::{KeptRoute, OpError, Route, WholeRoute};
use serde::{Deserialize, Serialize};

/// The kernel's kind of a VRF link.
pub(crate) const KIND: &str = "vrf";

/// The attachment's link in a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vrf {
    /// The link's index in the container's namespace. Root in the container cannot change the index.
    pub index: u32,
    /// The VRF's name.
    pub name: String,
    /// The VRF's table.
    pub table: u32,
    /// True if this attachment made the VRF.
    pub made: bool,
    /// The link's global IPv6 addresses. The kernel removes these addresses when the link's master changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// The link's earlier routes: routes of the main table and of source routing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<KeptRoute>,
    /// The IPv4 routes among `moved` that have several next hops, with the next hops of other links. Earlier builds
    /// know only `moved`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multipath: Vec<WholeRoute>,
}

impl Vrf {
    fn find(&self, run: &Context, netlink: &Netlink, own: Option<&Link>) -> Result<Option<Link>, OpError> {
        let noted = run.journal.indices(self).into_iter().next();
        for index in noted.into_iter().chain(own.and_then(|own| own.master)) {
            run.fixed.deadline.in_time()?;
            let link = as_far_as_possible(|| netlink.link_by_index(index))?;
            if let Some(vrf) = link.filter(|link| link.kind == KIND) {
                return Ok(Some(vrf));
            }
        }
        let link = as_far_as_possible(|| netlink.link_by_name(&self.name))?;
        Ok(link.filter(|link| link.kind == KIND && link.vrf_table == Some(self.table)))
    }

    fn take_back(&self, run: &Context, netlink: &Netlink) -> Result<(), OpError> {
        let own = as_far_as_possible(|| netlink.link_by_index(self.index))?;
        let Some(vrf) = self.find(run, netlink, own.as_ref())? else { return Ok(()) };
        let member = own.as_ref().filter(|own| own.master == Some(vrf.index)).map(|own| own.index);
        // The undo of an ADD keeps a VRF that existed before, even without members.
        match run.request.verb == Verb::Add && !self.made {
            true => member.map_or(Ok(()), |own| release(netlink, own))?,
            false => leave_vrf(netlink, member, &vrf)?,
        }
        // Root in the container may have made it impossible to restore addresses and routes. Then addresses and routes
        // stay lost, and this is no error.
        if member.is_some() {
            let _ = settle(run.fixed, netlink, self, MAIN_TABLE);
            run.fixed.deadline.in_time()?;
        }
        Ok(())
    }
}

impl EffectKind for Vrf {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let Some(container) = run.journal.container_with(run.system, "VRF")? else { return Ok(()) };
        let _lock = source_routes::lock(run.view())?;
        self.take_back(run, container.netlink().map_err(kernel_error)?)
    }

    fn words(&self) -> String {
        format!("VRF {}, table {}", self.name, self.table)
    }

    fn right(&self) -> Right<'_> {
        Right::Container
    }
}

/// Restores the link's addresses and routes, and keeps the routes of other links. Routes of the main table are put into
/// `table`, and other routes into their own tables.
pub(crate) fn settle(fixed: &Fixed, netlink: &Netlink, vrf: &Vrf, table: u32) -> Result<(), OpError> {
    let have = netlink.addresses(vrf.index).map_err(kernel_error)?;
    for address in &vrf.addresses {
        fixed.deadline.in_time()?;
        let failed = |error| native_error(error, &address.to_string(), "failed to add IPv6 address");
        // The address needs no DAD: the link had it until now, so no other host has it. During DAD no route could have
        // the address as its source.
        match have.iter().find(|have| have.net == *address) {
            Some(have) if !have.tentative => continue,
            Some(_) => netlink.delete_address(vrf.index, *address).map_err(failed)?,
            None => {}
        }
        netlink.add_known_address(vrf.index, *address).map_err(failed)?;
    }
    let before = if table == MAIN_TABLE { vrf.table } else { MAIN_TABLE };
    for kept in vrf.moved.iter().filter(|kept| !multipath::has(&vrf.multipath, kept)) {
        fixed.deadline.in_time()?;
        let mut kept = kept.clone();
        // The kernel does not flush an IPv6 next hop of a multipath route, but marks the next hop as dead. The next hop
        // would come back with the link, so the next hop is deleted from the earlier table.
        if kept.route.dst.addr().is_ipv6() && kept.route.gateway.is_some() && is_main(&kept) {
            let left = Route { table: Some(before), ..kept.route.clone() };
            let dst = left.dst.to_string();
            netlink
                .delete_route(vrf.index, &left)
                .map_err(|error| native_error(error, &dst, format_args!("could not delete route '{dst}'")))?;
        }
        settle_in(&mut kept, table);
        is_put(netlink.put_route(vrf.index, &kept, false), &kept)?;
    }
    vrf.multipath.iter().try_for_each(|whole| {
        fixed.deadline.in_time()?;
        settle_multipath(netlink, vrf.index, whole, table)
    })
}

/// Restores an IPv4 route with several next hops. If the route also has next hops of other links, the kernel has kept
/// the route, and this link's next hops return to that route.
fn settle_multipath(netlink: &Netlink, index: u32, whole: &WholeRoute, table: u32) -> Result<(), OpError> {
    let Some(mut own) = whole.with(|hop| hop.link == index) else { return Ok(()) };
    settle_in(&mut own.kept, table);
    if own.hops.len() < whole.hops.len() {
        // In another table than the main table the kernel keeps the whole route.
        if !is_main(&whole.kept) || table == MAIN_TABLE && multipath::put_back(netlink, index, whole) {
            return Ok(());
        }
        if table != MAIN_TABLE {
            is_put(netlink.put_whole_route(&own, false), &own.kept)?;
            return is_put(multipath::take_out(netlink, index, whole), &whole.kept);
        }
    }
    is_put(netlink.put_whole_route(&own, false), &own.kept)
}

/// Puts a route of the main table into `table`. A route of another table stays in its table.
fn settle_in(kept: &mut KeptRoute, table: u32) {
    if is_main(kept) {
        kept.route.table = Some(table);
    } else if table != MAIN_TABLE {
        // The link's addresses are in the VRF's table now, so no route of another table can have them as its source. A
        // routing rule leads to the other table by source address, so the route needs no source.
        kept.route.source = None;
    }
}

/// Converts the kernel's answer about a new route to the guest's form. An existing route is no error, because the
/// kernel may have made the route again.
fn is_put(put: Result<(), KernelError>, kept: &KeptRoute) -> Result<(), OpError> {
    match put {
        Err(error) if error.is(Errno::EEXIST) => Ok(()),
        put => {
            let dst = kept.route.dst.to_string();
            put.map_err(|error| native_error(error, &dst, format_args!("could not add route '{dst}'")))
        }
    }
}

fn is_main(kept: &KeptRoute) -> bool {
    kept.route.table.is_none_or(|table| table == MAIN_TABLE)
}

/// Takes a link out of a VRF, and removes the VRF if no link is left in it. The caller holds the lock.
pub(crate) fn leave_vrf(netlink: &Netlink, own: Option<u32>, vrf: &Link) -> Result<(), OpError> {
    if let Some(own) = own {
        release(netlink, own)?;
    }
    listed_as_far_as_possible(|| match netlink.ports(vrf.index)?.is_empty() {
        true => netlink.delete_link(vrf.index).map(drop),
        false => Ok(()),
    })
}

fn release(netlink: &Netlink, own: u32) -> Result<(), OpError> {
    as_far_as_possible(|| netlink.set_master(own, None))
}

pub(crate) fn tables(run: &Context, index: u32) -> impl Iterator<Item = u32> {
    run.journal.recorded::<Vrf>().into_iter().filter(move |vrf| vrf.index == index).map(|vrf| vrf.table)
}
