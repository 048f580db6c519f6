//! Pools of addresses that are used up. STATUS does not report full pools by default.

use super::{Examination, Node, Remedy, Severity};
use crate::lists::Entry;
use ipnet::IpNet;
use postern_account::lease_snapshot::LeaseSnapshot;
use postern_policy::capability::leases::DEFAULT_DIRECTORY;
use postern_state::LeaseStore;
use postern_types::{LeaseRange, canonicalize};
use serde_json::Value;

pub fn examine(examination: &mut Examination, node: &Node) {
    examination.area = "networks";
    let Ok(boot_id) = postern_state::boot_id() else { return };
    let entries = node.lists.iter().flat_map(|list| list.entries().iter().map(move |entry| (list, entry)));
    for (list, entry) in entries {
        // Invalid ranges are reported by `postern net validate`.
        let Some(sets) = sets(entry).and_then(|sets| canonicalize(sets).ok()) else { continue };
        let store = LeaseStore {
            data_dir: entry.data_directory().unwrap_or_else(|| DEFAULT_DIRECTORY.into()),
            network: list.name().to_owned(),
            index_root: postern_account::places::expected().lease_index(),
            boot_id: boot_id.clone(),
        };
        let Ok(leases) = LeaseSnapshot::read(&store, 0) else { continue };
        let Some(full) = leases.exhausted(&sets).and_then(|number| sets.get(number)) else { continue };
        let what = format!("network \"{}\" has no free address left in {full}", list.name());
        let why = "every ADD of the network fails: \"no IP addresses available\"";
        let remedy = Remedy::Words(
            "give the network a larger range; or let `postern gc` remove the leases of containers that are gone"
                .to_owned(),
        );
        examination.found(Severity::Warning, list.path.display(), what, why, remedy);
    }
}

/// Returns the sets of ranges of host-local. The old-style set is first. `None` for another IPAM plugin, and for ranges
/// that can't be read.
fn sets(entry: &Entry) -> Option<Vec<Vec<LeaseRange>>> {
    let ipam = entry.get("ipam").filter(|_| entry.ipam() == "host-local")?;
    let old_style = ipam.get("subnet").map(|_| range(ipam).map(|range| vec![range]));
    let others = ipam.get("ranges").and_then(Value::as_array).into_iter().flatten();
    let others = others.map(|set| set.as_array()?.iter().map(range).collect());
    old_style.into_iter().chain(others).collect()
}

/// Reads an object with host-local's keys.
fn range(range: &Value) -> Option<LeaseRange> {
    let address = |key: &str| match range.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()) {
        Some(text) => text.parse().ok().map(Some),
        None => Some(None),
    };
    Some(LeaseRange {
        subnet: range.get("subnet")?.as_str()?.parse::<IpNet>().ok()?,
        start: address("rangeStart")?,
        end: address("rangeEnd")?,
        gateway: address("gateway")?,
    })
}
