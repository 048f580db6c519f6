//! Holders: attachments whose containers are gone, and whose records still have a port of the node or an address that
//! an ADD wants.
//!
//! Before a run confines itself and starts its guest, it reads the indexes of ports and addresses. If another
//! attachment's record has a port or address that this ADD wants, the run checks whether that attachment is alive. Each
//! of these facts proves that the attachment is gone:
//!
//! * Its record is of another boot.
//! * Nothing keeps its namespace alive, after a search that saw everything ([`crate::search`]).
//!
//! Then the run removes the effects in the attachment's record, as `postern gc` does, and logs the reason. A path that
//! leads nowhere proves nothing. A missing or renamed link also proves nothing: root in a container and other programs
//! can remove or rename links. Without a proof the ADD fails, and its message names the known facts.
//!
//! The record is locked from the check until its effects are gone.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::capability::port_mappings;
use crate::context::{Context, Fixed, System, View};
use crate::effect::{Effect, Lease, Veth};
use crate::errors::{internal, kernel_error, state_error};
use crate::known::HolderState;
use crate::others::Holder;
use crate::prepared::Prepared;
use crate::search::Living;
use crate::upkeep::Upkeep;
use crate::view::can_be_path;
use crate::{host_ports, others};
use nix::sys::stat::lstat;
use postern_cni::{Error, Verb};
use postern_policy::Granted;
use postern_policy::capability::leases::DEFAULT_DIRECTORY;
use postern_state::{Header, LeaseOwner, LeaseStore, Leases, Record, RecordKey, StateError};
use postern_types::{Capability, ErrorCode, OpError};
use serde_json::json;
use std::collections::HashMap;
use std::time::Instant;

/// Returns the attachments that have a port or address that this ADD wants, by the indexes. No record is locked. The
/// guest's operation itself finds holders that are not in the indexes yet.
pub fn find(run: &Context, called: &Prepared, granted: Option<&Granted>) -> Vec<Holder> {
    if run.request.verb != Verb::Add {
        return Vec::new();
    }
    let grants = |capabilities: &[Capability]| capabilities.iter().any(|one| called.policy.grants(*one));
    let mut found = Vec::new();
    if grants(&[Capability::PortMappings]) {
        // An index that can't be read is no error here, because the operation reports the error.
        found.extend(host_ports::taken(run.view(), &port_mappings::asked(run.request)).unwrap_or_default());
    }
    if granted.is_some_and(Granted::may_take_over_in_container) && others::names_unrecorded_address(run) {
        found.extend(others::holders_of_previous(run.view()).unwrap_or_default());
    }
    if grants(&[Capability::Leases, Capability::Ipam]) {
        found.extend(others::holders_of_asked(run.view()).unwrap_or_default());
    }
    // These capabilities learn the wanted object later: from a server, the kernel or a store. So an earlier ADD that
    // failed has left a note on the holder.
    let asks_later = [Capability::Dhcp, Capability::Device, Capability::Ipvlan, Capability::Leases, Capability::Ipam];
    if grants(&asks_later) {
        let own = run.view().key().ok();
        let noted =
            run.view().network_key().map(|network| postern_state::doubts::list(&run.fixed.places.state, network));
        let noted = noted.ok().and_then(Result::ok).unwrap_or_default();
        // The attachment's own record is left out: this run recovers it itself.
        let others = noted.into_iter().filter(|key| Some(*key) != own);
        let has = "an attachment that another ADD met";
        found.extend(others.map(|key| Holder { key, has: has.to_owned(), is_noted: true }));
    }
    found
}

/// Removes the effects of attachments that are provably gone, and returns the state of the other attachments. The error
/// has code 11 if a run for one of the attachments is under way.
pub fn make_way(run: &mut Context, holders: Vec<Holder>) -> Result<HashMap<RecordKey, HolderState>, Error> {
    let mut locked: Vec<(Holder, Record<Effect>)> = Vec::new();
    for holder in holders {
        if locked.iter().any(|(known, _)| known.key == holder.key) {
            continue;
        }
        match Record::open_existing(&run.fixed.places.state, &holder.key, Instant::now()) {
            Ok(Some(record)) => locked.push((holder, record)),
            Err(StateError::Locked { .. }) if !holder.is_noted => {
                let message = format!("{}, and a run for that attachment is under way", holder.has);
                return Err(internal(OpError::new(ErrorCode::TryAgain, "holder", message)));
            }
            // In each of these cases the note is removed: the record is gone or unreadable, or a run for the attachment
            // is under way. If this ADD still wants something of that attachment, the operation reports it.
            Ok(None) | Err(_) => {
                let _ = postern_state::doubts::settle(&run.fixed.places.state, &holder.key);
            }
        }
    }
    let boot = postern_state::boot_id().map_err(state_error).map_err(internal)?;
    let (mut living, mut known) = (None, HashMap::new());
    for (holder, record) in locked {
        // The check comes next. If the note can't be removed, a later ADD checks again.
        let _ = postern_state::doubts::settle(&run.fixed.places.state, &holder.key);
        let state = match proof(run.view(), &record, &boot, &mut living) {
            Ok(proof) => remove(run, &holder, record, proof).err().map(HolderState::Stuck),
            Err(state) => Some(state),
        };
        if let Some(state) = state {
            known.insert(holder.key, state);
        }
    }
    Ok(known)
}

/// Returns the proof that an attachment is gone, in words. Without a proof, the error is the state of the attachment.
fn proof(
    view: View<'_>,
    record: &Record<Effect>,
    boot: &str,
    living: &mut Option<Living>,
) -> Result<&'static str, HolderState> {
    let unknown = |why: &str| HolderState::Unknown(why.to_owned());
    let failed = |error: OpError| HolderState::Unknown(error.to_string());
    let header = record.header();
    if header.boot_id != boot {
        return match is_made_again(view.fixed, record).map_err(failed)? {
            false => Ok("it was made before the machine was last started"),
            true => Err(unknown("the attachment was made again since")),
        };
    }
    if view.system.home_cookie().ok() != Some(header.host_netns_cookie) {
        return Err(unknown("the attachment is of another host namespace"));
    }
    // If the host end of a pair exists, its other end exists in a living namespace.
    if has_pair(view.system, record).map_err(failed)? {
        return Err(HolderState::Alive);
    }
    let Some(cookie) = header.netns_cookie else { return Err(unknown("the record does not name the namespace")) };
    let living = living.get_or_insert_with(|| Living::search(view.fixed.deadline.at()));
    if living.has(cookie).map_err(HolderState::Unknown)? {
        return Err(HolderState::Alive);
    }
    match is_made_again(view.fixed, record).map_err(failed)? {
        false => Ok("nothing keeps its network namespace alive"),
        true => Err(unknown("a program that writes no records may have made it again")),
    }
}

/// True if a later attachment may have the same names. Rules and leases with these names then belong to the later
/// attachment. Another record with these names, or a lease that is younger than this record, shows a later attachment.
fn is_made_again(fixed: &Fixed, record: &Record<Effect>) -> Result<bool, OpError> {
    let header = record.header();
    let names = |header: &Header| (header.network.clone(), header.container_id.clone(), header.ifname.clone());
    let others = postern_state::list_known(&fixed.places.state).map_err(state_error)?;
    let mut others = others.iter().filter_map(|summary| summary.header.as_ref()).filter(|other| *other != header);
    if others.any(|other| names(other) == names(header)) {
        return Ok(true);
    }
    let last = record.sections().iter().map(|section| section.since).max().unwrap_or(header.created);
    let effects = record.effects(None);
    let directories = effects.iter().filter_map(|noted| Lease::of(&noted.effect)).map(|lease| lease.directory.as_str());
    for directory in directories.chain([DEFAULT_DIRECTORY]).filter(|directory| can_be_path(directory)) {
        let store = LeaseStore {
            data_dir: directory.into(),
            network: header.network.clone(),
            index_root: fixed.places.lease_index(),
            boot_id: postern_state::boot_id().map_err(state_error)?,
        };
        let Some(leases) = Leases::open_existing(&store).map_err(state_error)? else { continue };
        let owner = LeaseOwner::new(&header.container_id, &header.ifname);
        for address in leases.held(&owner, fixed.deadline.at()).map_err(state_error)? {
            let file = store.data_dir.join(&store.network).join(address.to_string());
            let is_young = |taken: i64| u64::try_from(taken).unwrap_or_default().saturating_mul(1000) > last + SLACK;
            if lstat(&file).is_ok_and(|file| is_young(file.st_mtime)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The time in milliseconds by which a lease may seem younger than its record: some file systems keep only seconds.
const SLACK: u64 = 2000;

/// True if the host has an end of one of the record's pairs, under any name.
fn has_pair(system: &System, record: &Record<Effect>) -> Result<bool, OpError> {
    let effects = record.effects(None);
    let pairs: Vec<[u8; 6]> =
        effects.iter().filter_map(|noted| Veth::of(&noted.effect)).map(|pair| pair.mac.0).collect();
    if pairs.is_empty() {
        return Ok(false);
    }
    let links = system.host()?.links().map_err(kernel_error)?;
    Ok(links.iter().any(|link| link.kind == "veth" && link.mac.is_some_and(|mac| pairs.contains(&mac))))
}

/// Removes the effects of an attachment that is gone. The error names the effects that stay.
fn remove(run: &mut Context, holder: &Holder, record: Record<Effect>, proof: &str) -> Result<(), String> {
    let start = Instant::now();
    let Header { network, container_id, ifname, .. } = record.header();
    let object = json!({"attachment": format!("{network}/{container_id}/{ifname}"), "has": holder.has, "proof": proof});
    let mut removal = Upkeep::of(record, run.fixed.deadline.at(), &run.fixed.places, &run.system.nft);
    // An address is not given back while rules of other attachments lead to it.
    removal.set_retention(&run.system.served, None);
    let outcome = removal.remove(None).map_err(|error| error.to_string()).and_then(|is_whole| match is_whole {
        true => Ok(()),
        false => Err("rules of the node still lead to its addresses".to_owned()),
    });
    let verb = run.request.verb.as_str();
    run.audit.note_own(verb, "holder.remove", &object, "gone", &outcome, start.elapsed());
    outcome
}
