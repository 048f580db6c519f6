//! The removal of leftovers, each with a line in the audit log.

use super::leftover::{Leftover, LeftoverObject};
use super::{Scope, WITHIN, find, program_runner};
use crate::places;
use ipnet::IpNet;
use postern_firewall::iptables::Recorded;
use postern_firewall::{FirewallError, Nft, hostport, iptables, macguard, masquerade};
use postern_gate::places::Places;
use postern_gate::upkeep::Audit;
use postern_kernel::Netlink;
use postern_state::{Backups, HeldAddress};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// Removes the objects in `found` that are still leftovers, each with a line in the audit log. Returns the number of
/// removed objects, and a text for people for each object that could not be removed.
///
/// # Errors
/// The errors of [`find`].
pub fn remove(scope: Scope<'_>, found: &[Leftover]) -> Result<(usize, Vec<String>), String> {
    let again = find(scope)?.leftovers;
    let still: Vec<&Leftover> = found.iter().filter(|leftover| again.contains(leftover)).collect();
    let host = Netlink::open().map_err(|e| e.to_string())?;
    // One socket serves all removals, because closing a socket after a deletion takes milliseconds.
    let mut nft = Nft::open(Instant::now() + WITHIN).map_err(|e| e.to_string())?;
    let mut removal = Removal { places: scope.places, removed: 0, failed: Vec::new() };
    let (mut nftables, mut tables) = (Vec::new(), Vec::new());
    let (mut forwards, mut chains, mut forwarding) = (Vec::new(), Vec::new(), Vec::new());
    for leftover in &still {
        match &leftover.object {
            LeftoverObject::Nftables(seen) => nftables.push((*leftover, seen.clone())),
            LeftoverObject::Iptables(seen) => tables.push((*leftover, seen.clone())),
            LeftoverObject::ForwardNftables(seen) => forwards.push((*leftover, seen.clone())),
            LeftoverObject::ForwardIptables(seen) => chains.push((*leftover, seen.clone())),
            LeftoverObject::Forwarding(address) => forwarding.push((*leftover, IpNet::from(*address))),
            LeftoverObject::Lease { .. }
            | LeftoverObject::MacGuard { .. }
            | LeftoverObject::Ifb { .. }
            | LeftoverObject::StateFile { .. } => {}
        }
    }
    // Forwards are removed before leases, because a forward would lead to the next container that gets the address. All
    // forwards of a kind are removed together, because each removal reads all rules.
    removal.together(&forwards, |seen| hostport::nft::remove_seen(&mut nft, seen).map(drop));
    removal.together(&chains, |seen| iptables::hostport::remove_seen(seen, program_runner()).map(drop));
    removal
        .together(&forwarding, |seen| iptables::forward::withdraw(seen, &[], Recorded::No, program_runner()).map(drop));
    for leftover in &still {
        let start = Instant::now();
        let outcome = match &leftover.object {
            LeftoverObject::Lease { directory, network, lease, .. } => remove_lease(scope, directory, network, lease),
            LeftoverObject::MacGuard { id, .. } => remove_guard(&host, &mut nft, id),
            LeftoverObject::Ifb { index, .. } => host.delete_link(*index).map_err(|error| error.to_string()),
            LeftoverObject::StateFile { directory, name, .. } => remove_state_file(directory, name),
            LeftoverObject::Nftables(_)
            | LeftoverObject::Iptables(_)
            | LeftoverObject::ForwardNftables(_)
            | LeftoverObject::ForwardIptables(_)
            | LeftoverObject::Forwarding(_) => continue,
        };
        removal.note(leftover, &outcome, start.elapsed());
    }
    nft.set_deadline(Instant::now() + WITHIN);
    removal.together(&nftables, |seen| masquerade::nft_remove_seen(&mut nft, seen).map(drop));
    removal.together(&tables, |seen| iptables::remove_seen(seen, program_runner()).map(drop));
    Ok((removal.removed, removal.failed))
}

fn remove_lease(scope: Scope<'_>, directory: &Path, network: &str, lease: &HeldAddress) -> Result<bool, String> {
    let Some(leases) = places::leases(scope.places, directory, network)? else { return Ok(false) };
    leases.remove(lease, Instant::now() + WITHIN).map_err(|e| e.to_string())
}

fn remove_state_file(directory: &str, name: &str) -> Result<bool, String> {
    let files = Backups::open(Path::new(directory)).map_err(|e| e.to_string())?;
    files.map_or(Ok(false), |files| files.unlink(name)).map_err(|e| e.to_string())
}

fn remove_guard(host: &Netlink, nft: &mut Nft, id: &str) -> Result<bool, String> {
    // An unknown answer counts as "exists".
    let exists = |port: &str| host.link_by_name(port).map_or(true, |link| link.is_some());
    nft.set_deadline(Instant::now() + WITHIN);
    macguard::remove_unused(nft, id, exists).map_err(|e| e.to_string())
}

/// A removal in progress.
struct Removal<'a> {
    places: &'a Places,
    removed: usize,
    failed: Vec<String>,
}

impl Removal<'_> {
    fn together<T: Clone>(&mut self, some: &[(&Leftover, T)], act: impl FnOnce(&[T]) -> Result<(), FirewallError>) {
        let seen: Vec<T> = some.iter().map(|(_, seen)| seen.clone()).collect();
        if seen.is_empty() {
            return;
        }
        let start = Instant::now();
        let outcome = act(&seen).map(|()| true).map_err(|error| error.to_string());
        for (leftover, _) in some {
            self.note(leftover, &outcome, start.elapsed());
        }
    }

    /// Notes an outcome. `Ok(false)` means that the object was gone, or in use again.
    fn note(&mut self, leftover: &Leftover, outcome: &Result<bool, String>, took: Duration) {
        match outcome {
            Ok(false) => return,
            Ok(true) => self.removed += 1,
            Err(error) => self.failed.push(format!("{}: {error}", leftover.object())),
        }
        let object = json!({"kind": leftover.kind.as_str(), "object": leftover.object()});
        let outcome = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
        let mut audit = Audit::new(&self.places.logs, leftover.attachment());
        audit.note_own("GC", "native.remove", &object, "unused", &outcome, took);
    }
}
