//! `masquerade`, for people.

use super::{OWN_ADDRESSES, OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, say};
use postern_types::{Backend, OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "masquerade",
    always: Some(OWN_ADDRESSES),
    groups: &[
        group(&["ensure"], |objects| {
            about(objects, "backends", "backend", |backends| {
                format!("masquerade its own addresses, and no others, with {backends}")
            })
        }),
        group(&["check"], |_| say("compare the masquerading of its own addresses")),
        group(&["remove"], |_| say("remove the masquerading of its own addresses")),
    ],
    keys: &[Key::list(
        "backends",
        Source::Value("ipMasqBackend", Some("any")),
        WidestValue::Values(&["nftables", "iptables"]),
    )],
    objects: |operation| match operation.function {
        "remove" => Vec::new(),
        _ => vec![("backends", operation.value("/backend").map_or("any", Backend::name).to_owned())],
    },
};

impl OperationTexts for ops::Masquerade {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Ensure { backend } => {
                let filter = backend.unwrap_or(names.kernel.packet_filter).name();
                format!("masquerade {} towards other networks, by {filter}", names.addresses())
            }
            Self::Check { backend } => {
                let filter = backend.map_or("the packet filter that has it", Backend::name);
                format!("compare the masquerading of {} in {filter}", names.addresses())
            }
            Self::Remove => "remove the attachment's masquerading".to_owned(),
        }
    }
}
