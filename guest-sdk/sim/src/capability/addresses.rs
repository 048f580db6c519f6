//! `addresses`, simulated.

use crate::kernel::Kernel;
use crate::links::{EEXIST, refused, to};
use ipnet::IpNet;
use postern_types::{Address, ErrorCode, Handle, LinkSysctl, OpError, Route, host};

impl host::Addresses for Kernel {
    fn add(&mut self, link: Handle, addresses: &[IpNet]) -> Result<(), OpError> {
        let own = self.own_addresses();
        for net in addresses {
            if !own.iter().any(|(address, _)| address == net) {
                let message = format!("{net} is not an address of this attachment");
                return Err(OpError::new(ErrorCode::InvalidArgument, net.to_string(), message));
            }
            let dad = !self.held(link)?.sysctls.contains(&(LinkSysctl::AcceptDad, false));
            let link = self.held_mut(link)?;
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
        Ok(())
    }

    fn list(&mut self, link: Handle) -> Result<Vec<Address>, OpError> {
        Ok(self.held(link)?.addresses.clone())
    }

    fn has(&mut self, link: Handle, addresses: &[IpNet]) -> Result<Vec<bool>, OpError> {
        let there = &self.held(link)?.addresses;
        Ok(addresses.iter().map(|wanted| there.iter().any(|have| have.net == *wanted)).collect())
    }

    fn settle(&mut self, link: Handle) -> Result<(), OpError> {
        self.held_mut(link)?.addresses.iter_mut().for_each(|address| address.tentative = false);
        Ok(())
    }
}
