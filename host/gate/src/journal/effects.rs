//! The effects in the journal. This module writes effects before and after the act, answers questions about effects,
//! and keeps this run's effects for undo.

use super::{Journal, Undo};
use crate::claims;
use crate::effect::{Dhcp, Effect, LinkChange, Port, RecordTiming, Veth};
use crate::errors::state_error;
use crate::request::Request;
use crate::view::View;
use postern_cni::{CniResult, Verb};
use postern_state::{Claim, ClaimIndex, NotedEffect, Record, StateError};
use postern_types::{ErrorCode, Mac, OpError};
use std::net::IpAddr;

impl Journal {
    /// Notes the effect that an operation is about to make: first in the record, then for undo. After an error the
    /// operation must not be carried out.
    pub fn intend(&mut self, view: View<'_>, effect: impl Into<Effect>) -> Result<(), OpError> {
        let effect = effect.into();
        let (sequence, claims, is_indexed) = match effect.record_timing() {
            RecordTiming::Never => (None, Vec::new(), true),
            // This run does not undo an effect of an earlier run.
            RecordTiming::Once if is_listed(self.record_for_writing(view)?, &effect) => return Ok(()),
            RecordTiming::Once | RecordTiming::EachTime => {
                self.record_for_writing(view)?;
                let claims = claims::of_new(&effect, view.system)?;
                let is_indexed = self.index(view, &claims)?;
                let section = self.section.clone();
                let record = self.record_for_writing(view)?;
                let sequence = record.append(&section, &effect, effect.is_link()).map_err(state_error)?;
                (Some(sequence), claims, is_indexed)
            }
        };
        self.undo.push(Undo { sequence, effect, leases: Vec::new() });
        self.index_again(view, is_indexed, &claims)
    }

    /// Notes the kernel's numbers of an effect that was made. Without these numbers, a run must search for the effect.
    pub fn known_by(&mut self, effect: &Effect, handles: &[u64]) {
        self.known_in(effect, handles, &[]);
    }

    /// Like [`Journal::known_by`], and also notes the numbers of the tables with the rules.
    pub fn known_in(&mut self, effect: &Effect, handles: &[u64], tables: &[u64]) {
        let noted = self.note_numbers(effect, handles, tables);
        self.tell(noted);
    }

    /// Notes the index of a link in the container. Only the index identifies the link, because root in the container
    /// can change everything else. After an error the ADD must be undone.
    pub fn known_link(&mut self, effect: &Effect, index: u32) -> Result<(), OpError> {
        self.note_numbers(effect, &[u64::from(index)], &[]).map_err(state_error)
    }

    fn note_numbers(&mut self, effect: &Effect, handles: &[u64], tables: &[u64]) -> Result<(), StateError> {
        let last = self.effects().into_iter().rfind(|noted| noted.effect == *effect).map(|noted| noted.seq);
        match (handles.is_empty(), last, self.record.as_mut()) {
            (false, Some(sequence), Some(record)) => record.note_handles(sequence, handles, tables),
            _ => Ok(()),
        }
    }

    /// Returns the effects that the record lists, in their order.
    pub fn effects(&self) -> Vec<NotedEffect<Effect>> {
        self.record.as_ref().map(|record| record.effects(None)).unwrap_or_default()
    }

    /// Returns the recorded effects of a kind.
    pub fn recorded<T: TryFrom<Effect>>(&self) -> Vec<T> {
        self.effects().into_iter().filter_map(|noted| T::try_from(noted.effect).ok()).collect()
    }

    /// Returns the recorded handles of an effect's rules, and the recorded handles of their tables.
    pub fn numbers<T: TryFrom<Effect> + PartialEq>(&self, effect: &T) -> (Vec<u64>, Vec<u64>) {
        let (mut handles, mut tables) = (Vec::new(), Vec::new());
        for noted in self.effects() {
            if T::try_from(noted.effect).is_ok_and(|listed| listed == *effect) {
                handles.extend(noted.handles);
                tables = noted.tables;
            }
        }
        (handles, tables)
    }

    /// Returns the interface indices that the record notes for an effect.
    pub fn indices<T: TryFrom<Effect> + PartialEq>(&self, effect: &T) -> Vec<u32> {
        self.numbers(effect).0.into_iter().filter_map(|index| u32::try_from(index).ok()).collect()
    }

    /// True if the attachment's record lists the effect.
    pub fn has(&self, effect: &Effect) -> bool {
        self.record.as_ref().is_some_and(|record| is_listed(record, effect))
    }

    /// Fails if an ADD changes effects of a kind, and an earlier run made one of them. A second ADD without a DEL in
    /// between must not change effects of the first ADD. `what` names the kind.
    pub fn only_of_this_run(
        &self,
        request: &Request,
        matches: impl Fn(&Effect) -> bool,
        what: &str,
    ) -> Result<(), OpError> {
        let listed = self.effects().into_iter().map(|noted| noted.effect);
        let is_earlier = |effect: &Effect| !self.undo.iter().any(|undo| undo.effect == *effect);
        if request.verb == Verb::Add && listed.filter(|effect| matches(effect)).any(|effect| is_earlier(&effect)) {
            let message = format!("an earlier ADD made the {what} of this attachment");
            return Err(OpError::new(ErrorCode::Exists, &request.container_id, message).hint("run DEL first"));
        }
        Ok(())
    }

    /// Takes the effects that match off the record and off the undo list, because they no longer exist.
    pub fn gone(&mut self, matches: impl Fn(&Effect) -> bool) {
        self.undo.retain(|undo| !matches(&undo.effect));
        for noted in self.effects().into_iter().filter(|noted| matches(&noted.effect)) {
            self.note_removed(Some(noted.seq));
        }
    }

    /// Notes that one effect of the record is gone. If the note fails, the effect is removed again later.
    pub fn note_removed(&mut self, sequence: Option<u64>) {
        if let (Some(sequence), Some(record)) = (sequence, self.record.as_mut()) {
            let noted = record.mark_removed(sequence);
            self.tell(noted);
        }
    }

    /// Returns the pairs that the record lists.
    pub fn pairs(&self) -> Vec<Veth> {
        self.recorded()
    }

    /// Returns the links of earlier plugins that the record lists as ports. A record of another boot has no ports: its
    /// indices now belong to other links.
    pub fn ports(&self) -> Vec<Port> {
        let boot = postern_state::boot_id().ok();
        if self.record.as_ref().is_none_or(|record| boot.as_ref() != Some(&record.header().boot_id)) {
            return Vec::new();
        }
        self.recorded()
    }

    /// Returns the DHCP leases of the record: one for each service, with all its recorded addresses.
    ///
    /// The record can list a lease twice: with and without addresses. This happens if the removal of the first line
    /// could not be written.
    pub fn dhcp_leases(&self) -> Vec<Dhcp> {
        let mut leases: Vec<Dhcp> = Vec::new();
        for lease in self.recorded::<Dhcp>() {
            match leases.iter_mut().find(|known| known.socket == lease.socket) {
                Some(known) => known.addresses.extend(lease.addresses),
                None => leases.push(lease),
            }
        }
        leases
    }

    /// Returns the hardware address of the attachment's link before plugins changed the address to `now`.
    fn original_mac(&self, now: Mac) -> Mac {
        self.recorded::<LinkChange>().iter().rev().fold(now, |now, change| {
            match (change.before.mac, change.after.mac) {
                (Some(before), Some(after)) if after == now => before,
                _ => now,
            }
        })
    }

    /// True if a result names a link that the record lists.
    pub fn names_listed_link(&self, result: &CniResult) -> bool {
        // A later plugin may have changed the hardware address: the record has the address before the change.
        let mut result = result.clone();
        for link in &mut result.interfaces {
            if let Ok(mac) = link.mac.parse::<Mac>() {
                link.mac = self.original_mac(mac).to_string();
            }
        }
        let is_named =
            |noted: &NotedEffect<Effect>| noted.effect.kind().as_link().is_some_and(|link| link.is_named(&result));
        self.effects().iter().any(is_named)
    }

    /// True if an effect of this run matches.
    pub fn has_made(&self, matches: impl Fn(&Undo) -> bool) -> bool {
        self.undo.iter().any(matches)
    }

    /// True if this run has made the attachment's link. Then the deletion of the link removes everything on the link.
    pub fn has_made_link(&self) -> bool {
        self.undo.iter().any(|undo| undo.effect.is_link())
    }

    /// Returns the number of the effects of this run that can be undone.
    pub fn made_so_far(&self) -> usize {
        self.undo.len()
    }

    /// Notes `leases`, which this run took, with the last noted effect. A failed ADD gives these leases back.
    pub fn note_leases(&mut self, leases: &[IpAddr]) {
        if let Some(undo) = self.undo.last_mut() {
            undo.leases = leases.to_vec();
        }
    }

    /// Sorts the effects of this run since `before`, so that [`Journal::next_undo`] returns them in the right order.
    pub fn order_undo(&mut self, before: usize) {
        if let Some(own) = self.undo.get_mut(before..) {
            own.sort_by_key(|undo| !undo.effect.addresses().are_given_back());
        }
    }

    /// Takes the next effect to undo.
    pub fn next_undo(&mut self, before: usize) -> Option<Undo> {
        if self.undo.len() > before { self.undo.pop() } else { None }
    }

    /// Removes the effect with this number from the undo list, because the effect was taken back.
    pub fn forget_undo(&mut self, sequence: u64) {
        self.undo.retain(|undo| undo.sequence != Some(sequence));
    }

    /// Remembers that this run has written a claim into the index.
    pub fn note_indexed(&mut self, claim: Claim) {
        self.indexed.insert(claim);
    }

    /// Writes claims into the index before the record makes these claims. Returns false if there is no index yet. After
    /// an error the record must not make these claims.
    pub fn index(&mut self, view: View<'_>, claims: &[Claim]) -> Result<bool, OpError> {
        let new: Vec<Claim> = claims.iter().copied().filter(|claim| !self.indexed.contains(claim)).collect();
        if new.is_empty() {
            return Ok(true);
        }
        let cookie = view.system.home_cookie()?;
        let index =
            ClaimIndex::find(&view.fixed.places.state, cookie, view.fixed.deadline.answer_by()).map_err(state_error)?;
        let Some(index) = index else { return Ok(false) };
        let key = view.key()?;
        for claim in new {
            index.note(claim, &key).map_err(state_error)?;
            self.indexed.insert(claim);
        }
        Ok(true)
    }

    /// Writes the claims into the index after the record has them, if there was no index before. Another run may have
    /// made the index meanwhile, from the record without these claims.
    pub(super) fn index_again(&mut self, view: View<'_>, is_indexed: bool, claims: &[Claim]) -> Result<(), OpError> {
        if is_indexed { Ok(()) } else { self.index(view, claims).map(drop) }
    }
}

fn is_listed(record: &Record<Effect>, effect: &Effect) -> bool {
    record.effects(None).iter().any(|noted| noted.effect == *effect)
}
