//! `vlan`, for people.

use super::{LOOK_ONLY, OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, changes, group, say};
use crate::words::Switch;
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "make VLAN links",
    always: None,
    groups: &[
        group(&["find"], |_| say("look whether its own link is a VLAN")),
        group(&["create"], |objects| {
            changes(objects, "")?;
            about(objects, "ids", "VLAN", |id| {
                let mtu = match objects.switch("mtu", "0") {
                    Switch::Off => String::new(),
                    Switch::On(_) => format!(", with {}", objects.words_but("mtu", "MTU", "0")),
                };
                format!("make its own link in {id} of a granted parent{mtu}, and no other link while this link exists")
            })
        }),
    ],
    keys: &[
        Key::list("ids", Source::Value("vlanId", Some("0")), WidestValue::Configured),
        Key::one("mtu", Source::Value("mtu", Some("0")), WidestValue::Configured),
        LOOK_ONLY,
    ],
    objects: |operation| operation.values(&[("ids", "/id"), ("mtu", "/mtu")]),
};

impl OperationTexts for ops::Vlan {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Create { parent, id, mtu } => {
                let mtu = mtu.map(|mtu| format!(", with MTU {mtu}")).unwrap_or_default();
                let (own, parent) = (&names.request.ifname, names.link(*parent));
                format!("make {own} in the container, VLAN {id} of {parent}{mtu}")
            }
            Self::Find => "look whether the attachment's link is a VLAN".to_owned(),
        }
    }
}
