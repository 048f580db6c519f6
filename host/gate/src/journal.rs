//! The journal (docs/design/journal.md): how a run begins, updates and ends its attachment's record.

mod effects;

use crate::clock::now;
use crate::effect::{Effect, PortMappings};
use crate::errors::{kernel_error, state_error};
use crate::own::AttachmentState;
use crate::retention::Retention;
use crate::system::System;
use crate::view::View;
use ipnet::IpNet;
use postern_cni::{CniResult, CniRoute, Verb};
use postern_kernel::{Namespace, Worker};
use postern_state::{Claim, Header, Record, Section, Stage, StateError};
use postern_types::{ErrorCode, OpError};
use std::collections::HashSet;
use std::net::IpAddr;

/// An effect to undo if this ADD fails.
#[derive(Clone, Debug)]
pub struct Undo {
    /// The number of the effect's line in the record, if it has a line.
    pub sequence: Option<u64>,
    pub effect: Effect,
    /// The leases that this run took, for [`crate::effect::Lease`]. Leases of an earlier run stay.
    pub leases: Vec<IpAddr>,
}

/// The journal of one run. An intent is written to the journal before the node is changed.
pub struct Journal {
    /// The record, if it is open.
    pub record: Option<Record<Effect>>,
    /// The effects of this run, in order.
    undo: Vec<Undo>,
    /// The section of the record that belongs to this run.
    section: String,
    /// True if the called plugin makes the attachment's link.
    owns_link: bool,
    /// True if this run has begun the section of the called plugin.
    is_section_open: bool,
    /// The claims that this run has written into the index of claims.
    indexed: HashSet<Claim>,
    /// The cookie of the container's namespace, if it was read without entering the namespace.
    cookie: Option<u64>,
    /// The conditions under which an address is given back, if this is not a DEL.
    retention: Option<Retention>,
    whole: bool,
    /// True if the links that the record lists are gone. Other objects may have the attachment's names now.
    pub has_lost_link: bool,
    replaced: bool,
    /// The last message about the record.
    reported_error: String,
}

impl Journal {
    /// True if the called plugin makes the attachment's link. Policy depends on this fact.
    pub const fn owns_link(&self) -> bool {
        self.owns_link
    }

    /// Returns the conditions under which an address is given back; [`Self::set_retention`] sets them.
    pub const fn retention(&self) -> Option<&Retention> {
        self.retention.as_ref()
    }

    /// Makes the journal of a run of this plugin, with no open record. `makes_links` is true if policy lets the plugin
    /// make the attachment's link.
    pub fn new(plugin: &str, makes_links: bool) -> Self {
        Self {
            record: None,
            undo: Vec::new(),
            section: plugin.to_owned(),
            owns_link: makes_links,
            is_section_open: false,
            indexed: HashSet::new(),
            cookie: None,
            retention: None,
            whole: false,
            has_lost_link: false,
            replaced: false,
            reported_error: String::new(),
        }
    }

    /// True if the record is from another boot, or if `CNI_NETNS` leads to another namespace.
    pub fn has_foreign_record(&self, system: &System) -> bool {
        self.record.as_ref().is_some_and(|record| self.is_foreign(record.header(), system))
    }

    /// Returns the sections of this plugin that an earlier run of this ADD left. That run was killed before the
    /// runtime had the result, or a DEL did not end. The list is `[None]`, for the whole record, if the record is from
    /// another boot or namespace, or if this plugin made the link. The earlier process has ended, because this run has
    /// the lock of the record.
    pub fn leftover(&self, View { request, fixed, system }: View<'_>) -> Vec<Option<String>> {
        // A section that this run began itself, before a helper was started, is not left from an earlier run.
        let Some(record) = self.record.as_ref().filter(|_| !self.is_section_open) else { return Vec::new() };
        let own = record.sections().iter().filter(|section| section.plugin() == request.plugin);
        let left: Vec<&Section> = own.filter(|section| section.stage != Stage::Given).collect();
        // All sections are removed with the attachment's link.
        let has_link = |section: &&Section| self.is_owner(Some(section), fixed.makes_links);
        match self.is_foreign(record.header(), system) || left.iter().any(has_link) {
            true => vec![None],
            false => left.into_iter().map(|section| Some(section.name.clone())).collect(),
        }
    }

    /// True if a section of the called plugin belongs to the maker of the attachment's link. `None` is a section that
    /// has not begun.
    ///
    /// The record names the maker as soon as there is a link, except a record of Postern 0.1. Before there is a link,
    /// the maker is the plugin that policy lets make links.
    fn is_owner(&self, section: Option<&Section>, makes_links: bool) -> bool {
        // The link belongs to another plugin, even if policy lets this plugin make links.
        if section.is_some_and(|section| section.joined) {
            return false;
        }
        let maker = self.record.iter().flat_map(|record| record.sections()).find(|section| section.made_link);
        maker.map_or(makes_links, |maker| section.is_some_and(|section| section.name == maker.name))
    }

    /// Finds the section of this run in the record, and whether the called plugin owns the attachment. Without a
    /// section, the plugin is the owner if policy lets the plugin make links.
    pub fn find_section(&mut self, View { request, fixed, .. }: View<'_>) {
        let plugin = &request.plugin;
        let record = self.record.as_ref();
        let found = record.and_then(|record| record.called_section(plugin, &request.identity()));
        let section = match (found, record) {
            // A second ADD of a plugin that makes no link uses the next section. A plugin that makes the link can be
            // called only once: its second ADD without a DEL in between is refused later.
            (Some(_), Some(record)) if request.verb == Verb::Add && !fixed.makes_links => record.next_section(plugin),
            (Some(section), _) => section.name.clone(),
            (None, _) => plugin.clone(),
        };
        (self.owns_link, self.section) = (self.is_owner(found, fixed.makes_links), section);
    }

    /// Returns the section of the record that belongs to this run.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// Opens the record that an earlier run left, if there is one, and waits for its lock.
    pub fn open_record(&mut self, view: View<'_>) -> Result<(), OpError> {
        if self.record.is_none() {
            let opened = Record::open_existing(&view.fixed.places.state, &view.key()?, view.fixed.deadline.at());
            self.record = match opened {
                // The record was set aside, with a message. The attachment is removed like an attachment without a
                // record.
                Err(damaged @ StateError::Corrupt { .. }) => {
                    crate::say!("postern: {damaged}");
                    None
                }
                other => other.map_err(state_error)?,
            };
            self.whole = self.record.as_ref().is_some_and(|record| is_whole_for(record, &view.request.plugin));
            self.warn();
        }
        self.find_section(view);
        Ok(())
    }

    /// True if the record's attachment is gone, and another attachment without a record now has the same names.
    pub fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// Sets whether the attachment was replaced. If it was, the record is incomplete.
    pub fn set_replaced(&mut self, is_replaced: bool) {
        self.replaced = is_replaced;
        self.whole &= !is_replaced;
    }

    /// Reports the damage that was found in the record.
    fn warn(&self) {
        for warning in self.record.iter().flat_map(Record::warnings) {
            crate::say!("postern: {warning}");
        }
    }

    /// Begins the section of the called plugin, before the first operation that changes anything. A change that can't
    /// be recorded must not be made.
    pub fn begin(&mut self, view: View<'_>) -> Result<(), OpError> {
        if self.is_section_open || view.request.verb != Verb::Add {
            return Ok(());
        }
        let section = self.section.clone();
        let record = self.record_for_writing(view)?;
        // A second ADD without a DEL in between keeps the section of the first ADD.
        let known = record.sections().iter().any(|known| known.name == section);
        if !known && record.effects(Some(&section)).is_empty() {
            record.begin(&section, &view.fixed.digest, &view.request.identity(), now()).map_err(state_error)?;
            self.is_section_open = true;
        }
        Ok(())
    }

    /// Like [`Journal::begin`], but before the container's namespace is entered.
    pub fn begin_for(&mut self, view: View<'_>, namespace: Option<&Namespace>) -> Result<(), OpError> {
        // An existing record may be from another boot or namespace. This is known later, and then recovery and `begin`
        // follow.
        if self.record.is_some() {
            return Ok(());
        }
        if let Some(namespace) = namespace {
            self.identify(namespace)?;
        }
        self.begin(view)
    }

    /// Reads the cookie of the container's namespace without entering the namespace.
    pub fn identify(&mut self, namespace: &Namespace) -> Result<(), OpError> {
        self.cookie = Some(namespace.cookie().map_err(kernel_error)?);
        Ok(())
    }

    /// Returns the cookie of the container's namespace, if it was entered or identified.
    fn cookie(&self, system: &System) -> Result<Option<u64>, OpError> {
        match system.container() {
            Some(worker) => worker.cookie().map(Some).map_err(kernel_error),
            None => Ok(self.cookie),
        }
    }

    /// True if a record is from another boot, or if `CNI_NETNS` leads to another namespace.
    fn is_foreign(&self, header: &Header, system: &System) -> bool {
        let other_boot = postern_state::boot_id().is_ok_and(|boot| boot != header.boot_id);
        let cookies = (header.netns_cookie, self.cookie(system));
        other_boot || matches!(cookies, (Some(noted), Ok(Some(cookie))) if noted != cookie)
    }

    /// Notes that everything is made, before the runtime gets the result. After an error the ADD must be undone.
    pub fn made(&mut self, view: View<'_>, state: &mut AttachmentState, result: &CniResult) -> Result<(), OpError> {
        // Only the plugin's own addresses are noted: an address that a plugin passes on belongs to another plugin.
        let own: Vec<IpNet> = result.ips.iter().map(|ip| ip.address).filter(|address| state.owns(address)).collect();
        if self.record.is_none() || !self.is_section_open {
            return Ok(());
        }
        let claims: Vec<Claim> = own.iter().map(|net| net.addr().into()).collect();
        let is_indexed = self.index(view, &claims)?;
        let mut path = std::mem::take(&mut state.path);
        path.mac = state.container_mac.map(|mac| mac.to_string());
        path.routes = result.routes.iter().filter_map(route).collect();
        if let Some(record) = &mut self.record {
            record.made(&self.section, own.iter().map(IpNet::to_string).collect(), path).map_err(state_error)?;
        }
        self.index_again(view, is_indexed, &claims)
    }

    /// Notes that the runtime has the result.
    pub fn given(&mut self) {
        let Some(record) = self.record.as_mut().filter(|_| self.is_section_open) else { return };
        // Without this note the ADD looks like a killed ADD, and `postern gc` removes the attachment. The runtime has
        // the result, so nothing can be undone. After an error, which may be temporary, the write is tried once more.
        let noted = record.given(&self.section, now()).or_else(|_| record.given(&self.section, now()));
        self.tell(noted);
    }

    /// Reports a note that could not be written. A repeated message, for example about a full disk, is not reported
    /// again.
    fn tell(&mut self, noted: Result<(), StateError>) {
        let Err(error) = noted else { return };
        let error = error.to_string();
        if self.reported_error != error {
            crate::say!("postern: {error}");
            self.reported_error = error;
        }
    }

    /// Notes that an ADD was undone: its section ends, unless an effect could not be undone.
    pub fn undone(&mut self) {
        let section = self.section.clone();
        if self.is_section_open && self.record.as_ref().is_some_and(|record| record.effects(Some(&section)).is_empty())
        {
            self.ended(Some(&section));
        }
    }

    /// Notes that the DEL of a section, or of all sections, has begun. If the write fails, the removal continues.
    pub fn ending(&mut self, section: Option<&str>) {
        let noted = self.record.as_mut().map_or(Ok(()), |record| record.ending(section));
        self.tell(noted);
    }

    /// Notes that a section, or all sections, have ended.
    pub fn ended(&mut self, section: Option<&str>) {
        let noted = self.record.as_mut().map_or(Ok(()), |record| record.end(section));
        self.tell(noted);
    }

    /// Returns the record, if it is open.
    pub fn record(&self) -> Option<&Record<Effect>> {
        self.record.as_ref()
    }

    /// True if a complete record was found, so that no other object has to be searched. A damaged or truncated record
    /// is incomplete. The record of a killed run looks like a truncated record, so it is incomplete too. A record
    /// without a section of the called plugin is also incomplete: in a mixed list a native plugin may have been called
    /// in its place.
    pub fn record_is_whole(&self) -> bool {
        self.whole
    }

    /// Notes that this plugin is about to join another plugin's link to a bridge.
    pub fn join(&mut self, view: View<'_>) -> Result<(), OpError> {
        let section = self.section.clone();
        self.record_for_writing(view)?.joined(&section).map_err(state_error)
    }

    /// Returns the first line of this run's record.
    fn header(&self, View { request, system, .. }: View<'_>) -> Result<Header, OpError> {
        Ok(Header {
            network: request.conf.name.clone(),
            container_id: request.container_id.clone(),
            ifname: request.ifname.clone(),
            boot_id: postern_state::boot_id().map_err(state_error)?,
            host_netns_cookie: system.home_cookie()?,
            netns_cookie: self.cookie(system)?,
            netns_path: request.netns.clone(),
            created: now(),
        })
    }

    /// Makes an earlier run's record this run's record, if the record is empty. From then on the record belongs to this
    /// boot and namespace. The file stays, because a helper may hold the file's lock too.
    pub fn renew_record(&mut self, view: View<'_>) -> Result<(), OpError> {
        if self.record.as_ref().is_some_and(|record| record.is_empty() && record.warnings().is_empty()) {
            let header = self.header(view)?;
            if let Some(record) = &mut self.record {
                record.renew(header).map_err(state_error)?;
            }
        } else if self.record.as_ref().is_some_and(Record::is_empty) {
            self.close_record();
        }
        Ok(())
    }

    /// Returns the record for writing. An operation with effects begins the record first. An error may mean that
    /// another run holds the record.
    pub fn record_for_writing(&mut self, view: View<'_>) -> Result<&mut Record<Effect>, OpError> {
        if self.record.is_none() {
            let header = self.header(view)?;
            let record = Record::open_or_create(&view.fixed.places.state, &header, view.fixed.deadline.at())
                .map_err(state_error)?;
            // This run found no record when it began. So a record that is not new belongs to another run.
            if !record.is_new() {
                let message = "another run for this attachment is under way, or has just ended";
                return Err(OpError::new(ErrorCode::TryAgain, &view.request.container_id, message)
                    .hint("run DEL, then ADD again"));
            }
            self.record = Some(record);
            self.warn();
        }
        self.record.as_mut().ok_or_else(|| OpError::new(ErrorCode::Io, "record", "the record is not open"))
    }

    /// True if the record has no ADD of the called plugin: a native plugin may have made the ADD.
    pub fn has_no_section(&self, plugin: &str) -> bool {
        self.replaced || !self.sections().iter().any(|known| known.plugin() == plugin)
    }

    /// Empties the record, and leaves the node as it is: the listed objects belong to another attachment.
    pub fn forget(&mut self) {
        for noted in self.effects() {
            self.note_removed(Some(noted.seq));
        }
        self.ended(None);
    }

    /// Returns the sections of the record.
    pub fn sections(&self) -> &[Section] {
        self.record.as_ref().map(|record| record.sections()).unwrap_or_default()
    }

    /// True if this plugin has joined another plugin's link to a bridge, or is about to join it. Then this plugin made
    /// no link of the attachment.
    pub fn has_joined(&self) -> bool {
        self.sections().iter().any(|section| section.name == self.section && section.joined)
    }

    /// Sets the conditions under which an address of the record is given back.
    pub fn set_retention(&mut self, retention: Retention) {
        let had_forwards = self.effects().iter().any(|noted| PortMappings::is(&noted.effect));
        self.retention = Some(Retention { had_forwards, ..retention });
    }

    /// Returns the container, so that an effect can be removed in it. `None` if the container is gone, or belongs to
    /// another attachment. An error means that the container may be alive, but could not be entered. Then `what` may
    /// still be in the container, and the effect stays in the record.
    pub fn container_with<'s>(&self, system: &'s System, what: &str) -> Result<Option<&'s Worker>, OpError> {
        let container = system.container().filter(|_| !self.has_foreign_record(system));
        match (container, system.hidden.as_deref()) {
            (None, Some(why)) => {
                let message = format!("the container's namespace may still exist, with its {what}: {why}");
                Err(OpError::new(ErrorCode::TryAgain, &system.netns, message)
                    .hint("run DEL, or `postern gc` once the container is gone"))
            }
            (container, _) => Ok(container),
        }
    }

    /// Closes the record. The file of an empty record is removed.
    pub fn close_record(&mut self) {
        if let Some(record) = self.record.take()
            && let Err(error) = record.remove_file()
        {
            crate::say!("postern: {error}");
        }
    }
}

/// True if a record lists all effects of this plugin for the attachment.
fn is_whole_for(record: &Record<Effect>, plugin: &str) -> bool {
    let given = |section: &Section| section.stage == Stage::Given;
    // Without a section of this plugin, a native plugin may have been called in its place.
    let has_part = |section: &Section| section.plugin() == plugin;
    let sections = record.sections();
    record.warnings().is_empty() && sections.iter().all(given) && sections.iter().any(has_part)
}

/// Returns a route of a result in the record's form.
fn route(route: &CniRoute) -> Option<String> {
    let dst = route.dst?.trunc();
    Some(route.gw.map_or_else(|| dst.to_string(), |gateway| format!("{dst} {gateway}")))
}
