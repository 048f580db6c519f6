//! `tap`, for people.

use super::{LOOK_ONLY, OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, changes, group, say, with};
use crate::words::{Objects, Switch};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "make taps",
    always: Some("it uses no existing tap as its own link"),
    groups: &[
        group(&["create"], |objects| {
            changes(
                objects,
                "make its own link as a tap whose frames go to a program of the container, and no other tap while this \
                 tap lives",
            )
        }),
        with(&["create"], &["[method]options.set-owner"], |objects| belongs(objects, "owners", "user")),
        with(&["create"], &["[method]options.set-group"], |objects| belongs(objects, "groups", "group")),
        with(&["create"], &["[method]options.set-selinux-context"], |objects| match objects.only_looks() {
            true => None,
            false if objects.has("selinux-context") => {
                about(objects, "selinux-context", "SELinux context", |context| format!("give that tap {context}"))
            }
            false => None,
        }),
        with(&["create"], &["[method]options.set-multi-queue"], |objects| match objects.only_looks() {
            true => None,
            false => objects.condition("multi-queue").map(|when| format!("give that tap several queues{when}")),
        }),
        with(&["create"], &["[method]options.set-mac"], |objects| changes(objects, "choose that link's address")),
        with(&["create"], &["[method]options.set-mtu"], |objects| match objects.switch("mtu", "0") {
            _ if !matches!(objects, Objects::Of(_)) => say("choose the MTU of that link"),
            _ if objects.only_looks() => None,
            Switch::Off => None,
            Switch::On(_) => Some(format!("give that link {}", objects.words_but("mtu", "MTU", "0"))),
        }),
        with(&["create"], &["[method]options.set-packet-information", "[method]options.set-vnet-header"], |objects| {
            changes(objects, "choose the header before the first frames of that tap")
        }),
        group(&["join"], |objects| {
            changes(objects, "")?;
            about(objects, "bridges", "bridge", |bridges| {
                format!("make that tap a port of {bridges} in the container, if there is such a bridge")
            })
        }),
    ],
    keys: &[
        Key::one("mtu", Source::Value("mtu", Some("0")), WidestValue::Configured),
        Key::some("owners", Source::Value("owner", None), WidestValue::Configured),
        Key::some("groups", Source::Value("group", None), WidestValue::Configured),
        Key::one("selinux-context", Source::Value("selinuxContext", None), WidestValue::Configured),
        Key::one("multi-queue", Source::Value("multiQueue", Some("false")), WidestValue::Values(&["true"])),
        Key::some("bridges", Source::Value("bridge", None), WidestValue::Values(&["*"])),
        LOOK_ONLY,
    ],
    objects: |operation| {
        operation.values(&[
            ("owners", "/settings/owner"),
            ("groups", "/settings/group"),
            ("selinux-context", "/settings/selinux_context"),
            ("multi-queue", "/settings/multi_queue"),
            ("mtu", "/settings/mtu"),
            ("bridges", "/bridge"),
        ])
    },
};

/// Returns a sentence about the users or groups that may open the tap.
fn belongs(objects: &Objects<'_>, key: &str, noun: &str) -> Option<String> {
    match objects.has(key) {
        true if !objects.only_looks() => about(objects, key, noun, |whom| format!("let {whom} open that tap")),
        _ => None,
    }
}

impl OperationTexts for ops::Tap {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Create { settings } => {
                let mut text = format!("make {} in the container, a tap", names.request.ifname);
                let opened = match (settings.owner, settings.group) {
                    (None, None) => ", which any program of the container may open".to_owned(),
                    (Some(owner), None) => format!(" of user {owner}"),
                    (None, Some(group)) => format!(" of group {group}"),
                    (Some(owner), Some(group)) => format!(" of user {owner} and group {group}"),
                };
                text.push_str(&opened);
                let context = settings.selinux_context.as_ref();
                text.push_str(&context.map(|context| format!(", in SELinux context {context}")).unwrap_or_default());
                text.push_str(if settings.multi_queue { ", with several queues" } else { "" });
                text.push_str(&settings.mtu.map(|mtu| format!(", with MTU {mtu}")).unwrap_or_default());
                text.push_str(&settings.mac.map(|mac| format!(", with address {mac}")).unwrap_or_default());
                text
            }
            Self::Join { link, bridge } => {
                format!("make {} a port of {bridge}, in the container", names.link(*link))
            }
        }
    }
}
