//! `postern:cni/firewall`.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::ops;

impl wit::firewall::Host for State {
    fn admit(&mut self, addresses: Vec<String>) -> Result<(), Failure> {
        let addresses = parse::list("firewall.admit", &addresses)?;
        self.call(ops::Firewall::Admit { addresses })
    }

    fn isolate(&mut self, ingress: wit::firewall::IngressPolicy) -> Result<(), Failure> {
        let ingress = read_ingress_policy(ingress);
        self.call(ops::Firewall::Isolate { ingress })
    }

    fn check(&mut self, addresses: Vec<String>) -> Result<(), Failure> {
        let addresses = parse::list("firewall.check", &addresses)?;
        self.call(ops::Firewall::Check { addresses })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.call(ops::Firewall::Remove)
    }
}

fn read_ingress_policy(given: wit::firewall::IngressPolicy) -> postern_types::IngressPolicy {
    match given {
        wit::firewall::IngressPolicy::SameBridge => postern_types::IngressPolicy::SameBridge,
        wit::firewall::IngressPolicy::Isolated => postern_types::IngressPolicy::Isolated,
    }
}
