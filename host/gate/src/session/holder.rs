//! Which other attachment has an address, by its record.
//!
//! An ADD behind a native plugin asks this. An index of addresses says which records to ask
//! ([`postern_state::AddressIndex`]).

use super::Session;
use crate::effect::{Effect, PortMappings};
use crate::errors::state_error;
use crate::holders::Holder;
use postern_cni::parse_cidr;
use postern_state::{AddressIndex, Header, RecordKey, Summary};
use postern_types::OpError;
use serde::Deserialize;
use serde_json::Value;
use std::net::IpAddr;

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

impl Session {
    /// Returns the other attachments of this host whose records have an address of `prevResult`, as far as the index tells
    /// without its lock. [`Session::holder`] uses the open index.
    ///
    /// # Errors
    /// Records or index can't be read.
    pub fn holders_of_previous(&self) -> Result<Vec<Holder>, OpError> {
        let previous = self.request.conf.previous_result().ok().flatten().unwrap_or_default();
        let cookie = self.home_cookie()?;
        let unlocked = AddressIndex::unlocked(&self.state, cookie).map_err(state_error)?;
        let Some(index) = unlocked.filter(|_| !previous.ips.is_empty()) else { return Ok(Vec::new()) };
        let mut holders = Vec::new();
        for address in previous.ips.iter().map(|ip| ip.address.addr()) {
            // Without an answer the question itself asks all records.
            let keys = index.candidates(address).map_err(state_error)?.unwrap_or_default();
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
        self.addresses.set(Some(index));
        Ok(holders)
    }

    /// Returns the other attachment of this host whose record has an address, in a section or in an effect, as its own.
    ///
    /// # Errors
    /// Records or index can't be read.
    pub fn holder(&self, address: IpAddr) -> Result<Option<String>, OpError> {
        Ok(self.holding(address)?.map(|holding| holding.attachment))
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
        for summary in self.candidates(address)? {
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
        let index = self.open_index()?;
        self.fill(&index)?;
        let mut asked = Vec::new();
        for address in addresses {
            asked.push((*address, index.candidates(*address).map_err(state_error)?));
            index.note(*address, &own).map_err(state_error)?;
            self.indexed.insert(*address);
        }
        drop(index);
        self.led_by(asked)
    }

    /// As [`Session::led_to`], as far as the index tells without its lock. [`Session::led_to`] uses the open index.
    ///
    /// # Errors
    /// As [`Session::led_to`].
    pub(super) fn leading_to(&self, addresses: &[IpAddr]) -> Result<Vec<LedTo>, OpError> {
        let unlocked = AddressIndex::unlocked(&self.state, self.home_cookie()?).map_err(state_error)?;
        let Some(index) = unlocked else { return Ok(Vec::new()) };
        let mut asked = Vec::new();
        for address in addresses {
            // Without an answer the question itself asks all records.
            let mut keys = index.candidates(*address).map_err(state_error)?.unwrap_or_default();
            keys.retain(|key| postern_state::is_there(&self.state, key));
            asked.push((*address, Some(keys)));
        }
        self.addresses.set(Some(index));
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

    /// Returns the question whether a record is of this boot and of this host's namespace.
    fn is_of_here(&self) -> Result<impl Fn(&Header) -> bool + use<>, OpError> {
        let (boot, cookie) = (postern_state::boot_id().map_err(state_error)?, self.home_cookie()?);
        Ok(move |header: &Header| header.boot_id == boot && header.host_netns_cookie == cookie)
    }

    /// Opens the index with its lock: the one that this run has open, if there is one.
    fn open_index(&self) -> Result<AddressIndex, OpError> {
        let index = match self.addresses.take() {
            Some(index) => index.lock(self.answer_by()),
            None => AddressIndex::open(&self.state, self.home_cookie()?, self.answer_by()),
        };
        index.map_err(state_error)
    }

    /// Notes all records in the index, unless it has them. Returns them if they were read.
    fn fill(&self, index: &AddressIndex) -> Result<Option<Vec<Summary>>, OpError> {
        if index.is_complete().map_err(state_error)? {
            return Ok(None);
        }
        let is_of_here = self.is_of_here()?;
        let all = postern_state::list_known(&self.state).map_err(state_error)?;
        for summary in &all {
            let Some(header) = summary.header.as_ref().filter(|header| is_of_here(header)) else { continue };
            let key = header.key();
            for address in addresses_of(summary) {
                index.note(address, &key).map_err(state_error)?;
            }
        }
        index.set_complete().map_err(state_error)?;
        Ok(Some(all))
    }

    /// Returns the records with these keys; all records for `None`.
    pub(super) fn records(&self, keys: Option<Vec<RecordKey>>) -> Result<Vec<Summary>, OpError> {
        match keys {
            Some(keys) => {
                let found = keys.iter().map(|key| postern_state::find(&self.state, key));
                found.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(state_error)
            }
            None => postern_state::list_known(&self.state).map_err(state_error),
        }
    }

    /// Returns the records that may have an address. The first question fills the index.
    fn candidates(&self, address: IpAddr) -> Result<Vec<Summary>, OpError> {
        let index = self.open_index()?;
        match self.fill(&index)? {
            Some(all) => Ok(all),
            None => self.records(index.candidates(address).map_err(state_error)?),
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
        let index = AddressIndex::find(&self.state, cookie, self.answer_by()).map_err(state_error)?;
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

/// Returns the attachment's addresses in a record: those that its sections were given, and those that its effects name
/// as its own. Any other address in there is none that it has: a route's destination, a gateway, or what root in the
/// container put on a link.
fn addresses_of(summary: &Summary) -> impl Iterator<Item = IpAddr> {
    let given = summary.sections.iter().flat_map(|section| &section.addresses);
    let given = given.filter_map(|text| parse_cidr(text).ok()).map(|net| net.addr());
    given.chain(summary.effects.iter().flat_map(|noted| own_addresses(&noted.effect)))
}

/// Returns the attachment's own addresses in an effect of its record. One of a later version, which can't be read, has
/// none: its section has the addresses of the result.
fn own_addresses(effect: &Value) -> Vec<IpAddr> {
    Effect::deserialize(effect).map(|effect| effect.own_addresses()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each effect that names addresses, as records have it: what is the attachment's own counts, and nothing else.
    #[test]
    fn an_effect_has_only_the_attachments_own_addresses() {
        let route = |dst: &str, via: &str| {
            format!(
                r#"{{"dst":"{dst}","gateway":"{via}","source":"10.6.0.9","mtu":null,"advmss":null,"priority":null,"table":254,"scope":0,"protocol":3}}"#
            )
        };
        for (effect, own) in [
            (r#"{"effect":"masquerade","backend":"nftables","addresses":["10.1.0.2/24","fd00::2/64"]}"#.to_owned(), "10.1.0.2 fd00::2"),
            (r#"{"effect":"firewall","backend":"iptables","admin_chain":"10.1.0.9","addresses":["10.1.0.2/24"]}"#.to_owned(), "10.1.0.2"),
            (r#"{"effect":"dhcp","socket":"/run/10.1.0.9","addresses":["10.1.0.2/24"]}"#.to_owned(), "10.1.0.2"),
            (
                r#"{"effect":"port-mappings","backend":"nftables","address":"10.1.0.2/24","forwards":["tcp:8080:80@192.0.2.1"],"masquerade":"own","conditions":"-s 10.1.0.9"}"#.to_owned(),
                "10.1.0.2",
            ),
            (
                format!(
                    r#"{{"effect":"source-routes","index":2,"rules":[{{"source":"10.1.0.2","table":100}}],"routes":[{}],"moved":[{}],"hints":[]}}"#,
                    route("0.0.0.0/0", "10.1.0.1"),
                    route("10.60.0.1/32", "10.60.0.2"),
                ),
                "10.1.0.2",
            ),
            (
                format!(
                    r#"{{"effect":"vrf","index":2,"name":"10.1.0.8","table":7,"made":true,"addresses":["fd00::77/64"],"moved":[{}]}}"#,
                    route("10.60.0.1/32", "10.60.0.2"),
                ),
                "",
            ),
            (r#"{"effect":"native","plugin":"other","config":"10.1.0.9"}"#.to_owned(), ""),
            (r#"{"effect":"lease","directory":"10.1.0.9"}"#.to_owned(), ""),
            (r#"{"effect":"of a later version","address":"10.1.0.9"}"#.to_owned(), ""),
        ] {
            let value = serde_json::from_str(&effect).unwrap();
            assert_eq!(Effect::deserialize(&value).is_ok(), !effect.contains("later version"), "{effect}");
            let found: Vec<String> = own_addresses(&value).iter().map(IpAddr::to_string).collect();
            assert_eq!(found.join(" "), own, "{effect}");
        }
    }
}
