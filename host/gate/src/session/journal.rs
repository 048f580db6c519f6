//! The run's use of its attachment's record: the journal (docs/journal.md).

use super::{Leftover, Session, Undo};
use crate::clock::now;
use crate::effect::{Effect, RecordTiming, link_change};
use crate::errors::{kernel_error, state_error};
use ipnet::IpNet;
use postern_cni::{CniResult, Route, Verb};
use postern_kernel::{Namespace, Worker};
use postern_state::{Claim, Header, Record, Section, Stage, StateError};
use postern_types::{ErrorCode, Mac, OpError};

impl Session<'_> {
    /// True if the record is from another boot, or from another namespace than that of `CNI_NETNS`.
    pub fn has_foreign_record(&self) -> bool {
        self.record.as_ref().is_some_and(|record| self.is_foreign(record.header()))
    }

    /// True if a record is from another boot, or from another namespace than that of `CNI_NETNS`.
    fn is_foreign(&self, header: &Header) -> bool {
        let other_boot = postern_state::boot_id().is_ok_and(|boot| boot != header.boot_id);
        let cookies = (header.netns_cookie, self.worker.as_deref().map(Worker::cookie));
        other_boot || matches!(cookies, (Some(noted), Some(Ok(cookie))) if noted != cookie)
    }

    /// Returns the effects that an earlier run of this ADD left. It ran in another boot, or for another namespace, or
    /// was killed before it gave the runtime its result; or a DEL did not end. The earlier process has ended, because
    /// the record could be locked.
    pub fn leftover(&self) -> Option<Leftover> {
        // A section that this run began before a helper was started is not a leftover.
        let record = self.record.as_ref().filter(|_| !self.begun)?;
        if self.is_foreign(record.header()) {
            return Some(Leftover::Attachment);
        }
        let own = record.sections().iter().filter(|section| section.plugin() == self.request.plugin);
        let left: Vec<&Section> = own.filter(|section| section.stage != Stage::Given).collect();
        // Nothing of an attachment outlives its link.
        match left.iter().any(|section| self.is_owner(Some(section))) {
            true => Some(Leftover::Attachment),
            false if left.is_empty() => None,
            false => Some(Leftover::Sections(left.into_iter().map(|section| section.name.clone()).collect())),
        }
    }

    /// True if a section of the called plugin belongs to the maker of the attachment's link. `None` is a section that
    /// has not begun.
    ///
    /// The record names the maker as soon as there is a link, except a record of Postern 0.1. Before that, the maker is
    /// the plugin that policy lets make a link.
    fn is_owner(&self, section: Option<&Section>) -> bool {
        // The link is another plugin's, even if policy lets this one make links.
        if section.is_some_and(|section| section.joined) {
            return false;
        }
        let maker = self.record.iter().flat_map(|record| record.sections()).find(|section| section.made_link);
        maker.map_or(self.makes_links, |maker| section.is_some_and(|section| section.name == maker.name))
    }

    /// Finds the section of this run, and if its plugin owns the attachment: by the record. Without such a section, the
    /// links that policy lets the plugin make decide.
    pub fn find_section(&mut self) {
        let plugin = &self.request.plugin;
        let record = self.record.as_ref();
        let found = record.and_then(|record| record.called_section(plugin, &self.request.identity()));
        let (owns_link, section) = (self.is_owner(found), self.section_for(found, record));
        (self.owns_link, self.section) = (owns_link, section);
    }

    fn section_for(&self, found: Option<&Section>, record: Option<&Record<Effect>>) -> String {
        match (found, record) {
            // The next section is used. A plugin that makes the link can be called once: a second ADD without a DEL
            // between is refused later.
            (Some(_), Some(record)) if self.request.verb == Verb::Add && !self.makes_links => {
                record.next_section(&self.request.plugin)
            }
            (Some(section), _) => section.name.clone(),
            (None, _) => self.request.plugin.clone(),
        }
    }

    /// Returns the section of the record that belongs to this run.
    pub fn section(&self) -> String {
        self.section.clone()
    }

    /// Opens the record that an earlier run left, if there is one, and waits for its lock.
    ///
    /// # Errors
    /// The lock is held past the deadline, or the file can't be read.
    pub fn open_record(&mut self) -> Result<(), OpError> {
        if self.record.is_none() {
            let opened = Record::open_existing(&self.state, &self.key()?, self.deadline);
            self.record = match opened {
                // The record was set aside, with a message. The attachment is removed as one without a record.
                Err(damaged @ StateError::Corrupt { .. }) => {
                    crate::say!("postern: {damaged}");
                    None
                }
                other => other.map_err(state_error)?,
            };
            self.whole = self.record.as_ref().is_some_and(|record| is_whole_for(record, &self.request.plugin));
            self.warn();
        }
        self.find_section();
        Ok(())
    }

    /// Checks if a link that the record lists exists. This is the first question before the record is used: a native
    /// plugin that was used for a while does not know of records.
    ///
    /// # Errors
    /// The kernel can't be asked.
    pub fn look_for_link(&mut self) -> Result<(), OpError> {
        let listed: Vec<_> = self.record.iter().flat_map(|record| record.effects(None)).collect();
        let mut links = listed.iter().filter(|noted| noted.effect.is_link()).peekable();
        let has_links = links.peek().is_some();
        for noted in links {
            if noted.effect.is_living_link(self)? {
                self.link_gone = false;
                return Ok(());
            }
        }
        self.link_gone = has_links;
        Ok(())
    }

    /// True if the links that the record lists are gone. Other objects may have the attachment's names by now.
    pub fn has_lost_link(&self) -> bool {
        self.link_gone
    }

    /// True if the record's attachment is gone, and another one without a record has its names now.
    pub fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// Finds out if a program that writes no records has made the attachment again, after the record's own link had
    /// gone.
    ///
    /// Either the container has such a link that no other record claims, or the runtime's last result is about another
    /// one. Then the record is incomplete.
    ///
    /// # Errors
    /// The kernel can't be asked.
    pub fn compare_with_kernel(&mut self) -> Result<(), OpError> {
        // Links in the container could not be read before its namespace was entered.
        if self.link_gone {
            self.look_for_link()?;
        }
        if !self.link_gone {
            return Ok(());
        }
        let previous = self.request.conf.previous_result().ok().flatten().unwrap_or_default();
        let own = match &self.worker {
            Some(worker) => {
                worker.netlink().map_err(kernel_error)?.link_by_name(&self.request.ifname).map_err(kernel_error)?
            }
            None => None,
        };
        let own = match own {
            Some(own) if self.leads_here(&own)? && !self.is_claimed(&own)? => Some(own),
            _ => None,
        };
        // The link in the runtime's last result, if there is one.
        let given =
            previous.interfaces.iter().find(|link| !link.sandbox.is_empty() && link.name == self.request.ifname);
        let is_given = own.as_ref().is_some_and(|own| self.is_given(own));
        let foreign = self.record.as_ref().is_some_and(|record| self.is_foreign(record.header()));
        self.replaced = match (own, given) {
            // A path can lead to another container by now. Its link is not ours unless the runtime says so. An ADD
            // removes nothing there.
            (Some(_), _) if foreign && self.request.verb != Verb::Add => is_given,
            (Some(_), _) => true,
            (None, Some(_)) => !self.names_listed_link(&previous),
            (None, None) => false,
        };
        self.whole &= !self.replaced;
        Ok(())
    }

    /// True if a result is about a link that the record lists.
    fn names_listed_link(&self, result: &CniResult) -> bool {
        // A later plugin may have changed the address: the record has the one before.
        let mut result = result.clone();
        for link in &mut result.interfaces {
            if let Ok(mac) = link.mac.parse::<Mac>() {
                link.mac = link_change::original(self, mac).to_string();
            }
        }
        let result = &result;
        let mut listed = self.record.iter().flat_map(|record| record.effects(None));
        listed.any(|noted| noted.effect.is_link_of(result))
    }

    /// Ignores the record, because its effects are gone. The file is not changed.
    pub fn set_record_aside(&mut self) {
        self.record = None;
    }

    /// Reports the damage that was found in the record.
    fn warn(&self) {
        for warning in self.record.iter().flat_map(Record::warnings) {
            crate::say!("postern: {warning}");
        }
    }

    /// Begins the section of the called plugin, before the first operation that changes anything. A change that can't
    /// be written down must not be made.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn begin(&mut self) -> Result<(), OpError> {
        if self.begun || self.request.verb != Verb::Add {
            return Ok(());
        }
        let (section, digest, identity) = (self.section(), self.digest.clone(), self.request.identity());
        let record = self.record_for_writing()?;
        // A second ADD without a DEL between: the section stays that of the first ADD.
        let known = record.sections().iter().any(|known| known.name == section);
        if !known && record.effects(Some(&section)).is_empty() {
            record.begin(&section, &digest, &identity, now()).map_err(state_error)?;
            self.begun = true;
        }
        Ok(())
    }

    /// As [`Session::begin`], before the container's namespace is entered.
    ///
    /// # Errors
    /// As [`Session::begin`], or the namespace is not a namespace.
    pub fn begin_for(&mut self, namespace: Option<&Namespace>) -> Result<(), OpError> {
        // An existing record may be from another boot or namespace, which is known later. It is recovered then, and
        // begun.
        if self.record.is_some() {
            return Ok(());
        }
        self.cookie = namespace.map(Namespace::cookie).transpose().map_err(kernel_error)?;
        self.begin()
    }

    /// Notes that everything is made, before the runtime gets the result.
    ///
    /// # Errors
    /// The record can't be written: the ADD must be undone.
    pub fn made(&mut self, result: &CniResult) -> Result<(), OpError> {
        // An address that a plugin only passes on belongs to another plugin.
        let own: Vec<IpNet> = result.ips.iter().map(|ip| ip.address).filter(|address| self.owns(address)).collect();
        if self.record.is_none() || !self.begun {
            return Ok(());
        }
        let claims: Vec<Claim> = own.iter().map(|net| net.addr().into()).collect();
        let is_indexed = self.index(&claims)?;
        let mut path = std::mem::take(&mut self.path);
        path.mac = self.container_mac.map(|mac| mac.to_string());
        path.routes = result.routes.iter().filter_map(route).collect();
        let section = self.section();
        if let Some(record) = &mut self.record {
            record.made(&section, own.iter().map(IpNet::to_string).collect(), path).map_err(state_error)?;
        }
        self.index_again(is_indexed, &claims)
    }

    /// Notes that the runtime has the result.
    pub fn given(&mut self) {
        let (section, begun) = (self.section(), self.begun);
        let Some(record) = self.record.as_mut().filter(|_| begun) else { return };
        // Without this note the attachment looks like one whose ADD was killed, and `postern gc` removes it. The runtime
        // has the result, so nothing can be undone: after a passing error the note is written once more.
        let noted = record.given(&section, now()).or_else(|_| record.given(&section, now()));
        self.tell(noted);
    }

    /// Reports a note that could not be written. For a full disk it does so once.
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
        let section = self.section();
        if self.begun && self.record.as_ref().is_some_and(|record| record.effects(Some(&section)).is_empty()) {
            self.ended(Some(&section));
        }
    }

    /// Notes that the DEL of a section, or of all sections, has begun. A failed write does not prevent the removal.
    pub fn ending(&mut self, section: Option<&str>) {
        let noted = self.record.as_mut().map_or(Ok(()), |record| record.ending(section));
        self.tell(noted);
    }

    /// Notes that a section, or all sections, have nothing left to do.
    pub fn ended(&mut self, section: Option<&str>) {
        let noted = self.record.as_mut().map_or(Ok(()), |record| record.end(section));
        self.tell(noted);
    }

    /// Returns the record, if it is open.
    pub fn record(&self) -> Option<&Record<Effect>> {
        self.record.as_ref()
    }

    /// True if a complete record was found, so that nothing else has to be searched. A damaged or truncated record is
    /// not complete. The record of a killed run looks the same as a truncated one, and counts as incomplete too. So does
    /// one in which the called plugin has no part: in a mixed list a native plugin may have made what belongs to it.
    pub fn record_is_whole(&self) -> bool {
        self.whole
    }

    /// Notes the effect that an operation is about to make: first in the record, then for undo.
    ///
    /// # Errors
    /// The record can't be written: the operation must not be carried out.
    pub fn intend(&mut self, effect: impl Into<Effect>) -> Result<(), OpError> {
        let effect = effect.into();
        let (sequence, claims, is_indexed) = match effect.record_timing() {
            RecordTiming::Never => (None, Vec::new(), true),
            // An effect of an earlier run is not undone by this one.
            RecordTiming::Once if is_listed(self.record_for_writing()?, &effect) => return Ok(()),
            RecordTiming::Once | RecordTiming::EachTime => {
                let section = self.section();
                self.record_for_writing()?;
                let claims = self.claims_of(&effect)?;
                let is_indexed = self.index(&claims)?;
                let record = self.record_for_writing()?;
                let sequence = record.append(&section, &effect, effect.is_link()).map_err(state_error)?;
                (Some(sequence), claims, is_indexed)
            }
        };
        self.undo.push(Undo { sequence, effect, leases: Vec::new() });
        self.index_again(is_indexed, &claims)
    }

    /// Notes that this plugin is about to join with a link of another.
    ///
    /// # Errors
    /// As [`Session::intend`].
    pub fn join(&mut self) -> Result<(), OpError> {
        let section = self.section();
        self.record_for_writing()?.joined(&section).map_err(state_error)
    }

    /// Returns the first line of this run's record.
    fn header(&self) -> Result<Header, OpError> {
        let request = self.request;
        Ok(Header {
            network: request.conf.name.clone(),
            container_id: request.container_id.clone(),
            ifname: request.ifname.clone(),
            boot_id: postern_state::boot_id().map_err(state_error)?,
            host_netns_cookie: self.home_cookie()?,
            netns_cookie: match &self.worker {
                Some(worker) => Some(worker.cookie().map_err(kernel_error)?),
                None => self.cookie,
            },
            netns_path: request.netns.clone(),
            created: now(),
        })
    }

    /// Makes the record of an earlier run this run's record, if it lists nothing any more. From then on it is about
    /// this boot and this namespace. The file stays, because a helper may hold its lock too.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn renew_record(&mut self) -> Result<(), OpError> {
        if self.record.as_ref().is_some_and(|record| record.is_empty() && record.warnings().is_empty()) {
            let header = self.header()?;
            if let Some(record) = &mut self.record {
                record.renew(header).map_err(state_error)?;
            }
        } else if self.record.as_ref().is_some_and(Record::is_empty) {
            self.close_record();
        }
        Ok(())
    }

    fn record_for_writing(&mut self) -> Result<&mut Record<Effect>, OpError> {
        if self.record.is_none() {
            let header = self.header()?;
            let record = Record::open_or_create(&self.state, &header, self.deadline).map_err(state_error)?;
            // There was no record when this run began.
            if !record.is_new() {
                let message = "another run for this attachment is under way, or has just ended";
                return Err(OpError::new(ErrorCode::TryAgain, &self.request.container_id, message)
                    .hint("run DEL, then ADD again"));
            }
            self.record = Some(record);
            self.warn();
        }
        self.record.as_mut().ok_or_else(|| OpError::new(ErrorCode::Io, "record", "the record is not open"))
    }

    /// Notes the kernel's numbers of an effect that was made. Without a note, the effect must be searched.
    pub fn known_by(&mut self, effect: &Effect, handles: &[u64]) {
        self.known_in(effect, handles, &[]);
    }

    /// As [`Session::known_by`], with the kernel's numbers of the tables in which the rules are.
    pub fn known_in(&mut self, effect: &Effect, handles: &[u64], tables: &[u64]) {
        let noted = self.note_numbers(effect, handles, tables);
        self.tell(noted);
    }

    /// Notes the index of a link in the container. Root in there can change all else that would tell which one it is.
    ///
    /// # Errors
    /// The record can't be written: the ADD must be undone.
    pub fn known_link(&mut self, effect: &Effect, index: u32) -> Result<(), OpError> {
        self.note_numbers(effect, &[u64::from(index)], &[]).map_err(state_error)
    }

    fn note_numbers(&mut self, effect: &Effect, handles: &[u64], tables: &[u64]) -> Result<(), StateError> {
        let noted = self.record.iter().flat_map(|record| record.effects(None)).filter(|noted| noted.effect == *effect);
        let last = noted.map(|noted| noted.seq).next_back();
        match (handles.is_empty(), last, self.record.as_mut()) {
            (false, Some(sequence), Some(record)) => record.note_handles(sequence, handles, tables),
            _ => Ok(()),
        }
    }

    /// True if this attachment has that effect.
    pub fn has(&self, effect: &Effect) -> bool {
        self.record.as_ref().is_some_and(|record| is_listed(record, effect))
    }

    /// Refuses to change effects of a kind if an earlier run made one of them. A second ADD without a DEL between
    /// leaves those of the first. `what` names the kind.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`].
    pub fn only_of_this_run(&self, matches: impl Fn(&Effect) -> bool, what: &str) -> Result<(), OpError> {
        let listed = self.record.iter().flat_map(|record| record.effects(None)).map(|noted| noted.effect);
        let is_earlier = |effect: &Effect| !self.undo.iter().any(|undo| undo.effect == *effect);
        if listed.filter(|effect| matches(effect)).any(|effect| is_earlier(&effect)) {
            let message = format!("an earlier ADD made the {what} of this attachment");
            return Err(OpError::new(ErrorCode::Exists, &self.request.container_id, message).hint("run DEL first"));
        }
        Ok(())
    }

    /// Takes back the effects of a kind that the called plugin's own section lists, the last one first.
    ///
    /// # Errors
    /// That of the first effect that could not be taken back.
    pub fn take_back(&mut self, matches: impl Fn(&Effect) -> bool) -> Result<(), OpError> {
        let section = self.section();
        let listed = self.record().map(|record| record.effects(Some(&section))).unwrap_or_default();
        for noted in listed.into_iter().rev().filter(|noted| matches(&noted.effect)) {
            noted.effect.remove(self, None)?;
            self.note_removed(Some(noted.seq));
            self.undo.retain(|undo| undo.sequence != Some(noted.seq));
        }
        Ok(())
    }

    /// True if no ADD of the called plugin is in the record: it may have been a native plugin's.
    pub fn has_no_section(&self) -> bool {
        let sections = self.record().map(|record| record.sections()).unwrap_or_default();
        self.is_replaced() || !sections.iter().any(|known| known.plugin() == self.request.plugin)
    }

    /// Removes effects that are gone from the record and from the list to undo.
    pub fn gone(&mut self, matches: impl Fn(&Effect) -> bool) {
        self.undo.retain(|undo| !matches(&undo.effect));
        let Some(record) = &self.record else { return };
        let gone: Vec<u64> =
            record.effects(None).into_iter().filter(|noted| matches(&noted.effect)).map(|noted| noted.seq).collect();
        for sequence in gone {
            self.note_removed(Some(sequence));
        }
    }

    /// Notes that one effect of the record is gone. If the note fails, the effect is removed once more.
    pub fn note_removed(&mut self, sequence: Option<u64>) {
        if let (Some(sequence), Some(record)) = (sequence, self.record.as_mut()) {
            let noted = record.mark_removed(sequence);
            self.tell(noted);
        }
    }

    /// Empties the record, and leaves the node as it is: the listed objects belong to another attachment.
    pub fn forget(&mut self) {
        let listed = self.record.iter().flat_map(|record| record.effects(None)).map(|noted| noted.seq);
        for sequence in listed.collect::<Vec<u64>>() {
            self.note_removed(Some(sequence));
        }
        self.ended(None);
    }

    /// Closes the record. Its file is removed if nothing is left in it.
    pub fn close_record(&mut self) {
        if let Some(record) = self.record.take()
            && let Err(error) = record.remove_file()
        {
            crate::say!("postern: {error}");
        }
    }
}

/// True if a record lists all that this plugin did for the attachment.
fn is_whole_for(record: &Record<Effect>, plugin: &str) -> bool {
    let given = |section: &Section| section.stage == Stage::Given;
    // Without a section of this plugin a native one may have been called in its place.
    let has_part = |section: &Section| section.plugin() == plugin;
    let sections = record.sections();
    record.warnings().is_empty() && sections.iter().all(given) && sections.iter().any(has_part)
}

fn is_listed(record: &Record<Effect>, effect: &Effect) -> bool {
    record.effects(None).iter().any(|noted| noted.effect == *effect)
}

/// Returns a route of a result in the record's form.
fn route(route: &Route) -> Option<String> {
    let dst = route.dst?.trunc();
    Some(route.gw.map_or_else(|| dst.to_string(), |gateway| format!("{dst} {gateway}")))
}
