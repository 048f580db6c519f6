//! The result of ADD, and `prevResult`.
//!
//! Plugins work with one type: the type of the newest version. Reading converts older versions to this type, and
//! printing converts back. Three shapes exist: 0.1.0 and 0.2.0 (`ip4`, `ip6`), 0.3.0 to 0.4.0 (lists, `ips[].version`),
//! and 1.0.0 with 1.1.0.

mod decode;
mod encode;

use crate::version::Version;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The parts of an attachment, by the newest specification. The serde form is for transport inside Postern. Runtimes
/// get the form of [`CniResult::to_json`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniResult {
    /// The interfaces that were made, on the host and in the container.
    pub interfaces: Vec<Interface>,
    /// The addresses.
    pub ips: Vec<IpConfig>,
    /// The routes.
    pub routes: Vec<CniRoute>,
    /// The settings for name resolution in the container.
    pub dns: Dns,
}

/// An interface. Empty texts and 0 stand for absent keys; `name` is always printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The current name.
    pub name: String,
    /// The hardware address, as the plugin wrote it.
    pub mac: String,
    /// The MTU in bytes; from 1.1.0.
    pub mtu: i64,
    /// The path of the interface's namespace; empty for the host's namespace.
    pub sandbox: String,
    /// The socket of a user-space interface; from 1.1.0.
    pub socket_path: String,
    /// The PCI address of a device; from 1.1.0.
    pub pci_id: String,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// The index into [`CniResult::interfaces`], as written. [`CniResult::interface_of`] ignores a negative index and
    /// an index beyond the list. IPAM plugins give no index.
    pub interface: Option<i64>,
    /// The address with its prefix length; host bits are kept.
    pub address: IpNet,
    /// The gateway of the address's subnet.
    pub gateway: Option<IpAddr>,
}

/// A route. 0 stands for an absent `mtu`, `advmss` and `priority`; an absent `table` and `scope` differ from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniRoute {
    /// The destination; host bits are kept. It may be missing: native IPAM plugins pass on routes without destination.
    pub dst: Option<IpNet>,
    /// The next hop.
    pub gw: Option<IpAddr>,
    /// The path MTU in bytes.
    pub mtu: i64,
    /// The maximum segment size to advertise, in bytes.
    pub advmss: i64,
    /// The metric; lower is preferred.
    pub priority: i64,
    /// The routing table.
    pub table: Option<i64>,
    /// The scope, in rtnetlink's numbers.
    pub scope: Option<i64>,
}

/// Name resolution, as in resolv.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Addresses of name servers, by preference.
    pub nameservers: Vec<String>,
    /// The local domain.
    pub domain: String,
    /// Domains to search, by preference.
    pub search: Vec<String>,
    /// Options of the resolver.
    pub options: Vec<String>,
}

impl CniResult {
    /// Returns the interface that has the address `ip`. `None` if the address has no index, or if the index leads to no
    /// entry or to an entry without a name.
    pub fn interface_of(&self, ip: &IpConfig) -> Option<&Interface> {
        let index = ip.interface.and_then(|index| usize::try_from(index).ok())?;
        self.interfaces.get(index).filter(|interface| !interface.name.is_empty())
    }

    /// Returns the indices of the entries for the container's interface `ifname`: the entries with the sandbox `netns`.
    /// If no entry has this sandbox, entries with another sandbox count, and then entries without a sandbox. Some
    /// plugins write a container ID, the path of another mount namespace, or nothing.
    pub fn own_interfaces(&self, ifname: &str, netns: &str) -> Vec<usize> {
        let steps: [fn(&str, &str) -> bool; 3] =
            [|sandbox, netns| sandbox == netns, |sandbox, _| !sandbox.is_empty(), |_, _| true];
        let of = |is_own: fn(&str, &str) -> bool| {
            let is_own = |link: &Interface| link.name == ifname && is_own(&link.sandbox, netns);
            (0..).zip(&self.interfaces).filter(|(_, link)| is_own(link)).map(|(at, _)| at).collect::<Vec<_>>()
        };
        steps.into_iter().map(of).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

impl Dns {
    /// True if nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Dns::default()
    }
}

/// The versions whose results have one shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// One address per IP family.
    Pair,
    /// Lists, with the IP family for each address.
    Labelled,
    /// Lists, without the IP family.
    Plain,
}

impl Family {
    fn of(version: Version) -> Family {
        match version {
            Version::V0_1_0 | Version::V0_2_0 => Family::Pair,
            Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0 => Family::Labelled,
            Version::V1_0_0 | Version::V1_1_0 => Family::Plain,
        }
    }

    /// Returns the `cniVersion` texts that the family's decoder accepts.
    fn declarations(self) -> &'static [&'static str] {
        match self {
            Family::Pair => &["", "0.1.0", "0.2.0"],
            Family::Labelled => &["0.3.0", "0.3.1", "0.4.0"],
            Family::Plain => &["1.0.0", "1.1.0"],
        }
    }
}
