//! Removing what attachments left: a failed ADD, DEL by the record, garbage collection.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::effect::{Addresses, Effect};
use crate::errors::{kernel, state};
use crate::session::{Leftover, Session};
use postern_cni::Attachment;
use postern_kernel::Link;
use postern_state::{NetworkKey, Record, RecordKey, StateError, Summary, Valid};
use postern_types::{ErrorCode, OpError};
use std::net::IpAddr;
use std::time::Instant;

/// Undoes what this run did since `before`, last things first. What can't be undone stays in the record, for DEL, and is
/// said on standard error: the runtime gets the error that made the ADD fail.
pub fn undo(session: &mut Session, before: usize) {
    let before_cleanup = session.allow_cleanup();
    // The last of these goes first.
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
            Ok(()) => session.taken_off(last.sequence),
            Err(error) => {
                in_use |= last.effect.addresses() == Addresses::Used;
                crate::say!("postern: could not undo {}: {error}", last.effect.words());
            }
        }
    }
    // A delegate's ADD was undone, and its caller goes on.
    session.set_deadline(before_cleanup);
}

/// Removes all that the record lists and that uses the attachment's addresses, whichever plugin made it. Asked before a
/// plugin's DEL gives them back, because the plugin could stop there: the record's word, not the plugin's, is what keeps two
/// containers from having one address.
///
/// # Errors
/// Something stays. It is also an error that the container has the link of an attachment without a whole record, which its
/// plugin has to delete first.
pub fn before_release(session: &mut Session) -> Result<(), OpError> {
    remove_users(session)?;
    if !session.owns_link || session.record_is_whole() {
        return Ok(());
    }
    let Some(container) = session.container() else { return Ok(()) };
    let name = &session.request.ifname;
    // One that root in there has made, and made again as often as it is deleted, would keep the runtime trying for ever.
    let link = container.netlink().map_err(kernel)?.link_by_name(name).map_err(kernel)?;
    let is_own = |link: &Link| Ok::<_, OpError>(session.leads_here(link)? && !session.is_claimed(link)?);
    if link.as_ref().map_or(Ok(false), is_own)? {
        let message = format!("no address is given back while something uses it: the container has \"{name}\" still");
        return Err(
            OpError::new(ErrorCode::Exists, name, message).hint("a plugin deletes its link before its IPAM's DEL")
        );
    }
    Ok(())
}

/// The same for who has deleted the container's link already: only what the record lists.
///
/// # Errors
/// Something stays.
pub fn remove_users(session: &mut Session) -> Result<(), OpError> {
    remove_listed(session, None, |effect| effect.addresses() == Addresses::Used).map(drop).map_err(|error| {
        let message = format!("no address is given back while something uses it: {}", error.message);
        OpError { message, ..error }
    })
}

/// Removes what an earlier run of this ADD left, so that the node is as if it had never been called.
///
/// # Errors
/// What could not be removed; it stays in the record, and nothing new may be made.
pub fn recover(session: &mut Session) -> Result<(), OpError> {
    let Some(leftover) = session.leftover() else { return Ok(()) };
    let is_foreign = session.has_foreign_record();
    session.hold_against_kernel()?;
    if session.is_replaced() {
        // What has the attachment's names now, its lease and its rules too, belongs to who made the link that is there.
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
    // The plugin comes only now: what was kept for cleaning up is kept from it as from any other.
    session.set_deadline(before_cleanup);
    session.renew_record()?;
    session.find_section();
    if removed > 0 {
        let request = &session.request;
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

/// Removes what the record still lists for a section after the DEL of its plugin, or for all sections.
///
/// # Errors
/// What could not be removed; it stays in the record.
pub fn by_record(session: &mut Session, section: Option<&str>) -> Result<usize, OpError> {
    session.allow_cleanup();
    let listed = session.record().map(|record| record.effects(section)).unwrap_or_default();
    // What has to keep its addresses is no DEL that was killed half way, which the next collection would end.
    if listed.iter().all(|noted| session.must_keep(noted).is_none()) {
        session.ending(section);
    }
    if session.record().is_none() {
        return Ok(0);
    }
    let Removed { count, kept } = remove_listed(session, section, |_| true)?;
    match kept {
        None => session.ended(section),
        Some(why) => {
            let request = &session.request;
            let name = format!("{}/{}/{}", request.conf.name, request.container_id, request.ifname);
            crate::say!("postern: {name}: its addresses are kept: {why}");
        }
    }
    Ok(count)
}

/// What became of what a record lists.
#[derive(Default)]
struct Removed {
    /// So many things are gone.
    count: usize,
    /// Why an address had to be kept.
    kept: Option<String>,
}

/// Removes what the record lists for a plugin, or for all plugins, and is `wanted`: last things first, addresses last.
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
    // A link that is known by what the record notes is the very one, whatever it says of the boot: it was damaged then.
    let other_boot = other_boot && !has_link(session, &left)?;
    let (mut failed, mut in_use) = (None, false);
    for noted in left {
        if in_use && noted.effect.addresses().are_given_back() {
            continue;
        }
        if let Some(why) = session.must_keep(&noted) {
            removed.kept.get_or_insert(why);
            continue;
        }
        if other_boot && !noted.effect.outlives_boot() {
            // What has its name now is somebody else's.
            session.taken_off(Some(noted.seq));
            continue;
        }
        match remove_noted(session, &noted.effect, None) {
            Ok(()) => {
                session.taken_off(Some(noted.seq));
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

/// Whether a link that the record lists is there.
fn has_link(session: &Session, listed: &[postern_state::Effect<Effect>]) -> Result<bool, OpError> {
    for noted in listed {
        if noted.effect.is_living_link(session)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes all sections of the attachments of this network, on this host, that are not valid any more, rules first and
/// leases last. Not only the called plugin's: a collection goes from plugin to plugin in the order of the list, and an address
/// must not be free while the rules of one further behind still serve it.
///
/// # Errors
/// What could not be removed.
pub fn stale_sections(session: &Session) -> Result<usize, OpError> {
    let network = &session.request.conf.name;
    let here = session.host()?.cookie().map_err(kernel)?;
    let (mut removed, mut failed) = (0, None);
    for summary in strangers(session)? {
        let Some(key) = &summary.key else { continue };
        // One that could not be read is told of, and set aside if it never can be; or it can be read at the second try.
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

/// The records of this network's attachments that are not valid, as they were when this was first asked: what has come since
/// is spared anyway. Of all others only the files' names are looked at, which tell whose they are. (Those of Postern 0.1
/// don't tell the network.) None if the runtime has not said who is valid, as nothing may be removed then.
///
/// # Errors
/// The records can't be listed.
pub fn strangers(session: &Session) -> Result<&[Summary], OpError> {
    if let Some(strangers) = session.strangers.get() {
        return Ok(strangers);
    }
    let Some(valid) = session.request.conf.still_valid() else { return Ok(&[]) };
    let here = session.host()?.cookie().map_err(kernel)?;
    let name = &session.request.conf.name;
    let network = NetworkKey::new(here, name);
    let key = |of: &Attachment| RecordKey::in_network(network, here, name, &of.container_id, &of.ifname);
    let valid = Valid { network, attachments: valid.into_iter().map(key).collect() };
    let strangers = postern_state::list_strangers(&session.state, &valid).map_err(state)?;
    Ok(session.strangers.get_or_init(|| strangers))
}

/// Whether an attachment of this network is being made, or was made since this collection began: whoever said which
/// attachments are valid may not have known of it. One that can't be looked at is spared too.
pub fn is_busy(session: &Session, container_id: &str, ifname: &str) -> bool {
    let Ok(cookie) = session.host().and_then(|host| host.cookie().map_err(kernel)) else { return true };
    let key = RecordKey::new(cookie, &session.request.conf.name, container_id, ifname);
    postern_state::is_busy(&session.state, &key, session.started).unwrap_or(true)
}

/// The attachments of this network that [`is_busy`] tells of, by container and interface.
///
/// # Errors
/// The records can't be listed.
pub fn busy(session: &Session) -> Result<Vec<(String, String)>, OpError> {
    let here = session.host()?.cookie().map_err(kernel)?;
    let network = NetworkKey::new(here, &session.request.conf.name);
    let headers = postern_state::list_of(&session.state, network).map_err(state)?.into_iter();
    let own = headers.filter_map(|summary| summary.header).map(|header| (header.container_id, header.ifname));
    Ok(own.filter(|(container_id, ifname)| is_busy(session, container_id, ifname)).collect())
}

/// Removes a plugin's section, or all, of another attachment's record, unless its own run is under way or has got further
/// since this collection began.
///
/// # Errors
/// What could not be removed.
fn section(session: &Session, key: &RecordKey, plugin: Option<&str>) -> Result<usize, OpError> {
    // Nobody is waited for: who has come meanwhile is at work on it.
    let record = match Record::open_existing(&session.state, key, Instant::now()) {
        Ok(Some(record)) => record,
        Ok(None) | Err(StateError::Locked { .. }) => return Ok(0),
        Err(damaged @ StateError::Corrupt { .. }) => {
            crate::say!("postern: {damaged}");
            return Ok(0);
        }
        Err(error) => return Err(state(error)),
    };
    // Asked with the lock held: between a question and a lock there is room for a whole ADD.
    if record.sections().iter().any(|section| section.since >= session.started) {
        return Ok(0);
    }
    let mut other = session.for_record(record, key);
    let removed = by_record(&mut other, plugin)?;
    other.close_record();
    Ok(removed)
}

/// Removes one effect, and writes it down.
fn remove_noted(session: &mut Session, effect: &Effect, leases_of_run: Option<&[IpAddr]>) -> Result<(), OpError> {
    let start = Instant::now();
    let outcome = effect.remove(session, leases_of_run);
    let verb = session.request.verb.as_str();
    session.audit.note_removal(verb, effect, &outcome, start.elapsed());
    outcome
}
