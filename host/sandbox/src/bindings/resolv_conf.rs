//! `postern:cni/resolv-conf`.

use super::{Failure, wit};
use crate::state::State;
use postern_types::{Operation, Reply};
use wit::resolv_conf::Dns;

impl wit::resolv_conf::Host for State {
    fn read(&mut self) -> Result<Dns, Failure> {
        match self.call(Operation::ResolvConfRead)? {
            Reply::Dns(dns) => {
                Ok(Dns { nameservers: dns.nameservers, domain: dns.domain, search: dns.search, options: dns.options })
            }
            other => Err(other.unexpected().into()),
        }
    }
}
