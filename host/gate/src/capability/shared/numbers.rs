//! The kernel's numbers of rules, as the record has them. By these, rules are found again without a search. And the rules of
//! others, by their records.

use crate::context::{Context, View};
use crate::effect::{Effect, in_record};
use crate::errors::firewall_error;
use crate::others;
use ipnet::IpNet;
use postern_firewall::iptables::{ProgramRunner, Recorded};
use postern_firewall::{AttachmentKey, FirewallError};
use postern_state::Header;
use postern_types::{IptablesVariant, OpError};

/// Tells where an effect's rules are. Only rules of nf_tables have handles; a record without a variant says no more.
pub(crate) fn recorded(run: &Context, effect: &Effect, variant: Option<IptablesVariant>, handles: &[u64]) -> Recorded {
    match variant {
        Some(variant) => Recorded::In(variant),
        None if !handles.is_empty() => Recorded::In(IptablesVariant::Nft),
        None if run.journal.has(effect) => Recorded::Somewhere,
        None => Recorded::No,
    }
}

/// Makes an effect's rules of these addresses in iptables, and notes their numbers. `tables` finds the numbers of their tables.
/// If a table was made with the rules, its number is not noted: it could be another's by now.
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

/// Returns the effects of a kind that the records of other attachments list, as far as these attachments are meant.
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
