//! `loopback`, simulated.

use crate::kernel::Kernel;
use ipnet::IpNet;
use postern_types::{Address, LoopbackState, OpError, host};
use std::net::IpAddr;

impl host::Loopback for Kernel {
    fn up(&mut self) -> Result<(), OpError> {
        self.namespace()?;
        if !self.lo.0 {
            self.lo.0 = true;
            let address = |ip: IpAddr, prefix| IpNet::new(ip, prefix).ok();
            let v4 = address(IpAddr::from([127, 0, 0, 1]), 8);
            let v6 = address(IpAddr::from(std::net::Ipv6Addr::LOCALHOST), 128).filter(|_| self.ipv6);
            let nets = [v4, v6].into_iter().flatten();
            self.lo.1.extend(nets.map(|net| Address { net, scope: 254, tentative: false }));
        }
        Ok(())
    }

    fn down(&mut self) -> Result<(), OpError> {
        self.lo = (false, Vec::new());
        Ok(())
    }

    fn addresses(&mut self) -> Result<LoopbackState, OpError> {
        self.namespace()?;
        Ok(LoopbackState { up: self.lo.0, addresses: self.lo.1.clone() })
    }
}
