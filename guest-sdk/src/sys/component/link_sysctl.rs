//! `link-sysctl` in a component.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::wit::link_sysctl as wit;
use crate::error::Error;

pub(crate) fn set_accept_dad(link: &super::link::Link, on: bool) -> Result<(), Error> {
    wit::set_accept_dad(link, on).map_err(super::failure)
}

pub(crate) fn set_enhanced_dad(link: &super::link::Link, on: bool) -> Result<(), Error> {
    wit::set_enhanced_dad(link, on).map_err(super::failure)
}

pub(crate) fn set_arp_notify(link: &super::link::Link, on: bool) -> Result<(), Error> {
    wit::set_arp_notify(link, on).map_err(super::failure)
}

pub(crate) fn set_ndisc_notify(link: &super::link::Link, on: bool) -> Result<(), Error> {
    wit::set_ndisc_notify(link, on).map_err(super::failure)
}

pub(crate) fn set_keep_addr_on_down(link: &super::link::Link, on: bool) -> Result<(), Error> {
    wit::set_keep_addr_on_down(link, on).map_err(super::failure)
}

pub(crate) fn set_disable_ipv6(link: &super::link::Link, on: bool) -> Result<(), Error> {
    wit::set_disable_ipv6(link, on).map_err(super::failure)
}
