//! `postern:cni/delegate`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{SubnetFile, ops};

impl wit::delegate::Host for State {
    fn subnet_file(&mut self) -> Result<wit::delegate::Subnet, Failure> {
        let reply: SubnetFile = self.call(ops::Delegate::SubnetFile)?;
        Ok(show_subnet(reply))
    }

    fn add(&mut self, config: String) -> Result<String, Failure> {
        self.call(ops::Delegate::Add { config })
    }

    fn del(&mut self) -> Result<(), Failure> {
        self.call(ops::Delegate::Del)
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.call(ops::Delegate::Check)
    }

    fn status(&mut self) -> Result<(), Failure> {
        self.call(ops::Delegate::Status)
    }

    fn gc(&mut self) -> Result<(), Failure> {
        self.call(ops::Delegate::Gc)
    }
}

fn show_subnet(shown: SubnetFile) -> wit::delegate::Subnet {
    wit::delegate::Subnet {
        networks: shown.networks.into_iter().map(|shown| shown.to_string()).collect(),
        subnets: shown.subnets.into_iter().map(|shown| shown.to_string()).collect(),
        mtu: shown.mtu,
        ip_masq: shown.ip_masq,
    }
}
