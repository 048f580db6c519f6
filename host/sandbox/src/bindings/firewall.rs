//! `postern:cni/firewall`.

use super::{Failure, parse, wit};
use crate::state::State;
use postern_types::ops;
use wit::firewall::IngressPolicy;

impl wit::firewall::Host for State {
    fn admit(&mut self, addresses: Vec<String>) -> Result<(), Failure> {
        let addresses = parse::list("firewall.admit", &addresses)?;
        self.done(ops::Firewall::Admit { addresses })
    }

    fn isolate(&mut self, ingress: IngressPolicy) -> Result<(), Failure> {
        self.done(ops::Firewall::Isolate { ingress: ingress.into() })
    }

    fn check(&mut self, addresses: Vec<String>) -> Result<(), Failure> {
        let addresses = parse::list("firewall.check", &addresses)?;
        self.done(ops::Firewall::Check { addresses })
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.done(ops::Firewall::Remove)
    }
}

impl From<IngressPolicy> for postern_types::IngressPolicy {
    fn from(policy: IngressPolicy) -> Self {
        match policy {
            IngressPolicy::SameBridge => Self::SameBridge,
            IngressPolicy::Isolated => Self::Isolated,
        }
    }
}
