//! What the host has to know of a capability beside its operations.

use crate::need::Need;
use crate::session::{Request, Session};
use postern_policy::Granted;
use postern_types::OpError;

/// For which networks an ADD fails without a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// For all.
    Always,
    /// For those with addresses.
    WithAddresses,
    /// For none.
    Never,
}

/// Removes what attachments that are not among these (container ID and interface name) have left of one capability and no
/// record tells of: a native plugin made it, or it lost its record. Returns how much that was.
pub type Unrecorded = fn(&Session, &[(String, String)]) -> Result<usize, OpError>;

/// See the module.
pub struct Facts {
    /// What STATUS misses if it is withdrawn.
    pub needed: Needed,
    /// What a gate that gives up all else keeps for it, beside the kernel's network: by the request, and by the policy where
    /// that can be resolved.
    pub keeps: fn(&Request, Option<&Granted>) -> Option<Need<'static>>,
    /// What finds unrecorded traces of it, where they tell their network by themselves; those of the others go with a link or
    /// by a record.
    pub unrecorded: Option<Unrecorded>,
}
