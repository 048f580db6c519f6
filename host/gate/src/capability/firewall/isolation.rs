//! The isolation of the attachment's bridge. All attachments of the bridge share its rules.
//!
//! The rules stay when an attachment is removed, like the bridge itself, and as with the native plugin. Otherwise a
//! bridge could be open while containers of Postern or of a native plugin use it. `postern gc --node` removes the
//! rules.

use crate::capability::leaves::{EffectKind, Reapplied};
use crate::context::Context;
use crate::errors::firewall_error;
use crate::node;
use crate::right::Right;
use postern_firewall::iptables::forward;
use postern_types::{IngressPolicy, OpError};
use serde::{Deserialize, Serialize};

/// The isolation of the attachment's bridge. Each attachment that asks for isolation has this effect in its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// The bridge's name.
    pub bridge: String,
    /// The policy.
    pub ingress: IngressPolicy,
    /// True if the attachment has IPv4 addresses.
    pub v4: bool,
    /// True if the attachment has IPv6 addresses.
    pub v6: bool,
}

impl Isolation {
    /// Makes the missing rules. Returns true if some were missing.
    pub(crate) fn make(&self, run: &Context) -> Result<bool, OpError> {
        let families: Vec<bool> =
            [(self.v4, false), (self.v6, true)].into_iter().filter(|of| of.0).map(|of| of.1).collect();
        let make = || forward::isolate(&self.bridge, self.ingress, &families, run.system.program_runner());
        node::noted(&run.fixed.places.state, run.system.host()?, node::ISOLATION, &self.bridge, || {
            make().map(|changes| changes > 0)
        })
        .map_err(firewall_error)
    }
}

impl EffectKind for Isolation {
    fn remove(&self, _: &Context) -> Result<(), OpError> {
        Ok(())
    }

    fn words(&self) -> String {
        format!("isolation of bridge {} ({}), whose rules stay", self.bridge, self.ingress.name())
    }

    fn reapply(&self, run: &mut Context) -> Result<Reapplied, OpError> {
        Ok(if self.make(run)? { Reapplied::Restored } else { Reapplied::Complete })
    }

    fn right(&self) -> Right<'_> {
        Right::Network
    }
}
