//! The resolv.conf(5) file that the operator's configuration names.

use crate::error::Error;
use crate::sys::host;
use postern_types::Dns;

#[cfg(target_arch = "wasm32")]
use crate::sys;
#[cfg(not(target_arch = "wasm32"))]
use {
    crate::sys::ask,
    postern_types::{Reply, ops},
};

/// Reads the file named by `ipam.resolvConf`.
pub fn read() -> Result<Dns, Error> {
    host!(
        component: sys::resolv_conf::read()
            .map(|dns| Dns {
                nameservers: dns.nameservers,
                domain: dns.domain,
                search: dns.search,
                options: dns.options,
            })
            .map_err(sys::failure),
        fake: ask!(ops::ResolvConf::Read, Reply::Dns(dns) => dns),
    )
}
