//! Removal of the effects of attachments: a failed ADD, DEL by the record, garbage collection.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::effect::in_container::as_far_as_possible;
use crate::effect::{Addresses, Dhcp, Effect};
use crate::errors::{kernel_error, state_error};
use crate::session::{Leftover, Session};
use nix::errno::Errno;
use postern_kernel::{KernelError, Link};
use postern_state::{NetworkKey, Record, RecordKey, StateError};
use postern_types::{ErrorCode, OpError};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Undoes the effects of this run since `before`; the last one goes first. Effects that can't be undone stay in the
/// record for DEL, and standard error names them. The runtime gets the error that made the ADD fail.
pub fn undo(session: &mut Session, before: usize) {
    let before_cleanup = session.allow_cleanup();
    // The last effect goes first.
    if let Some(own) = session.undo.get_mut(before..) {
        own.sort_by_key(|undo| !undo.effect.addresses().are_given_back());
    }
    let mut in_use = false;
    while session.undo.len() > before {
        let Some(last) = session.undo.pop() else { break };
        if in_use && last.effect.addresses().are_given_back() {
            continue;
        }
        match remove_noted(session, &last.effect, Some(&last.leases)) {
            Ok(()) => session.note_removed(last.sequence),
            Err(error) => {
                in_use |= last.effect.addresses() == Addresses::Used;
                crate::say!("postern: could not undo {}: {error}", last.effect.words());
            }
        }
    }
    // A delegate's ADD was undone, and its caller continues.
    session.set_deadline(before_cleanup);
}

/// Prepares the deletion of the attachment's link: what uses its DHCP leases goes, and then the leases are given back.
///
/// # Errors
/// A rule stays, or the kernel does not show the link.
pub fn before_deletion(session: &mut Session) -> Result<(), OpError> {
    if session.dhcp_leases().is_empty() {
        return Ok(());
    }
    remove_listed(session, None, |effect| effect.addresses() == Addresses::Used && !effect.is_link())?;
    leave_dhcp(session)
}

/// Gives the attachment's DHCP leases back while its link is still there: DHCPRELEASE can leave by no other link.
///
/// No address is given back while something uses it. Rules have gone before, the address is taken from the link here,
/// and the link goes next. Where the link is gone already, the lease's own removal tells the service.
///
/// # Errors
/// The kernel does not show the link.
fn leave_dhcp(session: &mut Session) -> Result<(), OpError> {
    for lease in session.dhcp_leases() {
        let Some(Taken { acts, is_free }) = take_addresses(session, &lease)? else { return Ok(()) };
        for (object, outcome, took) in acts {
            let verb = session.request.verb.as_str();
            session.audit.note_own(verb, "address.remove", &object, "record", &outcome, took);
        }
        // A lease whose address stays is given back when the link is gone. So is one that the service refuses to end.
        if is_free {
            let _ = session.release_dhcp(&lease.socket);
        }
    }
    Ok(())
}

/// What was done to take the addresses of a lease from the attachment's link.
struct Taken {
    /// The acts, for the audit log.
    acts: Vec<(serde_json::Value, Result<(), KernelError>, Duration)>,
    /// True if the link has none of the addresses any more.
    is_free: bool,
}

/// Takes the addresses of a lease from the attachment's link; `None` if there is no such link.
fn take_addresses(session: &Session, lease: &Dhcp) -> Result<Option<Taken>, OpError> {
    let Some(container) = session.container() else { return Ok(None) };
    let netlink = container.netlink().map_err(kernel_error)?;
    let name = &session.request.ifname;
    let Some(link) = as_far_as_possible(|| netlink.link_by_name(name))? else { return Ok(None) };
    let mut acts = Vec::new();
    for address in &lease.addresses {
        let start = Instant::now();
        let outcome = netlink.delete_address(link.index, *address);
        // One that was not there is no change.
        if !outcome.as_ref().is_err_and(|error| error.is(Errno::EADDRNOTAVAIL)) {
            acts.push((serde_json::json!({"link": name, "address": address}), outcome, start.elapsed()));
        }
    }
    // What can't be told is not free: the lease is given back once the link is gone. Root in there can make a list of
    // addresses lack one. So the question is about each address.
    let mut is_free = true;
    for address in &lease.addresses {
        let is_left = as_far_as_possible(|| netlink.has_address(address.addr()).map(Some))?;
        is_free &= is_left == Some(false);
    }
    Ok(Some(Taken { acts, is_free }))
}

/// Removes all listed effects that use the attachment's addresses, whichever plugin made them.
///
/// It runs before a plugin's DEL gives the addresses back, because the plugin could stop there. The record, and not the
/// plugin, ensures that two containers never have one address.
///
/// # Errors
/// An effect stays. It is also an error if the container still has the link of an attachment without a complete record.
/// Its plugin has to delete that link first.
pub fn before_release(session: &mut Session) -> Result<(), OpError> {
    remove_users(session)?;
    if !session.owns_link || session.record_is_whole() {
        return Ok(());
    }
    let Some(container) = session.container() else { return Ok(()) };
    let name = &session.request.ifname;
    // Other links are ignored: root in the container could make one as often as it is deleted, and the runtime would
    // retry for ever.
    let link = container.netlink().map_err(kernel_error)?.link_by_name(name).map_err(kernel_error)?;
    let is_own = |link: &Link| {
        Ok::<_, OpError>(
            session.leads_here(link)? && !session.is_claimed(link)? && session.other_owner(link)?.is_none(),
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

/// As `before_release`, if the container's link is already deleted: only the effects that the record lists.
///
/// # Errors
/// An effect stays.
pub fn remove_users(session: &mut Session) -> Result<(), OpError> {
    remove_listed(session, None, |effect| effect.addresses() == Addresses::Used).map(drop).map_err(|error| {
        let message = format!("no address is given back while something uses it: {}", error.message);
        OpError { message, ..error }
    })
}

/// Removes the effects of an earlier run of this ADD. The node is then as if that run had never happened.
///
/// # Errors
/// The effects that could not be removed. They stay in the record, and nothing new may be made.
pub fn recover(session: &mut Session) -> Result<(), OpError> {
    let Some(leftover) = session.leftover() else { return Ok(()) };
    let is_foreign = session.has_foreign_record();
    session.compare_with_kernel()?;
    if session.is_replaced() {
        // The objects that now have the attachment's names, with lease and rules, belong to the maker of the new link.
        crate::say!(
            "postern: what the record of this attachment lists is gone, and another has its names: it is forgotten"
        );
        session.forget();
        session.renew_record()?;
        session.find_section();
        return Ok(());
    }
    let before_cleanup = session.deadline;
    let removed = match &leftover {
        Leftover::Attachment => by_record(session, None)?,
        Leftover::Sections(sections) => {
            sections.iter().rev().try_fold(0, |removed, section| Ok(removed + by_record(session, Some(section))?))?
        }
    };
    // The plugin starts only now, and must not use the time that is reserved for cleaning up.
    session.set_deadline(before_cleanup);
    session.renew_record()?;
    session.find_section();
    if removed > 0 {
        let request = session.request;
        let reason = match is_foreign {
            true => "was made for a namespace that is gone",
            false => "was killed before it ended, or its DEL was",
        };
        crate::say!(
            "postern: an earlier ADD of {}/{}/{} {reason}: removed {removed} things that it had left",
            request.conf.name,
            request.container_id,
            request.ifname
        );
    }
    Ok(())
}

/// Removes the effects that the record still lists for a section after the DEL of its plugin, or for all sections.
///
/// # Errors
/// The effects that could not be removed; they stay in the record.
pub fn by_record(session: &mut Session, section: Option<&str>) -> Result<usize, OpError> {
    session.allow_cleanup();
    let listed = session.record().map(|record| record.effects(section)).unwrap_or_default();
    // An attachment that must keep its addresses is not noted as a DEL that was killed. The next collection would
    // complete such a DEL.
    if listed.iter().all(|noted| session.must_keep(noted, section).is_none()) {
        session.ending(section);
    }
    if session.record().is_none() {
        return Ok(0);
    }
    let Removed { count, kept } = remove_listed(session, section, |_| true)?;
    match kept {
        None => session.ended(section),
        Some(why) => {
            let request = session.request;
            let name = format!("{}/{}/{}", request.conf.name, request.container_id, request.ifname);
            crate::say!("postern: {name}: its addresses are kept: {why}");
        }
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

/// Removes the effects that the record lists for a plugin, or for all plugins, if they are `wanted`. The last effect
/// goes first, addresses go last.
fn remove_listed(
    session: &mut Session,
    plugin: Option<&str>,
    wanted: impl Fn(&Effect) -> bool,
) -> Result<Removed, OpError> {
    let mut removed = Removed::default();
    let Some(record) = session.record() else { return Ok(removed) };
    let mut left = record.effects(plugin);
    left.retain(|noted| wanted(&noted.effect));
    if left.is_empty() {
        return Ok(removed);
    }
    left.reverse();
    left.sort_by_key(|noted| noted.effect.addresses().are_given_back());
    let other_boot = postern_state::boot_id().is_ok_and(|boot| boot != record.header().boot_id);
    // A link that matches the record is the recorded one. If the record names another boot, it was damaged.
    let other_boot = other_boot && !has_link(session, &left)?;
    let (mut failed, mut in_use) = (None, false);
    for noted in left {
        if in_use && noted.effect.addresses().are_given_back() {
            continue;
        }
        if let Some(why) = session.must_keep(&noted, plugin) {
            removed.kept.get_or_insert(why);
            continue;
        }
        if other_boot && !noted.effect.outlives_boot() {
            // The object that has its name now belongs to another attachment.
            session.note_removed(Some(noted.seq));
            continue;
        }
        match remove_noted(session, &noted.effect, None) {
            Ok(()) => {
                session.note_removed(Some(noted.seq));
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

/// True if a link that the record lists is there.
fn has_link(session: &Session, listed: &[postern_state::Effect<Effect>]) -> Result<bool, OpError> {
    for noted in listed {
        if noted.effect.is_living_link(session)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes all sections of the attachments of this network, on this host, that are no longer valid. Rules go first,
/// leases last.
///
/// It removes the sections of all plugins, not only of the called one. A collection goes from plugin to plugin in the
/// order of the list. An address must not be free while the rules of a later plugin still use it.
///
/// # Errors
/// The effects that could not be removed.
pub fn stale_sections(session: &Session) -> Result<usize, OpError> {
    let network = &session.request.conf.name;
    let here = session.home_cookie()?;
    let (mut removed, mut failed) = (0, None);
    for summary in session.collectable_records()? {
        let Some(key) = &summary.key else { continue };
        // A record that could not be read is read again. If that fails for good, it is reported and set aside.
        let again = || Record::<Effect>::open_existing(&session.state, key, Instant::now());
        let header = match &summary.header {
            Some(header) => Ok(Some(header.clone())),
            None => again().map(|record| record.map(|record| record.header().clone())),
        };
        let header = match header {
            Ok(Some(header)) => header,
            Ok(None) | Err(StateError::Locked { .. }) => continue,
            Err(error) => {
                crate::say!("postern: {error}");
                continue;
            }
        };
        if Instant::now() >= session.deadline {
            return Err(OpError::new(ErrorCode::Deadline, "records", "the deadline passed before all were looked at")
                .hint("what is left goes with the next GC"));
        }
        if header.network == *network && header.host_netns_cookie == here {
            match section(session, key, None) {
                Ok(count) => removed += count,
                Err(error) => failed = Some(error),
            }
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// True if an attachment of this network is being made, or was made since this collection began. The runtime may not
/// have known it when it listed the valid attachments. An attachment whose record can't be read is spared too.
pub fn is_busy(session: &Session, container_id: &str, ifname: &str) -> bool {
    let Ok(cookie) = session.home_cookie() else { return true };
    let key = RecordKey::new(cookie, &session.request.conf.name, container_id, ifname);
    postern_state::is_busy(&session.state, &key, session.started).unwrap_or(true)
}

/// Returns the attachments of this network for which [`is_busy`] is true, by container and interface.
///
/// # Errors
/// The records can't be listed.
pub fn busy(session: &Session) -> Result<Vec<(String, String)>, OpError> {
    let here = session.home_cookie()?;
    let network = NetworkKey::new(here, &session.request.conf.name);
    let headers = postern_state::list_of(&session.state, network).map_err(state_error)?.into_iter();
    let own = headers.filter_map(|summary| summary.header).map(|header| (header.container_id, header.ifname));
    Ok(own.filter(|(container_id, ifname)| is_busy(session, container_id, ifname)).collect())
}

/// Removes a plugin's section, or all sections, of another attachment's record. It does nothing if that attachment's
/// own run is active or has made progress since this collection began.
///
/// # Errors
/// The effects that could not be removed.
fn section(session: &Session, key: &RecordKey, plugin: Option<&str>) -> Result<usize, OpError> {
    // It does not wait for a lock: a process that holds it is working on the record.
    let record = match Record::open_existing(&session.state, key, Instant::now()) {
        Ok(Some(record)) => record,
        Ok(None) | Err(StateError::Locked { .. }) => return Ok(0),
        Err(damaged @ StateError::Corrupt { .. }) => {
            crate::say!("postern: {damaged}");
            return Ok(0);
        }
        Err(error) => return Err(state_error(error)),
    };
    // The check is made while the lock is held. Without the lock a whole ADD could happen after it.
    if postern_state::has_progress(record.sections(), session.started) {
        return Ok(0);
    }
    let mut owned = session.for_record(record, key);
    let mut other = owned.session();
    let removed = by_record(&mut other, plugin)?;
    other.close_record();
    Ok(removed)
}

/// Removes one effect, and writes the outcome down.
fn remove_noted(session: &mut Session, effect: &Effect, leases_of_run: Option<&[IpAddr]>) -> Result<(), OpError> {
    let start = Instant::now();
    if effect.is_link()
        && let Err(error) = leave_dhcp(session)
    {
        crate::say!("postern: no DHCPRELEASE is sent: {error}");
    }
    let outcome = effect.remove(session, leases_of_run);
    let verb = session.request.verb.as_str();
    session.audit.note_removal(verb, effect, &outcome, start.elapsed());
    outcome
}
