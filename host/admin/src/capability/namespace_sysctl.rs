//! `namespace-sysctl`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, switched};
use postern_policy::capability::namespace_sysctl::dotted;
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "write other sysctls",
    always: Some("only sysctls of the container's own namespace that the network lists, within the node's allow-list"),
    groups: &[
        group(&["set"], |objects| {
            about(objects, "keys", "sysctl", |keys| format!("set {keys} in the container, if the network lists them"))
        }),
        group(&["set"], |objects| {
            switched(objects, "other-links", "false", "set sysctls of other links of the container")
        }),
        group(&["check"], |objects| {
            about(objects, "keys", "sysctl", |keys| {
                format!("compare {keys} in the container with the network's values")
            })
        }),
    ],
    keys: &[
        Key::list("keys", Source::Value("", Some("net.*")), WidestValue::Values(&["net.*"])),
        Key::one("other-links", Source::Value("", None), WidestValue::LeftOut),
    ],
    objects: |operation| operation.value::<String>("/key").map(|key| ("keys", dotted(&key))).into_iter().collect(),
};

impl OperationTexts for ops::NamespaceSysctl {
    fn words(&self, _: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Set { key, value } => format!("set {key} to {value:?}, in the container"),
            Self::Check { key, value } => format!("compare {key} in the container with {value:?}"),
        }
    }
}
