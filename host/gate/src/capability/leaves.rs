//! The functions of an effect, such as its removal. The rest of [`Effect`] is data.

use crate::context::Context;
use crate::effect::{Addresses, Effect};
use crate::right::Right;
use postern_cni::CniResult;
use postern_types::OpError;
use std::net::IpAddr;

/// The functions that every effect has.
pub trait EffectKind {
    /// Removes the effect. A missing object is no error.
    fn remove(&self, run: &Context) -> Result<(), OpError>;

    /// Removes the effect when a failed ADD is undone. Only leases that this run has `taken` are given back: leases of
    /// an earlier run stay.
    fn undo(&self, run: &Context, _taken: &[IpAddr]) -> Result<(), OpError> {
        self.remove(run)
    }

    /// Describes the effect for people.
    fn words(&self) -> String;

    /// Returns the attachment's own addresses that the effect names: each address was checked before it was recorded.
    /// Data from the container's namespace are not included, because root in the container can change them.
    /// Destinations and gateways are not included either.
    fn own_addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Returns the effect as the attachment's link, if it is the link. On DEL, the plugin that made the link is called
    /// last, and removes all effects of the attachment.
    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        None
    }

    /// If another program removed rules of the effect from a packet filter, restores these rules. No link is made or
    /// changed.
    fn reapply(&self, _run: &mut Context) -> Result<Reapplied, OpError> {
        Ok(Reapplied::NoRules)
    }

    /// Returns the right that a confined gate needs to remove the effect. There is no default: each effect names its
    /// right.
    fn right(&self) -> Right<'_>;
}

/// The function of an effect whose own data decide its relation to the attachment's addresses.
pub trait ByContents {
    /// Returns the effect's relation to the attachment's addresses.
    fn addresses(&self) -> Addresses<'_>;
}

/// The functions of an effect that is the attachment's link.
pub trait AttachmentLink {
    /// True if the link exists. The record's data identify the link.
    fn is_there(&self, run: &Context) -> Result<bool, OpError>;

    /// True if the runtime's result is known to name this link.
    fn is_named(&self, result: &CniResult) -> bool;
}

/// The outcome of [`EffectKind::reapply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reapplied {
    /// The effect has no rules.
    NoRules,
    /// All rules of the effect exist.
    Complete,
    /// Some rules of the effect were missing, and were restored.
    Restored,
}

impl Effect {
    /// True if the effect is the attachment's link, and the link exists.
    pub(crate) fn is_living_link(&self, run: &Context) -> Result<bool, OpError> {
        self.kind().as_link().map_or(Ok(false), |link| link.is_there(run))
    }
}
