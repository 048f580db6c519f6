//! A macvlan link in the container's namespace. It is an [`InnerLink`], in the form that records have had before the other
//! kinds.

use crate::capability::inner::effect::{InnerKind, InnerLink};
use crate::capability::leaves::{AttachmentLink, EffectKind};
use crate::context::Context;
use crate::right::Right;
use postern_cni::CniResult;
use postern_types::{Mac, OpError};
use serde::{Deserialize, Serialize};

/// A macvlan link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Macvlan {
    /// The address that the host gave it; none in mode "passthru", where it has its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The name that the host chose, before it gets the attachment's. None where it is born with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<String>,
}

impl Macvlan {
    /// The same, as one of all kinds.
    pub fn as_inner(&self) -> InnerLink {
        InnerLink { kind: InnerKind::Macvlan, mac: self.mac, born: self.born.clone(), shares: None, vlan: None }
    }
}

impl EffectKind for Macvlan {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        self.as_inner().remove(run)
    }

    fn words(&self) -> String {
        self.as_inner().words()
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        Some(self)
    }

    fn right(&self) -> Right<'_> {
        Right::Container
    }
}

impl AttachmentLink for Macvlan {
    fn is_there(&self, run: &Context) -> Result<bool, OpError> {
        self.as_inner().is_there(run)
    }

    fn is_named(&self, result: &CniResult) -> bool {
        self.as_inner().is_named(result)
    }
}
