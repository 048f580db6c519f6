//! The way to the host in a component: the bindings that `wit-bindgen` makes from `wit/`, and conversions of their
//! texts.
#![allow(unsafe_code, reason = "generated calls of the canonical ABI; nothing in this file is unsafe by hand")]
#![allow(clippy::allow_attributes_without_reason, reason = "generated code")]

use crate::error::Error;
use postern_types as values;
use postern_types::{DelegateError, DeviceKey, ErrorCode, IngressPolicy, IpvlanMode, LinkInfo, MacvlanMode, OpError};
use std::fmt;
use std::str::FromStr;

wit_bindgen::generate!({ path: "../wit", world: "plugin" });

pub(crate) use self::postern::cni::*;
pub(crate) type Link = link::Link;
pub(crate) type HostEnd = veth::HostEnd;
pub(crate) type Bridge = bridge::Bridge;
pub(crate) type VethOptions = veth::Options;
pub(crate) type BridgeOptions = bridge::Options;
pub(crate) type Parent = parent::Parent;
pub(crate) type MacvlanOptions = macvlan::Options;

/// Converts the host's error to the SDK's own type.
#[inline(never)]
pub(crate) fn failure(error: types::Error) -> Error {
    use types::ErrorCode as Wit;
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
        delegate: error.delegate.map(|d| DelegateError { code: d.code, msg: d.msg, details: d.details }),
    })
}

/// Converts a link. It has no handle here: the resource itself is the handle.
#[inline(never)]
pub(crate) fn link_info(link: types::LinkAttributes) -> LinkInfo {
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

pub(crate) fn addresses(list: Vec<types::Address>) -> Result<Vec<values::Address>, Error> {
    list.into_iter()
        .map(|a| Ok(values::Address { net: read(&a.net)?, scope: a.scope, tentative: a.tentative }))
        .collect()
}

pub(crate) fn pair(pair: veth::Pair) -> crate::veth::Pair {
    crate::veth::Pair {
        container: crate::link::Link(pair.container),
        container_attributes: link_info(pair.container_attributes),
        host: crate::veth::HostEnd(pair.host),
        host_attributes: link_info(pair.host_attributes),
        bridge: pair.bridge,
    }
}

pub(crate) fn macvlan_options(mode: MacvlanMode) -> MacvlanOptions {
    MacvlanOptions::new(match mode {
        MacvlanMode::Bridge => macvlan::Mode::Bridge,
        MacvlanMode::Private => macvlan::Mode::Private,
        MacvlanMode::Vepa => macvlan::Mode::Vepa,
        MacvlanMode::Passthru => macvlan::Mode::Passthru,
    })
}

pub(crate) fn macvlan_link(made: macvlan::Made) -> crate::macvlan::Macvlan {
    let mode = made.mode.map(|mode| match mode {
        macvlan::Mode::Bridge => MacvlanMode::Bridge,
        macvlan::Mode::Private => MacvlanMode::Private,
        macvlan::Mode::Vepa => MacvlanMode::Vepa,
        macvlan::Mode::Passthru => MacvlanMode::Passthru,
    });
    crate::macvlan::Macvlan { link: crate::link::Link(made.link), attributes: link_info(made.attributes), mode }
}

pub(crate) fn ipvlan_mode(mode: IpvlanMode) -> ipvlan::Mode {
    match mode {
        IpvlanMode::L2 => ipvlan::Mode::L2,
        IpvlanMode::L3 => ipvlan::Mode::L3,
        IpvlanMode::L3s => ipvlan::Mode::L3s,
    }
}

pub(crate) fn ipvlan_mode_of(mode: ipvlan::Mode) -> IpvlanMode {
    match mode {
        ipvlan::Mode::L2 => IpvlanMode::L2,
        ipvlan::Mode::L3 => IpvlanMode::L3,
        ipvlan::Mode::L3s => IpvlanMode::L3s,
    }
}

pub(crate) fn ingress(policy: IngressPolicy) -> firewall::IngressPolicy {
    match policy {
        IngressPolicy::SameBridge => firewall::IngressPolicy::SameBridge,
        IngressPolicy::Isolated => firewall::IngressPolicy::Isolated,
    }
}

pub(crate) fn device_key(by: DeviceKey) -> device::Key {
    match by {
        DeviceKey::Name => device::Key::Name,
        DeviceKey::Address => device::Key::Address,
        DeviceKey::Path => device::Key::Path,
        DeviceKey::Pci => device::Key::Pci,
        DeviceKey::Id => device::Key::Id,
    }
}

pub(crate) fn taken(taken: device::Taken) -> crate::device::TakenDevice {
    crate::device::TakenDevice { link: crate::link::Link(taken.link), attributes: link_info(taken.attributes) }
}

pub(crate) fn settings(settings: &values::LinkSettings) -> link_settings::Settings {
    let made = link_settings::Settings::new();
    if let Some(mac) = settings.mac {
        made.set_mac(&mac.to_string());
    }
    if let Some(mtu) = settings.mtu {
        made.set_mtu(mtu);
    }
    if let Some(on) = settings.promisc {
        made.set_promisc(on);
    }
    if let Some(on) = settings.allmulti {
        made.set_allmulti(on);
    }
    if let Some(packets) = settings.tx_queue_length {
        made.set_tx_queue_length(packets);
    }
    made
}

pub(crate) fn tap_options(settings: &values::TapSettings) -> tap::Options {
    let made = tap::Options::new();
    if let Some(mtu) = settings.mtu {
        made.set_mtu(mtu);
    }
    if let Some(mac) = settings.mac {
        made.set_mac(&mac.to_string());
    }
    if let Some(owner) = settings.owner {
        made.set_owner(owner);
    }
    if let Some(group) = settings.group {
        made.set_group(group);
    }
    if settings.multi_queue {
        made.set_multi_queue();
    }
    if settings.packet_information {
        made.set_packet_information();
    }
    if settings.vnet_header {
        made.set_vnet_header();
    }
    if let Some(context) = &settings.selinux_context {
        made.set_selinux_context(context);
    }
    made
}

/// Returns the texts of these values, as the interfaces carry them.
pub(crate) fn texts<T: fmt::Display>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

/// Reads a value from a text of the host.
pub(crate) fn read<T: FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| malformed(text))
}

#[cold]
fn malformed(text: &str) -> Error {
    Error::new(format!("the host gave a malformed value: {text}"))
}
