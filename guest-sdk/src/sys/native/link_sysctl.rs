//! `link-sysctl` in native unit tests, where the fake host answers.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use crate::error::Error;

pub(crate) fn set_accept_dad(link: &super::link::Link, on: bool) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSysctl::Set {
        link: *link,
        key: postern_types::LinkSysctl::AcceptDad,
        value: on,
    })
}

pub(crate) fn set_enhanced_dad(link: &super::link::Link, on: bool) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSysctl::Set {
        link: *link,
        key: postern_types::LinkSysctl::EnhancedDad,
        value: on,
    })
}

pub(crate) fn set_arp_notify(link: &super::link::Link, on: bool) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSysctl::Set {
        link: *link,
        key: postern_types::LinkSysctl::ArpNotify,
        value: on,
    })
}

pub(crate) fn set_ndisc_notify(link: &super::link::Link, on: bool) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSysctl::Set {
        link: *link,
        key: postern_types::LinkSysctl::NdiscNotify,
        value: on,
    })
}

pub(crate) fn set_keep_addr_on_down(link: &super::link::Link, on: bool) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSysctl::Set {
        link: *link,
        key: postern_types::LinkSysctl::KeepAddrOnDown,
        value: on,
    })
}

pub(crate) fn set_disable_ipv6(link: &super::link::Link, on: bool) -> Result<(), Error> {
    super::ask(postern_types::ops::LinkSysctl::Set {
        link: *link,
        key: postern_types::LinkSysctl::DisableIpv6,
        value: on,
    })
}
