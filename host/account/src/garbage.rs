//! Garbage, for nodes whose runtime never calls GC: records of attachments that are gone.
//!
//! [`find`] looks and changes nothing; [`remove`] removes the garbage that was found, after another look. A record is
//! garbage in three cases:
//!
//! * Its attachment was made in another boot.
//! * The process that made the attachment was killed before the runtime had an answer. This case needs no further
//!   proof.
//! * The kernel shows that the container's namespace is gone. If a pair's host end exists, its other end is in a living
//!   namespace. All namespaces that can be found are looked at. If some can't be looked at, the attachment counts as
//!   gone only if both its pair and its namespace's path are gone.

use crate::alive::{HostConnection, all_namespaces, host_connection, is_alive};
use crate::namespaces::{LiveNamespace, Namespaces};
use crate::places;
use postern_gate::effect::{Effect, Lease, Native, Veth};
use postern_gate::places::Places;
pub use postern_gate::upkeep::LazyServed;
use postern_gate::upkeep::{SharedNft, Upkeep, is_link_of_index, now};
use postern_kernel::{Link, Netlink};
use postern_state::{Header, LeaseOwner, Record, RecordKey, Section, Stage, StateError, Summary};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time for the removal of one record.
const WITHIN: Duration = Duration::from_secs(30);

/// The reason why a record is garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The record was made before the last start of the node.
    OtherBoot,
    /// The container's namespace is gone.
    Gone,
    /// The attachment's ADD was killed before the runtime had an answer, or its DEL was killed before the end.
    Killed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherBoot => "it was made before the machine was last started",
            Self::Gone => "the container's network namespace is gone",
            Self::Killed => "its ADD was killed before the runtime had an answer, or its DEL did not end",
        })
    }
}

/// A record, or a section of one, that is garbage.
#[derive(Clone, Debug)]
pub struct Garbage {
    /// The record's attachment.
    pub header: Header,
    /// The section ([`plugin_of`](postern_state::plugin_of)); `None` for the whole record.
    pub section: Option<String>,
    /// The reason why it is garbage.
    pub reason: Reason,
    /// The effects in the record or section.
    pub effects: Vec<Effect>,
    /// The reason why the attachment's addresses are kept; `None` if the addresses are removed.
    pub keeps: Option<String>,
    key: RecordKey,
    /// True if only the record itself must be removed, because its effects belong to another record by now.
    superseded: bool,
}

impl Garbage {
    /// True for a whole attachment: the ADD succeeded, and no later ADD has made the attachment again.
    pub fn is_whole(&self) -> bool {
        self.section.is_none() && !self.superseded && self.reason != Reason::Killed
    }

    /// Returns, in words, the effects that will be removed.
    pub fn words(&self) -> Vec<String> {
        if self.superseded || self.effects.is_empty() {
            return vec!["its record".to_owned()];
        }
        let words = |effect: &Effect| match &self.keeps {
            Some(why) if effect.addresses().are_given_back() => format!("{}: kept, as {why}", effect.words()),
            _ => effect.words(),
        };
        self.effects.iter().map(words).collect()
    }
}

/// The result of [`find`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The garbage, which can be removed.
    pub garbage: Vec<Garbage>,
    /// Attachments that stay although they are unusual, each with the reason.
    pub kept: Vec<(Header, String)>,
    /// The places that could not be looked at.
    pub problems: Vec<String>,
    /// Attachments that are in use.
    pub live: usize,
}

/// Looks for garbage among the records of the caller's namespace. Changes nothing, except that it removes empty files
/// of runs that were about to begin a record.
///
/// # Errors
/// A text for people: records or namespaces can't be looked at.
pub fn find(places: &Places, chain: &Chain<'_>) -> Result<Report, String> {
    // The removed files are empty, and no process has them open.
    postern_state::tidy(&places.state).map_err(|e| e.to_string())?;
    // The time is taken before the records are read. Work after this time is not in the copies that were read, so the
    // attachment counts as busy.
    let started = now();
    let summaries = postern_state::list(&places.state).map_err(|e| e.to_string())?;
    let mut report = Report::default();
    if summaries.is_empty() {
        return Ok(report);
    }
    let current = CurrentState::new(started, places, chain)?;
    for summary in &summaries {
        report.problems.extend(summary.problems.iter().map(|problem| format!("{}: {problem}", summary.path.display())));
        let (Some(key), Some(header)) = (&summary.key, &summary.header) else { continue };
        if header.boot_id == current.boot && header.host_netns_cookie != current.here {
            continue;
        }
        match postern_state::is_busy(&places.state, key, current.started) {
            Ok(false) => current.judge(summary, key, header, &summaries, &mut report),
            Ok(true) => report.kept.push((header.clone(), "a run for this attachment is under way".to_owned())),
            Err(error) => report.problems.push(error.to_string()),
        }
    }
    Ok(report)
}

/// Returns the reason why plugins of an attachment's chain may have left objects on the node that Postern can't undo.
/// `None` if there are no such plugins.
pub type Chain<'a> = dyn Fn(&Header) -> Option<String> + 'a;

/// The present state.
struct CurrentState<'a> {
    places: &'a Places,
    chain: &'a Chain<'a>,
    boot: String,
    here: u64,
    started: u64,
    links: Vec<Link>,
    namespaces: Namespaces,
}

impl<'a> CurrentState<'a> {
    fn new(started: u64, places: &'a Places, chain: &'a Chain<'a>) -> Result<Self, String> {
        let text = |error: &dyn fmt::Display| error.to_string();
        let host = Netlink::open().map_err(|e| text(&e))?;
        Ok(Self {
            places,
            chain,
            boot: postern_state::boot_id().map_err(|e| text(&e))?,
            here: host.cookie().map_err(|e| text(&e))?,
            started,
            links: host.links().map_err(|e| text(&e))?,
            namespaces: all_namespaces()?,
        })
    }

    fn judge(&self, summary: &Summary, key: &RecordKey, header: &Header, all: &[Summary], report: &mut Report) {
        let effects = |section: Option<&str>| -> Vec<Effect> {
            let noted = summary.effects.iter().filter(|noted| section.is_none_or(|section| noted.section == section));
            noted.filter_map(|noted| serde_json::from_value(noted.effect.clone()).ok()).collect()
        };
        // An effect that this version doesn't know can't be removed. `problems` names the effect.
        if effects(None).len() != summary.effects.len() {
            return;
        }
        let garbage = |section: Option<&str>, reason: Reason, superseded: bool| Garbage {
            header: header.clone(),
            section: section.map(str::to_owned),
            reason,
            effects: effects(section),
            keeps: None,
            key: *key,
            superseded,
        };
        if header.boot_id != self.boot {
            report.garbage.push(garbage(None, Reason::OtherBoot, is_superseded(header, &self.boot, all)));
            return;
        }
        let alive = is_alive(header, &effects(None), &self.links, &self.namespaces);
        if alive == Ok(false) {
            let mut gone = garbage(None, Reason::Gone, self.is_taken_over(header, summary, &effects(None), all));
            gone.keeps = (self.chain)(header).filter(|_| !gone.superseded);
            match &gone.keeps {
                // All objects but the addresses are gone already.
                Some(why)
                    if !gone.effects.is_empty()
                        && gone.effects.iter().all(|effect| effect.addresses().are_given_back()) =>
                {
                    report.kept.push((header.clone(), format!("its addresses are kept, as {why}")));
                }
                _ => report.garbage.push(gone),
            }
            return;
        }
        // A killed ADD or DEL is no attachment, in any namespace. The remaining effects may no longer show that the
        // verb was killed.
        let killed: Vec<&str> = summary.sections.iter().filter(|s| is_unfinished(s)).map(|s| &*s.name).collect();
        let makers = summary.effects.iter().map(|noted| noted.section.as_str());
        let is_empty = summary.sections.is_empty() && summary.effects.is_empty();
        if is_empty || !killed.is_empty() && nothing_stands(&summary.sections, makers) {
            report.garbage.push(garbage(None, Reason::Killed, false));
            return;
        }
        report.garbage.extend(killed.iter().map(|plugin| garbage(Some(plugin), Reason::Killed, false)));
        match alive {
            Ok(_) => report.live += 1,
            Err(gap) => {
                report.kept.push((header.clone(), format!("it is unknown whether its namespace is alive: {gap}")));
            }
        }
    }
}

impl CurrentState<'_> {
    /// True if a program that writes no records has made the attachment again, so that objects with the attachment's
    /// names are in use. The sign is a link with the attachment's interface name, in a living namespace, with the
    /// address of the attachment's lease or result. A link that another record lists doesn't count. Otherwise root in
    /// the link's container could give the link this address, and the garbage would never be removed.
    fn is_taken_over(&self, header: &Header, summary: &Summary, effects: &[Effect], all: &[Summary]) -> bool {
        let others = || all.iter().filter(|other| other.path != summary.path);
        let is_port_claimed = |end: &Link| {
            others().flat_map(|other| &other.effects).any(|noted| {
                let effect = serde_json::from_value::<Effect>(noted.effect.clone()).ok();
                let pair = effect.as_ref().and_then(Veth::of);
                pair.is_some_and(|pair| pair.host == end.name && end.mac == Some(pair.mac.0))
            })
        };
        let is_index_claimed = |found: &LiveNamespace, index: u32| {
            let of = |other: &Summary| other.header.as_ref().and_then(|header| header.netns_cookie);
            let mut there = others().filter(|other| of(other) == Some(found.cookie));
            there.any(|other| other.effects.iter().any(|noted| is_link_of_index(noted, index)))
        };
        let mut directories = effects.iter().filter_map(Lease::of).map(|lease| &lease.directory);
        let owner = LeaseOwner::new(&header.container_id, &header.ifname);
        let mut addresses: Vec<IpAddr> = Vec::new();
        let has_leases = directories.clone().next().is_some();
        if has_leases {
            let held = directories.by_ref().flat_map(|directory| {
                places::all_leases(self.places, Path::new(directory), &header.network).unwrap_or_default()
            });
            addresses.extend(held.filter(|held| held.owner.as_ref() == Some(&owner)).map(|held| held.address));
        } else {
            let noted = summary.sections.iter().flat_map(|section| &section.addresses);
            addresses.extend(noted.filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok()));
        }
        addresses.into_iter().any(|address| {
            self.namespaces.with_address(address).is_some_and(|found| {
                found.links.iter().any(|link| {
                    let has = |(index, have): &(u32, postern_kernel::LinkAddress)| {
                        *index == link.index && have.net.addr() == address
                    };
                    // Another Postern host on this machine can have the same address: the link must be connected to
                    // this host.
                    let is_own = || match host_connection(&self.links, link) {
                        HostConnection::End(end) => !is_port_claimed(end),
                        HostConnection::Stacked | HostConnection::Device => !is_index_claimed(found, link.index),
                        HostConnection::Nowhere => false,
                    };
                    link.name == header.ifname && found.addresses.iter().any(has) && is_own()
                })
            })
        })
    }
}

/// True if the process at work on a section was killed: then the section is no attachment.
fn is_unfinished(section: &Section) -> bool {
    section.stage != Stage::Given
}

/// True if no plugin was completed, and each of `makers`, the plugins that made the record's effects, was killed.
/// (Earlier versions wrote no sections: a record without sections may be in use.)
fn nothing_stands<'a>(sections: &[Section], mut makers: impl Iterator<Item = &'a str>) -> bool {
    sections.iter().all(is_unfinished)
        && makers.all(|maker| sections.iter().any(|section| is_unfinished(section) && section.name == maker))
}

/// True if the section is still unfinished. A later run may have begun the section anew, and completed it.
fn is_still_killed(record: &Record<Effect>, section: Option<&str>) -> bool {
    let (sections, effects) = (record.sections(), record.effects(None));
    match section {
        Some(name) => sections.iter().any(|section| section.name == name && is_unfinished(section)),
        None => !sections.is_empty() && nothing_stands(sections, effects.iter().map(|noted| noted.section.as_str())),
    }
}

/// True if the same attachment was made again in this boot: the effects in the old record belong to the new record.
fn is_superseded(header: &Header, boot: &str, all: &[Summary]) -> bool {
    let same = |other: &Header| {
        other.boot_id == boot
            && (&other.network, &other.container_id, &other.ifname)
                == (&header.network, &header.container_id, &header.ifname)
    };
    all.iter().filter_map(|summary| summary.header.as_ref()).any(same)
}

/// The data that all removals of one collection share.
#[derive(Default)]
pub struct Shared {
    nft: SharedNft,
    /// The records, read once for the first garbage that may be superseded.
    seen: RefCell<Option<HashMap<RecordKey, Header>>>,
}

impl Shared {
    /// Returns [`is_superseded`] for the present records. Records that were read before are opened again only if they
    /// belong to the same attachment. Without this rule, a collection after a reboot would read each record as often as
    /// there are records.
    fn is_made_again(&self, places: &Places, header: &Header) -> Result<bool, String> {
        let boot = postern_state::boot_id().map_err(|e| e.to_string())?;
        let is_same = |other: &Header| {
            (&other.network, &other.container_id, &other.ifname)
                == (&header.network, &header.container_id, &header.ifname)
        };
        let mut seen = self.seen.borrow_mut();
        let seen = seen.get_or_insert_default();
        let known = seen.iter().filter(|(_, header)| !is_same(header)).map(|(key, _)| *key).collect();
        let others = postern_state::list_others(&places.state, &known).map_err(|e| e.to_string())?;
        let found = is_superseded(header, &boot, &others);
        seen.extend(others.into_iter().filter_map(|summary| Some((summary.key?, summary.header?))));
        Ok(found)
    }
}

/// The input of native IPAM programs. The input doesn't come from the record. Otherwise an attacker who forges a record
/// could choose the input of programs.
pub struct Programs<'a> {
    /// The directories of native IPAM programs, as `CNI_PATH`.
    pub path: &'a str,
    /// The operator's configuration of a network (first argument) for a native IPAM program (second argument).
    pub config: &'a dyn Fn(&str, &str) -> Option<String>,
    /// The rules of the node, read once for all removals.
    pub rules: &'a LazyServed,
}

/// The outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The garbage was removed completely.
    Removed,
    /// The addresses stay, with the objects that hold them, because packets may still go to these addresses.
    AddressesKept,
    /// Nothing was removed: a later run uses the record again.
    TakenUp,
}

/// Removes garbage, unless a later run uses the record again.
///
/// # Errors
/// A text for people: the effects that could not be removed; they stay in the record.
pub fn remove(places: &Places, garbage: &Garbage, programs: &Programs<'_>, shared: &Shared) -> Result<Outcome, String> {
    let deadline = Instant::now() + WITHIN;
    let record = match Record::<Effect>::open_existing(&places.state, &garbage.key, Instant::now()) {
        Ok(Some(record)) if *record.header() == garbage.header => record,
        // Another run uses the record, or has removed it.
        Ok(_) | Err(StateError::Locked { .. }) => return Ok(Outcome::TakenUp),
        Err(error) => return Err(error.to_string()),
    };
    let still = match garbage.reason {
        Reason::Killed => record.is_empty() || is_still_killed(&record, garbage.section.as_deref()),
        Reason::OtherBoot | Reason::Gone => true,
    };
    if !still {
        return Ok(Outcome::TakenUp);
    }
    let mut removal = Upkeep::of(record, deadline, places, &shared.nft);
    let without = prepare(&mut removal, garbage, programs);
    // The record is tested again under the lock: the operator may have taken a long time to confirm.
    let superseded =
        garbage.superseded || garbage.reason == Reason::OtherBoot && shared.is_made_again(places, &garbage.header)?;
    // Rules do not outlive a boot.
    if garbage.reason != Reason::OtherBoot {
        removal.set_retention(programs.rules, garbage.keeps.clone());
    }
    if superseded {
        removal.forget();
        return Ok(Outcome::Removed);
    }
    let removed = removal.remove(garbage.section.as_deref());
    let outcome = |is_whole: bool| if is_whole { Outcome::Removed } else { Outcome::AddressesKept };
    removed.map(outcome).map_err(|error| without.unwrap_or_else(|| error.to_string()))
}

/// Gives the native programs of the record their input. If a program has no configuration, or if the configurations
/// differ, no program gets an input. Effects that need no program are still removed. The returned text says why some
/// effects stay.
fn prepare(removal: &mut Upkeep, garbage: &Garbage, programs: &Programs<'_>) -> Option<String> {
    let Header { network, container_id, ifname, .. } = &garbage.header;
    // A program gets only input that a runtime could give.
    let names = postern_cni::validate_container_id(container_id);
    if let Err(error) = names.and_then(|()| postern_cni::validate_interface_name(ifname)) {
        return Some(format!("a runtime can't give these names, so no native plugin is run with them: {error}"));
    }
    let mut given: Option<String> = None;
    // The record of a delegation contains the configuration.
    let unknown = garbage.effects.iter().filter_map(Native::of).filter(|native| native.config.is_none());
    for Native { plugin, config: _ } in unknown {
        match (programs.config)(network, plugin) {
            Some(config) if given.as_ref().is_none_or(|given| *given == config) => given = Some(config),
            _ => {
                return Some(format!(
                    "the configuration of network \"{network}\" is missing: native \"{plugin}\" can't be run again \
                    without a configuration"
                ));
            }
        }
    }
    removal.run_programs(programs.path, given.unwrap_or_default());
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_gate::effect::MacGuard;

    #[test]
    fn only_what_is_still_unfinished_is_still_killed() {
        let root = std::env::temp_dir().join(format!("postern-garbage-{}", std::process::id()));
        let text = |text: &str| text.to_owned();
        let header = Header {
            network: text("net"),
            container_id: text("c1"),
            ifname: text("eth0"),
            boot_id: text("boot"),
            host_netns_cookie: 1,
            netns_cookie: Some(2),
            netns_path: text("/run/netns/c1"),
            created: 3,
        };
        let mut record = Record::<Effect>::open_or_create(&root, &header, Instant::now() + WITHIN).unwrap();
        let mut expect = |act: &dyn Fn(&mut Record<Effect>), whole: bool, bridge: bool, other: bool| {
            act(&mut record);
            let still = [None, Some("bridge"), Some("other")].map(|plugin| is_still_killed(&record, plugin));
            assert_eq!(still, [whole, bridge, other]);
        };
        expect(&|_| {}, false, false, false);
        expect(&|record| record.begin("bridge", "digest", "config", 4).unwrap(), true, true, false);
        expect(&|record| record.begin("other", "digest", "config", 4).unwrap(), true, true, true);
        // The next ADD has begun one of the two sections anew, and completed it.
        expect(&|record| record.given("bridge", 5).unwrap(), false, false, true);
        expect(&|record| record.ending(Some("bridge")).unwrap(), true, true, true);
        // The record of a version that wrote no sections may be in use.
        const GUARD: Effect = Effect::MacGuard(MacGuard { id: None, host: None, mac: None });
        expect(&|record| assert_eq!(record.append("older", &GUARD, false).unwrap(), 1), false, true, true);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
