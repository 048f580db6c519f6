//! `postern:cni/addresses`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{Address, ops};
use wasmtime::component::Resource;

impl wit::addresses::Host for State {
    fn add(&mut self, link: Resource<super::link::Link>, addresses: Vec<String>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let addresses = parse::list("addresses.add", &addresses)?;
        self.call(ops::Addresses::Add { link, addresses })
    }

    fn list(&mut self, link: Resource<super::link::Link>) -> Result<Vec<wit::types::Address>, Failure> {
        let link = self.table.get(&link)?.handle;
        let reply: Vec<Address> = self.call(ops::Addresses::List { link })?;
        Ok(reply.into_iter().map(|shown| shown.into()).collect())
    }

    fn has(&mut self, link: Resource<super::link::Link>, addresses: Vec<String>) -> Result<Vec<bool>, Failure> {
        let link = self.table.get(&link)?.handle;
        let addresses = parse::list("addresses.has", &addresses)?;
        self.call(ops::Addresses::Has { link, addresses })
    }

    fn settle(&mut self, link: Resource<super::link::Link>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::Addresses::Settle { link })
    }
}
