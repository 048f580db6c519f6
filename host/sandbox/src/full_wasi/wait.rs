//! `wasi:io/poll`: waiting for a clock, in the only thread of the process.
//!
//! wasmtime-wasi's own implementation would need another thread for the clock. A wait beyond the run's deadline ends
//! with the process.

use crate::state::State;
use std::future::Future;
use std::sync::Arc;
use tokio::runtime::Runtime;
use wasmtime::component::{HasData, Resource, ResourceTable};
use wasmtime::{Result, bail};
use wasmtime_wasi::p2::bindings::sync::io::poll;
use wasmtime_wasi_io::bindings::wasi::io::poll as asynchronous;
use wasmtime_wasi_io::poll::DynPollable;

/// The type parameter of the interface's functions.
pub struct Waits;

impl HasData for Waits {
    type Data<'a> = Waiting<'a>;
}

/// The state of a waiting guest.
pub struct Waiting<'a> {
    table: &'a mut ResourceTable,
    runtime: Option<Arc<Runtime>>,
}

pub fn waits(state: &mut State) -> Waiting<'_> {
    Waiting { table: &mut state.table, runtime: state.whole.runtime.clone() }
}

impl Waiting<'_> {
    fn wait<'a, T, F: Future<Output = Result<T>>>(
        &'a mut self,
        act: impl FnOnce(&'a mut ResourceTable) -> F,
    ) -> Result<T> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(act(self.table)),
            None => bail!("there is no clock"),
        }
    }
}

impl poll::Host for Waiting<'_> {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> Result<Vec<u32>> {
        self.wait(|table| asynchronous::Host::poll(table, pollables))
    }
}

impl poll::HostPollable for Waiting<'_> {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> Result<bool> {
        self.wait(|table| asynchronous::HostPollable::ready(table, pollable))
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        self.wait(|table| asynchronous::HostPollable::block(table, pollable))
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        asynchronous::HostPollable::drop(self.table, pollable)
    }
}
