//! `postern:cni/tap`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{LinkInfo, OpError, TapSettings, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `options`.
#[derive(Clone, Default)]
pub struct Options {
    mtu: Option<u32>,
    mac: Option<String>,
    owner: Option<u32>,
    group: Option<u32>,
    multi_queue: bool,
    packet_information: bool,
    vnet_header: bool,
    selinux_context: Option<String>,
}

impl wit::tap::Host for State {
    fn create(&mut self, options: Resource<Options>) -> Result<wit::tap::Made, Failure> {
        let settings = self.table.get(&options)?.read("tap.create")?;
        let reply: LinkInfo = self.call(ops::Tap::Create { settings })?;
        self.give_tap_made(reply)
    }

    fn join(&mut self, link: Resource<super::link::Link>, bridge: String) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::Tap::Join { link, bridge })
    }
}

impl wit::tap::HostOptions for State {
    fn new(&mut self) -> wasmtime::Result<Resource<Options>> {
        Ok(self.table.push(Options::default())?)
    }

    fn set_mtu(&mut self, options: Resource<Options>, mtu: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mtu = Some(mtu);
        Ok(())
    }

    fn set_mac(&mut self, options: Resource<Options>, mac: String) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mac = Some(mac);
        Ok(())
    }

    fn set_owner(&mut self, options: Resource<Options>, uid: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.owner = Some(uid);
        Ok(())
    }

    fn set_group(&mut self, options: Resource<Options>, gid: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.group = Some(gid);
        Ok(())
    }

    fn set_multi_queue(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.multi_queue = true;
        Ok(())
    }

    fn set_packet_information(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.packet_information = true;
        Ok(())
    }

    fn set_vnet_header(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.vnet_header = true;
        Ok(())
    }

    fn set_selinux_context(&mut self, options: Resource<Options>, context: String) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.selinux_context = Some(context);
        Ok(())
    }

    fn drop(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.delete(options)?;
        Ok(())
    }
}

impl Options {
    fn read(&self, operation: &str) -> Result<TapSettings, OpError> {
        Ok(TapSettings {
            mtu: self.mtu,
            mac: parse::maybe(operation, self.mac.as_ref())?,
            owner: self.owner,
            group: self.group,
            multi_queue: self.multi_queue,
            packet_information: self.packet_information,
            vnet_header: self.vnet_header,
            selinux_context: self.selinux_context.clone(),
        })
    }
}

impl State {
    fn give_tap_made(&mut self, shown: LinkInfo) -> Result<wit::tap::Made, Failure> {
        Ok(wit::tap::Made {
            link: self.table.push(super::link::Link { handle: shown.handle })?,
            attributes: shown.into(),
        })
    }
}
