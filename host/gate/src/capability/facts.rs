//! The facts about a capability that the host needs in addition to its operations.

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

/// The facts about one capability.
pub struct Facts {
    /// The networks for which STATUS reports a withdrawn capability.
    pub needed: Needed,
    /// Returns the right that a confined gate keeps for the capability, in addition to the kernel's network. The right
    /// depends on the request, and on the policy if it can be resolved.
    pub keeps: fn(&Request, Option<&Granted>) -> Option<Right<'static>>,
    /// Removes the capability's unrecorded objects, if they name their network. If a capability has no such function,
    /// its objects are removed with a link or by a record.
    pub unrecorded: Option<Unrecorded>,
}

/// The facts about a capability that every network needs. The gate keeps only the kernel's network, and all objects are
/// recorded.
pub const ALWAYS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Like [`ALWAYS`], but only networks with addresses need the capability.
pub const WITH_ADDRESSES: Facts = Facts { needed: Needed::WithAddresses, ..ALWAYS };

/// Like [`ALWAYS`], but no network needs the capability.
pub const NEVER: Facts = Facts { needed: Needed::Never, ..ALWAYS };
