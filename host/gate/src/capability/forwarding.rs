//! `forwarding`: the node forwards packets. This setting is a node object.

pub(crate) use crate::capability::facts::WITH_ADDRESSES as FACTS;
use crate::errors::kernel_error;
use crate::gate::Gate;
use crate::node;
use postern_kernel::{Sysctl, sysctl};
use postern_types::{ErrorCode, OpError, host};

impl host::Forwarding for Gate<'_> {
    fn enable(&mut self) -> Result<(), OpError> {
        let own = &self.run.own.addresses;
        let v4 = own.iter().any(|own| own.net.addr().is_ipv4());
        let v6 = own.iter().any(|own| own.net.addr().is_ipv6());
        let families = [(v4, Sysctl::Ipv4Forward, "ipv4"), (v6, Sysctl::Ipv6Forwarding, "ipv6")];
        for (_, key, name) in families.into_iter().filter(|(wanted, ..)| *wanted) {
            let failed = |error| {
                let error = kernel_error(error);
                let message = format!("failed to enable forwarding: {}", error.message);
                OpError { code: ErrorCode::Io, message, ..error }
            };
            if sysctl::get(&key).map_err(failed)?.as_deref() != Some("1") {
                let (state, host) = (&self.run.fixed.places.state, self.run.system.host()?);
                node::noted(state, host, node::FORWARDING, name, || sysctl::set(&key, "1")).map_err(failed)?;
            }
        }
        Ok(())
    }
}
