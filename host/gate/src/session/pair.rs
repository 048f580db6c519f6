//! Whose a link of the container is, by both of its ends and by the records.

use super::Session;
use crate::effect::{Effect, Veth};
use crate::errors::{kernel, state};
use postern_kernel::Link;
use postern_types::{Mac, OpError};

impl Session {
    /// The pairs that the record lists.
    pub fn pairs(&self) -> Vec<Veth> {
        let effects = self.record().map(|record| record.effects(None)).unwrap_or_default();
        effects.iter().filter_map(|noted| Veth::of(&noted.effect)).cloned().collect()
    }

    /// The host end of the pair that the record lists and the kernel has, if there is one.
    ///
    /// # Errors
    /// The kernel refuses to show it.
    pub fn living_pair(&self) -> Result<Option<Link>, OpError> {
        let host = self.host()?;
        for pair in self.pairs() {
            if let Some(link) = pair.end(host)? {
                return Ok(Some(link));
            }
        }
        Ok(None)
    }

    /// Whether this link of the container leads to the host: both ends name each other, and the host's names the container's
    /// namespace. Root in there can make any link of any name, but none with an end out here.
    ///
    /// # Errors
    /// The kernel can't be asked.
    pub fn leads_here(&self, own: &Link) -> Result<bool, OpError> {
        let Some(peer) = own.peer_index else { return Ok(false) };
        let host = self.host()?;
        let Some(end) = host.link_by_index(peer).map_err(kernel)? else { return Ok(false) };
        let number = host.namespace_number(self.namespace()?.fd()).map_err(kernel)?;
        let is_mutual = end.peer_index == Some(own.index) && end.peer_netnsid == number;
        Ok(own.kind == "veth" && end.kind == "veth" && number.is_some() && is_mutual)
    }

    /// Whether the host end of this link of the container belongs to another attachment, by that one's record: a path can lead to
    /// another container by now, and a link can have been another network's since.
    ///
    /// # Errors
    /// The kernel or the records can't be asked.
    pub fn is_claimed(&self, own: &Link) -> Result<bool, OpError> {
        let Some(peer) = own.peer_index else { return Ok(false) };
        let Some(end) = self.host()?.link_by_index(peer).map_err(kernel)? else { return Ok(false) };
        self.is_port_claimed(&end.name, end.mac)
    }

    /// Whether this link of the host is the end of another attachment's pair, by that one's record.
    ///
    /// # Errors
    /// The records can't be listed.
    pub fn is_end_of_another(&self, link: &Link) -> Result<bool, OpError> {
        Ok(link.kind == "veth" && self.is_port_claimed(&link.name, link.mac)?)
    }

    /// Whether a record of another attachment lists a pair with this host end. With `mac` it must be that address.
    ///
    /// # Errors
    /// The records can't be listed.
    fn is_port_claimed(&self, host: &str, mac: Option<[u8; 6]>) -> Result<bool, OpError> {
        let own = self.key()?;
        for summary in postern_state::list(&self.state).map_err(state)? {
            if summary.key.as_ref().is_none_or(|key| *key == own) {
                continue;
            }
            let is_claim = |pair: &Veth| pair.host == host && mac.is_none_or(|mac| Mac(mac) == pair.mac);
            let claims = |effect: Effect| Veth::of(&effect).is_some_and(is_claim);
            let mut effects = summary.effects.into_iter().filter_map(|noted| serde_json::from_value(noted.effect).ok());
            if effects.any(claims) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
