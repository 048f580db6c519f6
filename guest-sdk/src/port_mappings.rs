//! Ports of the node that lead to the attachment's own addresses.

use crate::error::Error;
use crate::sys::{self, host};
use postern_types::{Forward, NatSources};
use std::net::IpAddr;

#[cfg(target_arch = "wasm32")]
use postern_types::Transport;
#[cfg(not(target_arch = "wasm32"))]
use postern_types::ops;

/// Makes the rules that lead these forwards to these addresses, at most one of each IP version.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Exists`]: another container has one of the ports.
pub fn ensure(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    host!(
        component: {
            let (addresses, forwards) = translate(addresses, forwards);
            sys::port_mappings::ensure(&addresses, &forwards, sources(masquerade)).map_err(sys::failure)
        },
        fake: sys::done(ops::PortMappings::Ensure {
            addresses: addresses.to_vec(), forwards: forwards.to_vec(), masquerade
        }),
    )
}

/// Compares the rules with the expected ones.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    host!(
        component: {
            let (addresses, forwards) = translate(addresses, forwards);
            sys::port_mappings::check(&addresses, &forwards, sources(masquerade)).map_err(sys::failure)
        },
        fake: sys::done(ops::PortMappings::Check {
            addresses: addresses.to_vec(), forwards: forwards.to_vec(), masquerade
        }),
    )
}

/// Removes the attachment's rules. It succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    host!(
        component: sys::port_mappings::remove().map_err(sys::failure),
        fake: sys::done(ops::PortMappings::Remove),
    )
}

#[cfg(target_arch = "wasm32")]
fn translate(addresses: &[IpAddr], forwards: &[Forward]) -> (Vec<String>, Vec<sys::port_mappings::Forward>) {
    let forward = |forward: &Forward| sys::port_mappings::Forward {
        transport: match forward.transport {
            Transport::Tcp => sys::port_mappings::Transport::Tcp,
            Transport::Udp => sys::port_mappings::Transport::Udp,
            Transport::Sctp => sys::port_mappings::Transport::Sctp,
        },
        host_address: forward.host_address.map(|address| address.to_string()),
        host_port: forward.host_port,
        container_port: forward.container_port,
        count: forward.count,
    };
    (addresses.iter().map(ToString::to_string).collect(), forwards.iter().map(forward).collect())
}

#[cfg(target_arch = "wasm32")]
fn sources(masquerade: NatSources) -> sys::port_mappings::Sources {
    match masquerade {
        NatSources::None => sys::port_mappings::Sources::None,
        NatSources::Own => sys::port_mappings::Sources::OwnNetwork,
        NatSources::All => sys::port_mappings::Sources::All,
    }
}
