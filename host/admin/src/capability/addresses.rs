//! `addresses`, for people.

use super::{OWN_ADDRESSES, OperationTexts, Page, list};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "set addresses",
    always: Some(OWN_ADDRESSES),
    groups: &[
        group(&["add"], |_| say("put on its own link the addresses that IPAM gave this attachment, and no others")),
        group(&["list", "has", "settle"], |_| say("look at the addresses of its own link")),
    ],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Addresses {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Add { link, addresses } => {
                format!("put {} on {}, in the container", list(addresses, "no address"), names.link(*link))
            }
            Self::List { link } | Self::Has { link, .. } => format!("look at the addresses of {}", names.link(*link)),
            Self::Settle { link } => {
                format!("wait until {} can use its addresses (duplicate address detection)", names.link(*link))
            }
        }
    }
}
