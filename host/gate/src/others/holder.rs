//! Which other attachment has an address, by its record, and what is known of an attachment that has what an ADD wants.
//!
//! An ADD behind a native plugin asks this. The index of claims says which records to ask
//! ([`postern_state::ClaimIndex`]).

use crate::claims::{self, addresses_of};
use crate::context::{Context, View};
use crate::effect::{PortMappings, in_record};
use crate::errors::state_error;
use postern_cni::Verb;
use postern_state::{ClaimIndex, NetworkKey, RecordKey, Summary};
use postern_types::OpError;
use std::net::IpAddr;

/// The way out where no ADD looks.
pub const OTHERWISE: &str = "if its container is gone, `postern gc` removes what it left";

/// Another attachment that has what this ADD wants.
#[derive(Debug)]
pub struct Holder {
    /// Its record.
    pub key: RecordKey,
    /// What it has, in words.
    pub has: String,
    /// True if only the note of another ADD names it: this ADD may want nothing of it.
    pub is_noted: bool,
}

/// An address to which forwards of another attachment lead.
pub struct LedTo {
    pub address: IpAddr,
    /// The record that lists the forwards.
    pub key: RecordKey,
    /// Its network, container and interface.
    pub attachment: String,
}

impl LedTo {
    /// Says who has the forwards.
    pub fn words(&self) -> String {
        format!("attachment {} has forwards to {}, by its record", self.attachment, self.address)
    }
}

/// Says what is known of an attachment that has what this ADD wants. If it was not looked at, the next ADD does.
pub fn words_on_holder(view: View<'_>, key: Option<&RecordKey>) -> String {
    key.map_or_else(|| OTHERWISE.to_owned(), |key| words_on(view, key, None))
}

/// Says the same of an attachment that has an address which an ADD of this network wants, and perhaps no other ADD.
pub fn words_on_lessee(view: View<'_>, key: &RecordKey) -> String {
    words_on(view, key, view.network_key().ok())
}

/// `network`: the one whose next ADD looks, if not all do.
fn words_on(view: View<'_>, key: &RecordKey, network: Option<NetworkKey>) -> String {
    if let Some(state) = view.system.known.holders.get(key) {
        return state.words();
    }
    let is_noted = || postern_state::doubts::note(&view.fixed.places.state, key, network).unwrap_or(false);
    match view.request.verb == Verb::Add && is_noted() {
        true => "the next ADD looks whether its container is alive, and `postern gc` does so now".to_owned(),
        false => OTHERWISE.to_owned(),
    }
}

/// Returns the other attachments of this host whose records have an address of `prevResult`, as far as the index tells
/// without its lock. [`holder_in_words`] uses the open index.
pub fn holders_of_previous(view: View<'_>) -> Result<Vec<Holder>, OpError> {
    let addresses: Vec<IpAddr> = view.request.previous().ips.iter().map(|ip| ip.address.addr()).collect();
    let mut holders = Vec::new();
    for (address, keys) in candidates_unlocked(view, &addresses)? {
        for summary in claims::records(view, Some(keys))? {
            holders.extend(holder(view, &summary, address)?.map(|(key, attachment)| Holder {
                key,
                has: format!("attachment {attachment} has {address}, by its record"),
                is_noted: false,
            }));
        }
    }
    Ok(holders)
}

/// Returns the records that may have each of these addresses, as far as the index tells without its lock. Later questions
/// use the open index.
fn candidates_unlocked(view: View<'_>, addresses: &[IpAddr]) -> Result<Vec<(IpAddr, Vec<RecordKey>)>, OpError> {
    let unlocked = ClaimIndex::unlocked(&view.fixed.places.state, view.system.home_cookie()?).map_err(state_error)?;
    let Some(index) = unlocked else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for address in addresses {
        // Without an answer the question itself asks all records.
        let mut keys = index.candidates((*address).into()).map_err(state_error)?.unwrap_or_default();
        keys.retain(|key| postern_state::is_there(&view.fixed.places.state, key));
        found.push((*address, keys));
    }
    view.system.known.claims.set(Some(index));
    Ok(found)
}

/// True if the record of another attachment of this host has an address. It is known without the index too.
pub fn is_held(view: View<'_>, address: IpAddr) -> Result<bool, OpError> {
    for summary in claims::claimants(view, &[address.into()])? {
        if holder(view, &summary, address)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Says in words which other attachment of this host has an address, by its record, and what is known of that attachment.
/// The first question fills the index.
pub fn holder_in_words(view: View<'_>, address: IpAddr) -> Result<Option<String>, OpError> {
    for summary in claims::candidates(view, &[address.into()], view.fixed.deadline.answer_by())? {
        if let Some((key, attachment)) = holder(view, &summary, address)? {
            let known = words_on_holder(view, Some(&key));
            return Ok(Some(format!("attachment {attachment} has it, by its record; {known}")));
        }
    }
    Ok(None)
}

/// Returns the attachment of a record as [`other`], if it has the address.
fn holder(view: View<'_>, summary: &Summary, address: IpAddr) -> Result<Option<(RecordKey, String)>, OpError> {
    Ok(other(view, summary)?.filter(|_| addresses_of(summary).any(|noted| noted == address)))
}

/// Returns the key of a record, and its network, container and interface in words; `None` unless it is of another
/// attachment of this host.
fn other(view: View<'_>, summary: &Summary) -> Result<Option<(RecordKey, String)>, OpError> {
    let (own, is_of_here) = (view.key()?, claims::is_of_here(view.system)?);
    let header = summary.header.as_ref().filter(|header| is_of_here(header));
    let (Some(key), Some(header)) = (summary.key.filter(|key| *key != own), header) else { return Ok(None) };
    Ok(Some((key, format!("{}/{}/{}", header.network, header.container_id, header.ifname))))
}

/// Returns those of these addresses that forwards of another attachment of this host lead to, by its record, each with that
/// attachment. The index has them for this attachment from then on.
pub fn led_to(run: &mut Context, addresses: &[IpAddr]) -> Result<Vec<LedTo>, OpError> {
    let own = run.view().key()?;
    let index = claims::open_index(run.view(), run.fixed.deadline.answer_by())?;
    claims::fill(run.view(), &index)?;
    let mut asked = Vec::new();
    for address in addresses {
        asked.push((*address, index.candidates((*address).into()).map_err(state_error)?));
        index.note((*address).into(), &own).map_err(state_error)?;
        run.journal.note_indexed((*address).into());
    }
    drop(index);
    led_by(run.view(), asked)
}

/// As [`led_to`], as far as the index tells without its lock. [`led_to`] uses the open index.
pub(super) fn leading_to(view: View<'_>, addresses: &[IpAddr]) -> Result<Vec<LedTo>, OpError> {
    let asked = candidates_unlocked(view, addresses)?.into_iter().map(|(address, keys)| (address, Some(keys)));
    led_by(view, asked)
}

/// Returns those of these addresses that forwards of other attachments lead to. The records to ask come with each address;
/// `None` is all of them.
fn led_by(
    view: View<'_>,
    asked: impl IntoIterator<Item = (IpAddr, Option<Vec<RecordKey>>)>,
) -> Result<Vec<LedTo>, OpError> {
    let own = view.key()?;
    let mut led = Vec::new();
    for (address, keys) in asked {
        let others = keys.map(|keys| keys.into_iter().filter(|key| *key != own).collect());
        for summary in claims::records(view, others)? {
            if in_record::<PortMappings>(&summary).any(|to| to.address.addr() == address)
                && let Some((key, attachment)) = other(view, &summary)?
            {
                led.push(LedTo { address, key, attachment });
                break;
            }
        }
    }
    Ok(led)
}
