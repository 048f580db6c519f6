//! Rules for ranges: the addresses that an attachment may lease.
//!
//! A range of the configuration covers all ranges inside it with the same subnet and gateway. A network in the policy
//! covers every range whose subnet and gateway are inside the network.
//!
//! A plugin gets one address from each set that it requests. Each granted set serves only one requested set. So a
//! plugin that cuts a range into pieces gets no more addresses.

use super::error::Ambiguous;
use super::granted::Grant;
use super::template::{Value, spelt_once};
use crate::prelude::*;
use ipnet::IpNet;
use postern_cni::{Json, parse_cidr};
use postern_types::{LeaseRange, Range, canonicalize};

/// The reason of a refusal.
#[derive(Debug, PartialEq, Eq)]
pub enum RangeRefusal {
    /// No granted range covers the range.
    NotGranted(LeaseRange),
    /// Another set uses the granted range.
    UsedUp(LeaseRange),
}

/// Reads a range as host-local does. `None` if it is not a range. A range with a repeated key is an error.
pub fn read(json: &Json) -> Result<Option<LeaseRange>, Ambiguous> {
    for key in ["subnet", "rangeStart", "rangeEnd", "gateway"] {
        spelt_once(json, key)?;
    }
    let read = || {
        let fields = json.fields("Range").ok()?;
        let subnet = fields.cidr("subnet").ok()??;
        let [start, end, gateway] = ["rangeStart", "rangeEnd", "gateway"].map(|key| fields.ip(key).ok());
        Some(LeaseRange { subnet, start: start?, end: end?, gateway: gateway? })
    };
    Ok(read())
}

/// Returns a range as text for people.
pub fn show(range: &LeaseRange) -> String {
    let end = |ip: Option<core::net::IpAddr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
    let mut text = range.subnet.to_string();
    if range.start.is_some() || range.end.is_some() {
        text += &format!(", {}-{}", end(range.start), end(range.end));
    }
    if let Some(gateway) = range.gateway {
        text += &format!(", gateway {gateway}");
    }
    text
}

/// Returns a range with its defaults; `None` if nothing can be leased from it.
fn checked(range: &LeaseRange) -> Option<Range> {
    let sets = canonicalize(vec![vec![range.clone()]]).ok()?;
    sets.into_iter().next()?.ranges.into_iter().next()
}

/// Ranges that together are granted for one address.
#[derive(Debug)]
struct Set {
    /// The index of the policy's value, and the position of the configuration's list. `None` for a network.
    key: Option<Vec<usize>>,
    covers: Vec<Cover>,
}

#[derive(Debug)]
enum Cover {
    Range(Range),
    Network(IpNet),
}

impl Cover {
    fn covers(&self, range: &Range) -> bool {
        match self {
            Self::Range(granted) => {
                let same = (granted.subnet, granted.gateway) == (range.subnet, range.gateway);
                same && granted.start <= range.start && range.end <= granted.end
            }
            Self::Network(network) => {
                network.contains(&range.subnet) && range.gateway.is_none_or(|ip| range.subnet.contains(&ip))
            }
        }
    }

    /// The number of host bits of a network. The smallest network is used first, because another range may need a
    /// larger network.
    fn width(&self) -> u8 {
        match self {
            Self::Range(_) => 0,
            Self::Network(network) => network.max_prefix_len() - network.prefix_len(),
        }
    }
}

fn granted_sets(grant: &Grant) -> Vec<Set> {
    let mut sets: Vec<Set> = Vec::new();
    for value in grant.values("ranges") {
        let (key, cover) = match value {
            Value::Text(pattern) => (None, parse_cidr(&pattern.to_string()).ok().map(Cover::Network)),
            Value::Range(range, set) => (Some(set.clone()), checked(range).map(Cover::Range)),
            Value::Pairs(_) | Value::EachWithEach(..) => continue,
        };
        let Some(cover) = cover else { continue };
        match sets.iter_mut().find(|set| key.is_some() && set.key == key) {
            Some(set) => set.covers.push(cover),
            None => sets.push(Set { key, covers: vec![cover] }),
        }
    }
    sets.sort_by_key(|set| set.covers.iter().map(Cover::width).max());
    sets
}

/// Checks that every range is granted. An invalid range passes, because the lease store refuses the range with the
/// native plugin's words. The error has the first range that is not granted.
pub fn check(grant: &Grant, sets: &[Vec<LeaseRange>]) -> Result<(), RangeRefusal> {
    let granted = granted_sets(grant);
    let mut used: Vec<Option<usize>> = vec![None; granted.len()];
    for (number, asked) in sets.iter().enumerate() {
        for range in asked {
            let Some(wanted) = checked(range) else { continue };
            let covers = |set: &Set| set.covers.iter().any(|cover| cover.covers(&wanted));
            let free =
                granted.iter().zip(&mut used).find(|(set, used)| used.is_none_or(|by| by == number) && covers(set));
            match free {
                Some((_, used)) => *used = Some(number),
                None if granted.iter().any(covers) => return Err(RangeRefusal::UsedUp(range.clone())),
                None => return Err(RangeRefusal::NotGranted(range.clone())),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::granted::tests::granted;
    use super::*;

    const SHIPPED: &str = r#""${config.ipam}", "${config.ipam.ranges.*.*}", "${config.runtimeConfig.ipRanges.*.*}""#;

    /// Reads `SUBNET START END GATEWAY`, with `-` for a missing value.
    fn range(text: &str) -> LeaseRange {
        let mut words = text.split(' ');
        let subnet = words.next().unwrap().parse().unwrap();
        let mut ip = || words.next().filter(|word| *word != "-").map(|word| word.parse().unwrap());
        LeaseRange { subnet, start: ip(), end: ip(), gateway: ip() }
    }

    /// Sets are separated by `;`, ranges by `,`.
    fn ask(ranges: &str, config: &str, sets: &str) -> Result<(), String> {
        let granted = granted(&format!("[grant.leases]\ndirectories = [\"/x\"]\nranges = [{ranges}]"), config);
        let sets: Vec<Vec<_>> = sets.split(';').map(|set| set.split(',').map(range).collect()).collect();
        check(granted.grant(postern_types::Capability::Leases).unwrap(), &sets).map_err(|refused| match refused {
            RangeRefusal::NotGranted(range) => format!("no {}", show(&range)),
            RangeRefusal::UsedUp(range) => format!("twice {}", show(&range)),
        })
    }

    #[test]
    fn a_range_of_the_configuration_covers_what_lies_in_it() {
        let config =
            r#"{"ipam":{"ranges":[[{"subnet":"10.9.0.0/24","rangeStart":"10.9.0.10","rangeEnd":"10.9.0.20"}]]}}"#;
        for good in [
            "10.9.0.0/24 10.9.0.10 10.9.0.20",
            "10.9.0.0/24 10.9.0.12 10.9.0.12",
            "10.9.0.0/24 10.9.0.10 10.9.0.20 10.9.0.1",
        ] {
            assert_eq!(ask(SHIPPED, config, good), Ok(()), "{good}");
        }
        for (bad, shown) in [
            ("10.9.0.0/24", "10.9.0.0/24"),
            ("10.9.0.0/24 10.9.0.9 10.9.0.20", "10.9.0.0/24, 10.9.0.9-10.9.0.20"),
            ("10.9.0.0/24 10.9.0.10 10.9.0.21", "10.9.0.0/24, 10.9.0.10-10.9.0.21"),
            ("10.9.0.0/24 10.9.0.10 10.9.0.20 10.9.0.2", "10.9.0.0/24, 10.9.0.10-10.9.0.20, gateway 10.9.0.2"),
            ("10.9.0.0/25 10.9.0.10 10.9.0.20", "10.9.0.0/25, 10.9.0.10-10.9.0.20"),
            ("10.9.0.0/16 10.9.0.10 10.9.0.20", "10.9.0.0/16, 10.9.0.10-10.9.0.20"),
            ("10.8.0.0/24", "10.8.0.0/24"),
        ] {
            assert_eq!(ask(SHIPPED, config, bad), Err(format!("no {shown}")));
        }
    }

    #[test]
    fn the_gateway_is_that_of_the_configuration() {
        let config = r#"{"ipam":{"subnet":"10.9.0.0/24","gateway":"10.8.0.1"}}"#;
        assert_eq!(ask(SHIPPED, config, "10.9.0.0/24 - - 10.8.0.1"), Ok(()));
        assert!(ask(SHIPPED, config, "10.9.0.0/24").is_err());
        assert!(ask(SHIPPED, config, "10.9.0.0/24 - - 10.9.0.1").is_err());
    }

    #[test]
    fn all_places_of_the_configuration_count() {
        let config = r#"{"ipam":{"subnet":"10.1.0.0/24","ranges":[[{"subnet":"10.2.0.0/24"},{"subnet":"10.3.0.0/24"}],null,[null,7,{"subnet":"fd00::/64"}]]},
            "runtimeConfig":{"ipRanges":[[{"subnet":"10.4.0.0/24"}]]}}"#;
        assert_eq!(ask(SHIPPED, config, "10.4.0.0/24;10.1.0.0/24;10.2.0.0/24,10.3.0.0/24;fd00::/64"), Ok(()));
        assert_eq!(ask(SHIPPED, "{}", "10.4.0.0/24"), Err("no 10.4.0.0/24".to_owned()));
    }

    #[test]
    fn a_set_serves_once() {
        let config = r#"{"ipam":{"ranges":[[{"subnet":"10.2.0.0/24"},{"subnet":"10.3.0.0/24"}]]}}"#;
        assert_eq!(
            ask(SHIPPED, config, "10.2.0.0/24 10.2.0.5 10.2.0.5;10.2.0.0/24 10.2.0.6 10.2.0.6"),
            Err("twice 10.2.0.0/24, 10.2.0.6-10.2.0.6".to_owned())
        );
        assert_eq!(ask(SHIPPED, config, "10.2.0.0/24;10.3.0.0/24"), Err("twice 10.3.0.0/24".to_owned()));
        assert_eq!(ask("\"10.0.0.0/8\"", "{}", "10.2.0.0/24;10.3.0.0/24"), Err("twice 10.3.0.0/24".to_owned()));
        // The smaller network is used first.
        assert_eq!(ask("\"10.0.0.0/8\", \"10.2.0.0/16\"", "{}", "10.2.0.0/24;10.3.0.0/24"), Ok(()));
        assert_eq!(ask("\"10.0.0.0/8\", \"10.2.0.0/16\"", "{}", "10.2.0.0/24,10.3.0.0/24"), Ok(()));
    }

    #[test]
    fn a_network_covers_subnet_and_gateway() {
        let network = "\"10.0.0.0/8\"";
        for good in ["10.2.0.0/24", "10.0.0.0/8", "10.2.0.0/24 10.2.0.9 - 10.2.0.254"] {
            assert_eq!(ask(network, "{}", good), Ok(()), "{good}");
        }
        for bad in ["11.0.0.0/24", "10.0.0.0/7", "fd00::/64", "10.2.0.0/24 - - 10.3.0.1"] {
            assert!(ask(network, "{}", bad).unwrap_err().starts_with("no "), "{bad}");
        }
        // A text of the configuration can be a network too. A text that is no network grants nothing.
        assert_eq!(ask("\"${config.net}\"", r#"{"net":"10.0.0.0/8"}"#, "10.2.0.0/24"), Ok(()));
        assert!(ask("\"${config.net}\"", r#"{"net":"10.*"}"#, "10.2.0.0/24").is_err());
    }

    #[test]
    fn what_is_no_range_is_left_to_the_lease_store() {
        for none in ["10.0.0.0/31", "10.0.0.7/24", "10.0.0.0/24 10.1.0.1", "::ffff:10.0.0.0/120"] {
            assert_eq!(checked(&range(none)), None, "{none}");
            assert_eq!(ask(SHIPPED, "{}", none), Ok(()));
        }
    }

    #[test]
    fn a_range_spells_its_keys_once() {
        let config = Json::parse(br#"{"subnet":"10.0.0.0/8","SUBNET":"10.0.0.0/9"}"#, 4096).unwrap();
        assert!(read(&config).unwrap_err().to_string().contains("has both \"subnet\" and \"SUBNET\""));
        for none in ["{}", r#"{"subnet":7}"#, r#"{"subnet":"x"}"#, r#"{"subnet":"10.0.0.0/8","gateway":"x"}"#] {
            assert_eq!(read(&Json::parse(none.as_bytes(), 4096).unwrap()), Ok(None), "{none}");
        }
    }
}
