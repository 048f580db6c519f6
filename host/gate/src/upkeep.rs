//! What people's commands have of the gate beside reading: removing what a record lists, on the way on which a DEL and a
//! runtime's GC do it, and a line of the audit log for whatever else they remove.

pub use crate::audit::{Audit, openable};
pub use crate::clock::now;
pub use crate::effect::mac_guard::ids as guard_ids;
pub use crate::keeping::Look as Rules;
pub use crate::session::{SharedNft, is_link_of_index};

use crate::collect;
use crate::effect::Effect;
use crate::keeping::Keeping;
use crate::places::Places;
use crate::session::Session;
use postern_state::Record;
use postern_types::OpError;
use std::rc::Rc;
use std::time::Instant;

/// A record that an operator wants gone, and what it lists. It knows of no native programs.
pub struct Removal(Session);

impl Removal {
    /// The record's lock is held until this ends.
    pub fn of(record: Record<Effect>, deadline: Instant, places: &Places, nft: &SharedNft) -> Self {
        let mut session = Session::of_record(record, deadline, places.clone());
        session.share(nft);
        Self(session)
    }

    /// Native IPAM programs are found in `path`, as in `CNI_PATH`, and get `config`.
    pub fn run_programs(&mut self, path: &str, config: String) {
        self.0.request.stdin = config;
        path.clone_into(&mut self.0.request.path);
    }

    /// No address is given back that one of these rules serves, or none at all if there is a reason.
    pub fn keep_by(&mut self, rules: &Rules, reason: Option<String>) {
        self.0.keep_by(Keeping::of_people(Rc::clone(rules), reason));
    }

    /// Removes what the record lists, or a section of it, and returns whether nothing of that is left: addresses may
    /// have to stay.
    ///
    /// # Errors
    /// What could not be removed; it stays in the record.
    pub fn remove(mut self, section: Option<&str>) -> Result<bool, OpError> {
        self.0.look_for_container();
        let removed = collect::by_record(&mut self.0, section);
        let is_whole = self.0.record().is_none_or(|record| record.effects(section).is_empty());
        self.close();
        removed.map(|_| is_whole)
    }

    /// Removes the record alone: what it lists is another's by now.
    pub fn forget(mut self) {
        self.0.forget();
        self.close();
    }

    fn close(mut self) {
        self.0.close_record();
        self.0.audit.flush();
    }
}
