//! `addresses`, simulated.

use crate::kernel::Kernel;
use crate::links::{EEXIST, refused, to};
use ipnet::IpNet;
use postern_types::{Address, ErrorCode, Handle, LinkSysctl, OpError, Reply, Route, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Addresses) -> Result<Reply, OpError> {
    match operation {
        ops::Addresses::Add { link, addresses } => kernel.addresses_add(*link, addresses),
        ops::Addresses::List { link } => Ok(Reply::Addresses(kernel.held(*link)?.addresses.clone())),
        ops::Addresses::Has { link, addresses } => {
            let there = &kernel.held(*link)?.addresses;
            Ok(Reply::Present(addresses.iter().map(|wanted| there.iter().any(|have| have.net == *wanted)).collect()))
        }
        ops::Addresses::Settle { link } => kernel.settle(*link),
    }
}

impl Kernel {
    fn addresses_add(&mut self, handle: Handle, nets: &[IpNet]) -> Result<Reply, OpError> {
        let own = self.own_addresses();
        for net in nets {
            if !own.iter().any(|(address, _)| address == net) {
                let message = format!("{net} is not an address of this attachment");
                return Err(OpError::new(ErrorCode::InvalidArgument, net.to_string(), message));
            }
            let dad = !self.held(handle)?.sysctls.contains(&(LinkSysctl::AcceptDad, false));
            let link = self.held_mut(handle)?;
            if link.addresses.iter().any(|address| address.net == *net) {
                return Err(refused(EEXIST, net, "file exists"));
            }
            let tentative = matches!(net, IpNet::V6(_)) && dad;
            link.addresses.push(Address { net: *net, scope: 0, tentative });
            let connected = Route { scope: Some(253), ..to(net.trunc()) };
            if net.prefix_len() < net.max_prefix_len() && !link.routes.contains(&connected) {
                link.routes.push(connected);
            }
        }
        Ok(Reply::Done)
    }

    fn settle(&mut self, handle: Handle) -> Result<Reply, OpError> {
        self.held_mut(handle)?.addresses.iter_mut().for_each(|address| address.tentative = false);
        Ok(Reply::Done)
    }
}
