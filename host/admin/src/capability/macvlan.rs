//! `macvlan`, for people.

use super::{LOOK_ONLY, OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, changes, group, say, with};
use crate::words::{Objects, Switch};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "make macvlan links",
    always: None,
    groups: &[
        group(&["find"], |_| say("look whether its own link is a macvlan")),
        group(&["create"], |objects| {
            changes(objects, "")?;
            about(objects, "modes", "mode", |mode| {
                format!(
                    "make its own link as a macvlan on a link that it may stack on, in {mode}, one such link at a time"
                )
            })
        }),
        with(&["create"], &["[method]options.set-mac"], |objects| changes(objects, "choose the macvlan's address")),
        with(&["create"], &["[method]options.set-mtu"], |objects| match objects.switch("mtu", "0") {
            _ if !matches!(objects, Objects::Of(_)) => say("choose the MTU of the macvlan"),
            _ if objects.only_looks() => None,
            Switch::Off => None,
            Switch::On(_) => Some(format!("give the macvlan {}", objects.words_but("mtu", "MTU", "0"))),
        }),
        with(&["create"], &["[method]options.set-broadcast-queue"], |objects| {
            changes(objects, "choose how many frames wait to be broadcast to the links of the macvlan's parent")
        }),
    ],
    keys: &[
        Key::list(
            "modes",
            Source::Value("mode", Some("bridge")),
            WidestValue::Values(&["bridge", "private", "vepa", "passthru"]),
        ),
        Key::one("mtu", Source::Value("mtu", Some("0")), WidestValue::Configured),
        LOOK_ONLY,
    ],
    objects: |operation| operation.values(&[("modes", "/mode"), ("mtu", "/mtu")]),
};

impl OperationTexts for ops::Macvlan {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Create { parent, mode, mtu, mac, queue } => {
                let mtu = mtu.map(|mtu| format!(", with MTU {mtu}")).unwrap_or_default();
                let mac = mac.map(|mac| format!(", with address {mac}")).unwrap_or_default();
                let queue = queue.map(|queue| format!(", with a broadcast queue of {queue}")).unwrap_or_default();
                let (own, parent) = (&names.request.ifname, names.link(*parent));
                format!("make {own} in the container, a macvlan on {parent} in mode {}{mtu}{mac}{queue}", mode.name())
            }
            Self::Find => "look whether the attachment's link is a macvlan".to_owned(),
        }
    }
}
