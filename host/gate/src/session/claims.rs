//! The records that may list a link of the host, by an index of what links are known by.

use super::Session;
use crate::effect::{Device, Effect, Port};
use crate::errors::state_error;
use postern_kernel::Link;
use postern_state::claims::{LinkClaim, candidates, fill, note};
use postern_state::{Header, Summary};
use postern_types::OpError;
use std::time::{Duration, Instant};

/// The time that a question waits for the lock of the index, to fill it.
const FILL_WITHIN: Duration = Duration::from_millis(100);

impl Session {
    /// Notes in the index which link the record is about to list, if the effect is one that takes a link of the host.
    ///
    /// # Errors
    /// The index can't be written: then the record must not list the link.
    pub(super) fn claim_link(&self, effect: &Effect) -> Result<(), OpError> {
        match claim_of(effect, self.home_cookie()?) {
            Some(claim) => note(&self.state, &claim, &self.key()?, self.answer_by()).map_err(state_error),
            None => Ok(()),
        }
    }

    /// Returns the records of this host that may list a link of it. Pairs are in no index, for each attachment has one: a link
    /// whose other end is in another namespace may be any record's. The first question fills the index.
    ///
    /// # Errors
    /// Records can't be read.
    pub(super) fn records_on_link(&self, link: &Link) -> Result<Vec<Summary>, OpError> {
        let is_pair = link.kind == "veth" && (link.peer_netnsid.is_some() || link.peer_index.is_none());
        if is_pair {
            return self.records_here();
        }
        let home = self.home_cookie()?;
        let device = link.device.as_ref().map(|device| LinkClaim::of_device(home, &device.bus, &device.name));
        let claims: Vec<LinkClaim> = device.into_iter().chain([LinkClaim::of_index(home, link.index)]).collect();
        let Some(keys) = candidates(&self.state, home, &claims) else {
            return self.fill_claims(home);
        };
        let is_here = |header: &Header| header.host_netns_cookie == home;
        let mut found = self.records(Some(keys))?;
        found.retain(|summary| summary.header.as_ref().is_none_or(is_here));
        Ok(found)
    }

    /// Notes the claims of all records of this host, and returns them. The records have answered the question: if the index can't
    /// be written (a full disk, one that may only be read, another run with the lock), the next question reads all of them too.
    fn fill_claims(&self, home: u64) -> Result<Vec<Summary>, OpError> {
        let records = self.records_here()?;
        let mut all = Vec::new();
        for summary in &records {
            let Some(key) = &summary.key else { continue };
            let effects = summary.effects.iter().map(|noted| serde_json::from_value::<Effect>(noted.effect.clone()));
            all.extend(effects.flatten().filter_map(|effect| Some((claim_of(&effect, home)?, *key))));
        }
        let _ = fill(&self.state, home, &all, self.answer_by().min(Instant::now() + FILL_WITHIN));
        Ok(records)
    }
}

/// Returns what the link of an effect is known by, if the effect takes a link of the host.
fn claim_of(effect: &Effect, home: u64) -> Option<LinkClaim> {
    if let Some(port) = Port::of(effect) {
        return Some(LinkClaim::of_index(home, port.index));
    }
    Device::of(effect).map(|device| match &device.device {
        Some((bus, name)) => LinkClaim::of_device(home, bus, name),
        None => LinkClaim::of_index(home, device.index),
    })
}
