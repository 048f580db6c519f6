//! DEL by the host itself, if the plugin can't do it, and the record is missing or incomplete. For example, the
//! plugin's code is missing or not trusted, its policy can't be read, or policy prevents its work.
//!
//! Objects are found by the names and marks that the native plugins use too. No policy is asked: an attachment may
//! always remove its own objects, and runtimes call DEL until it succeeds.

use crate::capability::leaves::EffectKind;
use crate::capability::{bandwidth, device, firewall, leases, link, masquerade, port_mappings};
use crate::context::Context;
use crate::effect::{InnerKind, Lease, MacGuard};
use crate::request::Request;
use crate::{collect, others};
use postern_kernel::Link;
use postern_policy::Policy;
use postern_types::{Capability, LinkName, Mac, OpError};
use serde_json::{Value, json};
use std::time::Instant;

/// The objects that a plugin may have made. Other objects are not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchedObjects {
    /// The attachment's own link, which the plugin made.
    pub link: bool,
    /// A device of the node.
    pub device: bool,
    /// Masquerading and spoofing protection.
    pub rules: bool,
    /// Ports of the node.
    pub ports: bool,
    /// Rules that let the attachment's addresses be forwarded.
    pub forwarded: bool,
    /// Limits of the traffic's rate.
    pub limits: bool,
    /// Addresses.
    pub leases: bool,
}

impl SearchedObjects {
    /// True if the plugin makes or moves the attachment's link.
    pub fn makes_link(self) -> bool {
        self.link || self.device
    }

    /// Returns the objects by the plugin's policy. Without a policy, the configuration shows whether the plugin is the
    /// IPAM plugin or makes the link.
    pub fn of(policy: Option<&Policy>, request: &Request) -> Self {
        let delegates = !request.conf.ipam_type.is_empty();
        match policy {
            Some(policy) => Self {
                link: policy.makes_links() && !policy.knows(Capability::Device),
                device: policy.knows(Capability::Device),
                rules: [Capability::Masquerade, Capability::MacGuard, Capability::Delegate]
                    .into_iter()
                    .any(|capability| policy.knows(capability)),
                ports: policy.knows(Capability::PortMappings),
                forwarded: policy.knows(Capability::Firewall),
                limits: policy.knows(Capability::Bandwidth),
                leases: policy.knows(Capability::Leases)
                    || policy.knows(Capability::Delegate)
                    || policy.knows(Capability::Ipam) && delegates,
            },
            None => {
                let is_interface_plugin = request.conf.ipam_type != request.plugin;
                Self {
                    link: is_interface_plugin,
                    device: false,
                    rules: is_interface_plugin,
                    ports: false,
                    forwarded: is_interface_plugin,
                    limits: is_interface_plugin,
                    leases: delegates,
                }
            }
        }
    }
}

/// Removes the objects of a capability for the attachment.
type Removal = fn(&mut Context) -> Result<(), OpError>;

/// Removes the objects with the attachment's names: rules first, addresses last, and no addresses while the pair stays.
/// It is no error if nothing is found. All removals are tried, and the first error is returned.
pub fn remove(run: &mut Context, part: SearchedObjects) -> Result<(), OpError> {
    run.fixed.deadline.allow_cleanup();
    let mut failed = None;
    let rules: [(bool, &str, Removal); 4] = [
        (part.rules, "masquerade", masquerade::remove_own),
        (part.ports, "port-mappings", port_mappings::remove_own),
        (part.forwarded, "firewall", firewall::remove_own),
        (part.limits, "bandwidth", bandwidth::remove_own),
    ];
    for (_, effect, remove) in rules.into_iter().filter(|(is_searched, ..)| *is_searched) {
        step(run, &mut failed, json!({"effect": effect}), remove);
    }
    let mut pair_stays = false;
    // If an earlier plugin's link joined a bridge for this attachment, that plugin removes the container's link.
    if part.link && !run.journal.has_joined() {
        match own_pair(run) {
            Ok(Some(pair)) => {
                let object = json!({"effect": "veth", "host": pair.name, "mac": pair.mac.map(Mac)});
                step(run, &mut failed, object, |run| link::delete_own(run.view()));
            }
            Ok(None) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
        pair_stays = failed.is_some();
    }
    if part.device {
        // Policy does not matter here. The device returns to the node if it is a driver's device, or if its alias is
        // the name in the network's key `device`.
        let named = run.request.conf.fields().string("device").ok().flatten().unwrap_or_default();
        let is_named = |own: &Link, alias: &LinkName| *alias == named || own.device.is_some();
        step(run, &mut failed, json!({"effect": "device"}), |run| device::give_back(run, is_named));
        pair_stays |= failed.is_some();
    }
    if part.rules {
        step(run, &mut failed, json!({"effect": "mac-guard"}), |run| MacGuard::default().remove(run));
    }
    if part.leases && !pair_stays {
        let directory = leases::directory(&run.request.conf);
        let object = json!({"effect": "lease", "directory": directory});
        // Chained plugins may have made objects that use the addresses. The record lists these objects.
        step(run, &mut failed, object, |run| {
            collect::remove_users(run)?;
            Lease { directory }.remove(run)
        });
    }
    failed.map_or(Ok(()), Err)
}

/// Carries out one step, with its line in the audit log.
fn step(
    run: &mut Context,
    failed: &mut Option<OpError>,
    object: Value,
    act: impl FnOnce(&mut Context) -> Result<(), OpError>,
) {
    let start = Instant::now();
    let outcome = act(run);
    // The rule is "own", because the objects are the attachment's own.
    run.audit.note_own("DEL", "own.remove", &object, "own", &outcome, start.elapsed());
    if let Err(error) = outcome {
        failed.get_or_insert(error);
    }
}

/// Returns the attachment's link in the container, if it is a pair or an inner link, and belongs to no other
/// attachment.
fn own_pair(run: &Context) -> Result<Option<Link>, OpError> {
    let own = run.system.link_inside(&run.request.ifname)?;
    let Some(own) = own.filter(|own| own.kind == "veth" || InnerKind::has(own)) else { return Ok(None) };
    Ok(if others::spares(run, &own)? || others::is_claimed(run.view(), &own)? { None } else { Some(own) })
}
