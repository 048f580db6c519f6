//! The gate's functions for operators' commands that change something. They remove a record's effects, as DEL and GC
//! do, or restore a record's rules. Each act is written to the audit log.

pub use crate::audit::Audit;
pub use crate::capability::leaves::Reapplied;
pub use crate::clock::now;
pub use crate::others::is_link_of_index;
pub use crate::retention::LazyServed;
pub use crate::system::SharedNft;

use crate::context::RunParts;
use crate::effect::Effect;
use crate::places::Places;
use crate::retention::Retention;
use crate::{collect, collectable};
use postern_state::Record;
use postern_types::{ErrorCode, OpError};
use std::rc::Rc;
use std::time::Instant;

/// An effect with rules, and the outcome of restoring these rules.
pub type ReapplyOutcome = (Effect, Result<Reapplied, OpError>);

/// The work on one record: its effects are removed, or their rules are restored. At first, native IPAM programs can't
/// run ([`Upkeep::run_programs`]).
pub struct Upkeep(RunParts);

impl Upkeep {
    /// Begins the work. The record's lock is held until the work ends.
    pub fn of(record: Record<Effect>, deadline: Instant, places: &Places, nft: &SharedNft) -> Self {
        let mut parts = RunParts::of_record(record, deadline, places.clone());
        parts.system.nft = Rc::clone(nft);
        Self(parts)
    }

    /// Lets native IPAM programs run: they are found in `path`, as in `CNI_PATH`, and get `config`.
    pub fn run_programs(&mut self, path: &str, config: String) {
        self.0.request.stdin = config.into();
        path.clone_into(&mut self.0.request.path);
    }

    /// Keeps each address to which a rule in `rules` leads traffic. With a `reason`, all addresses are kept.
    pub fn set_retention(&mut self, rules: &LazyServed, reason: Option<String>) {
        let retention = Retention { served: Rc::clone(rules), chain: reason, ..Retention::default() };
        self.0.journal.set_retention(retention);
    }

    /// Removes the effects of the record, or of one section. Returns true if no effect is left, and false if an
    /// address is kept ([`Self::set_retention`]).
    ///
    /// # Errors
    /// Some effects could not be removed. They stay in the record.
    pub fn remove(mut self, section: Option<&str>) -> Result<bool, OpError> {
        collectable::look_for_container(&mut self.0);
        let removed = collect::by_record(&mut self.0.context(), section);
        let is_whole = self.0.journal.record().is_none_or(|record| record.effects(section).is_empty());
        self.close();
        removed.map(|_| is_whole)
    }

    /// Removes only the record, because the record's objects now belong to another attachment.
    pub fn forget(mut self) {
        self.0.journal.forget();
        self.close();
    }

    fn close(mut self) {
        self.0.journal.close_record();
        self.0.audit.flush();
    }

    /// Restores the rules of all effects of a living attachment. Returns the effects that have rules, each with its
    /// outcome.
    ///
    /// # Errors
    /// The attachment's link is gone. Then the rules would lead to another owner of the addresses.
    pub fn reapply(mut self) -> Result<Vec<ReapplyOutcome>, OpError> {
        collectable::look_for_container(&mut self.0);
        let mut run = self.0.context();
        let listed: Vec<Effect> = run.journal.effects().into_iter().map(|noted| noted.effect).collect();
        for link in listed.iter().filter(|effect| effect.is_link()) {
            if !link.is_living_link(&run)? {
                let message =
                    format!("{} is gone: the rules would lead to another owner of the addresses", link.words());
                return Err(OpError::new(ErrorCode::InvalidHandle, link.words(), message));
            }
        }
        let mut outcomes = Vec::new();
        for effect in listed {
            let start = Instant::now();
            let outcome = effect.kind().reapply(&mut run);
            if !matches!(outcome, Ok(Reapplied::NoRules | Reapplied::Complete)) {
                let noted = outcome.as_ref().map(|_| ());
                run.audit.note_own("REAPPLY", "record.reapply", &effect, "record", &noted, start.elapsed());
            }
            if !matches!(outcome, Ok(Reapplied::NoRules)) {
                outcomes.push((effect, outcome));
            }
        }
        self.close();
        Ok(outcomes)
    }
}
