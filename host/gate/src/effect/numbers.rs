//! The kernel's numbers of rules, as the record has them. By these, rules are found again without a search.

use super::Effect;
use crate::errors::firewall_error;
use crate::session::Session;
use ipnet::IpNet;
use postern_firewall::FirewallError;
use postern_firewall::iptables::{ProgramRunner, Recorded, nat_tables};
use postern_types::{IptablesVariant, OpError};

/// Returns the handles of an effect's rules that the attachment's record lists, and those of their tables, if it has them.
pub(super) fn noted(session: &Session, is_meant: impl Fn(&Effect) -> bool) -> (Vec<u64>, Vec<u64>) {
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    let (mut handles, mut tables) = (Vec::new(), Vec::new());
    for noted in effects.into_iter().filter(|noted| is_meant(&noted.effect)) {
        handles.extend(noted.handles);
        tables = noted.tables;
    }
    (handles, tables)
}

/// Tells where an effect's rules are. Only rules of nf_tables have handles; a record without a variant says no more.
pub(super) fn recorded(
    session: &Session,
    effect: &Effect,
    variant: Option<IptablesVariant>,
    handles: &[u64],
) -> Recorded {
    match variant {
        Some(variant) => Recorded::In(variant),
        None if !handles.is_empty() => Recorded::In(IptablesVariant::Nft),
        None if session.has(effect) => Recorded::Somewhere,
        None => Recorded::No,
    }
}

/// Makes an effect's rules of these addresses in table `nat` of iptables, and notes their numbers. If a table was made with
/// them, its number is not noted: it could be another's by now.
///
/// # Errors
/// The error of `make`.
pub(super) fn made_by_iptables(
    session: &mut Session,
    effect: &Effect,
    addresses: &[IpNet],
    make: impl FnOnce(ProgramRunner<'_>) -> Result<Vec<u64>, FirewallError>,
) -> Result<(), OpError> {
    let before = nat_tables(addresses, session.program_runner());
    let handles = make(session.program_runner()).map_err(firewall_error)?;
    let after = nat_tables(addresses, session.program_runner());
    session.known_in(effect, &handles, if before == after { &after } else { &[] });
    Ok(())
}
