//! `loopback`, simulated.

use crate::kernel::Kernel;
use ipnet::IpNet;
use postern_types::{Address, OpError, Reply, ops};
use std::net::IpAddr;

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Loopback) -> Result<Reply, OpError> {
    match operation {
        ops::Loopback::Up => kernel.lo_up(),
        ops::Loopback::Down => {
            kernel.lo = (false, Vec::new());
            Ok(Reply::Done)
        }
        ops::Loopback::Addresses => {
            kernel.namespace()?;
            Ok(Reply::Loopback { up: kernel.lo.0, addresses: kernel.lo.1.clone() })
        }
    }
}

impl Kernel {
    fn lo_up(&mut self) -> Result<Reply, OpError> {
        self.namespace()?;
        if !self.lo.0 {
            self.lo.0 = true;
            let address = |ip: IpAddr, prefix| IpNet::new(ip, prefix).ok();
            let v4 = address(IpAddr::from([127, 0, 0, 1]), 8);
            let v6 = address(IpAddr::from(std::net::Ipv6Addr::LOCALHOST), 128).filter(|_| self.ipv6);
            let nets = [v4, v6].into_iter().flatten();
            self.lo.1.extend(nets.map(|net| Address { net, scope: 254, tentative: false }));
        }
        Ok(Reply::Done)
    }
}
