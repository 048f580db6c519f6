//! `postern:cni/link-sysctl`.

use super::link::Link;
use super::{Failure, wit};
use crate::state::State;
use postern_types::{LinkSysctl, ops};
use wasmtime::component::Resource;

impl wit::link_sysctl::Host for State {
    fn set_accept_dad(&mut self, link: Resource<Link>, on: bool) -> Result<(), Failure> {
        self.set_sysctl(&link, LinkSysctl::AcceptDad, on)
    }

    fn set_enhanced_dad(&mut self, link: Resource<Link>, on: bool) -> Result<(), Failure> {
        self.set_sysctl(&link, LinkSysctl::EnhancedDad, on)
    }

    fn set_ndisc_notify(&mut self, link: Resource<Link>, on: bool) -> Result<(), Failure> {
        self.set_sysctl(&link, LinkSysctl::NdiscNotify, on)
    }

    fn set_arp_notify(&mut self, link: Resource<Link>, on: bool) -> Result<(), Failure> {
        self.set_sysctl(&link, LinkSysctl::ArpNotify, on)
    }

    fn set_keep_addr_on_down(&mut self, link: Resource<Link>, on: bool) -> Result<(), Failure> {
        self.set_sysctl(&link, LinkSysctl::KeepAddrOnDown, on)
    }

    fn set_disable_ipv6(&mut self, link: Resource<Link>, on: bool) -> Result<(), Failure> {
        self.set_sysctl(&link, LinkSysctl::DisableIpv6, on)
    }
}

impl State {
    fn set_sysctl(&mut self, link: &Resource<Link>, key: LinkSysctl, value: bool) -> Result<(), Failure> {
        let link = self.table.get(link)?.handle;
        self.done(ops::LinkSysctl::Set { link, key, value })
    }
}
