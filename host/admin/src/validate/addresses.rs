//! The addresses of host-local and static, and their routes.

use super::finding::{Sheet, below, item};
use super::text::{Node, Tree};
use ipnet::IpNet;
use postern_cni::{Version, parse_cidr, parse_ip};
use postern_keys::{Delegation, Plugin};
use postern_types::{LeaseRange, canonicalize, canonicalize_numbered};
use std::net::IpAddr;

/// Returns the addresses and subnets in a file's `ipam`, if its type is `host-local` or `static`.
pub fn of_file(ipam: &Node) -> impl Iterator<Item = IpNet> {
    places(ipam).into_iter().filter_map(|(node, _)| parse_cidr(node.text()?).ok())
}

/// Returns the values with addresses and subnets, each with its place below `ipam`.
fn places(ipam: &Node) -> Vec<(&Node, String)> {
    fn items<'n>(node: &'n Node, key: &str) -> impl Iterator<Item = (usize, &'n Node)> {
        node.get(key).map(Node::items).unwrap_or_default().iter().enumerate()
    }
    let mut objects = Vec::new();
    let key = match ipam.word("type") {
        "host-local" => {
            objects.push((ipam, String::new()));
            for (at, set) in items(ipam, "ranges") {
                let of_set = |(number, range)| (range, item(&item("ranges", at), number));
                objects.extend(set.items().iter().enumerate().map(of_set));
            }
            "subnet"
        }
        "static" => {
            objects.extend(items(ipam, "addresses").map(|(at, one)| (one, item("addresses", at))));
            "address"
        }
        _ => return objects,
    };
    objects.into_iter().filter_map(|(object, path)| Some((object.get(key)?, below(&path, key)))).collect()
}

/// Checks that a link can have the addresses that `ipam` names.
pub fn of_links(sheet: &mut Sheet<'_>, conf: &Node, path: &str) {
    let Some(ipam) = conf.get("ipam") else { return };
    for (node, place) in places(ipam) {
        let Some(Ok(address)) = node.text().map(parse_cidr) else { continue };
        let (address, path) = (address.addr(), format!("{}.{place}", below(path, "ipam")));
        let help = "an address of one host, such as 10.88.0.2 or fd00::2";
        match address {
            // With native plugins the container gets such an address, but no packets for it.
            IpAddr::V4(_) if address.is_multicast() => {
                let message = format!("an ADD would fail: {address} is a multicast address");
                sheet.warning("add-fails", node.at, &path, message, help);
            }
            // The subnet of a range may begin with the loopback or the unspecified address. So only `addresses` are
            // checked for these two addresses.
            IpAddr::V6(_) if address.is_multicast() => {
                let message = format!("{address} is a multicast address: no link can have it");
                sheet.error("bad-value", node.at, &path, message, help);
            }
            IpAddr::V6(own) if place.starts_with("addresses") && (own.is_loopback() || own.is_unspecified()) => {
                sheet.error("bad-value", node.at, &path, format!("no link of a container can have {address}"), help);
            }
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
    }
}

/// Checks the addresses that an IPAM plugin may give. `conf` is the whole configuration, `ipam` the part of the plugin.
pub fn check(
    sheet: &mut Sheet<'_>,
    conf: &Node,
    ipam: &Node,
    path: &str,
    table: &Plugin,
    version: Option<Version>,
    delegation: Delegation,
) {
    match table.name {
        "host-local" => host_local(sheet, conf, ipam, path, version, delegation),
        "static" => fixed(sheet, conf, ipam, path, version),
        _ => {}
    }
}

/// The most ranges that are all compared with each other.
const MOST_PAIRED: usize = 1000;

/// A range that can be read, and its place.
struct Range<'n> {
    node: &'n Node,
    path: String,
    input: LeaseRange,
}

fn host_local(
    sheet: &mut Sheet<'_>,
    conf: &Node,
    ipam: &Node,
    path: &str,
    version: Option<Version>,
    delegation: Delegation,
) {
    let mut sets: Vec<Vec<Range<'_>>> = Vec::new();
    if ipam.get("subnet").is_some() {
        sets.push(range(ipam, path.to_owned()).into_iter().collect());
    } else {
        for key in ["rangeStart", "rangeEnd", "gateway"] {
            if let Some(member) = ipam.member(key) {
                let message = format!("without `subnet` beside it, `{key}` is ignored");
                sheet.warning(
                    "unused-key",
                    member.at,
                    &below(path, key),
                    message,
                    "put the key into a range of `ranges`",
                );
            }
        }
    }
    let ranges = ipam.get("ranges").map(Node::items).unwrap_or_default();
    for (at, set) in ranges.iter().enumerate() {
        let path = item(&below(path, "ranges"), at);
        if set.items().is_empty() && matches!(set.tree, Tree::List(_) | Tree::Null) {
            sheet.error("range", set.at, &path, "the set has no range", "name a subnet, or remove the set");
        }
        let of_set = |(at, node)| range(node, item(&path, at));
        sets.push(set.items().iter().enumerate().filter_map(of_set).collect());
    }
    let has_more = conf.get("capabilities").is_some_and(|one| one.is_on("ipRanges"))
        || conf.get("runtimeConfig").is_some_and(|config| config.get("ipRanges").is_some());
    if sets.is_empty() && !has_more && delegation != Delegation::HandedOn && !sheet.has_errors_below(path) {
        let help = "`\"ranges\": [[{\"subnet\": \"10.88.0.0/16\"}]]`";
        sheet.error("missing-key", ipam.at, path, "there is no range to take addresses from", help);
    }
    let inputs = sets.iter().enumerate().filter(|(_, set)| !set.is_empty());
    let inputs = inputs.map(|(number, set)| (number, set.iter().map(|one| one.input.clone()).collect()));
    let whole = canonicalize_numbered(inputs.collect());
    // The search for overlapping ranges takes long for many ranges.
    let is_many = sets.iter().map(Vec::len).sum::<usize>() > MOST_PAIRED;
    if let (Err(message), true) = (&whole, is_many) {
        sheet.error("range", ipam.at, path, message.clone(), "");
    }
    let has_pairs = whole.is_err() && !is_many;
    for set in &sets {
        check_set(sheet, set, has_pairs);
    }
    for (at, first) in sets.iter().enumerate().filter(|_| has_pairs) {
        for (number, second) in sets.iter().enumerate().skip(at + 1) {
            if let Some((a, b)) =
                first.iter().flat_map(|a| second.iter().map(move |b| (a, b))).find(|(a, b)| overlap(a, b))
            {
                let message = format!("set {number} overlaps with set {at}: {} with {}", words(b), words(a));
                sheet.error("range", b.node.at, &b.path, message, "no address may be in two ranges");
            }
        }
    }
    if version.is_some_and(|version| version < Version::V0_3_0) {
        let families = |v4: bool| {
            sets.iter().filter_map(|set| set.first()).filter(|one| one.input.subnet.addr().is_ipv4() == v4).count()
        };
        if families(true) > 1 || families(false) > 1 {
            let help = "use a `cniVersion` of 0.3.0 or later";
            sheet.error(
                "version",
                ipam.at,
                path,
                "results of this CNI version have one address of each IP version",
                help,
            );
        }
    }
    let directory = ipam.word("dataDir");
    if !directory.is_empty() && !directory.starts_with('/') {
        let at = ipam.get("dataDir").map_or(ipam.at, |node| node.at);
        let message = "the directory must not depend on where the runtime was started";
        sheet.error("bad-value", at, &below(path, "dataDir"), message, "write a path that begins with /");
    }
}

/// Reads a range; unreadable ranges were reported before.
fn range(node: &Node, path: String) -> Option<Range<'_>> {
    let address = |key: &str| match node.word(key) {
        "" => Some(None),
        text => parse_ip(text).ok().map(Some),
    };
    let input = LeaseRange {
        subnet: parse_cidr(node.word("subnet")).ok()?,
        start: address("rangeStart")?,
        end: address("rangeEnd")?,
        gateway: address("gateway")?,
    };
    Some(Range { node, path, input })
}

/// Checks one set. `has_pairs` is true if the ranges must be compared in pairs.
fn check_set(sheet: &mut Sheet<'_>, set: &[Range<'_>], has_pairs: bool) {
    for (at, one) in set.iter().enumerate() {
        if let Err(message) = canonicalize(vec![vec![one.input.clone()]]) {
            let message = message.strip_prefix("invalid range set 0: ").unwrap_or(&message).to_owned();
            let key = match message.as_str() {
                text if text.starts_with("RangeStart") && one.node.get("rangeStart").is_some() => "rangeStart",
                text if text.starts_with("RangeEnd") && one.node.get("rangeEnd").is_some() => "rangeEnd",
                _ => "subnet",
            };
            let start_after_end = matches!((one.input.start, one.input.end), (Some(a), Some(b)) if a > b && one.input.subnet.contains(&a));
            let help = match key {
                "rangeStart" if start_after_end => "exchange `rangeStart` and `rangeEnd`".to_owned(),
                "rangeStart" | "rangeEnd" => format!("{} has {}", one.input.subnet.trunc(), bounds(&one.input.subnet)),
                _ => format!("the network is {}", one.input.subnet.trunc()),
            };
            let message = match (one.input.start, one.input.end) {
                (Some(start), Some(end)) if start_after_end => format!("rangeStart {start} is after rangeEnd {end}"),
                _ => message,
            };
            let node = one.node.get(key).unwrap_or(one.node);
            sheet.error("range", node.at, &below(&one.path, key), message, help);
        } else {
            let subnet = one.input.subnet;
            if let Some(gateway) = one.input.gateway.filter(|gateway| !subnet.contains(gateway)) {
                let at = one.node.get("gateway").map_or(one.node.at, |node| node.at);
                let message = format!("the gateway {gateway} is not in {subnet}: the container can't reach it");
                let help = format!("{subnet} has {}", bounds(&subnet));
                sheet.warning("range", at, &below(&one.path, "gateway"), message, help);
            }
        }
        for before in set.iter().take(if has_pairs { at } else { 0 }) {
            let (a, b) = (before.input.subnet.addr(), one.input.subnet.addr());
            if a.is_ipv4() != b.is_ipv4() {
                let message = "the ranges of a set have one IP version, and this range has another";
                sheet.error("range", one.node.at, &one.path, message, "put this range into another set");
                break;
            }
            if overlap(before, one) {
                let message = format!("{} overlaps with {}", words(one), words(before));
                sheet.error("range", one.node.at, &one.path, message, "no address may be in two ranges");
            }
        }
    }
}

/// True if two valid ranges have a common address.
fn overlap(a: &Range<'_>, b: &Range<'_>) -> bool {
    let alone = |one: &Range<'_>| canonicalize(vec![vec![one.input.clone()]]).is_ok();
    let is_same_family = a.input.subnet.addr().is_ipv4() == b.input.subnet.addr().is_ipv4();
    is_same_family && alone(a) && alone(b) && canonicalize(vec![vec![a.input.clone(), b.input.clone()]]).is_err()
}

fn words(range: &Range<'_>) -> String {
    let LeaseRange { subnet, start, end, .. } = &range.input;
    match (start, end) {
        (None, None) => subnet.to_string(),
        (start, end) => {
            let text = |ip: &Option<IpAddr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
            format!("{subnet} ({}-{})", text(start), text(end))
        }
    }
}

fn bounds(subnet: &IpNet) -> String {
    format!("{} to {}", subnet.network(), subnet.broadcast())
}

fn fixed(sheet: &mut Sheet<'_>, conf: &Node, ipam: &Node, path: &str, version: Option<Version>) {
    let here = below(path, "addresses");
    let mut families = [0, 0];
    let list = ipam.get("addresses").map(Node::items).unwrap_or_default();
    for (at, one) in list.iter().enumerate() {
        let Ok(address) = parse_cidr(one.word("address")) else { continue };
        if let Some(count) = families.get_mut(usize::from(address.addr().is_ipv6())) {
            *count += 1;
        }
        if let Ok(gateway) = parse_ip(one.word("gateway"))
            && !address.contains(&gateway)
        {
            let at_gateway = one.get("gateway").map_or(one.at, |node| node.at);
            let message = format!("the gateway {gateway} is not in {}: the container can't reach it", address.trunc());
            let help = format!("{} has {}", address.trunc(), bounds(&address));
            sheet.warning("range", at_gateway, &below(&item(&here, at), "gateway"), message, help);
        }
    }
    if version.is_some_and(|version| version < Version::V0_3_0) && families.iter().any(|count| *count > 1) {
        let help = "use a `cniVersion` of 0.3.0 or later";
        sheet.error("version", ipam.at, path, "results of this CNI version have one address of each IP version", help);
    }
    let of_runtime = conf.get("capabilities").is_some_and(|one| one.is_on("ips"))
        || conf.get("runtimeConfig").is_some_and(|config| config.get("ips").is_some())
        || conf.get("args").and_then(|args| args.get("cni")).is_some_and(|cni| cni.get("ips").is_some());
    if list.is_empty() && !of_runtime && !sheet.has_errors_below(path) {
        let message = "there are no addresses, unless the runtime gives some in `CNI_ARGS`";
        sheet.warning("missing-key", ipam.at, path, message, "`addresses`, or the capability `ips`");
    }
}
