//! Forwards from ports of the node to ports of a container.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

postern_cni::named! {
    name, exactly:
    /// A transport protocol with ports.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Transport {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
        /// SCTP.
        Sctp = "sctp",
    }
}

impl Transport {
    /// The protocol's number in IP headers (IANA).
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Returns the protocol with this name, in upper or lower case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.name().eq_ignore_ascii_case(name))
    }
}

/// Consecutive ports of the node that lead to the same number of consecutive ports of the container. As text:
/// `tcp:8080-8089:80`, followed by `@ADDRESS` for one address of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// The protocol.
    pub transport: Transport,
    /// The node's address. An unspecified address stands for all addresses of its family, `None` for all addresses.
    pub host_address: Option<IpAddr>,
    /// The node's first port, 1 to 65535.
    pub host_port: u16,
    /// The container's first port, 1 to 65535.
    pub container_port: u16,
    /// The number of ports, at least 1.
    pub count: u16,
}

impl Forward {
    /// True if all ports are in the range of port numbers.
    pub fn is_possible(&self) -> bool {
        let fits = |first: u16| first > 0 && first.checked_add(self.count.saturating_sub(1)).is_some();
        self.count > 0 && fits(self.host_port) && fits(self.container_port)
    }

    /// Returns the node's last port.
    pub fn last_host_port(&self) -> u16 {
        self.host_port.saturating_add(self.count.saturating_sub(1))
    }

    /// Returns the pairs of ports: the node's port, and the container's port.
    pub fn ports(self) -> impl Iterator<Item = (u16, u16)> {
        (0..self.count).map(move |step| (self.host_port.saturating_add(step), self.container_port.saturating_add(step)))
    }

    /// True if a packet can be for both forwards.
    pub fn overlaps(&self, other: &Self) -> bool {
        let addresses = match (self.host_address, other.host_address) {
            (Some(one), Some(two)) if one.is_ipv4() != two.is_ipv4() => false,
            (Some(one), Some(two)) => one == two || one.is_unspecified() || two.is_unspecified(),
            (None, _) | (_, None) => true,
        };
        self.transport == other.transport
            && addresses
            && self.host_port <= other.last_host_port()
            && other.host_port <= self.last_host_port()
    }

    /// Joins forwards of consecutive ports. The order of the forwards stays.
    pub fn joined(forwards: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        for forward in forwards {
            let follows = |last: &Self| {
                (last.transport, last.host_address) == (forward.transport, forward.host_address)
                    && last.host_port.checked_add(last.count) == Some(forward.host_port)
                    && last.container_port.checked_add(last.count) == Some(forward.container_port)
            };
            match joined.last_mut().filter(|last| follows(last)) {
                Some(last) => last.count = last.count.saturating_add(forward.count),
                None => joined.push(forward),
            }
        }
        joined
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.name(), self.host_port)?;
        if self.count != 1 {
            write!(f, "-{}", self.last_host_port())?;
        }
        write!(f, ":{}", self.container_port)?;
        self.host_address.map_or(Ok(()), |address| write!(f, "@{address}"))
    }
}

/// A text that is no forward.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no forward: it can be \"tcp:8080-8089:80@192.0.2.1\"")]
pub struct ForwardParseError(String);

impl FromStr for Forward {
    type Err = ForwardParseError;

    fn from_str(text: &str) -> Result<Self, ForwardParseError> {
        let read = || {
            let (ports, address) = match text.split_once('@') {
                Some((ports, address)) => (ports, Some(address.parse().ok()?)),
                None => (text, None),
            };
            let (transport, ports) = ports.split_once(':')?;
            let (host, container) = ports.split_once(':')?;
            let (first, last) = host.split_once('-').unwrap_or((host, host));
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            let forward = Self {
                transport: Transport::exactly(transport)?,
                host_address: address,
                host_port: first,
                container_port: container.parse().ok()?,
                count: last.checked_sub(first)?.checked_add(1)?,
            };
            Some(forward).filter(Self::is_possible)
        };
        read().ok_or_else(|| ForwardParseError(text.to_owned()))
    }
}

impl Serialize for Forward {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Forward {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The senders whose forwarded packets reach the container with the node's address as source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NatSources {
    /// No sender.
    None,
    /// The container's own network, and the node by 127.0.0.1.
    Own,
    /// All senders.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(text: &str) -> Forward {
        text.parse().unwrap()
    }

    #[test]
    fn texts_are_read_back() {
        for text in ["tcp:80:8080", "udp:53-60:1053", "sctp:1-65535:1", "tcp:80:80@127.0.0.1", "udp:5-6:7@fd00::1"] {
            assert_eq!(forward(text).to_string(), text);
        }
        for bad in [
            "",
            "tcp:80",
            "icmp:1:1",
            "tcp:0:1",
            "tcp:1:0",
            "tcp:5-4:1",
            "tcp:1-65535:2",
            "tcp:70000:1",
            "tcp:1:1@x",
            "TCP:1:1",
        ] {
            assert!(bad.parse::<Forward>().is_err(), "{bad}");
        }
        assert_eq!(forward("tcp:8080-8082:80").ports().collect::<Vec<_>>(), [(8080, 80), (8081, 81), (8082, 82)]);
    }

    #[test]
    fn overlaps() {
        let overlap = |one: &str, two: &str| {
            let (one, two) = (forward(one), forward(two));
            assert_eq!(one.overlaps(&two), two.overlaps(&one));
            one.overlaps(&two)
        };
        assert!(overlap("tcp:80:1", "tcp:70-80:1") && overlap("tcp:80:1", "tcp:80:2@10.0.0.1"));
        assert!(overlap("tcp:80:1@0.0.0.0", "tcp:80:1@10.0.0.1"));
        for (one, two) in [
            ("tcp:80:1", "udp:80:1"),
            ("tcp:80:1", "tcp:81-90:1"),
            ("tcp:80:1@10.0.0.1", "tcp:80:1@10.0.0.2"),
            ("tcp:80:1@0.0.0.0", "tcp:80:1@fd00::1"),
        ] {
            assert!(!overlap(one, two), "{one} {two}");
        }
    }

    #[test]
    fn consecutive_ports_are_joined() {
        let all = ["tcp:80:8080", "tcp:81:8081", "tcp:82:9000", "udp:83:9001", "udp:84-85:9002"].map(forward);
        let joined: Vec<String> = Forward::joined(all).iter().map(Forward::to_string).collect();
        assert_eq!(joined, ["tcp:80-81:8080", "tcp:82:9000", "udp:83-85:9001"]);
    }
}
