//! Which other attachment has an address, by its record, and what is known of an attachment that has what an ADD wants.
//!
//! An ADD behind a native plugin asks this. The index of claims says which records to ask
//! ([`postern_state::ClaimIndex`]).

use super::Session;
use super::claims::addresses_of;
use crate::effect::{Effect, PortMappings};
use crate::errors::state_error;
use postern_cni::Verb;
use postern_state::{ClaimIndex, NetworkKey, RecordKey, Summary};
use postern_types::OpError;
use std::net::IpAddr;

/// The way out where no ADD looks.
pub const OTHERWISE: &str = "if its container is gone, `postern gc` removes what it left";

/// What is known of an attachment that has what an ADD wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// Something keeps its namespace alive.
    Alive,
    /// It can't be told, for this reason.
    Unknown(String),
    /// It is gone, and this could not be removed.
    Stuck(String),
}

impl HolderState {
    /// Says what is known, and what to do.
    pub fn words(&self) -> String {
        match self {
            Self::Alive => "its container is alive".to_owned(),
            Self::Unknown(why) => {
                format!("it can't be told whether its container is alive ({why}): if it is gone, run `postern gc`")
            }
            Self::Stuck(why) => {
                format!("its container is gone, and what it left can't be removed ({why}): run `postern gc`")
            }
        }
    }
}

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

/// An attachment that has an address.
struct Holding {
    key: RecordKey,
    /// Its network, container and interface.
    attachment: String,
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

impl Session<'_> {
    /// Says what is known of an attachment that has what this ADD wants. If it was not looked at, the next ADD does.
    pub fn words_on_holder(&self, key: Option<&RecordKey>) -> String {
        key.map_or_else(|| OTHERWISE.to_owned(), |key| self.words_on(key, None))
    }

    /// Says the same of an attachment that has an address which an ADD of this network wants, and perhaps no other ADD.
    pub fn words_on_lessee(&self, key: &RecordKey) -> String {
        self.words_on(key, self.network_key().ok())
    }

    /// `network`: the one whose next ADD looks, if not all do.
    fn words_on(&self, key: &RecordKey, network: Option<NetworkKey>) -> String {
        if let Some(state) = self.known_holders.get(key) {
            return state.words();
        }
        let is_noted = || postern_state::doubts::note(&self.state, key, network).unwrap_or(false);
        match self.request.verb == Verb::Add && is_noted() {
            true => "the next ADD looks whether its container is alive, and `postern gc` does so now".to_owned(),
            false => OTHERWISE.to_owned(),
        }
    }

    /// Returns the key of this network on this host.
    ///
    /// # Errors
    /// As [`Session::home`].
    pub fn network_key(&self) -> Result<NetworkKey, OpError> {
        Ok(NetworkKey::new(self.home_cookie()?, &self.request.conf.name))
    }
}

impl Session<'_> {
    /// Returns the other attachments of this host whose records have an address of `prevResult`, as far as the index tells
    /// without its lock. [`Session::holder`] uses the open index.
    ///
    /// # Errors
    /// Records or index can't be read.
    pub fn holders_of_previous(&self) -> Result<Vec<Holder>, OpError> {
        let previous = self.request.conf.previous_result().ok().flatten().unwrap_or_default();
        let cookie = self.home_cookie()?;
        let unlocked = ClaimIndex::unlocked(&self.state, cookie).map_err(state_error)?;
        let Some(index) = unlocked.filter(|_| !previous.ips.is_empty()) else { return Ok(Vec::new()) };
        let mut holders = Vec::new();
        for address in previous.ips.iter().map(|ip| ip.address.addr()) {
            // Without an answer the question itself asks all records.
            let keys = index.candidates(address.into()).map_err(state_error)?.unwrap_or_default();
            for key in keys.into_iter().filter(|key| postern_state::is_there(&self.state, key)) {
                let found = postern_state::find(&self.state, &key).map_err(state_error)?;
                let holding = found.map(|summary| self.holding_of(&summary, address)).transpose()?.flatten();
                holders.extend(holding.map(|Holding { key, attachment }| Holder {
                    key,
                    has: format!("attachment {attachment} has {address}, by its record"),
                    is_noted: false,
                }));
            }
        }
        self.claims.set(Some(index));
        Ok(holders)
    }

    /// Returns the other attachment of this host whose record has an address, in a section or in an effect, as its own.
    ///
    /// # Errors
    /// Records or index can't be read.
    pub fn holder(&self, address: IpAddr) -> Result<Option<String>, OpError> {
        Ok(self.holding(address)?.map(|holding| holding.attachment))
    }

    /// True if the record of another attachment of this host has an address. It is known without the index too.
    ///
    /// # Errors
    /// Records can't be read.
    pub fn is_held(&self, address: IpAddr) -> Result<bool, OpError> {
        for summary in self.claimants(&[address.into()])? {
            if self.holding_of(&summary, address)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`Session::holder`]: says in words who has the address, and what is known of that attachment.
    ///
    /// # Errors
    /// As [`Session::holder`].
    pub fn holder_in_words(&self, address: IpAddr) -> Result<Option<String>, OpError> {
        Ok(self.holding(address)?.map(|Holding { key, attachment }| {
            format!("attachment {attachment} has it, by its record; {}", self.words_on_holder(Some(&key)))
        }))
    }

    fn holding(&self, address: IpAddr) -> Result<Option<Holding>, OpError> {
        for summary in self.with_address(address)? {
            if let Some(holding) = self.holding_of(&summary, address)? {
                return Ok(Some(holding));
            }
        }
        Ok(None)
    }

    /// Returns the attachment of a record, if it is another one of this host and has the address.
    fn holding_of(&self, summary: &Summary, address: IpAddr) -> Result<Option<Holding>, OpError> {
        let (own, is_of_here) = (self.key()?, self.is_of_here()?);
        let header = summary.header.as_ref().filter(|header| is_of_here(header));
        let (Some(key), Some(header)) = (summary.key, header) else { return Ok(None) };
        let has = key != own && addresses_of(summary).any(|noted| noted == address);
        Ok(has.then(|| Holding {
            key,
            attachment: format!("{}/{}/{}", header.network, header.container_id, header.ifname),
        }))
    }

    /// Returns those of these addresses that forwards of another attachment of this host lead to, by its record, each with that
    /// attachment. The index has them for this attachment from then on.
    ///
    /// # Errors
    /// Records or index can't be read.
    pub fn led_to(&mut self, addresses: &[IpAddr]) -> Result<Vec<LedTo>, OpError> {
        let own = self.key()?;
        let index = self.open_index(self.answer_by())?;
        self.fill(&index)?;
        let mut asked = Vec::new();
        for address in addresses {
            asked.push((*address, index.candidates((*address).into()).map_err(state_error)?));
            index.note((*address).into(), &own).map_err(state_error)?;
            self.indexed.insert((*address).into());
        }
        drop(index);
        self.led_by(asked)
    }

    /// As [`Session::led_to`], as far as the index tells without its lock. [`Session::led_to`] uses the open index.
    ///
    /// # Errors
    /// As [`Session::led_to`].
    pub(super) fn leading_to(&self, addresses: &[IpAddr]) -> Result<Vec<LedTo>, OpError> {
        let unlocked = ClaimIndex::unlocked(&self.state, self.home_cookie()?).map_err(state_error)?;
        let Some(index) = unlocked else { return Ok(Vec::new()) };
        let mut asked = Vec::new();
        for address in addresses {
            // Without an answer the question itself asks all records.
            let mut keys = index.candidates((*address).into()).map_err(state_error)?.unwrap_or_default();
            keys.retain(|key| postern_state::is_there(&self.state, key));
            asked.push((*address, Some(keys)));
        }
        self.claims.set(Some(index));
        self.led_by(asked)
    }

    /// Returns those of these addresses that forwards of other attachments lead to. The records to ask come with each address;
    /// `None` is all of them.
    fn led_by(&self, asked: Vec<(IpAddr, Option<Vec<RecordKey>>)>) -> Result<Vec<LedTo>, OpError> {
        let (own, is_of_here) = (self.key()?, self.is_of_here()?);
        let mut led = Vec::new();
        for (address, keys) in asked {
            let others = keys.map(|keys| keys.into_iter().filter(|key| *key != own).collect::<Vec<_>>());
            for summary in self.records(others)? {
                let Some(key) = summary.key.filter(|key| *key != own) else { continue };
                let Some(header) = summary.header.filter(&is_of_here) else { continue };
                let mut effects =
                    summary.effects.into_iter().filter_map(|noted| serde_json::from_value::<Effect>(noted.effect).ok());
                if effects.any(|effect| PortMappings::of(&effect).is_some_and(|to| to.address.addr() == address)) {
                    let attachment = format!("{}/{}/{}", header.network, header.container_id, header.ifname);
                    led.push(LedTo { address, key, attachment });
                    break;
                }
            }
        }
        Ok(led)
    }

    /// Returns the records that may have an address. The first question fills the index.
    fn with_address(&self, address: IpAddr) -> Result<Vec<Summary>, OpError> {
        self.candidates(&[address.into()], self.answer_by())
    }
}
