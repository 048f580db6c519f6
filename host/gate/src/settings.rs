//! How a run uses the operator's settings for the node ([`postern_policy::NODE_FILE`]).

use crate::context::View;
use std::fmt::Display;

/// Reports a fault of the node that an ADD would meet. Returns false if the node's settings make the fault an error of
/// STATUS.
pub fn is_said(View { request, fixed, .. }: View<'_>, fault: &impl Display) -> bool {
    let settings = fixed.settings();
    if settings.as_ref().is_ok_and(|settings| settings.is_status_strict) {
        return false;
    }
    crate::say!("postern: an ADD to network \"{}\" would fail: {fault}", request.conf.name);
    if let Err(reason) = settings {
        crate::say!("postern: STATUS succeeds nevertheless, because the node's settings can't be read: {reason}");
    }
    true
}
