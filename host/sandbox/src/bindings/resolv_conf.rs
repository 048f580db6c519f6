//! `postern:cni/resolv-conf`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Reply, ops};
use wit::resolv_conf::Dns;

impl wit::resolv_conf::Host for State {
    fn read(&mut self) -> Result<Dns, Failure> {
        match self.call(ops::ResolvConf::Read)? {
            Reply::Dns(dns) => {
                Ok(Dns { nameservers: dns.nameservers, domain: dns.domain, search: dns.search, options: dns.options })
            }
            other => Err(other.unexpected().into()),
        }
    }
}
