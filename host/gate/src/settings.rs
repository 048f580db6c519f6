//! The operator's settings for the node ([`postern_policy::NODE_FILE`]), in a run.

use crate::policies;
use crate::session::Session;
use postern_policy::NodeSettings;
use std::fmt::Display;

/// Returns the operator's settings for the node, read once in a run. A gate calls it before it is confined.
pub fn of_node<'s>(session: &'s Session) -> &'s Result<NodeSettings, String> {
    session.settings.get_or_init(|| policies::node_settings().map_err(|error| error.to_string()))
}

/// Says a fault of the node that an ADD would meet. False if the node's settings make it an error of STATUS.
pub fn is_said(session: &Session, fault: &impl Display) -> bool {
    let settings = of_node(session);
    if settings.as_ref().is_ok_and(|settings| settings.is_status_strict) {
        return false;
    }
    crate::say!("postern: an ADD to network \"{}\" would fail: {fault}", session.request.conf.name);
    if let Err(reason) = settings {
        crate::say!("postern: STATUS succeeds nevertheless, because the node's settings can't be read: {reason}");
    }
    true
}
