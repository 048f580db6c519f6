//! Removal of the effects of attachments: after a failed ADD, by DEL from the record, and by garbage collection.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::context::{Context, RunParts, View};
use crate::effect::{Addresses, Dhcp, Effect};
use crate::errors::state_error;
use crate::in_container::as_far_as_possible;
use crate::retention::Retention;
use crate::{collectable, kept, others};
use nix::errno::Errno;
use postern_kernel::{KernelError, Link};
use postern_state::{Header, Record, RecordKey, StateError};
use postern_types::{ErrorCode, OpError};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Undoes the effects of this run since `before`, the last effect first. Effects that can't be undone stay in the
/// record for DEL, and standard error names them. The runtime gets the error that made the ADD fail.
pub fn undo(run: &mut Context, before: usize) {
    let before_cleanup = run.fixed.deadline.allow_cleanup();
    run.journal.order_undo(before);
    let mut in_use = false;
    while let Some(last) = run.journal.next_undo(before) {
        if in_use && last.effect.addresses().are_given_back() {
            continue;
        }
        match remove_noted(run, &last.effect, Some(&last.leases)) {
            Ok(()) => run.journal.note_removed(last.sequence),
            Err(error) => {
                in_use |= last.effect.addresses() == Addresses::Used;
                crate::say!("postern: could not undo {}: {error}", last.effect.words());
            }
        }
    }
    // The earlier deadline comes back: if a delegate's ADD was undone, its caller continues.
    run.fixed.deadline.set(before_cleanup);
}

/// Prepares the deletion of the attachment's link: removes the users of the DHCP leases, and then gives the leases
/// back.
pub fn before_deletion(run: &mut Context) -> Result<(), OpError> {
    if run.journal.dhcp_leases().is_empty() {
        return Ok(());
    }
    remove_listed(run, None, |effect| effect.addresses() == Addresses::Used && !effect.is_link())?;
    leave_dhcp(run)
}

/// Gives the attachment's DHCP leases back while its link is still there: DHCPRELEASE is sent through this link only.
///
/// No address is given back while something uses it. The rules are already removed, this function takes the address
/// from the link, and the link is deleted next. If the link is gone already, the removal of the lease informs the DHCP
/// service.
fn leave_dhcp(run: &mut Context) -> Result<(), OpError> {
    for lease in run.journal.dhcp_leases() {
        let Some(Taken { acts, is_free }) = take_addresses(run.view(), &lease)? else { return Ok(()) };
        for (object, outcome, took) in acts {
            let verb = run.request.verb.as_str();
            run.audit.note_own(verb, "address.remove", &object, "record", &outcome, took);
        }
        // A lease whose address stays is given back when the link is gone. A lease that the service refuses to end is
        // also given back then.
        if is_free {
            let _ = run.system.dhcp.release(run.request, &run.fixed.deadline, &lease.socket);
        }
    }
    Ok(())
}

/// The acts that took the addresses of a lease from the attachment's link.
struct Taken {
    /// The acts, for the audit log.
    acts: Vec<(serde_json::Value, Result<(), KernelError>, Duration)>,
    /// True if the link no longer has any of the addresses.
    is_free: bool,
}

/// Takes the addresses of a lease from the attachment's link; `None` if there is no such link.
fn take_addresses(view: View<'_>, lease: &Dhcp) -> Result<Option<Taken>, OpError> {
    let Some(netlink) = view.system.netlink_inside()? else { return Ok(None) };
    let name = &view.request.ifname;
    let Some(link) = as_far_as_possible(|| netlink.link_by_name(name))? else { return Ok(None) };
    let mut acts = Vec::new();
    for address in &lease.addresses {
        let start = Instant::now();
        let outcome = netlink.delete_address(link.index, *address);
        // A missing address is no change, and needs no log line.
        if !outcome.as_ref().is_err_and(|error| error.is(Errno::EADDRNOTAVAIL)) {
            acts.push((serde_json::json!({"link": name, "address": address}), outcome, start.elapsed()));
        }
    }
    // An address that can't be checked is not free: the lease is given back once the link is gone. Each address is
    // looked up separately, because root in the container can make a list of addresses incomplete.
    let mut is_free = true;
    for address in &lease.addresses {
        let is_left = as_far_as_possible(|| netlink.has_address(address.addr()).map(Some))?;
        is_free &= is_left == Some(false);
    }
    Ok(Some(Taken { acts, is_free }))
}

/// Removes all recorded effects that use the attachment's addresses, in the sections of all plugins.
///
/// This happens before a plugin's DEL gives the addresses back. Otherwise the plugin could stop after that, and the
/// effects would stay. The record, and not the plugin, ensures that no two containers have one address.
///
/// This function also fails if the record is incomplete and the container still has the attachment's link. The plugin
/// has to delete this link first.
pub fn before_release(run: &mut Context) -> Result<(), OpError> {
    remove_users(run)?;
    if !run.journal.owns_link() || run.journal.record_is_whole() {
        return Ok(());
    }
    let name = &run.request.ifname;
    // Other links are ignored: root in the container could make another link each time, and the runtime would retry for
    // ever.
    let link = run.system.link_inside(name)?;
    let is_own = |link: &Link| {
        Ok::<_, OpError>(
            others::leads_here(run.system, link)?
                && !others::is_claimed(run.view(), link)?
                && others::other_owner(run, link)?.is_none(),
        )
    };
    if link.as_ref().map_or(Ok(false), is_own)? {
        let message = format!("no address is given back while something uses it: the container has \"{name}\" still");
        return Err(
            OpError::new(ErrorCode::Exists, name, message).hint("a plugin deletes its link before its IPAM's DEL")
        );
    }
    Ok(())
}

/// Removes only the recorded effects that use the attachment's addresses. Unlike [`before_release`], this function does
/// not look for the container's link.
pub fn remove_users(run: &mut Context) -> Result<(), OpError> {
    remove_listed(run, None, |effect| effect.addresses() == Addresses::Used).map(drop).map_err(|error| {
        let message = format!("no address is given back while something uses it: {}", error.message);
        OpError { message, ..error }
    })
}

/// Removes the effects of an earlier run of this ADD. The node is then as before that run. Effects that could not be
/// removed stay in the record, and nothing new may be made.
pub fn recover(run: &mut Context) -> Result<(), OpError> {
    let leftover = run.journal.leftover(run.view());
    if leftover.is_empty() {
        return Ok(());
    }
    let is_foreign = run.journal.has_foreign_record(run.system);
    others::compare_with_kernel(run)?;
    let mut removed = 0;
    if run.journal.is_replaced() {
        // The link that now has the attachment's names, with its lease and rules, belongs to another attachment.
        crate::say!(
            "postern: the objects of this attachment are gone, and another attachment has their names: the record is forgotten"
        );
        run.journal.forget();
    } else {
        let before_cleanup = run.fixed.deadline.at();
        for section in leftover.iter().rev() {
            removed += by_record(run, section.as_deref())?;
        }
        // The plugin starts after this recovery, and must not use the time that is reserved for cleaning up.
        run.fixed.deadline.set(before_cleanup);
    }
    run.journal.renew_record(run.view())?;
    run.journal.find_section(run.view());
    if removed > 0 {
        let name = run.request.attachment();
        let reason = match is_foreign {
            true => "was made for a namespace that is gone",
            false => "was killed before it ended, or its DEL was killed",
        };
        crate::say!("postern: an earlier ADD of {name} {reason}: removed its {removed} effects");
    }
    Ok(())
}

/// Removes the effects that the record still lists after the DEL of a plugin, for its section or for all sections.
/// Effects that could not be removed stay in the record.
pub fn by_record(run: &mut Context, section: Option<&str>) -> Result<usize, OpError> {
    run.fixed.deadline.allow_cleanup();
    let listed = run.journal.record().map(|record| record.effects(section)).unwrap_or_default();
    // The section is not marked as ending if the attachment must keep its addresses. Otherwise the next collection
    // would complete this DEL.
    if listed.iter().all(|noted| kept::must_keep(run, noted, section).is_none()) {
        run.journal.ending(section);
    }
    if run.journal.record().is_none() {
        return Ok(0);
    }
    let Removed { count, kept } = remove_listed(run, section, |_| true)?;
    match kept {
        None => run.journal.ended(section),
        Some(why) => crate::say!("postern: {}: its addresses are kept: {why}", run.request.attachment()),
    }
    Ok(count)
}

/// The outcome of a removal by the record.
#[derive(Default)]
struct Removed {
    /// The number of removed effects.
    count: usize,
    /// The reason why an address had to be kept.
    kept: Option<String>,
}

/// Removes the `wanted` effects that the record lists for a plugin, or for all plugins. The last effect goes first,
/// addresses go last.
fn remove_listed(
    run: &mut Context,
    plugin: Option<&str>,
    wanted: impl Fn(&Effect) -> bool,
) -> Result<Removed, OpError> {
    let mut removed = Removed::default();
    let Some(record) = run.journal.record() else { return Ok(removed) };
    let mut left = record.effects(plugin);
    left.retain(|noted| wanted(&noted.effect));
    if left.is_empty() {
        return Ok(removed);
    }
    left.reverse();
    left.sort_by_key(|noted| noted.effect.addresses().are_given_back());
    let other_boot = postern_state::boot_id().is_ok_and(|boot| boot != record.header().boot_id);
    // A link that matches the record is the recorded link, even if the record names another boot. In that case the
    // record's boot ID is damaged.
    let other_boot = other_boot && !has_link(run, &left)?;
    let (mut failed, mut in_use) = (None, false);
    for noted in left {
        if in_use && noted.effect.addresses().are_given_back() {
            continue;
        }
        if let Some(why) = kept::must_keep(run, &noted, plugin) {
            removed.kept.get_or_insert(why);
            continue;
        }
        if other_boot && !noted.effect.outlives_boot() {
            // The object that now has the recorded name belongs to another attachment.
            run.journal.note_removed(Some(noted.seq));
            continue;
        }
        match remove_noted(run, &noted.effect, None) {
            Ok(()) => {
                run.journal.note_removed(Some(noted.seq));
                removed.count += 1;
            }
            Err(error) => {
                in_use |= noted.effect.addresses() == Addresses::Used;
                failed = Some(error);
            }
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// True if a link that the record lists exists.
fn has_link(run: &Context, listed: &[postern_state::NotedEffect<Effect>]) -> Result<bool, OpError> {
    for noted in listed {
        if noted.effect.is_living_link(run)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes all sections of this network's attachments on this host if the attachments are no longer valid. Rules go
/// first, leases last.
///
/// The sections of all plugins are removed, not only the called plugin's. A collection calls the plugins in the order
/// of the list. An address must not be free while the rules of a later plugin still lead to it.
pub fn stale_sections(view: View<'_>) -> Result<usize, OpError> {
    let network = &view.request.conf.name;
    let here = view.system.home_cookie()?;
    let is_meant = |header: &Header| header.network == *network && header.host_netns_cookie == here;
    let (mut removed, mut failed) = (0, None);
    for summary in collectable::records(view)? {
        let Some(key) = summary.key.as_ref().filter(|_| summary.header.as_ref().is_none_or(is_meant)) else { continue };
        if Instant::now() >= view.fixed.deadline.at() {
            return Err(OpError::new(
                ErrorCode::Deadline,
                "records",
                "the deadline passed before all records were read",
            )
            .hint("the next GC reads the remaining records"));
        }
        // The collection does not wait for the lock of a record: the process that holds it is working on the record.
        match Record::open_existing(&view.fixed.places.state, key, Instant::now()) {
            Ok(Some(record)) if is_meant(record.header()) => match sections(view, key, record) {
                Ok(count) => removed += count,
                Err(error) => failed = Some(error),
            },
            Ok(_) | Err(StateError::Locked { .. }) => {}
            // A record that could not be read is read again here. If the record is damaged, it is reported and set
            // aside.
            Err(error) if summary.header.is_none() || matches!(error, StateError::Corrupt { .. }) => {
                crate::say!("postern: {error}");
            }
            Err(error) => failed = Some(state_error(error)),
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// True if an attachment of this network is being made, or was made since this collection began. The runtime may not
/// have known the attachment when it listed the valid attachments. Also true if the attachment's record can't be read.
pub fn is_busy(view: View<'_>, container_id: &str, ifname: &str) -> bool {
    let Ok(key) = view.key_of(container_id, ifname) else { return true };
    postern_state::is_busy(&view.fixed.places.state, &key, view.fixed.started).unwrap_or(true)
}

/// Returns the busy attachments of this network (see [`is_busy`]), by container and interface.
pub fn busy(view: View<'_>) -> Result<Vec<(String, String)>, OpError> {
    let headers =
        postern_state::list_of(&view.fixed.places.state, view.network_key()?).map_err(state_error)?.into_iter();
    let own = headers.filter_map(|summary| summary.header).map(|header| (header.container_id, header.ifname));
    Ok(own.filter(|(container_id, ifname)| is_busy(view, container_id, ifname)).collect())
}

/// Removes all sections of another attachment's record. Nothing is removed if that attachment's own run has made
/// progress since this collection began.
fn sections(view: View<'_>, key: &RecordKey, record: Record<Effect>) -> Result<usize, OpError> {
    // The check is made while the lock is held. Without the lock a whole ADD could happen after the check.
    if postern_state::has_progress(record.sections(), view.fixed.started) {
        return Ok(0);
    }
    let mut other = parts_of(record, key, view);
    let removed = by_record(&mut other.context(), None)?;
    other.journal.close_record();
    Ok(removed)
}

/// Makes the parts of a run that removes another attachment by its record, in a runtime's garbage collection.
fn parts_of(record: Record<Effect>, key: &RecordKey, View { request, fixed, system }: View<'_>) -> RunParts {
    let mut parts = RunParts::of_record(record, fixed.deadline.at(), fixed.places.clone());
    parts.request.plugin.clone_from(&request.plugin);
    parts.request.path.clone_from(&request.path);
    parts.request.stdin = Arc::clone(&request.stdin);
    parts.system.share_all(system);
    let (served, called) = (Rc::clone(&system.served), Some(request.plugin.clone()));
    parts.journal.set_retention(Retention { served, called, ..Retention::default() });
    // A container that could not be entered may be tried again by a later operation of the plugin.
    if let Some(found) = system.known.containers.get(key) {
        parts.system.use_access(found.clone());
    }
    parts
}

/// Takes back the effects of a kind in the called plugin's own section, the last effect first. Stops at the first
/// failure.
pub fn take_back(run: &mut Context, matches: impl Fn(&Effect) -> bool) -> Result<(), OpError> {
    let listed = run.journal.record().map(|record| record.effects(Some(run.journal.section()))).unwrap_or_default();
    for noted in listed.into_iter().rev().filter(|noted| matches(&noted.effect)) {
        noted.effect.kind().remove(run)?;
        run.journal.note_removed(Some(noted.seq));
        run.journal.forget_undo(noted.seq);
    }
    Ok(())
}

/// Removes one effect, and logs the outcome.
fn remove_noted(run: &mut Context, effect: &Effect, leases_of_run: Option<&[IpAddr]>) -> Result<(), OpError> {
    let start = Instant::now();
    if effect.is_link()
        && let Err(error) = leave_dhcp(run)
    {
        crate::say!("postern: no DHCPRELEASE is sent: {error}");
    }
    let outcome = match leases_of_run {
        Some(taken) => effect.kind().undo(run, taken),
        None => effect.kind().remove(run),
    };
    let verb = run.request.verb.as_str();
    // No policy is asked, because the record is the rule.
    run.audit.note_own(verb, "record.remove", effect, "record", &outcome, start.elapsed());
    outcome
}
