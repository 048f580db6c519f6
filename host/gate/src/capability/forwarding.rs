//! `forwarding`: a node object.

use crate::capability::facts::{Facts, Needed};
use crate::errors::kernel_error;
use crate::gate::Gate;
use crate::node;
use postern_kernel::{Sysctl, sysctl};
use postern_types::{ErrorCode, OpError, Reply, ops};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::WithAddresses, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Forwarding) -> Result<Reply, OpError> {
    match operation {
        ops::Forwarding::Enable => enable(gate),
    }
}

/// `forwarding.enable`.
fn enable(gate: &Gate<'_>) -> Result<Reply, OpError> {
    let own = &gate.session.own;
    let v4 = own.iter().any(|own| own.net.addr().is_ipv4());
    let v6 = own.iter().any(|own| own.net.addr().is_ipv6());
    for (wanted, key, name) in [(v4, Sysctl::Ipv4Forward, "ipv4"), (v6, Sysctl::Ipv6Forwarding, "ipv6")] {
        if !wanted {
            continue;
        }
        let failed = |error| {
            let mut converted = kernel_error(error);
            converted.code = ErrorCode::Io;
            converted.message = format!("failed to enable forwarding: {}", converted.message);
            converted
        };
        if sysctl::get(&key).map_err(failed)?.as_deref() != Some("1") {
            let (state, host) = (&gate.session.state, gate.session.host()?);
            node::noted(state, host, node::FORWARDING, name, || sysctl::set(&key, "1")).map_err(failed)?;
        }
    }
    Ok(Reply::Done)
}
