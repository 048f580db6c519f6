//! `loopback`: `lo` of the container's namespace.

use crate::capability::addresses::show;
use crate::capability::facts::{Facts, Needed};
use crate::effect::loopback_up::lo;
use crate::effect::{Effect, LoopbackUp};
use crate::errors::kernel_error;
use crate::gate::Gate;
use postern_types::{OpError, Reply, ops};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Loopback) -> Result<Reply, OpError> {
    match operation {
        ops::Loopback::Up => up(gate),
        ops::Loopback::Down => down(gate),
        ops::Loopback::Addresses => state(gate),
    }
}

/// `loopback.up`.
fn up(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let netlink = gate.session.container_required()?.netlink().map_err(kernel_error)?;
    let lo = lo(netlink)?;
    if !lo.up {
        gate.session.intend(LoopbackUp {})?;
        gate.session.container_required()?.netlink().map_err(kernel_error)?.set_up(lo.index).map_err(kernel_error)?;
    }
    Ok(Reply::Done)
}

/// `loopback.down`.
fn down(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    Effect::from(LoopbackUp {}).remove(gate.session, None)?;
    Ok(Reply::Done)
}

/// `loopback.state`.
fn state(gate: &Gate<'_>) -> Result<Reply, OpError> {
    let netlink = gate.session.container_required()?.netlink().map_err(kernel_error)?;
    let lo = lo(netlink)?;
    let addresses = netlink.addresses(lo.index).map_err(kernel_error)?;
    Ok(Reply::Loopback { up: lo.up, addresses: addresses.into_iter().map(show).collect() })
}
