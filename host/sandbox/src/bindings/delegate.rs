//! `postern:cni/delegate`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Reply, ops};

impl wit::delegate::Host for State {
    fn subnet_file(&mut self) -> Result<wit::delegate::Subnet, Failure> {
        match self.call(ops::Delegate::SubnetFile)? {
            Reply::Subnet(subnet) => Ok(wit::delegate::Subnet {
                networks: subnet.networks.iter().map(ToString::to_string).collect(),
                subnets: subnet.subnets.iter().map(ToString::to_string).collect(),
                mtu: subnet.mtu,
                ip_masq: subnet.ip_masq,
            }),
            other => Err(other.unexpected().into()),
        }
    }

    fn add(&mut self, config: String) -> Result<String, Failure> {
        match self.call(ops::Delegate::Add { config })? {
            Reply::Result(json) => Ok(json),
            other => Err(other.unexpected().into()),
        }
    }

    fn del(&mut self) -> Result<(), Failure> {
        self.done(ops::Delegate::Del)
    }

    fn check(&mut self) -> Result<(), Failure> {
        self.done(ops::Delegate::Check)
    }

    fn status(&mut self) -> Result<(), Failure> {
        self.done(ops::Delegate::Status)
    }

    fn gc(&mut self) -> Result<(), Failure> {
        self.done(ops::Delegate::Gc)
    }
}
