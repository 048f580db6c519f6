//! `veth`, for people.

use super::{LOOK_ONLY, OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::{HOST_END, Names};
use crate::sentences::{changes, group, say, with};
use crate::words::{Objects, Switch};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "create interfaces",
    always: None,
    groups: &[
        group(&["find", "[method]host-end.attributes", "[method]host-end.wait-running"], |_| {
            say("look at both ends of its own veth pair")
        }),
        group(&["create"], |objects| {
            changes(objects, "create one veth pair at a time between this container and the host")
        }),
        with(&["create"], &["[method]options.set-mac"], |objects| {
            changes(objects, "choose the link-layer address of the container's end of that pair")
        }),
        with(&["create"], &["[method]options.set-mtu"], |objects| match objects.switch("mtu", "0") {
            _ if !matches!(objects, Objects::Of(_)) => say("choose the MTU of that pair"),
            _ if objects.only_looks() => None,
            Switch::Off => None,
            Switch::On(_) => Some(format!("give that pair {}", objects.words_but("mtu", "MTU", "0"))),
        }),
    ],
    keys: &[Key::one("mtu", Source::Value("mtu", Some("0")), WidestValue::Configured), LOOK_ONLY],
    objects: |operation| operation.values(&[("mtu", "/mtu")]),
};

impl OperationTexts for ops::Veth {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Create { mtu, mac } => {
                let mtu = mtu.map(|mtu| format!(", with MTU {mtu}")).unwrap_or_default();
                let mac = mac.map(|mac| format!(", with address {mac}")).unwrap_or_default();
                let own = &names.request.ifname;
                format!("make a veth pair: {own} in the container{mac}, {HOST_END} on the host{mtu}")
            }
            Self::Find => "look for the attachment's veth pair".to_owned(),
            Self::WaitRunning { host } => format!("wait until {} is operational", names.link(*host)),
        }
    }
}
