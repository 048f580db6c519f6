//! The way to the host in a component: the bindings that `wit-bindgen` makes from `wit/`, and one file per interface,
//! which `cargo xtask surface` writes.

#[allow(unsafe_code, reason = "generated calls of the canonical ABI; nothing in this module is unsafe by hand")]
#[allow(clippy::allow_attributes_without_reason, reason = "generated code")]
mod generated {
    wit_bindgen::generate!({ path: "../wit", world: "plugin" });
}

// each capability: pub(crate) mod {file};
pub(crate) mod addresses;
pub(crate) mod attachments;
pub(crate) mod bandwidth;
pub(crate) mod bridge;
pub(crate) mod delegate;
pub(crate) mod device;
pub(crate) mod dhcp;
pub(crate) mod dummy;
pub(crate) mod firewall;
pub(crate) mod forwarding;
pub(crate) mod ipam;
pub(crate) mod ipvlan;
pub(crate) mod leases;
pub(crate) mod link;
pub(crate) mod link_settings;
pub(crate) mod link_sysctl;
pub(crate) mod loopback;
pub(crate) mod mac_guard;
pub(crate) mod macvlan;
pub(crate) mod masquerade;
pub(crate) mod namespace_sysctl;
pub(crate) mod notes;
pub(crate) mod parent;
pub(crate) mod point_to_point;
pub(crate) mod port_mappings;
pub(crate) mod resolv_conf;
pub(crate) mod routes;
pub(crate) mod source_routes;
pub(crate) mod tap;
pub(crate) mod veth;
pub(crate) mod vlan;
pub(crate) mod vrf;
// end of the list

use crate::error::Error;
use generated::postern::cni as wit;
use postern_types::{Address, ErrorCode, LinkInfo, OpError};
use std::fmt;
use std::str::FromStr;

/// Converts the host's error to the SDK's own type.
#[inline(never)]
fn failure(error: wit::types::Error) -> Error {
    use wit::types::ErrorCode as Wit;
    Error::from(OpError {
        code: match error.code {
            Wit::Denied => ErrorCode::Denied,
            Wit::NotFound => ErrorCode::NotFound,
            Wit::Exists => ErrorCode::Exists,
            Wit::InvalidArgument => ErrorCode::InvalidArgument,
            Wit::InvalidHandle => ErrorCode::InvalidHandle,
            Wit::Unsupported => ErrorCode::Unsupported,
            Wit::Exhausted => ErrorCode::Exhausted,
            Wit::TryAgain => ErrorCode::TryAgain,
            Wit::Deadline => ErrorCode::Deadline,
            Wit::Mismatch => ErrorCode::Mismatch,
            Wit::Kernel => ErrorCode::Kernel,
            Wit::Io => ErrorCode::Io,
            Wit::Delegate => ErrorCode::Delegate,
        },
        errno: error.errno,
        operation: error.operation,
        object: error.object,
        message: error.message,
        hint: error.hint,
        delegate: error.delegate.map(|d| postern_cni::Error { code: d.code, msg: d.msg, details: d.details }),
    })
}

/// Converts a link. The link has no handle here: the resource itself is the handle.
#[inline(never)]
fn link_info(link: wit::types::LinkAttributes) -> LinkInfo {
    LinkInfo {
        handle: 0,
        name: link.name,
        // Not every link has an Ethernet address.
        mac: link.mac.and_then(|mac| mac.parse().ok()),
        mtu: link.mtu,
        kind: link.kind,
        up: link.up,
        running: link.running,
    }
}

fn address(address: wit::types::Address) -> Result<Address, Error> {
    Ok(Address { net: read(&address.net)?, scope: address.scope, tentative: address.tentative })
}

/// Returns the texts of these values, as the interfaces carry them.
fn texts<T: fmt::Display>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

/// Reads a value from a text of the host.
fn read<T: FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| malformed(text))
}

/// Reads a value that may be absent.
fn maybe<T: FromStr>(text: Option<&str>) -> Result<Option<T>, Error> {
    text.map(read).transpose()
}

#[cold]
fn malformed(text: &str) -> Error {
    Error::new(format!("the host gave a malformed value: {text}"))
}
