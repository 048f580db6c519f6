//! `attachments`: the garbage of this plugin, for GC.

use crate::capability;
use crate::capability::facts::{Facts, Needed};
use crate::collect;
use crate::gate::Gate;
use postern_types::{Capability, OpError, host};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Never, keeps: |_, _| None, unrecorded: None };

impl host::Attachments for Gate<'_> {
    fn collect(&mut self) -> Result<u32, OpError> {
        collect(self)
    }
}

/// `attachments.collect`.
fn collect(gate: &mut Gate<'_>) -> Result<u32, OpError> {
    let Some(valid) = gate.session.request.conf.still_valid() else { return Ok(0) };
    let mut removed = collect::stale_sections(gate.session)?;
    let granted = Capability::ALL.iter().filter(|capability| gate.front.granted().has(**capability));
    let unrecorded: Vec<_> = granted.filter_map(|capability| capability::facts(*capability).unrecorded).collect();
    if !unrecorded.is_empty() {
        let valid: Vec<(String, String)> =
            valid.into_iter().map(|valid| (valid.container_id.clone(), valid.ifname.clone())).collect();
        for remove in unrecorded {
            removed += remove(gate.session, &valid)?;
        }
    }
    Ok(u32::try_from(removed).unwrap_or(u32::MAX))
}
