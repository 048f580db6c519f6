//! `postern:cni/port-mappings`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{NatSources, OpError, ops};

impl wit::port_mappings::Host for State {
    fn ensure(
        &mut self,
        addresses: Vec<String>,
        forwards: Vec<wit::port_mappings::Forward>,
        masquerade: wit::port_mappings::Sources,
    ) -> Result<(), Failure> {
        let addresses = parse::list("port-mappings.ensure", &addresses)?;
        let forwards = forwards
            .into_iter()
            .map(|given| read_forward("port-mappings.ensure", given))
            .collect::<Result<Vec<_>, OpError>>()?;
        let masquerade = read_sources(masquerade);
        self.call(ops::PortMappings::Ensure { addresses, forwards, masquerade })
    }

    fn check(
        &mut self,
        addresses: Vec<String>,
        forwards: Vec<wit::port_mappings::Forward>,
        masquerade: wit::port_mappings::Sources,
    ) -> Result<(), Failure> {
        let addresses = parse::list("port-mappings.check", &addresses)?;
        let forwards = forwards
            .into_iter()
            .map(|given| read_forward("port-mappings.check", given))
            .collect::<Result<Vec<_>, OpError>>()?;
        let masquerade = read_sources(masquerade);
        self.call(ops::PortMappings::Check { addresses, forwards, masquerade })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.call(ops::PortMappings::Remove)
    }
}

fn read_transport(given: wit::port_mappings::Transport) -> postern_types::Transport {
    match given {
        wit::port_mappings::Transport::Tcp => postern_types::Transport::Tcp,
        wit::port_mappings::Transport::Udp => postern_types::Transport::Udp,
        wit::port_mappings::Transport::Sctp => postern_types::Transport::Sctp,
    }
}

fn read_forward(operation: &str, given: wit::port_mappings::Forward) -> Result<postern_types::Forward, OpError> {
    parse::checked(
        operation,
        postern_types::Forward {
            transport: read_transport(given.transport),
            host_address: parse::maybe(operation, given.host_address.as_ref())?,
            host_port: given.host_port,
            container_port: given.container_port,
            count: given.count,
        },
    )
}

fn read_sources(given: wit::port_mappings::Sources) -> NatSources {
    match given {
        wit::port_mappings::Sources::None => NatSources::None,
        wit::port_mappings::Sources::OwnNetwork => NatSources::Own,
        wit::port_mappings::Sources::All => NatSources::All,
    }
}
