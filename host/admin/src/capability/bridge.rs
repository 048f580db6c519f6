//! `bridge`, for people.

use super::{OWN_ADDRESSES, OperationTexts, Page, list};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, switched, with};
use crate::words::{Objects, Switch};
use postern_types::{OpError, PortSpec, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "touch a bridge",
    always: Some(OWN_ADDRESSES),
    groups: &[
        group(&["find", "[method]bridge.attributes", "[method]bridge.promisc"], |objects| {
            bridge(objects, |bridge| format!("look at {bridge}"))
        }),
        group(&["ensure"], |objects| {
            bridge(objects, |bridge| format!("create {bridge} if it is missing, and set it up"))
        }),
        with(&["ensure"], &["[method]options.set-mtu"], |objects| match objects.switch("mtu", "0") {
            _ if !matches!(objects, Objects::Of(_)) => Some("create that bridge with any MTU".to_owned()),
            Switch::Off => None,
            Switch::On(_) => Some(format!("create that bridge with {}", objects.words_but("mtu", "MTU", "0"))),
        }),
        with(&["ensure"], &["[method]options.set-vlan-filtering"], |objects| {
            bridge(objects, |_| "create that bridge with VLAN filtering".to_owned())
        }),
        with(&["ensure"], &["[method]options.set-promisc"], |objects| {
            switched(objects, "promisc", "false", "set that bridge promiscuous")
        }),
        group(&["[method]bridge.attach"], |objects| {
            bridge(objects, |bridge| {
                let isolated = match (objects, objects.switch("isolated", "false")) {
                    (Objects::Of(_), Switch::On(when)) => format!(", as an isolated port only{when}"),
                    _ => String::new(),
                };
                let others = match objects {
                    Objects::Of(_) if objects.none("attach") => ", and no other link",
                    Objects::Of(_) | Objects::Any => "",
                };
                format!("attach its own end of the pair{others}, to {bridge}{isolated}")
            })
        }),
        group(&["previous-link"], |objects| match objects {
            Objects::Any => {
                Some("attach any link of the host that a policy names, if an earlier plugin made the link".to_owned())
            }
            Objects::Of(_) if objects.none("attach") => None,
            Objects::Of(_) => Some(format!(
                "attach {}, if an earlier plugin made the link and the node does not use it",
                objects.words("attach", "link")
            )),
        }),
        with(&["[method]bridge.attach"], &["[method]port.set-vlan"], |objects| match objects.switch("vlan", "0") {
            Switch::Off => None,
            Switch::On(_) => {
                let vlans = objects.words_but("vlan", "VLAN", "0");
                Some(format!("join that bridge in {vlans} only, if the bridge filters VLANs"))
            }
        }),
        with(&["[method]bridge.attach"], &["[method]port.set-trunk"], |objects| {
            about(objects, "trunk", "VLAN", |vlans| format!("have its port carry {vlans}, tagged, and no others"))
        }),
        with(&["[method]bridge.attach"], &["[method]port.set-preserve-default-vlan"], |objects| {
            switched(objects, "preserve-default-vlan", "false", "keep the default VLAN on its port")
        }),
        with(&["[method]bridge.attach"], &["[method]port.set-hairpin"], |objects| {
            bridge(objects, |_| "let frames leave through the port that they came in by".to_owned())
        }),
        with(&["[method]bridge.attach"], &["[method]port.set-isolated"], |objects| {
            bridge(objects, |_| "isolate its port from other isolated ports".to_owned())
        }),
        group(&["[method]bridge.ensure-gateways"], |objects| {
            let when = objects.condition("gateways")?;
            bridge(objects, |bridge| {
                format!(
                    "have the gateways of its own addresses put on {bridge}, or on the bridge's VLAN \
                     gateway{when}; each gateway lies in its address's network"
                )
            })
        }),
        group(&["[method]bridge.ensure-gateways"], |objects| {
            switched(objects, "force-address", "false", "replace a conflicting address of that bridge")
        }),
    ],
    keys: &[
        Key::list("names", Source::Value("bridge", Some("cni0")), WidestValue::Values(&["*"])),
        Key::one("mtu", Source::Value("mtu", Some("0")), WidestValue::Configured),
        Key::one("vlan", Source::Value("vlan", Some("0")), WidestValue::Configured),
        Key::some(
            "trunk",
            Source::Parts(&[
                ("/vlanTrunk", "${config.vlanTrunk.*.id}"),
                ("/vlanTrunk", "${config.vlanTrunk.*.minID}-${config.vlanTrunk.*.maxID}"),
            ]),
            WidestValue::Configured,
        ),
        Key::one(
            "preserve-default-vlan",
            Source::Value("preserveDefaultVlan", Some("false")),
            WidestValue::Values(&["true"]),
        ),
        Key::one("promisc", Source::Value("promiscMode", Some("false")), WidestValue::Values(&["true"])),
        // This key limits only if it is present.
        Key::one("isolated", Source::Value("portIsolation", Some("false")), WidestValue::LeftOut),
        Key::list(
            "gateways",
            Source::Parts(&[
                ("/isGateway", "${config.isGateway | false}"),
                ("/isDefaultGateway", "${config.isDefaultGateway | false}"),
            ]),
            WidestValue::Values(&["true"]),
        ),
        Key::one("force-address", Source::Value("forceAddress", Some("false")), WidestValue::Values(&["true"])),
        // The configuration has no key for these links: `prevResult` names them.
        Key::some("attach", Source::Parts(&[]), WidestValue::Values(&["*"])),
    ],
    objects: |operation| {
        let mut objects = operation.values(&[
            ("names", "/name"),
            ("mtu", "/mtu"),
            ("promisc", "/promisc"),
            ("vlan", "/port/vlan"),
            ("trunk", "/port/trunk"),
            ("preserve-default-vlan", "/port/preserve_default_vlan"),
            ("isolated", "/port/isolated"),
            ("force-address", "/force"),
        ]);
        match operation.function {
            "previous-link" => {
                objects.extend(operation.network.links_before().into_iter().map(|(name, _)| ("attach", name)));
            }
            "ensure-gateways" => objects.push(("gateways", "true".to_owned())),
            _ => {}
        }
        objects
    },
};

impl OperationTexts for ops::Bridge {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Ensure { name, mtu, vlan_filtering, promisc } => {
                let mtu = mtu.map(|mtu| format!(" with MTU {mtu}")).unwrap_or_default();
                let filtering = if *vlan_filtering { ", filtering VLANs" } else { "" };
                let promisc = if *promisc { ", promiscuous" } else { "" };
                format!("make bridge {name}{mtu} if it is missing{filtering}, and set it up{promisc}")
            }
            Self::Find { name } => format!("look at bridge {name}"),
            Self::PreviousLink => "look for a link that an earlier plugin made, to attach it".to_owned(),
            Self::Attach { bridge, host, port } => {
                format!("attach {} to {}{}", names.link(*host), names.link(*bridge), joins(port))
            }
            Self::EnsureGateways { bridge, port, force } => {
                let bridge = names.link(*bridge);
                let on = match (port.vlan, bridge.strip_prefix("bridge ")) {
                    (Some(vlan), Some(name)) => format!("VLAN gateway {name}.{vlan}"),
                    _ => bridge,
                };
                let force = if *force { ", in the place of a conflicting address" } else { "" };
                format!("put gateway {} on {on}{force}", names.gateways(true))
            }
        }
    }

    fn makes(&self) -> Option<&str> {
        match self {
            Self::Ensure { name, .. } => Some(name),
            Self::Find { .. } | Self::PreviousLink | Self::Attach { .. } | Self::EnsureGateways { .. } => None,
        }
    }
}

fn bridge(objects: &Objects<'_>, text: impl FnOnce(String) -> String) -> Option<String> {
    about(objects, "names", "bridge", text)
}

/// Returns the properties of a joined port in words.
fn joins(port: &PortSpec) -> String {
    let mut how = Vec::new();
    how.extend(port.vlan.map(|vlan| format!("VLAN {vlan}")));
    if !port.trunk.is_empty() {
        how.push(format!("tagged VLANs {}", list(&port.trunk, "")));
    }
    let switches =
        [(port.preserve_default_vlan, "the default VLAN kept"), (port.hairpin, "hairpin"), (port.isolated, "isolated")];
    how.extend(switches.iter().filter(|(on, _)| *on).map(|(_, word)| (*word).to_owned()));
    if how.is_empty() { String::new() } else { format!(" ({})", how.join("; ")) }
}
