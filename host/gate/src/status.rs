//! STATUS: checks whether an ADD could work. The plugin checks its configuration, its IPAM plugin, and free addresses.
//! This file checks the host's part: the grants, the packet filter, and whether records and leases can be written.
//! STATUS changes nothing, and needs no container.
//!
//! A runtime that gets an error reports the whole network as not ready, and a kubelet then evicts the node's healthy
//! pods. The native plugins fail only for a wrong configuration. Postern also fails if policy refuses the ADD. A fault
//! of the node is an error only if the operator wants it (`status = "strict"` in `node.toml`). Otherwise the fault is
//! reported on standard error.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::capability::facts::Needed;
use crate::capability::{self, facts, leases};
use crate::context::View;
use crate::errors::kernel_error;
use crate::launcher::Launcher;
use crate::prepared::Prepared;
use crate::{disk, packet_filter, settings};
use postern_cni::{Error, PortMap, Verb, code};
use postern_firewall::{firewalld, iptables};
use postern_policy::capability::firewall::Named;
use postern_policy::{Granted, Policy, Question, Rule, rule};
use postern_types::{Backend, Capability, ErrorCode, FirewallBackend, IngressPolicy, OpError, Operation, ops};
use std::path::Path;

/// Checks that the host could do its part of an ADD by this plugin. The process must not be confined yet. The error has
/// code 7 if the configuration does not fit the policy, and code 50 if policy refuses the ADD. If the node's settings
/// turn faults into errors, a missing part of the node has code 50, with a hint. The code is 51 if a link of another
/// kind has the name of the network's bridge: existing containers may then be cut off too.
pub fn able(view: View<'_>, launcher: &Launcher, plugin: &Prepared) -> Result<(), Error> {
    let delegate = launcher.shipped_policy(&view.request.conf.ipam_type);
    let keeps_leases = std::iter::once(&plugin.policy).chain(&delegate).any(|policy| policy.knows(Capability::Leases));
    let granted = plugin.granted_for(view.request);
    let granted = granted.map_err(|error| Error::new(code::INVALID_NETWORK_CONFIG, error.to_string()))?;
    // The settings are read here, because a confined process can't read them. They also decide about faults that the
    // guest finds later.
    let _ = view.fixed.settings();
    match could_add(view, &plugin.policy, &granted, keeps_leases) {
        Err(Fault::Node(error)) if settings::is_said(view, &error) => Ok(()),
        Err(Fault::Policy(error) | Fault::Node(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// The reason why no ADD could succeed.
enum Fault {
    /// Policy refuses.
    Policy(Error),
    /// The node lacks something at present.
    Node(Error),
}

fn could_add(view: View<'_>, policy: &Policy, granted: &Granted, keeps_leases: bool) -> Result<(), Fault> {
    let has_addresses = !view.request.conf.ipam_type.is_empty();
    let is_needed = |missing: &Capability| match facts(*missing).needed {
        Needed::Always => true,
        Needed::WithAddresses => has_addresses,
        Needed::Never => false,
    };
    if let Some(missing) = granted.missed().find(is_needed) {
        let message = format!("policy has withdrawn \"{missing}\", which an ADD to this network needs");
        let error = Error::new(code::PLUGIN_NOT_AVAILABLE, message);
        return Err(Fault::Policy(error.with_details(granted.withdrawn_hint(missing))));
    }
    masquerading(view, policy, granted)?;
    forwarded(view, policy)?;
    if is_on(view, "macspoofchk") && policy.knows(Capability::MacGuard) {
        has_nftables(view, "spoofing protection")?;
    }
    forwards(view, policy)?;
    bridge(view, granted)?;
    tap(granted)?;
    let written = |directory: &Path| {
        disk::writable(directory).map_err(|error| Fault::Node(Error { code: code::PLUGIN_NOT_AVAILABLE, ..error }))
    };
    written(&view.fixed.places.state)?;
    if keeps_leases {
        written(&Path::new(&leases::directory(&view.request.conf)).join(&view.request.conf.name))?;
    }
    Ok(())
}

/// Converts a refusal by policy to the form of STATUS: the plugin exists, but an ADD can't succeed.
pub fn as_unavailable(error: Error) -> Error {
    match error.code {
        crate::DENIED => Error { code: code::PLUGIN_NOT_AVAILABLE, ..error },
        _ => error,
    }
}

fn unavailable(text: String) -> Fault {
    Fault::Node(Error::new(code::PLUGIN_NOT_AVAILABLE, text))
}

fn refused(error: OpError) -> Fault {
    let told = Error::new(code::PLUGIN_NOT_AVAILABLE, error.to_string());
    if error.code == ErrorCode::Denied { Fault::Policy(told) } else { Fault::Node(told) }
}

/// Returns a boolean of the configuration. A value of another type counts as false, because the plugin refuses it.
fn is_on(view: View<'_>, key: &str) -> bool {
    view.request.conf.fields().bool(key).ok().flatten() == Some(true)
}

/// Checks that policy allows the operation in an ADD. No handle has been given out yet.
fn asked(view: View<'_>, granted: &Granted, operation: &Operation) -> Result<Rule, OpError> {
    let question = Question { operation, verb: Verb::Add, conf: &view.request.conf, owns_link: true, kind: &|_| None };
    rule(granted, question)
}

/// Checks that the firewall plugin's packet filter is available.
fn forwarded(view: View<'_>, policy: &Policy) -> Result<(), Fault> {
    if !policy.knows(Capability::Firewall) {
        return Ok(());
    }
    let named = Named::of(&view.request.conf);
    let by_firewalld = match named.backend {
        Some(FirewallBackend::Firewalld) if !firewalld::installed() => {
            return Err(unavailable("the network wants firewalld, which is not installed on this node".to_owned()));
        }
        Some(FirewallBackend::Firewalld) => true,
        Some(FirewallBackend::Iptables) => false,
        None => firewalld::installed(),
    };
    if (!by_firewalld || IngressPolicy::parse(&named.ingress).is_some()) && iptables::installed() == [false, false] {
        return Err(unavailable("the network needs iptables, which is not installed: install it".to_owned()));
    }
    Ok(())
}

fn masquerading(view: View<'_>, policy: &Policy, granted: &Granted) -> Result<(), Fault> {
    if !is_on(view, "ipMasq") || !policy.knows(Capability::Masquerade) || view.request.conf.ipam_type.is_empty() {
        return Ok(());
    }
    let named = view.request.conf.fields().str("ipMasqBackend").ok().flatten();
    let backend = named.and_then(Backend::parse);
    if named.is_some() && backend.is_none() {
        // The plugin itself reports this error.
        return Ok(());
    }
    asked(view, granted, &ops::Masquerade::Ensure { backend }.into()).map_err(refused)?;
    let by_default = || packet_filter::default(view, |backend| granted.allows_backend(backend));
    is_usable(view, backend.map_or_else(by_default, Ok).map_err(refused)?, "masquerading")
}

/// Checks that a packet filter can be used for the purpose `what`.
fn is_usable(view: View<'_>, backend: Backend, what: &str) -> Result<(), Fault> {
    match backend {
        Backend::Iptables if iptables::installed() == [false, false] => Err(unavailable(format!(
            "the network wants {what} by iptables, which is not installed: install it, or use the nftables backend"
        ))),
        Backend::Iptables => Ok(()),
        Backend::Nftables => has_nftables(view, what),
    }
}

/// Checks that the packet filter that a network names for its forwards can be used.
fn forwards(view: View<'_>, policy: &Policy) -> Result<(), Fault> {
    if !policy.knows(Capability::PortMappings) {
        return Ok(());
    }
    // The plugin itself reports invalid values.
    let named = PortMap::read(&view.request.conf).and_then(|map| map.backend()).ok().flatten();
    named.and_then(Backend::parse).map_or(Ok(()), |backend| is_usable(view, backend, "forwards"))
}

fn has_nftables(view: View<'_>, what: &str) -> Result<(), Fault> {
    let missing =
        |reason: String| unavailable(format!("the network wants {what}, and nftables can't be used: {reason}"));
    let mut nft = view.system.nft().map_err(|error| missing(error.to_string()))?;
    match nft.is_absent() {
        true => Err(missing("the kernel has no nf_tables".to_owned())),
        false => Ok(()),
    }
}

/// Checks that the host could make the network's tap. No tap is made.
fn tap(granted: &Granted) -> Result<(), Fault> {
    match granted.makes_taps() {
        true => postern_kernel::tap::can_be_made(granted.tap_context().as_deref())
            .map_err(|error| refused(capability::tap::not_ready(error))),
        false => Ok(()),
    }
}

/// The bridge of a network that names no bridge.
const BRIDGE: &str = "cni0";

/// Checks the bridge. A missing bridge is no error, because an ADD makes it. But no other link may have its name, and a
/// bridge for VLANs must filter VLANs.
fn bridge(view: View<'_>, granted: &Granted) -> Result<(), Fault> {
    if !granted.has(Capability::Bridge) {
        return Ok(());
    }
    // The plugin refuses a value of another type.
    let Ok(name) = view.request.conf.fields().str("bridge") else { return Ok(()) };
    let named = name.filter(|name| !name.is_empty());
    let name = named.unwrap_or(BRIDGE);
    match asked(view, granted, &ops::Bridge::Find { name: name.to_owned() }.into()) {
        // A plugin of another vendor may have another default bridge.
        Err(_) if named.is_none() => return Ok(()),
        decision => decision.map_err(refused)?,
    };
    match view.system.host().and_then(|host| host.link_by_name(name).map_err(kernel_error)).map_err(refused)? {
        Some(link) if link.kind != "bridge" => Err(Fault::Node(Error::new(
            code::LIMITED_CONNECTIVITY,
            format!("\"{name}\" exists and is no bridge: containers of this network can't be attached"),
        ))),
        Some(link) if granted.has_vlans() && !link.vlan_filtering => Err(unavailable(format!(
            "bridge \"{name}\" does not filter VLANs, and would not separate them: `ip link set {name} type bridge \
             vlan_filtering 1` switches the filter on"
        ))),
        _ => Ok(()),
    }
}
