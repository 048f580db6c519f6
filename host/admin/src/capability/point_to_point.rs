//! `point-to-point`, for people.

use super::{OWN_ADDRESSES, OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "route addresses on the host",
    always: Some(OWN_ADDRESSES),
    groups: &[group(&["ensure"], |_| {
        say("have the host route its own addresses, and no others, to its own end of the pair")
    })],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::PointToPoint {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Ensure { host } => {
                let host = names.link(*host);
                format!("put gateway {} on {host}, and route {} to this link", names.gateways(false), names.addresses())
            }
        }
    }
}
