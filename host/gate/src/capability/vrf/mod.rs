//! `vrf`: the attachment's own link in a VRF of the container's namespace.
//!
//! The kernel flushes routes and IPv6 addresses of a link whose master changes. So routes and addresses are recorded
//! before the change, and restored after it: routes of the main table into the VRF's table, and other routes into their
//! own tables.

pub mod effect;

pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::shared::may_be_native;
use crate::capability::shared::multipath::is_multipath;
use crate::capability::source_routes::effect::lock;
use crate::capability::source_routes::{is_reserved, lowest_free, may_be_named};
use crate::capability::vrf::effect::{KIND, leave_vrf, settle};
use crate::context::Context;
use crate::effect::{Effect, Vrf};
use crate::errors::{kernel_error, link_gone, native_error};
use crate::gate::Gate;
use crate::{collect, others};
use postern_cni::validate_interface_name;
use postern_kernel::{Link, Netlink};
use postern_types::{ErrorCode, Handle, KeptRoute, OpError, WholeRoute, host};
use std::collections::BTreeSet;

/// The scope of an address that is valid everywhere, `RT_SCOPE_UNIVERSE`.
const GLOBAL: u8 = 0;

/// The table of the routes to a namespace's own addresses. The kernel maintains this table (linux/rtnetlink.h).
const LOCAL_TABLE: u32 = 255;

impl host::Vrf for Gate<'_> {
    fn join(&mut self, handle: Handle, name: &str, table: Option<u32>) -> Result<(), OpError> {
        let (index, own_name) = self.guest.own(handle)?;
        if let Err(why) = validate_interface_name(name) {
            let message = format!("could not add VRF {name}: {}", why.msg);
            return Err(
                OpError::new(ErrorCode::InvalidArgument, name, message).hint("give the VRF a valid name of a link")
            );
        }
        let run = &mut *self.run;
        let _lock = lock(run.view())?;
        let netlink = run.system.container_netlink()?;
        let own = netlink.link_by_index(index).map_err(kernel_error)?.ok_or_else(|| link_gone(&own_name))?;
        if let Some(master) = own.master {
            let master = netlink.link_by_index(master).map_err(kernel_error)?.map(|link| link.name).unwrap_or_default();
            let message = format!("interface {own_name} has already a master set: {master}");
            return Err(OpError::new(ErrorCode::Exists, &own_name, message)
                .hint("run DEL first, or take the link out of the master"));
        }
        let found = netlink.link_by_name(name).map_err(kernel_error)?;
        let whole = netlink.whole_routes().map_err(kernel_error)?;
        let routes: Vec<(u32, KeptRoute)> = whole.iter().flat_map(WholeRoute::each).collect();
        let table = match &found {
            Some(vrf) => table_of(vrf, name, table)?,
            None => free_table(netlink, table, &routes)?,
        };
        let addresses = netlink.addresses(index).map_err(kernel_error)?;
        let addresses = addresses
            .into_iter()
            .filter(|have| have.net.addr().is_ipv6() && have.scope == GLOBAL && have.permanent && !have.dad_failed);
        // Routes of all tables but the local table are restored. Routes of source routing return to their own tables.
        let is_moved = |kept: &KeptRoute| kept.route.table != Some(LOCAL_TABLE);
        let mut moved: Vec<KeptRoute> =
            routes.into_iter().filter(|(link, kept)| *link == index && is_moved(kept)).map(|(_, kept)| kept).collect();
        // The link's own networks come before routes through its gateways.
        moved.sort_by_key(|kept| kept.route.gateway.is_some());
        let effect = Vrf {
            index,
            name: name.to_owned(),
            table,
            made: found.is_none(),
            addresses: addresses.map(|have| have.net).collect(),
            moved,
            multipath: whole.into_iter().filter(|whole| is_multipath(whole, index) && is_moved(&whole.kept)).collect(),
        };
        self.common.add_routes(&own_name, effect.moved.len())?;
        run.journal.intend(run.view(), effect.clone())?;
        let vrf = match found {
            Some(vrf) => vrf,
            None => make(netlink, name, table)?,
        };
        if !vrf.up {
            netlink
                .set_up(vrf.index)
                .map_err(|error| native_error(error, name, format_args!("could not set VRF {name} up")))?;
        }
        netlink.set_master(index, Some(vrf.index)).map_err(|error| {
            native_error(error, name, format_args!("could not set vrf {name} as master of {own_name}"))
        })?;
        settle(run.fixed, netlink, &effect, table)?;
        run.journal.known_by(&Effect::from(effect), &[u64::from(vrf.index)]);
        Ok(())
    }

    fn check(&mut self, name: &str) -> Result<(), OpError> {
        let run = &*self.run;
        let netlink = run.system.container_netlink()?;
        let Some(vrf) = netlink.link_by_name(name).map_err(kernel_error)? else {
            return Err(OpError::new(ErrorCode::NotFound, name, "Link not found"));
        };
        if vrf.kind != KIND {
            return Err(OpError::new(ErrorCode::Mismatch, name, format!("Netlink {name} is not a VRF")));
        }
        let ifname = &run.request.ifname;
        let own = netlink.link_by_name(ifname).map_err(kernel_error)?;
        if own.is_some_and(|own| own.master == Some(vrf.index)) {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Mismatch, ifname, format!("failed to find {ifname} associated to vrf {name}")))
    }

    fn leave(&mut self) -> Result<(), OpError> {
        let run = &mut *self.run;
        run.journal.only_of_this_run(run.request, Vrf::is, "VRF")?;
        collect::take_back(run, Vrf::is)?;
        if may_be_native::<Vrf>(run) { leave_native(run) } else { Ok(()) }
    }
}

/// Checks the existing VRF, and returns its table.
fn table_of(vrf: &Link, name: &str, wanted: Option<u32>) -> Result<u32, OpError> {
    let exists = |message: String| OpError::new(ErrorCode::Exists, name, message);
    // The kernel also finds a link by an alternative name. The VRF must have `name` as its main name.
    let Some(table) = vrf.vrf_table.filter(|_| vrf.kind == KIND && vrf.name == name) else {
        return Err(exists(format!("Netlink {name} is not a VRF")).hint("name another VRF as `vrfname`"));
    };
    if is_reserved(table) {
        return Err(exists(format!("VRF {name} has table {table}, which is the kernel's own")));
    }
    match wanted.filter(|wanted| *wanted != table) {
        Some(_) => Err(exists(format!("VRF {name} already exist with different routing table {table}"))
            .hint("name this table, or another VRF")),
        None => Ok(table),
    }
}

/// Returns the table of a new VRF: the wanted table, or the lowest unused table.
fn free_table(netlink: &Netlink, wanted: Option<u32>, routes: &[(u32, KeptRoute)]) -> Result<u32, OpError> {
    may_be_named(wanted, "not for a VRF")?;
    let mut used: BTreeSet<u32> = routes.iter().filter_map(|(_, kept)| kept.route.table).collect();
    used.extend(netlink.rules().map_err(kernel_error)?.iter().map(|rule| rule.table));
    used.extend(netlink.links().map_err(kernel_error)?.iter().filter_map(|link| link.vrf_table));
    match wanted {
        Some(table) if used.contains(&table) => Err(OpError::new(
            ErrorCode::Exists,
            table.to_string(),
            format!("table {table} is in use in this container"),
        )
        .hint("name another table, or leave `table` out, so that the host chooses a table")),
        Some(table) => Ok(table),
        None => lowest_free(1, &used),
    }
}

fn make(netlink: &Netlink, name: &str, table: u32) -> Result<Link, OpError> {
    let made = netlink.create_vrf(name, table);
    made.map_err(|error| native_error(error, name, format_args!("could not add VRF {name}")))?;
    netlink.link_by_name(name).map_err(kernel_error)?.ok_or_else(|| link_gone(name))
}

/// Takes the own link out of the VRF that the network names, as a native plugin's DEL does.
fn leave_native(run: &Context) -> Result<(), OpError> {
    let Some(container) = run.system.container() else { return Ok(()) };
    let Some(name) = run.request.conf.fields().string("vrfname").ok().flatten() else { return Ok(()) };
    let _lock = lock(run.view())?;
    let netlink = container.netlink().map_err(kernel_error)?;
    let Some(vrf) = netlink.link_by_name(&name).map_err(kernel_error)?.filter(|vrf| vrf.kind == KIND) else {
        return Ok(());
    };
    let own = netlink.link_by_name(&run.request.ifname).map_err(kernel_error)?;
    // `CNI_NETNS` may lead to another container now. That container's link stays in its VRF.
    if own.as_ref().map_or(Ok(false), |own| others::spares(run, own))? {
        return Ok(());
    }
    let is_member = own.as_ref().is_some_and(|own| own.master == Some(vrf.index));
    leave_vrf(netlink, own.filter(|_| is_member).map(|own| own.index), &vrf)
}
