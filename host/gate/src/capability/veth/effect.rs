//! The effect of a pair.

use crate::capability::leaves::{AttachmentLink, EffectKind};
use crate::context::Context;
use crate::errors::kernel_error;
use crate::right::Right;
use postern_cni::CniResult;
use postern_kernel::{Link, Netlink};
use postern_types::{Mac, OpError};
use serde::{Deserialize, Serialize};

/// A pair, identified by the name and the address that the gate chose for the host end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Veth {
    /// The host end's name.
    pub host: String,
    /// The host end's address. A link with the same name and another address is foreign.
    pub mac: Mac,
}

impl Veth {
    /// True if this link of the host, found by the recorded name, is the pair's host end.
    pub fn is_end(&self, link: &Link) -> bool {
        link.kind == "veth" && link.mac == Some(self.mac.0)
    }

    pub(crate) fn end(&self, host: &Netlink) -> Result<Option<Link>, OpError> {
        Ok(host.link_by_name(&self.host).map_err(kernel_error)?.filter(|link| self.is_end(link)))
    }
}

impl EffectKind for Veth {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let host = run.system.host()?;
        let Some(link) = self.end(host)? else { return Ok(()) };
        host.delete_link(link.index).map(drop).map_err(kernel_error)
    }

    fn words(&self) -> String {
        format!("veth {}", self.host)
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        Some(self)
    }

    fn right(&self) -> Right<'_> {
        Right::Network
    }
}

impl AttachmentLink for Veth {
    fn is_there(&self, run: &Context) -> Result<bool, OpError> {
        self.end(run.system.host()?).map(|end| end.is_some())
    }

    fn is_named(&self, result: &CniResult) -> bool {
        result.interfaces.iter().any(|link| link.name == self.host)
    }
}
