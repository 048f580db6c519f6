//! The default packet filter, for networks whose configuration names no packet filter.
//!
//! The default is the native plugins' choice: iptables, unless only nftables can be used. An operator can choose a
//! filter in the node's settings ([`postern_policy::NODE_FILE`]).

use crate::context::View;
use crate::policies;
use postern_firewall::Nft;
use postern_firewall::iptables::{self, ProgramRunner};
use postern_types::{Backend, ErrorCode, OpError};

/// Returns the packet filter for new rules, among the filters that policy allows.
pub(crate) fn default(view: View<'_>, allows: impl Fn(Backend) -> bool) -> Result<Backend, OpError> {
    match Backend::ALL.map(allows) {
        [true, false] => Ok(Backend::Nftables),
        [false, true] => Ok(Backend::Iptables),
        _ => {
            let unread = |reason: &String| OpError::new(ErrorCode::Unsupported, "the packet filter", reason.clone());
            let settings = view.fixed.settings().as_ref().map_err(unread)?;
            Ok(settings.packet_filter.unwrap_or_else(|| native(view.system.program_runner())))
        }
    }
}

/// Like [`default`], for a caller without a view.
///
/// # Errors
/// The node's settings can't be read or understood.
pub fn of_node(means: ProgramRunner<'_>) -> Result<Backend, String> {
    let settings = policies::node_settings().map_err(|error| error.to_string())?;
    Ok(settings.packet_filter.unwrap_or_else(|| native(means)))
}

/// Returns the native plugins' choice. If neither filter can be used, the choice is iptables. Then the later error is
/// about iptables, as with the native plugins.
fn native(means: ProgramRunner<'_>) -> Backend {
    if iptables::available(means) || Nft::usable(means.deadline).is_none() {
        Backend::Iptables
    } else {
        Backend::Nftables
    }
}
