//! Which other attachment has an address, by its record.
//!
//! An ADD behind a native plugin asks this. An index of addresses says which records to ask
//! ([`postern_state::AddressIndex`]).

use super::Session;
use crate::effect::Effect;
use crate::errors::state_error;
use postern_cni::parse_cidr;
use postern_state::{AddressIndex, Header, Summary};
use postern_types::OpError;
use serde_json::Value;
use std::net::IpAddr;

impl Session {
    /// Returns the other attachment of this host whose record has an address, in a section or in an effect.
    ///
    /// # Errors
    /// Records or index can't be read.
    pub fn holder(&self, address: IpAddr) -> Result<Option<String>, OpError> {
        let (own, boot) = (self.key()?, postern_state::boot_id().map_err(state_error)?);
        let cookie = self.home_cookie()?;
        let of_here = |header: &Header| header.boot_id == boot && header.host_netns_cookie == cookie;
        for summary in self.candidates(address, cookie, of_here)? {
            let is_other = summary.key.is_some_and(|key| key != own);
            let Some(header) = summary.header.as_ref().filter(|header| is_other && of_here(header)) else { continue };
            if addresses_of(&summary).any(|noted| noted == address) {
                return Ok(Some(format!("{}/{}/{}", header.network, header.container_id, header.ifname)));
            }
        }
        Ok(None)
    }

    /// Returns the records that may have an address. The first question fills the index.
    fn candidates(
        &self,
        address: IpAddr,
        cookie: u64,
        of_here: impl Fn(&Header) -> bool,
    ) -> Result<Vec<Summary>, OpError> {
        let index = AddressIndex::open(&self.state, cookie, self.deadline).map_err(state_error)?;
        if !index.is_complete().map_err(state_error)? {
            let all = postern_state::list_known(&self.state).map_err(state_error)?;
            for summary in &all {
                let Some(header) = summary.header.as_ref().filter(|header| of_here(header)) else { continue };
                let key = header.key();
                for address in addresses_of(summary) {
                    index.note(address, &key).map_err(state_error)?;
                }
            }
            index.set_complete().map_err(state_error)?;
            return Ok(all);
        }
        match index.candidates(address).map_err(state_error)? {
            Some(keys) => {
                let found = keys.iter().map(|key| postern_state::find(&self.state, key));
                found.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(state_error)
            }
            None => postern_state::list_known(&self.state).map_err(state_error),
        }
    }

    /// Notes in the index which addresses the record is about to have; false if there is no index yet.
    ///
    /// # Errors
    /// The index can't be written: then the record must not get the addresses.
    pub(super) fn index(&mut self, addresses: &[IpAddr]) -> Result<bool, OpError> {
        let new: Vec<IpAddr> = addresses.iter().copied().filter(|address| !self.indexed.contains(address)).collect();
        if new.is_empty() {
            return Ok(true);
        }
        let cookie = self.home_cookie()?;
        let index = AddressIndex::find(&self.state, cookie, self.deadline).map_err(state_error)?;
        let Some(index) = index else { return Ok(false) };
        let key = self.key()?;
        for address in new {
            index.note(address, &key).map_err(state_error)?;
            self.indexed.insert(address);
        }
        Ok(true)
    }

    /// As [`Session::index`], after the record has them, where there was no index before. Whoever made it meanwhile may
    /// have read the record before.
    ///
    /// # Errors
    /// As [`Session::index`].
    pub(super) fn index_again(&mut self, is_indexed: bool, addresses: &[IpAddr]) -> Result<(), OpError> {
        if is_indexed { Ok(()) } else { self.index(addresses).map(drop) }
    }
}

/// Returns the addresses that an effect's line in a record will have.
pub(super) fn named(effect: &Effect) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    // An effect without a line is refused when the line is written.
    if let Ok(value) = serde_json::to_value(effect) {
        collect(&value, &mut addresses);
    }
    addresses
}

/// Returns all addresses in a record, in its sections and in its effects of whatever kind.
fn addresses_of(summary: &Summary) -> impl Iterator<Item = IpAddr> {
    let given = summary.sections.iter().flat_map(|section| &section.addresses).filter_map(|text| read(text));
    let mut in_effects = Vec::new();
    summary.effects.iter().for_each(|noted| collect(&noted.effect, &mut in_effects));
    given.chain(in_effects)
}

/// Collects the addresses in an effect, whatever its kind.
fn collect(effect: &Value, addresses: &mut Vec<IpAddr>) {
    match effect {
        Value::String(text) => addresses.extend(read(text)),
        Value::Array(values) => values.iter().for_each(|value| collect(value, addresses)),
        Value::Object(entries) => entries.values().for_each(|value| collect(value, addresses)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the address that a text is, with a prefix length or without.
fn read(text: &str) -> Option<IpAddr> {
    match text.contains('/') {
        true => parse_cidr(text).ok().map(|net| net.addr()),
        false => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_has_the_addresses_in_it() {
        let effect = serde_json::json!({"effect": "x", "bridge": "br9", "handle": 7, "address": "10.9.0.2/24",
            "forwards": [{"to": ["fd00::2"]}], "words": "-s 10.9.0.4", "path": "/run/netns/10.9.0.5"});
        let mut found = Vec::new();
        collect(&effect, &mut found);
        found.sort();
        assert_eq!(found, ["10.9.0.2", "fd00::2"].map(|text| text.parse::<IpAddr>().unwrap()));
    }
}
