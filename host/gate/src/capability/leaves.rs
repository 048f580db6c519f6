//! What an effect has to answer that an operation leaves, and its way back. The rest of [`Effect`] is data.

use crate::context::Context;
use crate::effect::{Addresses, Effect};
use crate::right::Right;
use postern_cni::CniResult;
use postern_types::OpError;
use std::net::IpAddr;

/// The questions that every effect answers.
pub trait EffectKind {
    /// Removes the effect. It is success if nothing is there.
    fn remove(&self, run: &Context) -> Result<(), OpError>;

    /// Removes it when a failed ADD is undone. Of leases, those that this run has `taken` go: an earlier run's stay.
    fn undo(&self, run: &Context, _taken: &[IpAddr]) -> Result<(), OpError> {
        self.remove(run)
    }

    /// Describes the effect for people.
    fn words(&self) -> String;

    /// Returns the attachment's own addresses that the effect names: each was checked as the attachment's before it was
    /// noted. What was read from the container's kernel is not among them, because root in there makes it. Nor are
    /// destinations and gateways.
    fn own_addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Returns the attachment's link, if the effect is that. The plugin that made it is the last of its chain that DEL
    /// calls, and nothing of the attachment outlives it.
    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        None
    }

    /// Puts back the rules of a packet filter that another program wiped, if the effect has some. It makes and changes no link.
    fn reapply(&self, _run: &mut Context) -> Result<Reapplied, OpError> {
        Ok(Reapplied::NoRules)
    }

    /// Returns the rights that a confined gate needs to remove it. No right is taken for granted: each effect names its own.
    fn right(&self) -> Right<'_>;
}

/// The further question to an effect whose contents tell how it is related to the attachment's addresses.
pub trait ByContents {
    /// Tells how the effect is related to the attachment's addresses.
    fn addresses(&self) -> Addresses<'_>;
}

/// The further questions to an effect that is the attachment's link.
pub trait AttachmentLink {
    /// True if the link is there, identified by the record's data.
    fn is_there(&self, run: &Context) -> Result<bool, OpError>;

    /// True if the runtime's result is about this link, as far as it can be told.
    fn is_named(&self, result: &CniResult) -> bool;
}

/// The outcome of [`EffectKind::reapply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reapplied {
    /// The effect has no rules.
    NoRules,
    /// All its rules are there.
    Complete,
    /// Some of its rules were missing, and are there again.
    Restored,
}

impl Effect {
    /// True if it is the attachment's link, and the link is there.
    pub(crate) fn is_living_link(&self, run: &Context) -> Result<bool, OpError> {
        self.kind().as_link().map_or(Ok(false), |link| link.is_there(run))
    }
}
