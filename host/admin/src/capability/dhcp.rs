//! `dhcp`, for people.

use super::{OperationTexts, Page, list};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group};
use postern_policy::capability::dhcp::{DEFAULT_SOCKET, socket};
use postern_types::{DhcpLease, OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "get an address of a DHCP server",
    always: Some("only for its own attachment: the plugin can name no other attachment, no link and no packet"),
    groups: &[
        group(&["acquire"], |objects| {
            about(objects, "sockets", "socket", |sockets| {
                format!("have the DHCP service at {sockets} get an address for this attachment, and keep it alive")
            })
        }),
        group(&["check", "status"], |objects| {
            about(objects, "sockets", "socket", |sockets| {
                format!("ask the DHCP service at {sockets} for this attachment's lease, and whether the service runs")
            })
        }),
        group(&["release"], |objects| {
            about(objects, "sockets", "socket", |sockets| {
                format!(
                    "have the DHCP service at {sockets} release this attachment's lease, once pair and rules are gone"
                )
            })
        }),
    ],
    keys: &[
        Key::list("sockets", Source::Value("ipam.daemonSocketPath", Some(DEFAULT_SOCKET)), WidestValue::Configured),
        // Without this key, the DHCP server of any network may give any address.
        Key::some("addresses", Source::Value("", None), WidestValue::LeftOut),
    ],
    objects: |operation| {
        let socket = operation.network.named("/ipam/daemonSocketPath");
        vec![("sockets", socket.unwrap_or_else(|| DEFAULT_SOCKET.to_owned()))]
    },
};

impl OperationTexts for ops::Dhcp {
    fn words(&self, names: &Names<'_>, outcome: &Result<Reply, OpError>) -> String {
        let service = format!("the DHCP service at {}", socket(&names.request.conf));
        match self {
            Self::Acquire => match outcome.as_ref().map(Reply::read::<DhcpLease>) {
                Ok(Ok(lease)) => {
                    let given = list(lease.addresses.iter().map(|grant| grant.address), "no address");
                    format!("have {service} get an address (only a server knows the address; {given} stands for it)")
                }
                Ok(Err(_)) | Err(_) => format!("have {service} get an address"),
            },
            Self::Check => format!("ask {service} for the attachment's lease"),
            Self::Release => format!("have {service} give the attachment's lease back"),
            Self::Status => format!("ask whether {service} is there"),
        }
    }
}
