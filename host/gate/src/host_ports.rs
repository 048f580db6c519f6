//! The owners of the node's ports: two containers can't have one port.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::context::{Fixed, View};
use crate::effect::{PortMappings, in_record};
use crate::errors::state_error;
use crate::others;
use crate::others::Holder as Taken;
use crate::request::Request;
use postern_state::{Header, PortIndex, RecordKey, SlotHolder, Summary};
use postern_types::{ErrorCode, Forward, OpError, Transport};
use std::collections::HashMap;

/// The forwards of an attachment, as its record lists them.
struct Claim {
    key: Option<RecordKey>,
    header: Header,
    forwards: Vec<Forward>,
}

impl Claim {
    /// Reads a record. A record of another boot claims nothing, because its rules are gone.
    fn of(summary: &Summary, boot: &str, cookie: u64) -> Option<Self> {
        let is_here = |header: &&Header| header.boot_id == boot && header.host_netns_cookie == cookie;
        let header = summary.header.as_ref().filter(is_here)?;
        let forwards: Vec<Forward> = in_record::<PortMappings>(summary).flat_map(|own| own.forwards).collect();
        let is_some = !forwards.is_empty();
        is_some.then(|| Self { key: summary.key, header: header.clone(), forwards })
    }
}

/// The ports that a run is claiming. The lock on the index is held until this value is dropped.
pub struct PortClaims {
    index: PortIndex,
    own: RecordKey,
    boot: String,
    cookie: u64,
    known: HashMap<RecordKey, Option<Claim>>,
}

/// Claims ports for the attachment. The error is [`ErrorCode::Exists`] if another container has one of the ports. The
/// caller then writes the ports into the record, and calls [`PortClaims::note`].
pub fn claim(view: View<'_>, forwards: &[Forward]) -> Result<PortClaims, OpError> {
    let cookie = view.system.home_cookie()?;
    let index = match view.system.known.ports.take() {
        Some(index) => index.lock(view.fixed.deadline.answer_by()),
        None => PortIndex::open(&view.fixed.places.state, cookie, view.fixed.deadline.answer_by()),
    };
    let mut claims = PortClaims::new(view, index.map_err(state_error)?, cookie)?;
    let is_new = claims.index.is_new().map_err(state_error)?;
    claims.look(view.fixed, forwards, is_new, |_| true)?;
    let conflicting =
        claims.conflicts(view.request, forwards).next().map(|(own, theirs, other)| conflict(view, own, theirs, other));
    conflicting.map_or(Ok(claims), Err)
}

/// Returns the attachments that have a port of these forwards. Reads the index without its lock. A later [`claim`] uses
/// the open index.
pub fn taken(view: View<'_>, forwards: &[Forward]) -> Result<Vec<Taken>, OpError> {
    if forwards.is_empty() {
        return Ok(Vec::new());
    }
    let cookie = view.system.home_cookie()?;
    let Some(index) = PortIndex::unlocked(&view.fixed.places.state, cookie).map_err(state_error)? else {
        return Ok(Vec::new());
    };
    let mut claims = PortClaims::new(view, index, cookie)?;
    claims.look(view.fixed, forwards, false, |key| postern_state::is_there(&view.fixed.places.state, key))?;
    let taken = claims.conflicts(view.request, forwards).filter_map(|(own, theirs, other)| {
        Some(Taken { key: other.key?, has: words(own, theirs, other), is_noted: false })
    });
    let taken: Vec<Taken> = taken.collect();
    view.system.known.ports.set(Some(claims.index));
    Ok(taken)
}

/// Returns the message of a conflict, with the port and its owner.
fn words(own: &Forward, theirs: &Forward, other: &Claim) -> String {
    let port = own.host_port.max(theirs.host_port);
    format!(
        "the node's {} port {port} is taken: container {} of network \"{}\" has it",
        own.transport.name(),
        other.header.container_id,
        other.header.network
    )
}

fn conflict(view: View<'_>, own: &Forward, theirs: &Forward, other: &Claim) -> OpError {
    let message = words(own, theirs, other);
    let object = format!("{} {}", own.transport.name(), own.host_port.max(theirs.host_port));
    let known = others::words_on_holder(view, other.key.as_ref());
    OpError::new(ErrorCode::Exists, object, message)
        .hint(format!("{known}; or give this container another hostPort or hostIP (`postern ls` shows both)"))
}

impl PortClaims {
    fn new(view: View<'_>, index: PortIndex, cookie: u64) -> Result<Self, OpError> {
        let boot = postern_state::boot_id().map_err(state_error)?;
        Ok(Self { index, own: view.key()?, boot, cookie, known: HashMap::new() })
    }

    /// Reads the records that may have a port of these forwards: the records of the index that `is_asked` accepts. If
    /// the index is unusable, all records are read.
    fn look(
        &mut self,
        fixed: &Fixed,
        forwards: &[Forward],
        mut all: bool,
        is_asked: impl Fn(&RecordKey) -> bool,
    ) -> Result<(), OpError> {
        for forward in forwards {
            let holders = self.index.holders(number(forward.transport), forward.host_port, forward.count);
            for holder in holders.map_err(state_error)? {
                match holder {
                    SlotHolder::One(key) if is_asked(&key) => self.read(fixed, key)?,
                    SlotHolder::One(_) | SlotHolder::Nobody => {}
                    SlotHolder::Several => all = true,
                }
            }
        }
        if all { self.read_all(fixed) } else { Ok(()) }
    }

    /// Returns the forwards of other containers that overlap with these forwards.
    fn conflicts<'a>(
        &'a self,
        request: &'a Request,
        forwards: &'a [Forward],
    ) -> impl Iterator<Item = (&'a Forward, &'a Forward, &'a Claim)> {
        let container_id = &request.container_id;
        let others = self.known.values().flatten().filter(move |claim| claim.header.container_id != *container_id);
        others.flat_map(move |other| {
            other.forwards.iter().filter_map(move |theirs| {
                let own = forwards.iter().find(|own| own.overlaps(theirs))?;
                Some((own, theirs, other))
            })
        })
    }

    fn read(&mut self, fixed: &Fixed, key: RecordKey) -> Result<(), OpError> {
        if key != self.own && !self.known.contains_key(&key) {
            let found = postern_state::find(&fixed.places.state, &key).map_err(state_error)?;
            let claim = found.and_then(|summary| Claim::of(&summary, &self.boot, self.cookie));
            self.known.insert(key, claim);
        }
        Ok(())
    }

    fn read_all(&mut self, fixed: &Fixed) -> Result<(), OpError> {
        for summary in postern_state::list_known(&fixed.places.state).map_err(state_error)? {
            let Some(key) = summary.key.filter(|key| *key != self.own) else { continue };
            let claim = Claim::of(&summary, &self.boot, self.cookie);
            self.known.insert(key, claim);
        }
        Ok(())
    }

    /// Notes in the index that the attachment has these ports, after its record lists the ports. On an error nothing
    /// may be forwarded.
    pub fn note(self, forwards: &[Forward]) -> Result<(), OpError> {
        for forward in forwards {
            let transport = forward.transport;
            let living = self.known.values().flatten().filter(|claim| claim.key.is_some_and(|key| key != self.own));
            let held: Vec<&Forward> =
                living.flat_map(|claim| &claim.forwards).filter(|held| held.transport == transport).collect();
            let entry = |(port, _): (u16, u16)| {
                let has = |held: &&Forward| (held.host_port..=held.last_host_port()).contains(&port);
                if held.iter().any(has) { SlotHolder::Several } else { SlotHolder::One(self.own) }
            };
            let entries: Vec<SlotHolder> = forward.ports().map(entry).collect();
            self.index.set(number(transport), forward.host_port, &entries).map_err(state_error)?;
        }
        Ok(())
    }
}

fn number(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => 0,
        Transport::Udp => 1,
        Transport::Sctp => 2,
    }
}
