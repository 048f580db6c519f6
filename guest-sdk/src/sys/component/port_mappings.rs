//! `port-mappings` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::port_mappings as wit;
use crate::error::Error;
use postern_types::{Forward, NatSources, Transport};
use std::net::IpAddr;

pub(crate) fn ensure(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    wit::ensure(
        &super::texts(addresses),
        &forwards.iter().map(wire_forward).collect::<Vec<_>>(),
        wire_sources(masquerade),
    )
    .map_err(super::failure)
}

pub(crate) fn check(addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), Error> {
    wit::check(
        &super::texts(addresses),
        &forwards.iter().map(wire_forward).collect::<Vec<_>>(),
        wire_sources(masquerade),
    )
    .map_err(super::failure)
}

pub(crate) fn remove() -> Result<(), Error> {
    wit::remove().map_err(super::failure)
}

fn wire_transport(value: Transport) -> wit::Transport {
    match value {
        Transport::Tcp => wit::Transport::Tcp,
        Transport::Udp => wit::Transport::Udp,
        Transport::Sctp => wit::Transport::Sctp,
    }
}

fn wire_forward(value: &Forward) -> wit::Forward {
    wit::Forward {
        transport: wire_transport(value.transport),
        host_address: value.host_address.map(|value| value.to_string()),
        host_port: value.host_port,
        container_port: value.container_port,
        count: value.count,
    }
}

fn wire_sources(value: NatSources) -> wit::Sources {
    match value {
        NatSources::None => wit::Sources::None,
        NatSources::Own => wit::Sources::OwnNetwork,
        NatSources::All => wit::Sources::All,
    }
}
