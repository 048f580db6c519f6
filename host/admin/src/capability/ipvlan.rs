//! `ipvlan`, for people.

use super::{LOOK_ONLY, OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, changes, group, say};
use crate::words::Switch;
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "make ipvlan links",
    always: None,
    groups: &[
        group(&["find"], |_| say("look whether its own link is an ipvlan")),
        group(&["create"], |objects| {
            changes(objects, "")?;
            about(objects, "modes", "mode", |mode| {
                let mtu = match objects.switch("mtu", "0") {
                    Switch::Off => String::new(),
                    Switch::On(_) => format!(", with {}", objects.words_but("mtu", "MTU", "0")),
                };
                format!(
                    "make its own link as an ipvlan on a link that it may stack on, in {mode}{mtu}, and no \
                     second link while this link exists"
                )
            })
        }),
    ],
    keys: &[
        Key::list("modes", Source::Value("mode", Some("l2")), WidestValue::Values(&["l2", "l3", "l3s"])),
        Key::one("mtu", Source::Value("mtu", Some("0")), WidestValue::Configured),
        LOOK_ONLY,
    ],
    objects: |operation| operation.values(&[("modes", "/mode"), ("mtu", "/mtu")]),
};

impl OperationTexts for ops::Ipvlan {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Create { parent, mode, mtu } => {
                let mtu = mtu.map(|mtu| format!(", with MTU {mtu}")).unwrap_or_default();
                let (own, parent) = (&names.request.ifname, names.link(*parent));
                format!("make {own} in the container, an ipvlan on {parent} in mode {}{mtu}", mode.name())
            }
            Self::Find => "look whether the attachment's link is an ipvlan".to_owned(),
        }
    }
}
