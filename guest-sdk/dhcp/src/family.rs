//! The families of addresses that a network asks for. Each family has its own lease.

use crate::{Lease, LeaseDns};
use postern_cni::{Error, Json, quote};
use serde::{Deserialize, Serialize};

/// The size limit of a configuration; the host's own limit is lower.
const LIMIT: usize = 16 << 20;

/// A family of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// DHCP.
    #[default]
    Ipv4,
    /// DHCPv6.
    Ipv6,
}

impl Family {
    /// Both families, in the order of results.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// Returns the number that [`crate::Client::family`] has.
    pub fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 4,
            Self::Ipv6 => 6,
        }
    }

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// Returns the families that a network asks for in `ipam.families`, IPv4 first. Without this key, the family is IPv4.
///
/// # Errors
/// Code 6 for a configuration that is no JSON, 7 for a word that is no family, 999 for a key of a wrong type.
pub fn families(configuration: &str) -> Result<Vec<Family>, Error> {
    let json = Json::parse(configuration.as_bytes(), LIMIT)?;
    let netconf = |error: Error| error.context("error parsing netconf");
    let fields = json.fields("NetConf").map_err(netconf)?;
    let Some(ipam) = fields.object("ipam").map_err(netconf)? else { return Ok(vec![Family::Ipv4]) };
    let words = ipam.strings("families").map_err(netconf)?.unwrap_or_default();
    let mut wanted = Vec::new();
    for word in &words {
        wanted.push(match word.as_str() {
            "ipv4" => Family::Ipv4,
            "ipv6" => Family::Ipv6,
            other => {
                let other = quote(other);
                return Err(Error::config(format!(
                    "dhcp: ipam.families has {other}: a family is \"ipv4\" or \"ipv6\""
                )));
            }
        });
    }
    let is_wanted = |family: &Family| wanted.contains(family) || wanted.is_empty() && *family == Family::Ipv4;
    Ok(Family::ALL.into_iter().filter(is_wanted).collect())
}

impl Lease {
    /// Joins the leases of two families. The result has the addresses of both leases, and the shorter time.
    #[must_use]
    pub fn joined_with(self, other: Self) -> Self {
        let mut joined = self;
        joined.addresses.extend(other.addresses);
        joined.routes.extend(other.routes);
        joined.dns.join(other.dns);
        joined.mtu = joined.mtu.into_iter().chain(other.mtu).min();
        joined.server = joined.server.or(other.server);
        joined.seconds = joined.seconds.min(other.seconds);
        joined.t1 = joined.t1.min(other.t1);
        joined.t2 = joined.t2.min(other.t2);
        joined
    }
}

impl LeaseDns {
    fn join(&mut self, other: Self) {
        self.nameservers.extend(other.nameservers);
        self.domain = self.domain.take().or(other.domain);
        for name in other.search {
            if !self.search.contains(&name) {
                self.search.push(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{INFINITE, LeaseAddress};

    fn of(ipam: &str) -> Result<Vec<Family>, Error> {
        families(&format!(r#"{{"name":"n","type":"macvlan","ipam":{ipam}}}"#))
    }

    #[test]
    fn a_network_names_its_families() {
        use Family::{Ipv4, Ipv6};
        for (ipam, expected) in [
            (r#"{"type":"dhcp"}"#, vec![Ipv4]),
            (r#"{"families":[]}"#, vec![Ipv4]),
            (r#"{"families":null}"#, vec![Ipv4]),
            (r#"{"families":["ipv4"]}"#, vec![Ipv4]),
            (r#"{"families":["ipv6"]}"#, vec![Ipv6]),
            (r#"{"families":["ipv6","ipv4","ipv6"]}"#, vec![Ipv4, Ipv6]),
        ] {
            assert_eq!(of(ipam).unwrap(), expected, "{ipam}");
        }
        assert_eq!(families(r#"{"name":"n"}"#).unwrap(), [Ipv4]);
        let error = of(r#"{"families":["IPv6"]}"#).unwrap_err();
        assert_eq!(
            (error.code, error.msg.as_str()),
            (7, r#"dhcp: ipam.families has "IPv6": a family is "ipv4" or "ipv6""#)
        );
        for ipam in [r#"{"families":"ipv6"}"#, r#"{"families":[6]}"#] {
            assert_eq!(of(ipam).unwrap_err().code, 999, "{ipam}");
        }
        assert!(families("{").is_err());
    }

    #[test]
    fn two_leases_are_one_with_the_shorter_time() {
        let lease = |address: &str, name: &str, search: &[&str], seconds| Lease {
            addresses: vec![LeaseAddress { address: address.parse().unwrap(), gateway: None }],
            dns: LeaseDns {
                nameservers: vec![name.parse().unwrap()],
                domain: None,
                search: search.iter().map(|name| (*name).to_owned()).collect(),
            },
            seconds,
            t1: seconds / 2,
            t2: seconds / 2,
            ..Lease::default()
        };
        let four = Lease { mtu: Some(1400), ..lease("10.5.0.7/24", "10.5.0.1", &["a.example"], INFINITE) };
        let six = Lease { mtu: Some(1500), ..lease("2001:db8::7/64", "2001:db8::1", &["a.example", "b.example"], 60) };
        let joined = four.joined_with(six);
        assert_eq!(joined.addresses.len(), 2);
        assert_eq!((joined.seconds, joined.t1, joined.mtu), (60, 30, Some(1400)));
        assert_eq!(joined.dns.nameservers.len(), 2);
        assert_eq!(joined.dns.search, ["a.example", "b.example"]);
    }
}
