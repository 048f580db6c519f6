//! Whose container it is: that of the own record or, where a DEL has none that tells, whether it is another one's.
//!
//! A path can lead to another container by now: the number of a process is given again, and another namespace is mounted on
//! the file.

use super::Session;
use super::link::is_link_of_index;
use crate::effect::{Effect, Veth};
use crate::errors::{kernel_error, state_error};
use postern_cni::Verb;
use postern_kernel::Link;
use postern_state::{Header, Summary};
use postern_types::{Mac, OpError};
use serde::Deserialize;

impl Session<'_> {
    /// Treats the container's namespace as gone if `CNI_NETNS` leads to another one than at ADD, or to none: a path can
    /// be reused.
    ///
    /// # Errors
    /// As [`Session::spares`].
    pub fn forget_foreign_container(&mut self) -> Result<(), OpError> {
        // A container that the runtime's last result is about is not another one, whatever an older record says.
        if self.has_foreign_record() && (!self.replaced || self.is_in_anothers()?) {
            self.worker = None;
        }
        Ok(())
    }

    /// True if the container's link is another container's, by its record.
    fn is_in_anothers(&self) -> Result<bool, OpError> {
        let Some(container) = self.container() else { return Ok(false) };
        let own =
            container.netlink().map_err(kernel_error)?.link_by_name(&self.request.ifname).map_err(kernel_error)?;
        own.map_or(Ok(false), |own| self.spares(&own))
    }

    /// True if this DEL leaves a link of the container, and all that goes with it, alone: they are another container's. Then
    /// standard error has whose they are.
    ///
    /// # Errors
    /// The kernel or the records can't be asked.
    pub fn spares(&self, own: &Link) -> Result<bool, OpError> {
        let Some(owner) = self.other_owner(own)? else { return Ok(false) };
        let Header { network, container_id, ifname, .. } = &owner;
        crate::say!(
            "postern: {} leads to the container of {network}/{container_id}/{ifname}, by its record: \"{}\" in there stays",
            self.request.netns,
            own.name
        );
        Ok(true)
    }

    /// Returns the attachment of another container that has a link of the container, by its record. Other records are only read
    /// if this DEL has no record of its own that tells which container is meant.
    ///
    /// An attachment of this container may be known by another network's name. The link of the runtime's last result is this
    /// attachment's, unless a record lists the link.
    ///
    /// # Errors
    /// As [`Session::spares`].
    pub fn other_owner(&self, own: &Link) -> Result<Option<Header>, OpError> {
        if self.request.verb != Verb::Del || self.knows_container() {
            return Ok(None);
        }
        let (key, lists) = (self.key()?, self.lists(own)?);
        let (boot, cookie) = self.here()?;
        // A damaged record of this attachment, which may have been set aside, tells of nobody else.
        let mut records = self.records(None)?;
        let is_own = |header: &Header| header.key() == key;
        records.retain(|summary| {
            summary.key.as_ref().is_some_and(|of| *of != key) || summary.header.as_ref().is_some_and(is_own)
        });
        let headers = || records.iter().filter_map(|summary| summary.header.as_ref());
        let is_of_this = |header: &Header| header.container_id == self.request.container_id;
        let mut listed = records.iter().filter(|summary| lists(summary)).filter_map(|summary| summary.header.as_ref());
        if let Some(owner) = listed.find(|header| !self.is_of_this_interface(header)) {
            return Ok(Some(owner.clone()));
        }
        let mut in_there = headers().filter(|header| header.boot_id == boot && header.netns_cookie == Some(cookie));
        if self.is_given(own) || in_there.clone().any(is_of_this) {
            return Ok(None);
        }
        Ok(in_there.next().cloned())
    }

    /// True if a record is about the interface and container of this run, in whatever network.
    pub fn is_of_this_interface(&self, header: &Header) -> bool {
        header.container_id == self.request.container_id && header.ifname == self.request.ifname
    }

    /// True if a record of this attachment tells which container is meant, and the link that it lists is there.
    pub fn knows_container(&self) -> bool {
        let is_known = self.record.as_ref().is_some_and(|record| record.header().netns_cookie.is_some());
        is_known && !self.replaced && !self.link_gone
    }

    /// True if the runtime's last result has this link of the container.
    pub(super) fn is_given(&self, own: &Link) -> bool {
        let previous = self.request.conf.previous_result().ok().flatten().unwrap_or_default();
        let mut given = previous.interfaces.iter();
        let given = given.find(|link| !link.sandbox.is_empty() && link.name == self.request.ifname);
        let mac = own.mac.map(|mac| Mac(mac).to_string());
        mac.zip(given).is_some_and(|(mac, given)| given.mac.eq_ignore_ascii_case(&mac))
    }

    /// True if this link of the container, or its host end, belongs to another attachment, by that one's record. A path
    /// can lead to another container by now, and a link can have moved to another network.
    ///
    /// # Errors
    /// The kernel or the records can't be asked.
    pub fn is_claimed(&self, own: &Link) -> Result<bool, OpError> {
        Ok(self.claiming(own)?.is_some())
    }

    /// As [`Session::is_claimed`]: returns the other attachment.
    ///
    /// # Errors
    /// As there.
    pub fn claiming(&self, own: &Link) -> Result<Option<Summary>, OpError> {
        let (key, lists) = (self.key()?, self.lists(own)?);
        let is_other = |summary: &Summary| summary.key.as_ref().is_some_and(|of| *of != key);
        Ok(self.records(None)?.into_iter().find(|summary| is_other(summary) && lists(summary)))
    }

    /// Returns the question whether a record lists this link of the container: by its index in there or, for a pair, by the
    /// host end. A device of the node may be one end of a pair too.
    fn lists(&self, own: &Link) -> Result<impl Fn(&Summary) -> bool + use<>, OpError> {
        let (boot, cookie) = self.here()?;
        let home = self.home_cookie()?;
        let end = match own.peer_index.filter(|_| own.kind == "veth") {
            Some(peer) => self.host()?.link_by_index(peer).map_err(kernel_error)?,
            None => None,
        };
        let index = own.index;
        let is_pair = move |pair: &Veth| {
            end.as_ref().is_some_and(|end| pair.host == end.name && end.mac.is_none_or(|mac| Mac(mac) == pair.mac))
        };
        Ok(move |summary: &Summary| {
            let header = summary.header.as_ref();
            // Namespaces count anew after a reboot.
            let is_in_there =
                header.is_some_and(|header| header.boot_id == boot && header.netns_cookie == Some(cookie));
            let is_here = header.is_none_or(|header| header.host_netns_cookie == home);
            summary.effects.iter().any(|noted| {
                let is_end =
                    || Effect::deserialize(&noted.effect).is_ok_and(|effect| Veth::of(&effect).is_some_and(&is_pair));
                is_in_there && is_link_of_index(noted, index) || is_here && is_end()
            })
        })
    }

    /// Returns the boot, and the number of the container's namespace.
    fn here(&self) -> Result<(String, u64), OpError> {
        let boot = postern_state::boot_id().map_err(state_error)?;
        Ok((boot, self.container_required()?.cookie().map_err(kernel_error)?))
    }
}
