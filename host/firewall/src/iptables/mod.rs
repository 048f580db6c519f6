//! Rules with the system's iptables.
//!
//! Rules that are nf_tables objects are read and changed over netlink. For other rules, each call starts one
//! `iptables-save` per family. A change also starts one `iptables-restore`, which makes all changes at once.
//!
//! | module | |
//! |---|---|
//! | `programs` | the choice between netlink and programs; the programs and their arguments |
//! | `netlink` | reading and changing rules over netlink |
//! | `scope` | the part of a table that a question is about |
//! | `rule` | a rule as data |
//! | `text`, `forms`, `xt` | a rule as a line, as expressions of nf_tables, and the data of its matches and targets |
//! | `set` | a set of rules with one owner, in any table and chains |
//! | `numbers` | removal by the kernel's numbers, without reading rules of other owners |
//! | `container` | the common code of masquerading and forwards: a chain for each container and network |
//! | `masquerade` | the rules of `ipMasq` |
//! | `forward` | the rules of the firewall plugin |
//! | `hostport` | the rules of `portMappings` |
//! | `presence` | a fast question to the kernel: can there be any rules? |

mod container;
mod forms;
pub mod forward;
pub mod hostport;
mod masquerade;
mod netlink;
mod numbers;
mod presence;
mod programs;
mod rule;
mod scope;
mod set;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod xt;

pub use crate::variant::{Recorded, is_legacy, of_new};
pub use container::{may_exist, needs_program, retain, validate};
pub use masquerade::{SeenMasqueradeJump, check_known, ensure_in, list, remove_all, remove_known, remove_seen};
pub use numbers::{RuleHandles, nat_tables};
pub use presence::{any_may_exist, has_legacy_nat, others_may_exist};
pub use programs::{ProgramRunner, available, in_reach, installed, programs, usable};

use crate::nft::batch::Table;
use netlink_packet_netfilter::NetfilterProtoFamily;
use prelude::*;

/// Imports that most files here use.
mod prelude {
    pub(super) use super::numbers::{self, RuleHandles};
    pub(super) use super::presence::has_legacy;
    pub(super) use super::programs::{ProgramRunner, Programs, in_any, remove_from_each};
    pub(super) use super::rule::{IptablesRule, Is, Match, Target};
    pub(super) use super::scope::Scope;
    pub(super) use super::set::{IptablesOwner, IptablesPlace, IptablesRuleSet, TableChange};
    pub(super) use super::text::{SavedRule, SavedTable, once};
    pub(super) use super::{FILTER, NAT, Tables, has_chain, netlink, table};
    pub(super) use crate::key::ChainKind;
    pub(super) use crate::variant::{self, Recorded, by_family};
    pub(super) use crate::{AttachmentKey, FirewallError, Nft};
    pub(super) use ipnet::IpNet;
    pub(super) use std::collections::HashSet;
    pub(super) use std::net::IpAddr;
}

/// The table for address translation.
const NAT: &str = "nat";

/// The table that filters packets.
const FILTER: &str = "filter";

/// Returns a table as nf_tables has it.
fn table(v6: bool, name: &'static str) -> Table {
    Table { family: if v6 { NetfilterProtoFamily::IPv6 } else { NetfilterProtoFamily::IPv4 }, name }
}

/// True if nf_tables has one of these chains in a table, in either family.
fn has_chain(nft: &mut Nft, name: &'static str, chains: &[impl AsRef<str>]) -> Result<bool, FirewallError> {
    for v6 in [false, true] {
        for chain in chains {
            if nft.chain(table(v6, name), chain.as_ref())?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// A table of both families at one moment, in each readable variant of iptables that has the table.
pub struct Tables(Vec<SeenTable>);

/// A table of one family and variant.
struct SeenTable {
    v6: bool,
    /// The name of the program that shows the table.
    program: String,
    saved: SavedTable,
}

impl Tables {
    /// Reads the `nat` tables, if they can have rules of an attachment. Otherwise no table is read, because reading a
    /// legacy table makes the kernel load it.
    ///
    /// # Errors
    /// The kernel refuses to show the tables, a program is missing or fails, or the deadline passes.
    pub fn nat(nft: &mut Nft, runner: ProgramRunner<'_>) -> Result<Self, FirewallError> {
        if any_may_exist(nft)? { Self::look(NAT, runner) } else { Ok(Self(Vec::new())) }
    }

    /// Reads the `filter` tables, if they can have rules of an attachment.
    ///
    /// # Errors
    /// As [`Tables::nat`].
    pub fn filter(nft: &mut Nft, runner: ProgramRunner<'_>) -> Result<Self, FirewallError> {
        if forward::may_be_admitted(nft)? { Self::look(FILTER, runner) } else { Ok(Self(Vec::new())) }
    }

    fn look(table: &'static str, runner: ProgramRunner<'_>) -> Result<Self, FirewallError> {
        Self::at(Programs::of_all(table, runner), table)
    }

    fn at(places: Vec<Programs<'_>>, table: &'static str) -> Result<Self, FirewallError> {
        let see = |place: Programs<'_>| {
            Ok(SeenTable { v6: place.v6, program: place.name(), saved: place.look(&Scope::whole(table))? })
        };
        places.into_iter().map(see).collect::<Result<_, _>>().map(Self)
    }

    /// Reads the `nat` tables of legacy iptables.
    pub(crate) fn legacy_nat(runner: ProgramRunner<'_>) -> Result<Self, FirewallError> {
        Self::at(Programs::of_all(NAT, runner).into_iter().filter(Programs::is_legacy).collect(), NAT)
    }

    /// Returns the tables, each with the nftables name of its family.
    pub(crate) fn by_family(&self) -> impl Iterator<Item = (&'static str, &SavedTable)> {
        self.0.iter().map(|seen| (if seen.v6 { "ip6" } else { "ip" }, &seen.saved))
    }

    /// Returns the tables of one family.
    fn of(&self, v6: bool) -> impl Iterator<Item = &SavedTable> {
        self.0.iter().filter(move |seen| seen.v6 == v6).map(|seen| &seen.saved)
    }

    fn rules(&self) -> impl Iterator<Item = &SavedRule> {
        self.0.iter().flat_map(|seen| &seen.saved.rules)
    }

    /// Returns the containers in `network` whose rules are stale: the containers are neither valid nor busy. `owner`
    /// returns the owner of a rule. `busy` is called only if there is something to remove.
    fn stale(
        &self,
        network: &str,
        valid: &[(String, String)],
        busy: impl FnOnce() -> Result<Vec<(String, String)>, FirewallError>,
        owner: impl Fn(&IptablesRule) -> Option<AttachmentKey>,
    ) -> Result<Vec<AttachmentKey>, FirewallError> {
        let mut seen: HashSet<String> = valid.iter().map(|(container_id, _)| container_id.clone()).collect();
        let of_network = self.rules().filter_map(|saved| owner(&saved.rule)).filter(|key| key.network == network);
        let mut stale: Vec<AttachmentKey> = of_network.filter(|key| seen.insert(key.container_id.clone())).collect();
        if !stale.is_empty() {
            let busy = busy()?;
            stale.retain(|key| !busy.iter().any(|(container_id, _)| *container_id == key.container_id));
        }
        Ok(stale)
    }
}
