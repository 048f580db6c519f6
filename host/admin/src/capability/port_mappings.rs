//! `port-mappings`, for people.

use super::{OWN_ADDRESSES, OperationTexts, Page, list};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group, say};
use postern_types::{Forward, NatSources, OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "forward ports of the node",
    always: Some(OWN_ADDRESSES),
    groups: &[
        group(&["ensure"], |objects| {
            about(objects, "ports", "port", |ports| {
                format!(
                    "forward the node's {ports} to its own addresses, for port mappings that the runtime's call lists"
                )
            })
        }),
        group(&["check"], |_| say("compare the forwards to its own addresses")),
        group(&["remove"], |_| say("remove the forwards to its own addresses")),
    ],
    keys: &[
        Key::list("ports", Source::Value("", Some("1-65535")), WidestValue::Values(&["1-65535"])),
        Key::list(
            "backends",
            Source::Value("backend", Some("iptables")),
            WidestValue::Values(&["nftables", "iptables"]),
        ),
    ],
    objects: |operation| {
        let forwards: Vec<Forward> = operation.value("/forwards").unwrap_or_default();
        let ports = |forward: &Forward| match (forward.host_port, forward.last_host_port()) {
            (first, last) if first == last => ("ports", first.to_string()),
            (first, last) => ("ports", format!("{first}-{last}")),
        };
        if operation.function == "ensure" { forwards.iter().map(ports).collect() } else { Vec::new() }
    },
};

/// The most forwards that a sentence names.
const MOST: usize = 8;

impl OperationTexts for ops::PortMappings {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Ensure { addresses, forwards, masquerade } => {
                let as_node = match masquerade {
                    NatSources::None => "without masquerading",
                    NatSources::Own => "with masquerading of the container's network and of the node",
                    NatSources::All => "with masquerading of every sender",
                };
                format!("forward {} to {}, {as_node}", ports(forwards), list(addresses, "no address"))
            }
            Self::Check { forwards, .. } => {
                format!("compare the forwards of {} to {}", ports(forwards), names.addresses())
            }
            Self::Remove => "remove the attachment's forwards".to_owned(),
        }
    }
}

/// Returns forwards as text: the first `MOST` forwards, and the number of further forwards.
fn ports(forwards: &[Forward]) -> String {
    let shown = list(forwards.iter().take(MOST), "no port");
    match forwards.len().checked_sub(MOST).filter(|more| *more > 0) {
        Some(more) => format!("{shown} and {more} more"),
        None => shown,
    }
}
