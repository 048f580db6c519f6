//! The effect of a VRF: the attachment's own link is in it, with its routes.
//!
//! The VRF is shared by attachments of the container, as a bridge is by those of a node. It goes with the last link in it,
//! under the lock that joining takes too. Root in the container can change all of it. So the VRF is found as the master of
//! the link that the record names, by its noted index, or by name and table.

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

/// The kernel's name for such links.
pub(crate) const KIND: &str = "vrf";

/// The attachment's link in a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vrf {
    /// The link's index in the container's namespace. Root in the container cannot change it.
    pub index: u32,
    /// The VRF's name.
    pub name: String,
    /// Its table.
    pub table: u32,
    /// True if this attachment made it.
    pub made: bool,
    /// The link's global IPv6 addresses. The kernel removes them when the link's master changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// The link's routes, before: those of the main table and of source routing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<KeptRoute>,
    /// Of these, the IPv4 routes that have several next hops, with those of other links. An earlier build knows only `moved`.
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
        // An ADD that failed leaves a VRF that was there before, with members or without.
        match run.request.verb == Verb::Add && !self.made {
            true => member.map_or(Ok(()), |own| release(netlink, own))?,
            false => leave_vrf(netlink, member, &vrf)?,
        }
        // Root in the container may have made things impossible: what is not possible stays away.
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

/// Gives the link the addresses that it lost, and its routes, beside those of other links: those of the main table in this
/// one, and the others in their own.
pub(crate) fn settle(fixed: &Fixed, netlink: &Netlink, vrf: &Vrf, table: u32) -> Result<(), OpError> {
    let have = netlink.addresses(vrf.index).map_err(kernel_error)?;
    for address in &vrf.addresses {
        fixed.deadline.in_time()?;
        let failed = |error| native_error(error, &address.to_string(), "failed to add IPv6 address");
        // The link had it until now, so that nobody else has. While the kernel asks for it, no route can have it as source.
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
        // A next hop of a route with several is not flushed: the kernel makes it a dead one, and it lives again with the link.
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

/// Does the same for an IPv4 route with several next hops. With those of other links the kernel keeps it, and the own next hop
/// lives again in it.
fn settle_multipath(netlink: &Netlink, index: u32, whole: &WholeRoute, table: u32) -> Result<(), OpError> {
    let Some(mut own) = whole.with(|hop| hop.link == index) else { return Ok(()) };
    settle_in(&mut own.kept, table);
    if own.hops.len() < whole.hops.len() {
        // Another table keeps it whole by itself.
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

/// Puts a route of the main table into this one. One of another table stays there.
fn settle_in(kept: &mut KeptRoute, table: u32) {
    if is_main(kept) {
        kept.route.table = Some(table);
    } else if table != MAIN_TABLE {
        // The own addresses are in the VRF's table now: a route elsewhere can't name one as its source. By the rule of such a
        // table, the sender has it already.
        kept.route.source = None;
    }
}

/// Turns the kernel's answer about a route into the guest's. The kernel may have made the route again by itself.
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

/// Takes a link out of a VRF, and removes the VRF if no link is left in it. Under the lock.
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
