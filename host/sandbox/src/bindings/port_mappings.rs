//! `postern:cni/port-mappings`.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{ErrorCode, Forward, NatSources, OpError, Transport, ops};
use std::net::IpAddr;
use wit::port_mappings::{Sources, Transport as WitTransport};

/// Reads the arguments of a function.
fn read(
    operation: &str,
    addresses: &[String],
    forwards: &[wit::port_mappings::Forward],
) -> Result<(Vec<IpAddr>, Vec<Forward>), OpError> {
    let forward = |forward: &wit::port_mappings::Forward| {
        let read = Forward {
            transport: forward.transport.into(),
            host_address: parse::maybe(operation, forward.host_address.as_ref())?,
            host_port: forward.host_port,
            container_port: forward.container_port,
            count: forward.count,
        };
        if read.is_possible() {
            return Ok(read);
        }
        let message = "a forward has 1 to 65535 ports, and each of them is a port from 1 to 65535";
        let mut error = OpError::new(ErrorCode::InvalidArgument, forward.host_port.to_string(), message);
        error.operation = operation.to_owned();
        Err(error)
    };
    Ok((parse::list(operation, addresses)?, forwards.iter().map(forward).collect::<Result<_, OpError>>()?))
}

impl wit::port_mappings::Host for State {
    fn ensure(
        &mut self,
        addresses: Vec<String>,
        forwards: Vec<wit::port_mappings::Forward>,
        masquerade: Sources,
    ) -> Result<(), Failure> {
        let (addresses, forwards) = read("port-mappings.ensure", &addresses, &forwards)?;
        self.done(ops::PortMappings::Ensure { addresses, forwards, masquerade: masquerade.into() })
    }

    fn check(
        &mut self,
        addresses: Vec<String>,
        forwards: Vec<wit::port_mappings::Forward>,
        masquerade: Sources,
    ) -> Result<(), Failure> {
        let (addresses, forwards) = read("port-mappings.check", &addresses, &forwards)?;
        self.done(ops::PortMappings::Check { addresses, forwards, masquerade: masquerade.into() })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(ops::PortMappings::Remove)
    }
}

impl From<WitTransport> for Transport {
    fn from(transport: WitTransport) -> Self {
        match transport {
            WitTransport::Tcp => Self::Tcp,
            WitTransport::Udp => Self::Udp,
            WitTransport::Sctp => Self::Sctp,
        }
    }
}

impl From<Sources> for NatSources {
    fn from(sources: Sources) -> Self {
        match sources {
            Sources::None => Self::None,
            Sources::OwnNetwork => Self::Own,
            Sources::All => Self::All,
        }
    }
}
