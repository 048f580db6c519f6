//! `postern:cni/link-sysctl`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{LinkSysctl, ops};
use wasmtime::component::Resource;

impl wit::link_sysctl::Host for State {
    fn set_accept_dad(&mut self, link: Resource<super::link::Link>, on: bool) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::LinkSysctl::Set { link, key: LinkSysctl::AcceptDad, value: on })
    }

    fn set_enhanced_dad(&mut self, link: Resource<super::link::Link>, on: bool) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::LinkSysctl::Set { link, key: LinkSysctl::EnhancedDad, value: on })
    }

    fn set_arp_notify(&mut self, link: Resource<super::link::Link>, on: bool) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::LinkSysctl::Set { link, key: LinkSysctl::ArpNotify, value: on })
    }

    fn set_ndisc_notify(&mut self, link: Resource<super::link::Link>, on: bool) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::LinkSysctl::Set { link, key: LinkSysctl::NdiscNotify, value: on })
    }

    fn set_keep_addr_on_down(&mut self, link: Resource<super::link::Link>, on: bool) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::LinkSysctl::Set { link, key: LinkSysctl::KeepAddrOnDown, value: on })
    }

    fn set_disable_ipv6(&mut self, link: Resource<super::link::Link>, on: bool) -> Result<(), Failure> {
        let link = self.table.get(&link)?.handle;
        self.call(ops::LinkSysctl::Set { link, key: LinkSysctl::DisableIpv6, value: on })
    }
}
