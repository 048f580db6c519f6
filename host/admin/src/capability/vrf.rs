//! `vrf`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, say};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "put a link into a VRF",
    always: Some("only its own link, and only into VRFs of the container; an existing VRF keeps its table"),
    groups: &[
        group(&["join"], |objects| {
            about(objects, "names", "VRF", |names| {
                format!("put its own link into {names} of the container, which it makes if needed")
            })
        }),
        group(&["check"], |_| say("compare the VRF of its own link")),
        group(&["leave"], |_| say("take its own link out of its VRF, which is removed with the last link")),
    ],
    keys: &[
        Key::list("names", Source::Value("vrfname", None), WidestValue::Values(&["*"])),
        Key::some("tables", Source::Value("table", None), WidestValue::Configured),
    ],
    objects: |operation| operation.values(&[("names", "/name"), ("tables", "/table")]),
};

impl OperationTexts for ops::Vrf {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Join { link, name, table } => {
                let table = table.map(|table| format!(" with table {table}")).unwrap_or_default();
                format!("put {} into VRF {name}{table}, in the container", names.link(*link))
            }
            Self::Check { name } => format!("compare the VRF of {} with {name}", names.request.ifname),
            Self::Leave => format!("take {} out of its VRF", names.request.ifname),
        }
    }
}
