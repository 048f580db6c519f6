//! `postern:cni/tap`.

use super::link::Link;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{Reply, TapSettings, ops};
use wasmtime::component::Resource;
use wit::tap::Made;

/// The host's data for a guest's `options`.
#[derive(Default)]
pub struct Options {
    mac: Option<String>,
    rest: TapSettings,
}

impl wit::tap::Host for State {
    fn create(&mut self, options: Resource<Options>) -> Result<Made, Failure> {
        let Options { mac, rest } = self.table.get(&options)?;
        let settings = TapSettings { mac: parse::maybe("tap.create", mac.as_ref())?, ..rest.clone() };
        match self.call(ops::Tap::Create { settings })? {
            Reply::Made(made) => {
                let link = self.table.push(Link { handle: made.handle })?;
                Ok(Made { link, attributes: made.into() })
            }
            other => Err(other.unexpected().into()),
        }
    }

    fn join(&mut self, link: Resource<Link>, bridge: String) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.done(ops::Tap::Join { link, bridge })
    }
}

impl wit::tap::HostOptions for State {
    fn new(&mut self) -> wasmtime::Result<Resource<Options>> {
        Ok(self.table.push(Options::default())?)
    }

    fn set_mtu(&mut self, options: Resource<Options>, mtu: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.rest.mtu = Some(mtu);
        Ok(())
    }

    fn set_mac(&mut self, options: Resource<Options>, mac: String) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.mac = Some(mac);
        Ok(())
    }

    fn set_owner(&mut self, options: Resource<Options>, uid: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.rest.owner = Some(uid);
        Ok(())
    }

    fn set_group(&mut self, options: Resource<Options>, gid: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.rest.group = Some(gid);
        Ok(())
    }

    fn set_multi_queue(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.rest.multi_queue = true;
        Ok(())
    }

    fn set_packet_information(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.rest.packet_information = true;
        Ok(())
    }

    fn set_vnet_header(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.rest.vnet_header = true;
        Ok(())
    }

    fn set_selinux_context(&mut self, options: Resource<Options>, context: String) -> wasmtime::Result<()> {
        self.table.get_mut(&options)?.rest.selinux_context = Some(context);
        Ok(())
    }

    fn drop(&mut self, options: Resource<Options>) -> wasmtime::Result<()> {
        self.table.delete(options)?;
        Ok(())
    }
}
