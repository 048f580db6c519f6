//! `postern:cni/link-settings`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{LinkSettings, OpError, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `settings`.
#[derive(Clone, Default)]
pub struct Settings {
    mac: Option<String>,
    mtu: Option<u32>,
    promisc: Option<bool>,
    allmulti: Option<bool>,
    tx_queue_length: Option<u32>,
}

impl wit::link_settings::Host for State {
    fn change(&mut self, link: Resource<super::link::Link>, settings: Resource<Settings>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let settings = self.table.get(&settings)?.read("link-settings.change")?;
        self.call(ops::LinkSettings::Change { link, settings })
    }

    fn check(&mut self, link: Resource<super::link::Link>, settings: Resource<Settings>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let settings = self.table.get(&settings)?.read("link-settings.check")?;
        self.call(ops::LinkSettings::Check { link, settings })
    }

    fn restore(&mut self) -> Result<(), Failure> {
        self.call(ops::LinkSettings::Restore)
    }
}

impl wit::link_settings::HostSettings for State {
    fn new(&mut self) -> wasmtime::Result<Resource<Settings>> {
        Ok(self.table.push(Settings::default())?)
    }

    fn set_mac(&mut self, settings: Resource<Settings>, mac: String) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.mac = Some(mac);
        Ok(())
    }

    fn set_mtu(&mut self, settings: Resource<Settings>, mtu: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.mtu = Some(mtu);
        Ok(())
    }

    fn set_promisc(&mut self, settings: Resource<Settings>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.promisc = Some(on);
        Ok(())
    }

    fn set_allmulti(&mut self, settings: Resource<Settings>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.allmulti = Some(on);
        Ok(())
    }

    fn set_tx_queue_length(&mut self, settings: Resource<Settings>, packets: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.tx_queue_length = Some(packets);
        Ok(())
    }

    fn drop(&mut self, settings: Resource<Settings>) -> wasmtime::Result<()> {
        self.table.delete(settings)?;
        Ok(())
    }
}

impl Settings {
    fn read(&self, operation: &str) -> Result<LinkSettings, OpError> {
        Ok(LinkSettings {
            mac: parse::maybe(operation, self.mac.as_ref())?,
            mtu: self.mtu,
            promisc: self.promisc,
            allmulti: self.allmulti,
            tx_queue_length: self.tx_queue_length,
        })
    }
}
