//! `postern:cni/link-settings`.

use super::link::Link;
use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::{LinkSettings, ops};
use wasmtime::component::Resource;

/// The host's data for a guest's `settings`.
#[derive(Default)]
pub struct Settings {
    mac: Option<String>,
    rest: LinkSettings,
}

impl wit::link_settings::Host for State {
    fn change(&mut self, link: Resource<Link>, settings: Resource<Settings>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let settings = self.settings("link-settings.change", &settings)?;
        self.done(ops::LinkSettings::Change { link, settings })
    }

    fn check(&mut self, link: Resource<Link>, settings: Resource<Settings>) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        let settings = self.settings("link-settings.check", &settings)?;
        self.done(ops::LinkSettings::Check { link, settings })
    }

    fn restore(&mut self) -> Result<(), Failure> {
        self.done(ops::LinkSettings::Restore)
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
        self.table.get_mut(&settings)?.rest.mtu = Some(mtu);
        Ok(())
    }

    fn set_promisc(&mut self, settings: Resource<Settings>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.rest.promisc = Some(on);
        Ok(())
    }

    fn set_allmulti(&mut self, settings: Resource<Settings>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.rest.allmulti = Some(on);
        Ok(())
    }

    fn set_tx_queue_length(&mut self, settings: Resource<Settings>, packets: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&settings)?.rest.tx_queue_length = Some(packets);
        Ok(())
    }

    fn drop(&mut self, settings: Resource<Settings>) -> wasmtime::Result<()> {
        self.table.delete(settings)?;
        Ok(())
    }
}

impl State {
    fn settings(&self, operation: &str, settings: &Resource<Settings>) -> Result<LinkSettings, Failure> {
        let Settings { mac, rest } = self.table.get(settings)?;
        Ok(LinkSettings { mac: parse::maybe(operation, mac.as_ref())?, ..rest.clone() })
    }
}
