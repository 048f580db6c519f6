//! `link-settings`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, say, with};
use crate::words::Objects;
use postern_policy::capability::link_settings::{DEFAULT_DIRECTORY, values};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "change attributes of a link",
    always: Some("DEL restores the attributes that the plugin changed"),
    groups: &[
        with(&["change"], &["[method]settings.set-mac"], |objects| {
            named(objects, "macs", "address", "give its own link")
        }),
        with(&["change"], &["[method]settings.set-mtu"], |objects| named(objects, "mtu", "MTU", "give its own link")),
        with(&["change"], &["[method]settings.set-promisc"], |objects| {
            on(objects, "promisc", "have its own link take frames for any address")
        }),
        with(&["change"], &["[method]settings.set-allmulti"], |objects| {
            on(objects, "allmulti", "have its own link take all multicast frames")
        }),
        with(&["change"], &["[method]settings.set-tx-queue-length"], |objects| {
            named(objects, "tx-queue-length", "queue length", "give its own link")
        }),
        group(&["change", "restore"], |objects| {
            about(objects, "directories", "directory", |directories| {
                format!("have the earlier attributes kept in {directories}, as the native plugin does")
            })
        }),
        group(&["check"], |_| say("compare attributes of its own link")),
        group(&["restore"], |_| say("restore the attributes of its own link that it changed")),
    ],
    keys: &[
        Key::some(
            "macs",
            Source::Parts(&[
                ("/mac", "${config.mac}"),
                ("/runtimeConfig/mac", "${config.runtimeConfig.mac}"),
                ("/args/cni/mac", "${config.args.cni.mac}"),
            ]),
            WidestValue::Configured,
        ),
        Key::some(
            "mtu",
            Source::Parts(&[("/mtu", "${config.mtu}"), ("/args/cni/mtu", "${config.args.cni.mtu}")]),
            WidestValue::Configured,
        ),
        Key::some(
            "promisc",
            Source::Parts(&[("/promisc", "${config.promisc}"), ("/args/cni/promisc", "${config.args.cni.promisc}")]),
            WidestValue::Values(&["true"]),
        ),
        Key::some(
            "allmulti",
            Source::Parts(&[
                ("/allmulti", "${config.allmulti}"),
                ("/args/cni/allmulti", "${config.args.cni.allmulti}"),
            ]),
            WidestValue::Values(&["true"]),
        ),
        Key::some(
            "tx-queue-length",
            Source::Parts(&[("/txQLen", "${config.txQLen}"), ("/args/cni/txQLen", "${config.args.cni.txQLen}")]),
            WidestValue::Configured,
        ),
        Key::list("directories", Source::Value("dataDir", Some(DEFAULT_DIRECTORY)), WidestValue::Configured),
    ],
    objects: |operation| match operation.value("/settings") {
        Some(settings) if operation.function == "change" => {
            let directory = operation.network.named("/dataDir").unwrap_or_else(|| DEFAULT_DIRECTORY.to_owned());
            values(&settings).into_iter().chain([("directories", directory)]).collect()
        }
        _ => Vec::new(),
    },
};

/// Returns a sentence about values of a key, if the table has the key.
fn named(objects: &Objects<'_>, key: &str, noun: &str, act: &str) -> Option<String> {
    match objects.has(key) {
        true => about(objects, key, noun, |words| format!("{act} {words}")),
        false => None,
    }
}

/// Returns a sentence about the setting that a key switches on, with the condition of the key.
fn on(objects: &Objects<'_>, key: &str, text: &str) -> Option<String> {
    objects.condition(key).map(|when| format!("{text}{when}"))
}

impl OperationTexts for ops::LinkSettings {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Change { link, settings } => {
                format!("give {} {settings}; DEL restores the earlier settings", names.link(*link))
            }
            Self::Check { link, settings } => format!("compare {} with {settings}", names.link(*link)),
            Self::Restore => format!("restore the changed attributes of {}", names.request.ifname),
        }
    }
}
