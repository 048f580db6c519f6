//! `firewall`, for people.

use super::{OperationTexts, Page, list};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, say, switched};
use crate::words::{Objects, Switch};
use postern_policy::capability::firewall::Named;
use postern_types::{FirewallBackend, OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "let the node forward its addresses",
    always: Some(
        "only for addresses that this attachment has: the plugin can name no other address, and no rule, chain, zone or bridge",
    ),
    groups: &[
        group(&["admit"], |objects| {
            about(objects, "backends", "backend", |backends| {
                let chain = objects.words("admin-chains", "chain");
                let zone = match objects.none("zones") {
                    true => String::new(),
                    false => format!(", or in firewalld's {}", objects.words("zones", "zone")),
                };
                format!("let its own addresses be forwarded, by {backends}, behind the rules of {chain}{zone}")
            })
        }),
        group(&["isolate"], |objects| {
            let must = match objects.switch("required", "open") {
                Switch::On(when) if matches!(objects, Objects::Of(_)) => format!(" (and must{when})"),
                Switch::Off | Switch::On(_) => String::new(),
            };
            let text = format!("keep other traffic from the bridge of its own link{must}");
            switched(objects, "ingress", "open", &text)
        }),
        group(&["check"], |_| say("compare the rules that forward its own addresses")),
        group(&["remove"], |_| say("remove the rules that forward its own addresses")),
    ],
    keys: &[
        Key::list(
            "backends",
            Source::Value("backend", Some("iptables")),
            WidestValue::Values(&["iptables", "firewalld"]),
        ),
        Key::list("admin-chains", Source::Value("iptablesAdminChainName", Some("CNI-ADMIN")), WidestValue::Configured),
        Key::some("zones", Source::Value("firewalldZone", Some("trusted")), WidestValue::Configured),
        Key::some(
            "ingress",
            Source::Value("ingressPolicy", Some("open")),
            WidestValue::Values(&["open", "same-bridge", "isolated"]),
        ),
    ],
    objects: |operation| {
        let text = |path: &str, default: &str| match operation.network.text(path) {
            "" => default.to_owned(),
            text => text.to_owned(),
        };
        let backend = FirewallBackend::parse(operation.network.text("/backend"));
        match operation.function {
            "admit" => vec![
                // Without a known backend in the network, the gate uses firewalld if it runs, else iptables. The text
                // assumes iptables.
                ("backends", backend.map_or("iptables", |backend| backend.name()).to_owned()),
                ("admin-chains", text("/iptablesAdminChainName", "CNI-ADMIN")),
                ("zones", text("/firewalldZone", "trusted")),
            ],
            _ => operation.values(&[("ingress", "/ingress")]),
        }
    },
};

impl OperationTexts for ops::Firewall {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        let named = Named::of(&names.request.conf);
        let by = match named.backend {
            Some(FirewallBackend::Iptables) => "by iptables".to_owned(),
            Some(FirewallBackend::Firewalld) => format!("in zone {} of firewalld", named.zone),
            None => format!("in zone {} of firewalld if firewalld runs, else by iptables", named.zone),
        };
        match self {
            Self::Admit { addresses } => {
                format!(
                    "let {} be forwarded, {by}, behind the rules of {}",
                    list(addresses, "no address"),
                    named.admin_chain
                )
            }
            Self::Isolate { ingress } => {
                format!("isolate the attachment's bridge in {}: {}", names.families(), ingress.name())
            }
            Self::Check { addresses } => {
                format!("compare the rules that forward {}, {by}", list(addresses, "no address"))
            }
            Self::Remove => "remove the rules that forward the attachment's addresses".to_owned(),
        }
    }
}
