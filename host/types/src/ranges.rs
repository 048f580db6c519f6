//! Ranges of addresses: the checks and defaults of the native host-local plugin, and its round-robin walk.
//!
//! All functions are pure. Error texts are the native plugin's, because operators search for them. No list of addresses
//! is ever built: a walk through an IPv6 /64 is lazy arithmetic on 128-bit numbers.

use crate::LeaseRange;
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A checked range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The subnet, without host bits.
    pub subnet: IpNet,
    /// First address to give out.
    pub start: IpAddr,
    /// Last address to give out.
    pub end: IpAddr,
    /// The subnet's gateway, never given out from this range.
    pub gateway: Option<IpAddr>,
}

/// Checked ranges of one family from which an attachment gets one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet {
    /// The ranges in the order of their use; never empty.
    pub ranges: Vec<Range>,
}

/// Checks range sets and fills in defaults. The gateway and the start are the first address of the subnet. The end is
/// the last address; with IPv4 it is the address before the broadcast address.
///
/// # Errors
/// The native plugin's text for the first fault.
pub fn canonicalize(sets: Vec<Vec<LeaseRange>>) -> Result<Vec<RangeSet>, String> {
    canonicalize_numbered(sets.into_iter().enumerate().collect())
}

/// Works as [`canonicalize`], for sets with these ascending numbers. Messages have the numbers, because the caller may
/// leave out some sets of a configuration.
///
/// # Errors
/// The errors of [`canonicalize`].
pub fn canonicalize_numbered(sets: Vec<(usize, Vec<LeaseRange>)>) -> Result<Vec<RangeSet>, String> {
    if sets.is_empty() {
        return Err("no IP ranges specified".to_owned());
    }
    let mut checked = Vec::with_capacity(sets.len());
    for (number, set) in sets {
        let set = canonical_set(set).map_err(|text| format!("invalid range set {number}: {text}"))?;
        checked.push((number, set));
    }
    let ranges = checked.iter().flat_map(|(number, set)| set.ranges.iter().map(|range| (*number, range)));
    if let Some((i, j)) = first_overlap(ranges.collect()) {
        return Err(format!("range set {i} overlaps with {j}"));
    }
    Ok(checked.into_iter().map(|(_, set)| set).collect())
}

fn canonical_set(set: Vec<LeaseRange>) -> Result<RangeSet, String> {
    if set.is_empty() {
        return Err("empty range set".to_owned());
    }
    let mut ranges: Vec<Range> = Vec::with_capacity(set.len());
    for input in set {
        let range = canonical_range(input)?;
        if ranges.first().is_some_and(|first| first.start.is_ipv4() != range.start.is_ipv4()) {
            return Err("mixed address families".to_owned());
        }
        ranges.push(range);
    }
    if let Some((i, j)) = first_overlap(ranges.iter().enumerate().collect())
        && let (Some(a), Some(b)) = (ranges.get(i), ranges.get(j))
    {
        return Err(format!("subnets {a} and {b} overlap"));
    }
    Ok(RangeSet { ranges })
}

/// Returns the numbers of the first two overlapping ranges. Ranges with the same number don't overlap. A file may have
/// thousands of ranges, so they are sorted instead of compared in pairs.
fn first_overlap(ranges: Vec<(usize, &Range)>) -> Option<(usize, usize)> {
    let first = of_overlapping(&ranges).into_iter().min()?;
    let own: Vec<&Range> = ranges.iter().filter(|(of, _)| *of == first).map(|(_, range)| *range).collect();
    let overlaps = |(of, range): &&(usize, &Range)| *of > first && own.iter().any(|own| own.overlaps(range));
    ranges.iter().find(overlaps).map(|(second, _)| (first, *second))
}

/// Returns the numbers of the ranges that overlap another range, in the time that sorting takes.
fn of_overlapping(ranges: &[(usize, &Range)]) -> Vec<usize> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|(_, range)| (range.start.is_ipv6(), number(range.start)));
    let mut found = Vec::new();
    let mut last: Option<&Range> = None;
    for (at, (of, range)) in sorted.iter().enumerate() {
        let next = sorted.get(at + 1).is_some_and(|(_, next)| range.overlaps(next));
        if next || last.is_some_and(|last| last.overlaps(range)) {
            found.push(*of);
        }
        // `last` is the range of this family with the highest end.
        if last.is_none_or(|last| last.end.is_ipv4() != range.end.is_ipv4() || last.end < range.end) {
            last = Some(range);
        }
    }
    found
}

fn canonical_range(input: LeaseRange) -> Result<Range, String> {
    let subnet = input.subnet;
    if subnet.prefix_len() + 2 > subnet.max_prefix_len() {
        return Err(format!("Network {subnet} too small to allocate from"));
    }
    // An IPv4-mapped subnet: its address is IPv4, but its mask is not.
    if subnet.addr().to_canonical() != subnet.addr() {
        return Err("IPNet IP and Mask version mismatch".to_owned());
    }
    if subnet.addr() != subnet.network() {
        return Err(format!(
            "Network has host bits set. For a subnet mask of length {} the network address is {}",
            subnet.prefix_len(),
            subnet.network()
        ));
    }
    let [start, end, gateway] = [input.start, input.end, input.gateway].map(|given| given.map(|ip| ip.to_canonical()));
    let first = above(subnet.addr(), 1);
    let last = match subnet {
        IpNet::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.broadcast().to_bits() - 1)),
        IpNet::V6(v6) => IpAddr::V6(v6.broadcast()),
    };
    let start = start.unwrap_or(first);
    let end_or_last = end.unwrap_or(last);
    // A start after the end counts as a wrong start. Only a start that the configuration gives can be wrong.
    let before_end = end_or_last.is_ipv4() != start.is_ipv4() || start <= end_or_last;
    if !subnet.contains(&start) {
        return Err(format!("RangeStart {start} not in network {subnet}"));
    }
    if input.start.is_some() && !before_end {
        let which = if end.is_some() { "" } else { ", the last one before the broadcast address" };
        return Err(format!("RangeStart {start} not in network {subnet}: it is behind RangeEnd {end_or_last}{which}"));
    }
    let end = end_or_last;
    if !subnet.contains(&end) || end < start {
        return Err(format!("RangeEnd {end} not in network {subnet}"));
    }
    Ok(Range { subnet, start, end, gateway: Some(gateway.unwrap_or(first)) })
}

/// Returns the address as a number. Numbers can be compared only within one family.
fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns the address `offset` above `base`, in the family of `base`. Saturates at the family's last address.
fn above(base: IpAddr, offset: u128) -> IpAddr {
    match base {
        IpAddr::V4(v4) => {
            let offset = u32::try_from(offset).unwrap_or(u32::MAX);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits().saturating_add(offset)))
        }
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits().saturating_add(offset))),
    }
}

impl Range {
    /// True if `ip` lies between start and end. The gateway may lie between them too.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.subnet.contains(&ip) && self.start <= ip && ip <= self.end
    }

    /// Returns the address with the subnet's prefix length.
    #[must_use]
    pub fn with_prefix(&self, ip: IpAddr) -> IpNet {
        // The prefix length comes from a valid subnet of the same family.
        IpNet::new(ip, self.subnet.prefix_len()).unwrap_or_else(|_| IpNet::from(ip))
    }

    /// Returns the number of addresses that the range can give out; saturates for `::/0`.
    #[must_use]
    pub fn capacity(&self) -> u128 {
        let size = (number(self.end) - number(self.start)).saturating_add(1);
        size - u128::from(self.gateway.is_some_and(|gateway| self.contains(gateway)))
    }

    fn overlaps(&self, other: &Range) -> bool {
        self.start.is_ipv4() == other.start.is_ipv4() && self.start <= other.end && other.start <= self.end
    }

    /// Returns the addresses from `low` to `high` (as numbers), without the gateway.
    fn span(&self, low: u128, high: u128) -> impl Iterator<Item = (IpAddr, &Range)> {
        let base = number(self.start);
        (low..=high)
            .map(move |n| above(self.start, n - base))
            .filter(|ip| Some(*ip) != self.gateway)
            .map(move |ip| (ip, self))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

impl RangeSet {
    /// Returns the range that contains `ip`.
    #[must_use]
    pub fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.ranges.iter().find(|range| range.contains(ip))
    }

    /// Returns the number of addresses that the set can give out.
    #[must_use]
    pub fn capacity(&self) -> u128 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.capacity()))
    }

    /// Returns every address once, round robin, without the gateways. The walk starts after `last`, goes through all
    /// ranges, and ends with `last` itself. If `last` is not in the set, the walk starts at the first address.
    pub fn walk(&self, last: Option<IpAddr>) -> impl Iterator<Item = (IpAddr, &Range)> {
        let place = last.and_then(|last| {
            let index = self.ranges.iter().position(|range| range.contains(last))?;
            Some((index, number(last.to_canonical())))
        });
        let pivot = place.map_or(0, |(index, _)| index);
        let (before, after) = self.ranges.split_at(pivot.min(self.ranges.len()));
        // The range of `last` comes twice: first the addresses after `last`, and the rest at the end.
        let head = after.iter().enumerate().map(move |(i, range)| {
            let low = match place {
                Some((_, last)) if i == 0 => last.checked_add(1),
                _ => Some(number(range.start)),
            };
            (range, low, number(range.end))
        });
        let middle = before.iter().map(|range| (range, Some(number(range.start)), number(range.end)));
        let tail = place.and_then(|(_, last)| after.first().map(|range| (range, Some(number(range.start)), last)));
        head.chain(middle).chain(tail).filter_map(|(range, low, high)| low.map(|low| range.span(low, high))).flatten()
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            write!(f, "{}{range}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn input(subnet: &str, start: &str, end: &str, gateway: &str) -> LeaseRange {
        let ip = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        LeaseRange { subnet: subnet.parse().unwrap(), start: ip(start), end: ip(end), gateway: ip(gateway) }
    }

    fn one(subnet: &str, start: &str, end: &str, gateway: &str) -> Result<RangeSet, String> {
        canonicalize(vec![vec![input(subnet, start, end, gateway)]]).map(|mut sets| sets.remove(0))
    }

    fn walk(set: &RangeSet, last: &str) -> Vec<String> {
        set.walk(last.parse().ok()).map(|(ip, _)| ip.to_string()).collect()
    }

    #[test]
    fn defaults_are_the_native_ones() {
        let set = one("10.1.0.0/24", "", "", "").unwrap();
        assert_eq!(set.to_string(), "10.1.0.1-10.1.0.254");
        assert_eq!(set.ranges[0].gateway, Some("10.1.0.1".parse().unwrap()));
        assert_eq!(set.capacity(), 253);
        let set = one("fd00::/64", "", "", "").unwrap();
        assert_eq!(set.to_string(), "fd00::1-fd00::ffff:ffff:ffff:ffff");
        assert_eq!(one("0.0.0.0/0", "", "", "").unwrap().to_string(), "0.0.0.1-255.255.255.254");
        assert_eq!(one("::/0", "", "", "").unwrap().capacity(), u128::MAX - 1);
    }

    #[test]
    fn faults_have_the_native_texts() {
        let cases = [
            (("10.1.0.0/31", "", "", ""), "Network 10.1.0.0/31 too small to allocate from"),
            (("fd00::1/127", "", "", ""), "Network fd00::1/127 too small to allocate from"),
            (("::ffff:10.1.0.0/120", "", "", ""), "IPNet IP and Mask version mismatch"),
            (
                ("10.1.2.3/16", "", "", ""),
                "Network has host bits set. For a subnet mask of length 16 the network address is 10.1.0.0",
            ),
            (("10.1.0.0/24", "10.2.0.1", "", ""), "RangeStart 10.2.0.1 not in network 10.1.0.0/24"),
            (
                ("10.1.0.0/24", "10.1.0.9", "10.1.0.5", ""),
                "RangeStart 10.1.0.9 not in network 10.1.0.0/24: it is behind RangeEnd 10.1.0.5",
            ),
            (
                ("10.1.0.0/24", "10.1.0.255", "", ""),
                "RangeStart 10.1.0.255 not in network 10.1.0.0/24: it is behind RangeEnd 10.1.0.254, the last one before the broadcast address",
            ),
            (("10.1.0.0/24", "", "10.1.1.5", ""), "RangeEnd 10.1.1.5 not in network 10.1.0.0/24"),
            (("10.1.0.0/24", "10.1.0.2", "fd00::1", ""), "RangeEnd fd00::1 not in network 10.1.0.0/24"),
            (("10.1.0.0/24", "", "10.1.0.0", ""), "RangeEnd 10.1.0.0 not in network 10.1.0.0/24"),
        ];
        for ((subnet, start, end, gateway), text) in cases {
            assert_eq!(one(subnet, start, end, gateway).unwrap_err(), format!("invalid range set 0: {text}"));
        }
        assert_eq!(canonicalize(vec![]).unwrap_err(), "no IP ranges specified");
        assert_eq!(canonicalize(vec![vec![]]).unwrap_err(), "invalid range set 0: empty range set");
        let (a, b) = (input("10.1.0.0/24", "", "", ""), input("fd00::/64", "", "", ""));
        assert_eq!(canonicalize(vec![vec![a.clone(), b]]).unwrap_err(), "invalid range set 0: mixed address families");
        let inner = input("10.1.0.0/25", "", "", "");
        assert_eq!(
            canonicalize(vec![vec![a.clone(), inner.clone()]]).unwrap_err(),
            "invalid range set 0: subnets 10.1.0.1-10.1.0.254 and 10.1.0.1-10.1.0.126 overlap"
        );
        let other = input("10.9.0.0/24", "", "", "");
        assert_eq!(canonicalize(vec![vec![other], vec![a], vec![inner]]).unwrap_err(), "range set 1 overlaps with 2");
    }

    #[test]
    fn walks_round_robin_without_gateways() {
        let set = one("10.1.0.0/29", "", "", "").unwrap();
        assert_eq!(walk(&set, ""), ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"]);
        assert_eq!(walk(&set, "10.1.0.4"), ["10.1.0.5", "10.1.0.6", "10.1.0.2", "10.1.0.3", "10.1.0.4"]);
        assert_eq!(walk(&set, "10.1.0.6")[0], "10.1.0.2");
        assert_eq!(walk(&set, "10.7.0.6")[0], "10.1.0.2");
        let two = canonicalize(vec![vec![
            input("10.1.0.0/24", "10.1.0.8", "10.1.0.9", "10.1.0.1"),
            input("10.2.0.0/24", "10.2.0.0", "10.2.0.2", "10.2.0.1"),
        ]])
        .unwrap();
        assert_eq!(walk(&two[0], "10.2.0.0"), ["10.2.0.2", "10.1.0.8", "10.1.0.9", "10.2.0.0"]);
        // Only the range's own gateway is protected.
        let sibling = canonicalize(vec![vec![
            input("10.1.0.0/24", "10.1.0.8", "10.1.0.8", "10.2.0.8"),
            input("10.2.0.0/24", "10.2.0.8", "10.2.0.8", "10.2.0.1"),
        ]])
        .unwrap();
        assert_eq!(walk(&sibling[0], ""), ["10.1.0.8", "10.2.0.8"]);
    }

    #[test]
    fn the_last_address_of_a_family_ends_a_range() {
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let set = one(&format!("{}/120", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00"), "", "", "").unwrap();
        assert_eq!(
            set.walk(last.parse().ok()).next().unwrap().0,
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff02".parse::<IpAddr>().unwrap()
        );
        assert_eq!(set.walk(last.parse().ok()).count() as u128, set.capacity());
    }

    proptest! {
        #[test]
        fn every_walk_visits_every_address_once(
            prefix in 24u8..31, net in any::<u32>(), cut in 0u32..300, from in any::<u32>(), gateway in 0u32..300,
        ) {
            let subnet = ipnet::Ipv4Net::new(Ipv4Addr::from_bits(net), prefix).unwrap().trunc();
            let base = subnet.network().to_bits();
            let at = |offset: u32| Some(IpAddr::V4(Ipv4Addr::from_bits(base.saturating_add(offset))));
            let input = LeaseRange { subnet: IpNet::V4(subnet), start: at(cut % 100), end: None, gateway: at(gateway) };
            if let Ok(sets) = canonicalize(vec![vec![input]]) {
                let set = &sets[0];
                let mut seen: Vec<IpAddr> = set.walk(at(from % 300)).map(|(ip, _)| ip).collect();
                prop_assert_eq!(seen.len() as u128, set.capacity());
                seen.sort();
                seen.dedup();
                prop_assert_eq!(seen.len() as u128, set.capacity());
                prop_assert!(seen.iter().all(|ip| set.range_of(*ip).is_some() && Some(*ip) != set.ranges[0].gateway));
            }
        }
    }
}
