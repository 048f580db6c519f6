//! `postern:cni/addresses`.

use super::link::Link;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{Reply, ops};
use wasmtime::component::Resource;
use wit::types::Address;

impl wit::addresses::Host for State {
    fn add(&mut self, link: Resource<Link>, addresses: Vec<String>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let addresses = parse::list("addresses.add", &addresses)?;
        self.done(ops::Addresses::Add { link, addresses })
    }

    fn list(&mut self, link: Resource<Link>) -> Result<Vec<Address>, Failure> {
        let link = self.table.get(&link)?.handle;
        match self.call(ops::Addresses::List { link })? {
            Reply::Addresses(addresses) => Ok(addresses.into_iter().map(Into::into).collect()),
            other => Err(other.unexpected().into()),
        }
    }

    fn has(&mut self, link: Resource<Link>, addresses: Vec<String>) -> Result<Vec<bool>, Failure> {
        let link = self.table.get(&link)?.handle;
        let addresses = parse::list("addresses.has", &addresses)?;
        match self.call(ops::Addresses::Has { link, addresses })? {
            Reply::Present(present) => Ok(present),
            other => Err(other.unexpected().into()),
        }
    }

    fn settle(&mut self, link: Resource<Link>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.done(ops::Addresses::Settle { link })
    }
}
