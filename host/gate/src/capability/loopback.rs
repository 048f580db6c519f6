//! `loopback`: `lo` of the container's namespace.

use crate::capability::addresses::show;
use crate::effect::LoopbackUp;
use crate::gate::{Gate, link_gone};
use crate::session::{Session, kernel};
use postern_kernel::{Link, Netlink};
use postern_types::{OpError, Reply, ops};

fn lo(netlink: &Netlink) -> Result<Link, OpError> {
    netlink.link_by_name("lo").map_err(kernel)?.ok_or_else(|| link_gone("lo"))
}

/// Carries out one operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Loopback) -> Result<Reply, OpError> {
    match operation {
        ops::Loopback::Up => up(gate),
        ops::Loopback::Down => down(gate),
        ops::Loopback::Addresses => state(gate),
    }
}

/// `loopback.up`.
fn up(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let netlink = gate.session.container_required()?.netlink().map_err(kernel)?;
    let lo = lo(netlink)?;
    if !lo.up {
        gate.session.intend(LoopbackUp {})?;
        gate.session.container_required()?.netlink().map_err(kernel)?.set_up(lo.index).map_err(kernel)?;
    }
    Ok(Reply::Done)
}

/// `loopback.down`.
fn down(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    revert(gate.session)?;
    Ok(Reply::Done)
}

/// Sets `lo` down, if there is a namespace.
pub fn revert(session: &Session) -> Result<(), OpError> {
    let Some(container) = session.container() else { return Ok(()) };
    let netlink = container.netlink().map_err(kernel)?;
    netlink.set_down(lo(netlink)?.index).map_err(kernel)
}

/// `loopback.state`.
fn state(gate: &Gate<'_>) -> Result<Reply, OpError> {
    let netlink = gate.session.container_required()?.netlink().map_err(kernel)?;
    let lo = lo(netlink)?;
    let addresses = netlink.addresses(lo.index).map_err(kernel)?;
    Ok(Reply::Loopback { up: lo.up, addresses: addresses.into_iter().map(show).collect() })
}
