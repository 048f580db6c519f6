//! Finds the other attachment whose record has an address, and describes the holder of an object that an ADD wants.
//!
//! An ADD behind a native plugin uses this module. The index of claims names the records to read
//! ([`postern_state::ClaimIndex`]).

use crate::claims::{self, addresses_of};
use crate::context::{Context, View};
use crate::effect::{PortMappings, in_record};
use crate::errors::state_error;
use postern_cni::Verb;
use postern_state::{ClaimIndex, NetworkKey, RecordKey, Summary};
use postern_types::OpError;
use std::net::IpAddr;

/// The hint if no later ADD checks the attachment.
pub const OTHERWISE: &str = "if its container is gone, `postern gc` removes its effects";

/// Another attachment that has an object that this ADD wants.
#[derive(Debug)]
pub struct Holder {
    /// The attachment's record.
    pub key: RecordKey,
    /// The object that the attachment has, in words.
    pub has: String,
    /// True if only the note of another ADD names the attachment. This ADD may want nothing that the attachment has.
    pub is_noted: bool,
}

/// An address to which forwards of another attachment lead.
pub struct LedTo {
    pub address: IpAddr,
    /// The record that lists the forwards.
    pub key: RecordKey,
    /// The attachment's network, container and interface.
    pub attachment: String,
}

impl LedTo {
    /// Names the attachment that has the forwards.
    pub fn words(&self) -> String {
        format!("attachment {} has forwards to {}, by its record", self.attachment, self.address)
    }
}

/// Returns the known state of an attachment that has an object that this ADD wants. If this run did not check the
/// attachment, the next ADD checks it.
pub fn words_on_holder(view: View<'_>, key: Option<&RecordKey>) -> String {
    key.map_or_else(|| OTHERWISE.to_owned(), |key| words_on(view, key, None))
}

/// Like [`words_on_holder`], for an attachment that has an address. Perhaps only ADDs of this network want this
/// address.
pub fn words_on_lessee(view: View<'_>, key: &RecordKey) -> String {
    words_on(view, key, view.network_key().ok())
}

/// Returns the known state of an attachment. `network` is the network whose next ADD checks the attachment; `None` if
/// each ADD checks the attachment.
fn words_on(view: View<'_>, key: &RecordKey, network: Option<NetworkKey>) -> String {
    if let Some(state) = view.system.known.holders.get(key) {
        return state.words();
    }
    let is_noted = || postern_state::doubts::note(&view.fixed.places.state, key, network).unwrap_or(false);
    match view.request.verb == Verb::Add && is_noted() {
        true => "the next ADD checks whether its container is alive, or `postern gc` checks it now".to_owned(),
        false => OTHERWISE.to_owned(),
    }
}

/// Returns the other attachments of this host whose records have an address of `prevResult`, by the index without its
/// lock. A later [`holder_in_words`] uses the open index.
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

/// Returns the records that may have each of these addresses, by the index without its lock. Later calls use the open
/// index.
fn candidates_unlocked(view: View<'_>, addresses: &[IpAddr]) -> Result<Vec<(IpAddr, Vec<RecordKey>)>, OpError> {
    let unlocked = ClaimIndex::unlocked(&view.fixed.places.state, view.system.home_cookie()?).map_err(state_error)?;
    let Some(index) = unlocked else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for address in addresses {
        // If the index has no answer, the later check reads all records.
        let mut keys = index.candidates((*address).into()).map_err(state_error)?.unwrap_or_default();
        keys.retain(|key| postern_state::is_there(&view.fixed.places.state, key));
        found.push((*address, keys));
    }
    view.system.known.claims.set(Some(index));
    Ok(found)
}

/// True if the record of another attachment of this host has an address. This check also works without the index.
pub fn is_held(view: View<'_>, address: IpAddr) -> Result<bool, OpError> {
    for summary in claims::claimants(view, &[address.into()])? {
        if holder(view, &summary, address)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Names the other attachment of this host whose record has an address, with that attachment's known state. The first
/// call fills the index.
pub fn holder_in_words(view: View<'_>, address: IpAddr) -> Result<Option<String>, OpError> {
    for summary in claims::candidates(view, &[address.into()], view.fixed.deadline.answer_by())? {
        if let Some((key, attachment)) = holder(view, &summary, address)? {
            let known = words_on_holder(view, Some(&key));
            return Ok(Some(format!("attachment {attachment} has this address, by its record; {known}")));
        }
    }
    Ok(None)
}

/// Like [`other`], but only if the record has the address.
fn holder(view: View<'_>, summary: &Summary, address: IpAddr) -> Result<Option<(RecordKey, String)>, OpError> {
    Ok(other(view, summary)?.filter(|_| addresses_of(summary).any(|noted| noted == address)))
}

/// Returns the key of a record of another attachment of this host, and the attachment's network, container and
/// interface in words; `None` for any other record.
fn other(view: View<'_>, summary: &Summary) -> Result<Option<(RecordKey, String)>, OpError> {
    let (own, is_of_here) = (view.key()?, claims::is_of_here(view.system)?);
    let header = summary.header.as_ref().filter(|header| is_of_here(header));
    let (Some(key), Some(header)) = (summary.key.filter(|key| *key != own), header) else { return Ok(None) };
    Ok(Some((key, format!("{}/{}/{}", header.network, header.container_id, header.ifname))))
}

/// Returns the addresses to which recorded forwards of another attachment of this host lead, each with this other
/// attachment. From then on the index has the addresses for the run's own attachment.
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

/// Like [`led_to`], but by the index without its lock. A later [`led_to`] uses the open index.
pub(super) fn leading_to(view: View<'_>, addresses: &[IpAddr]) -> Result<Vec<LedTo>, OpError> {
    let asked = candidates_unlocked(view, addresses)?.into_iter().map(|(address, keys)| (address, Some(keys)));
    led_by(view, asked)
}

/// Returns the addresses to which forwards of other attachments lead. Each address comes with the records to read;
/// `None` stands for all records.
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
