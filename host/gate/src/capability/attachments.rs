//! `attachments`: the garbage of this plugin, for GC.

pub(crate) use crate::capability::facts::NEVER as FACTS;
use crate::gate::Gate;
use crate::{capability, collect};
use postern_types::{Capability, OpError, host};

impl host::Attachments for Gate<'_> {
    fn collect(&mut self) -> Result<u32, OpError> {
        let Some(valid) = self.run.request.conf.still_valid() else { return Ok(0) };
        let mut removed = collect::stale_sections(self.run.view())?;
        let granted = Capability::ALL.iter().filter(|capability| self.guest.granted().has(**capability));
        let unrecorded: Vec<_> = granted.filter_map(|capability| capability::facts(*capability).unrecorded).collect();
        if !unrecorded.is_empty() {
            let valid: Vec<(String, String)> =
                valid.into_iter().map(|valid| (valid.container_id.clone(), valid.ifname.clone())).collect();
            for remove in unrecorded {
                removed += remove(self.run.view(), &valid)?;
            }
        }
        Ok(u32::try_from(removed).unwrap_or(u32::MAX))
    }
}
