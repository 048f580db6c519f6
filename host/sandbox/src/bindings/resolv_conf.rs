//! `postern:cni/resolv-conf`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, wit};
use crate::state::State;
use postern_types::ops;

impl wit::resolv_conf::Host for State {
    fn read(&mut self) -> Result<wit::resolv_conf::Dns, Failure> {
        let reply: postern_types::Dns = self.call(ops::ResolvConf::Read)?;
        Ok(show_dns(reply))
    }
}

fn show_dns(shown: postern_types::Dns) -> wit::resolv_conf::Dns {
    wit::resolv_conf::Dns {
        nameservers: shown.nameservers,
        domain: shown.domain,
        search: shown.search,
        options: shown.options,
    }
}
