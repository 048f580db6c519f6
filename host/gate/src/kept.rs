//! Decides which effects of a record must stay for now, by the facts of a collection ([`crate::retention`]).

use crate::context::{Context, Journal, System, View};
use crate::effect::{Addresses, Dhcp, Effect, PortMappings};
use crate::errors::state_error;
use crate::retention::LazyServed;
use ipnet::IpNet;
use postern_firewall::{AttachmentKey, FirewallError, Nft, Served};
use postern_state::{NotedEffect, plugin_of};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The longest time for reading all rules.
const WITHIN: Duration = Duration::from_secs(20);

/// Returns the reason to keep an address. Rules that can't be read may lead to the address, so the address then stays
/// until a later collection.
fn why_kept(rules: &Result<Served, FirewallError>, address: IpAddr, except: Option<&AttachmentKey>) -> Option<String> {
    match rules {
        Ok(served) => {
            let serving = served.by(address, except)?;
            Some(format!("a rule in {} still leads traffic to {address}", serving.place))
        }
        Err(error) => Some(format!("it can't be told whether a rule still leads traffic to {address}: {error}")),
    }
}

/// Returns the reason why an address must not be given back, by the rules of the node.
pub fn is_served(system: &System, look: &LazyServed, address: IpAddr) -> Option<String> {
    why_kept(look_at_rules(system, look), address, None)
}

/// Reads the rules, once.
fn look_at_rules<'l>(system: &System, look: &'l LazyServed) -> &'l Result<Served, FirewallError> {
    look.get_or_init(|| {
        // A separate socket is used, because reading all rules may take longer than the operation that needs them.
        let mut nft = match Nft::open(Instant::now() + WITHIN) {
            Err(error) if error.errno.is_some_and(postern_firewall::is_absence) => return Ok(Served::default()),
            opened => opened?,
        };
        match Served::look(&mut nft, system.program_runner()) {
            Err(_) if nft.is_absent() => Ok(Served::default()),
            served => served,
        }
    })
}

/// Returns the reason why an effect of the record must stay for now; `None` if it can be removed. `section` is the
/// section that is being removed; with `None`, all sections are removed. Port mappings are removed before any address.
pub fn must_keep(run: &Context, noted: &NotedEffect<Effect>, section: Option<&str>) -> Option<String> {
    let retention = run.journal.retention()?;
    let directory = match noted.effect.addresses() {
        Addresses::HeldIn(directory) => Some(directory),
        Addresses::GivenBy(native)
            if retention.called.as_ref().is_some_and(|called| called != plugin_of(&noted.section)) =>
        {
            return Some(format!("only a collection by {} undoes native {native}", plugin_of(&noted.section)));
        }
        // The effect itself lists the addresses.
        Addresses::GivenBy(_) | Addresses::LentBy(_) => None,
        Addresses::Unconcerned | Addresses::Used => return None,
    };
    if let Some(chain) = &retention.chain {
        return Some(chain.clone());
    }
    let mut addresses = noted_addresses(run.journal);
    if let Some(directory) = directory {
        addresses.extend(held_in(run.view(), directory));
    }
    if let Some(dhcp) = Dhcp::of(&noted.effect) {
        addresses.extend(dhcp.addresses.iter().map(IpNet::addr));
    }
    let listed = run.journal.effects();
    let stays = |noted: &&NotedEffect<Effect>| section.is_some_and(|section| noted.section != section);
    // The node's rules were read before the first removal, so they still contain the attachment's removed forwards.
    // These forwards do not count.
    let is_forwards = |noted: &NotedEffect<Effect>| PortMappings::is(&noted.effect);
    let are_gone = retention.had_forwards && !listed.iter().filter(stays).any(is_forwards);
    let own = are_gone.then(|| run.request.masquerade_key());
    let rules = look_at_rules(run.system, &retention.served);
    addresses.into_iter().find_map(|address| why_kept(rules, address, own.as_ref()))
}

/// Returns the addresses in the sections of the record.
fn noted_addresses(journal: &Journal) -> Vec<IpAddr> {
    let texts = journal.sections().iter().flat_map(|section| &section.addresses);
    texts.filter_map(|text| text.split('/').next()?.parse().ok()).collect()
}

/// Returns the addresses that the attachment holds in a directory; none if the directory can't be read.
fn held_in(view: View<'_>, directory: &str) -> Vec<IpAddr> {
    let held = view.leases(directory, false).and_then(|leases| match leases {
        Some(leases) => leases.held(&view.request.owner(), view.fixed.deadline.answer_by()).map_err(state_error),
        None => Ok(Vec::new()),
    });
    held.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_rules_cannot_be_looked_at_an_address_stays() {
        let address = IpAddr::from([10, 9, 0, 2]);
        assert_eq!(why_kept(&Ok(Served::default()), address, None), None);
        let unseen = Err(FirewallError::new("list rules of", "ip", "the time is up"));
        let why = why_kept(&unseen, address, None).unwrap_or_default();
        assert!(why.starts_with("it can't be told whether a rule still leads traffic to 10.9.0.2: "), "{why}");
    }
}
