//! The kernel's numbers of rules, as the record has them. By these, rules are found again without a search.

use crate::context::Context;
use crate::effect::Effect;
use crate::errors::firewall_error;
use ipnet::IpNet;
use postern_firewall::FirewallError;
use postern_firewall::iptables::{ProgramRunner, Recorded};
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
