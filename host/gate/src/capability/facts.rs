//! The facts about a capability that the host needs beside its operations.

use crate::context::View;
use crate::request::Request;
use crate::right::Right;
use postern_policy::Granted;
use postern_types::OpError;

/// The networks for which an ADD fails without a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// All networks.
    Always,
    /// Networks with addresses.
    WithAddresses,
    /// No network.
    Never,
}

/// Removes unrecorded objects of one capability that do not belong to these attachments (container ID and interface
/// name). Either a native plugin made them, or their record was lost. Returns the number of objects.
pub type Unrecorded = fn(View<'_>, &[(String, String)]) -> Result<usize, OpError>;

/// See the module.
pub struct Facts {
    /// The networks for which STATUS reports a withdrawn capability.
    pub needed: Needed,
    /// Returns the right that a confined gate keeps for the capability, beside the kernel's network: by the request,
    /// and by the policy if it can be resolved.
    pub keeps: fn(&Request, Option<&Granted>) -> Option<Right<'static>>,
    /// Removes the capability's unrecorded objects, if they name their network. The objects of other capabilities are
    /// removed with a link or by a record.
    pub unrecorded: Option<Unrecorded>,
}

/// The facts about a capability that every network needs. It keeps only the kernel's network, and all its objects are
/// recorded.
pub const ALWAYS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Like [`ALWAYS`], for a capability that networks with addresses need.
pub const WITH_ADDRESSES: Facts = Facts { needed: Needed::WithAddresses, ..ALWAYS };

/// Like [`ALWAYS`], for a capability that no network needs.
pub const NEVER: Facts = Facts { needed: Needed::Never, ..ALWAYS };
