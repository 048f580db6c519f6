//! The owner of a link of the container, by the kind of the link and by the records.

use super::Session;
use crate::effect::{Effect, Veth};
use crate::errors::{kernel_error, state_error};
use postern_kernel::Link;
use postern_state::Summary;
use postern_types::OpError;

/// What stands at the other end of the container's pair, where no record has a pair.
pub enum NativeEnd {
    /// The attachment's host end.
    Own(Link),
    /// The container's link is no pair with a link of the host.
    None,
    /// `prevResult` does not name it.
    Unnamed(Link),
    /// A record of another attachment lists it.
    OfOthers(Link),
}

impl Session<'_> {
    /// True if this run has made the attachment's link. All that is on the link then goes with it.
    pub fn has_made_link(&self) -> bool {
        self.undo.iter().any(|undo| undo.effect.is_link())
    }

    /// Returns the pairs that the record lists.
    pub fn pairs(&self) -> Vec<Veth> {
        let effects = self.record().map(|record| record.effects(None)).unwrap_or_default();
        effects.iter().filter_map(|noted| Veth::of(&noted.effect)).cloned().collect()
    }

    /// Returns the host end of the pair that the record lists and the kernel has, if there is one.
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

    /// Returns the host end of the container's pair by the kernel alone: a native plugin's pair has no record. Both ends
    /// must name each other, and the host end must name the container's namespace. An index is unique in one namespace
    /// only, and root in the container can choose it.
    ///
    /// # Errors
    /// The kernel refuses to show it.
    pub fn mutual_end(&self) -> Result<Option<Link>, OpError> {
        let Some(container) = self.container() else { return Ok(None) };
        let own =
            container.netlink().map_err(kernel_error)?.link_by_name(&self.request.ifname).map_err(kernel_error)?;
        match own.filter(|own| own.kind == "veth") {
            Some(own) => self.mutual_end_of(&own),
            None => Ok(None),
        }
    }

    /// As [`Session::mutual_end`], for this link of the container, which is a veth.
    ///
    /// # Errors
    /// As [`Session::mutual_end`].
    pub fn mutual_end_of(&self, own: &Link) -> Result<Option<Link>, OpError> {
        let Some(peer) = own.peer_index else { return Ok(None) };
        let host = self.host()?;
        let number = host.namespace_number(self.namespace()?.fd()).map_err(kernel_error)?;
        let found = host.link_by_index(peer).map_err(kernel_error)?;
        let mutual = |link: &Link| link.peer_index == Some(own.index) && link.peer_netnsid == number;
        Ok(found.filter(|link| link.kind == "veth" && number.is_some() && mutual(link)))
    }

    /// Returns the host end of the pair of a native plugin: the other end of the container's link, which `prevResult`
    /// names as a link of the host, and no record of another attachment lists. Both ends and the namespace must agree
    /// ([`Session::mutual_end`]).
    ///
    /// # Errors
    /// Kernel or records can't be asked.
    pub fn end_behind_native(&self) -> Result<Option<Link>, OpError> {
        match self.native_end()? {
            NativeEnd::Own(end) => Ok(Some(end)),
            NativeEnd::None | NativeEnd::Unnamed(_) | NativeEnd::OfOthers(_) => Ok(None),
        }
    }

    /// As [`Session::end_behind_native`], with what is missing.
    ///
    /// # Errors
    /// As [`Session::end_behind_native`].
    pub fn native_end(&self) -> Result<NativeEnd, OpError> {
        let Some(end) = self.mutual_end()? else { return Ok(NativeEnd::None) };
        let previous = self.request.conf.previous_result().ok().flatten().unwrap_or_default();
        if !previous.interfaces.iter().any(|link| link.sandbox.is_empty() && link.name == end.name) {
            return Ok(NativeEnd::Unnamed(end));
        }
        Ok(if self.is_link_of_others(&end)? { NativeEnd::OfOthers(end) } else { NativeEnd::Own(end) })
    }

    /// True if this link of the container leads to the host.
    ///
    /// The other end of a pair is a link of the host. A stacked link lies on one of the host's links. The kernel tells
    /// both by index and namespace. A device belongs to a driver. Root in the container can make links of any name, but
    /// none of these.
    ///
    /// # Errors
    /// The kernel can't be asked.
    pub fn leads_here(&self, own: &Link) -> Result<bool, OpError> {
        if own.device.is_some() {
            return Ok(true);
        }
        let Some(peer) = own.peer_index.filter(|_| own.kind == "veth" || own.is_stacked()) else { return Ok(false) };
        let container = self.container_required()?.netlink().map_err(kernel_error)?;
        let number = container.namespace_number(self.home()?.fd()).map_err(kernel_error)?;
        if number.is_none() || own.peer_netnsid != number {
            return Ok(false);
        }
        let end = self.host()?.link_by_index(peer).map_err(kernel_error)?;
        Ok(end.is_some_and(|end| own.is_stacked() || end.kind == "veth"))
    }

    /// True if the record of another attachment of this host namespace makes this claim.
    ///
    /// # Errors
    /// The records can't be listed.
    pub(crate) fn is_claimed_by(&self, claims: impl Fn(&Summary) -> bool) -> Result<bool, OpError> {
        Ok(self.claimed_by(claims)?.is_some())
    }

    /// Returns the record of another attachment of this host that makes this claim.
    ///
    /// # Errors
    /// The records can't be listed.
    pub(crate) fn claimed_by(&self, claims: impl Fn(&Summary) -> bool) -> Result<Option<Summary>, OpError> {
        let own = self.key()?;
        let is_other = |summary: &Summary| summary.key.as_ref().is_some_and(|key| *key != own);
        Ok(self.records_here()?.into_iter().find(|summary| is_other(summary) && claims(summary)))
    }

    /// Returns the records of attachments that this host namespace has. Others may have the same directory of records, but
    /// their links, rules and addresses are not here. A record that can't be read may be of any.
    ///
    /// # Errors
    /// The records can't be listed.
    pub(crate) fn records_here(&self) -> Result<Vec<Summary>, OpError> {
        let cookie = self.home_cookie()?;
        let mut records = postern_state::list_known(&self.state).map_err(state_error)?;
        records.retain(|summary| summary.header.as_ref().is_none_or(|header| header.host_netns_cookie == cookie));
        Ok(records)
    }
}

/// True if a record notes a link with this interface index.
pub fn is_link_of_index(noted: &postern_state::Effect<serde_json::Value>, index: u32) -> bool {
    let effect = serde_json::from_value::<Effect>(noted.effect.clone());
    noted.handles.contains(&u64::from(index)) && effect.is_ok_and(|effect| effect.is_link())
}
