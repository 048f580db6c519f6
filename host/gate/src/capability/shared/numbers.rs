//! The kernel's rule handles in the record, which identify rules without a search. This module also reads the rules of
//! other attachments from their records.

use crate::capability::leaves::EffectKind;
use crate::context::{Context, Journal, View};
use crate::effect::{Effect, in_record};
use crate::errors::firewall_error;
use crate::{collect, others};
use ipnet::IpNet;
use postern_cni::Verb;
use postern_firewall::iptables::{self, ProgramRunner, Recorded};
use postern_firewall::{AttachmentKey, ChainKind, FirewallError};
use postern_state::Header;
use postern_types::{IptablesVariant, OpError};

/// Returns where an effect's rules are. Without a recorded variant only the handles show the place, and only rules of
/// nf_tables have handles.
pub(crate) fn recorded(run: &Context, effect: &Effect, variant: Option<IptablesVariant>, handles: &[u64]) -> Recorded {
    match variant {
        Some(variant) => Recorded::In(variant),
        None if !handles.is_empty() => Recorded::In(IptablesVariant::Nft),
        None if run.journal.has(effect) => Recorded::Somewhere,
        None => Recorded::No,
    }
}

/// Makes an effect's rules for these addresses in iptables, and notes the rules' handles. `tables` finds the handles of
/// the rules' tables. Handles of tables that changed meanwhile are not noted: the rules may be in a table that is gone.
pub(crate) fn made_by_iptables(
    run: &mut Context,
    effect: &Effect,
    addresses: &[IpNet],
    tables: fn(&[IpNet], ProgramRunner<'_>) -> Vec<u64>,
    make: impl FnOnce(ProgramRunner<'_>) -> Result<Vec<u64>, FirewallError>,
) -> Result<(), OpError> {
    let before = tables(addresses, run.system.program_runner());
    let handles = make(run.system.program_runner()).map_err(firewall_error)?;
    let after = tables(addresses, run.system.program_runner());
    run.journal.known_in(effect, &handles, if before == after { &after } else { &[] });
    Ok(())
}

/// Returns an effect with the variant of its rules: the recorded variant. An unrecorded effect gets the variant of new
/// iptables rules for the addresses in `new`.
pub(crate) fn placed<T: TryFrom<Effect> + PartialEq>(
    journal: &Journal,
    mut wanted: T,
    new: Option<&[IpNet]>,
    place: fn(&mut T) -> &mut Option<IptablesVariant>,
) -> T {
    // This function searches for the variant, so the comparison ignores the variant.
    place(&mut wanted).take();
    let recorded = journal.recorded::<T>().into_iter().find_map(|mut made| {
        let variant = place(&mut made).take();
        (made == wanted).then_some(variant)
    });
    *place(&mut wanted) = recorded.unwrap_or_else(|| new.and_then(iptables::of_new));
    wanted
}

/// True if the rules that this run is about to make are the attachment's first rules: its record is complete, and lists
/// no such effect. Then existing rules need not be searched.
pub(crate) fn is_first<T: TryFrom<Effect>>(journal: &Journal) -> bool {
    journal.record().is_some_and(|record| record.warnings().is_empty()) && journal.recorded::<T>().is_empty()
}

/// Removes the recorded effects of a kind. Returns false if there may be more rules: a native plugin made the
/// attachment, or its record is lost.
pub(crate) fn remove_recorded<T: TryFrom<Effect> + EffectKind>(run: &Context) -> Result<bool, OpError> {
    let made = run.journal.recorded::<T>();
    made.iter().try_for_each(|made| made.remove(run))?;
    let is_known = !made.is_empty() || run.request.verb == Verb::Add || run.journal.record_is_whole();
    Ok(is_known && !run.journal.is_replaced())
}

/// Removes the iptables chains of invalid attachments of this network. A program is started only if invalid attachments
/// may have rules.
pub(crate) fn retain_chains(run: View<'_>, kind: ChainKind, valid: &[(String, String)]) -> Result<usize, OpError> {
    let network = &run.request.conf.name;
    let may_be = run.system.unless_absent(|nft| iptables::others_may_exist(nft, network, valid))?;
    if !may_be && !iptables::has_legacy_nat() {
        return Ok(0);
    }
    let removed = iptables::retain(kind, network, valid, || busy(run), run.system.program_runner());
    removed.map(|removed| removed.len()).map_err(firewall_error)
}

/// Returns the attachments of this network that an ADD is making. Their rules stay.
pub(crate) fn busy(run: View<'_>) -> Result<Vec<(String, String)>, FirewallError> {
    collect::busy(run).map_err(|error| FirewallError::new("look at", "records", error.to_string()))
}

/// Returns the effects of a kind in the records of other attachments. `is_meant` chooses these attachments.
pub(crate) fn of_others<T: TryFrom<Effect>>(
    view: View<'_>,
    is_meant: impl Fn(&AttachmentKey) -> bool,
) -> Result<Vec<(AttachmentKey, T)>, OpError> {
    let own = view.key()?;
    let mut found = Vec::new();
    for summary in others::records_here(view)? {
        let Some(header) = summary.header.clone().filter(|header| header.key() != own) else { continue };
        let Header { network, container_id, ifname, .. } = header;
        let key = AttachmentKey { network, container_id, ifname };
        if is_meant(&key) {
            found.extend(in_record(&summary).map(|effect| (key.clone(), effect)));
        }
    }
    Ok(found)
}
