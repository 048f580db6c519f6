//! Networks in conflict: one bridge with two VLAN settings, or addresses that two networks may give.

use super::{Examination, Node, Remedy, Severity};
use crate::lists::{Entry, List};
use ipnet::IpNet;
use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;

/// The largest number of ranges of all networks. Each range is compared with every other range.
const MOST_RANGES: usize = 2048;

/// The addresses that a network may give: first and last.
struct Range<'a> {
    list: &'a List,
    directory: Option<PathBuf>,
    first: IpAddr,
    last: IpAddr,
}

pub fn examine(examination: &mut Examination, node: &Node) {
    examination.area = "networks";
    bridges(examination, node);
    let mut ranges: Vec<Range<'_>> = node
        .lists
        .iter()
        .flat_map(|list| list.entries().iter().flat_map(move |plugin| of_plugin(list, plugin)))
        .collect();
    if ranges.len() > MOST_RANGES {
        examination.leave_out(format!("which of {} address ranges overlap: too many", ranges.len()));
        ranges.clear();
    }
    for (at, one) in ranges.iter().enumerate() {
        for other in ranges.iter().skip(at.saturating_add(1)) {
            let is_other = one.list.name() != other.list.name() && one.directory == other.directory;
            if is_other
                && one.first <= other.last
                && other.first <= one.last
                && one.first.is_ipv4() == other.first.is_ipv4()
            {
                let what = format!(
                    "networks \"{}\" and \"{}\" both may give {} to {}",
                    one.list.name(),
                    other.list.name(),
                    one.first.max(other.first),
                    one.last.min(other.last)
                );
                let why = "each network keeps its own leases: two containers can get the same address";
                let remedy = Remedy::Words(format!("give {} another range", other.list.path.display()));
                examination.found(Severity::Warning, other.list.path.display(), what, why, remedy);
            }
        }
    }
}

/// Finds lists that share a bridge and have different VLAN settings for its ports.
fn bridges(examination: &mut Examination, node: &Node) {
    let users: Vec<(&List, &str, bool)> = node
        .lists
        .iter()
        .flat_map(|list| list.entries().iter().map(move |plugin| (list, plugin)))
        .filter(|(_, plugin)| plugin.plugin() == "bridge")
        .map(|(list, plugin)| {
            let named = plugin.get("bridge").and_then(Value::as_str).filter(|name| !name.is_empty());
            (list, named.unwrap_or("cni0"), plugin.has("vlan") || plugin.has("vlanTrunk"))
        })
        .collect();
    for (at, (list, bridge, tagged)) in users.iter().enumerate() {
        let disagrees = |(_, other, with): &&(&List, &str, bool)| other == bridge && with != tagged;
        if let Some((first, ..)) = users.iter().take(at).find(disagrees) {
            let what =
                format!("bridge {bridge} is also in {}, and only one of the two lists has VLANs", first.path.display());
            let why = "a bridge that is made without VLANs does not filter VLANs: ports of different VLANs reach each \
                other, or ADD fails";
            let remedy = Remedy::Words("give one network another bridge".to_owned());
            examination.found(Severity::Warning, list.path.display(), what, why, remedy);
        }
    }
}

fn of_plugin<'a>(list: &'a List, plugin: &'a Entry) -> Vec<Range<'a>> {
    if plugin.ipam() != "host-local" {
        return Vec::new();
    }
    let Some(ipam) = plugin.get("ipam") else { return Vec::new() };
    let sets = ipam.get("ranges").and_then(Value::as_array).into_iter().flatten();
    let ranges = sets.filter_map(Value::as_array).flatten();
    let spans = ranges.chain([ipam]).filter_map(span);
    spans.map(|(first, last)| Range { list, directory: plugin.data_directory(), first, last }).collect()
}

/// Returns first and last address of an object with host-local's keys.
fn span(range: &Value) -> Option<(IpAddr, IpAddr)> {
    let subnet: IpNet = range.get("subnet")?.as_str()?.parse().ok()?;
    let address = |key: &str| range.get(key)?.as_str()?.parse::<IpAddr>().ok();
    let first = address("rangeStart").unwrap_or_else(|| subnet.network());
    let last = address("rangeEnd").unwrap_or_else(|| subnet.broadcast());
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ranges_are_read_as_host_local_does() {
        let ends = |range: &Value| span(range).map(|(first, last)| format!("{first} {last}"));
        assert_eq!(ends(&json!({"subnet": "10.0.0.0/24"})).as_deref(), Some("10.0.0.0 10.0.0.255"));
        let cut = json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.12"});
        assert_eq!(ends(&cut).as_deref(), Some("10.0.0.9 10.0.0.12"));
        assert_eq!(ends(&json!({"subnet": "x"})), None);
    }
}
