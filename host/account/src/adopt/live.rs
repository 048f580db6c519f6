//! The addresses of all links of the live namespaces, and the signs that an attachment uses them.
//!
//! Root in a container can give any address to its links, and make many namespaces with few addresses each. Such an
//! address counts as in use too, but the report names its link and namespace. So an operator sees who keeps a leftover.
//! An attachment's link with few addresses is not named if its namespace is mounted on the node: no container can mount
//! a namespace on the node.

use crate::alive::{HostConnection, host_connection};
use crate::namespaces::{LiveNamespace, Namespaces};
use ipnet::IpNet;
use postern_gate::effect::InnerKind;
use postern_kernel::Link;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// The most addresses of an attachment's link. Addresses that are valid only on the link don't count.
const FEW: usize = 4;

/// The most addresses of all links of a container, without addresses that are valid only on the link.
const MOST: usize = 16;

/// The use of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The node itself, or a link that looks like an attachment's link, has the address.
    Plain,
    /// A link with the address looks like no attachment's link. The text names the link.
    Strange(String),
}

/// The addresses that are in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    addresses: BTreeMap<IpAddr, Option<usize>>,
    /// The places of links that look like no attachment's link, in words.
    places: Vec<String>,
}

impl Live {
    /// Returns the addresses of these namespaces. `here` is the number of the node's own namespace, whose links are
    /// `host`.
    pub(super) fn of(namespaces: &Namespaces, here: u64, host: &[Link]) -> Self {
        let mut live = Self::default();
        for found in &namespaces.found {
            let links: HashMap<u32, &Link> = found.links.iter().map(|link| (link.index, link)).collect();
            let mut by_link: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
            for (index, have) in &found.addresses {
                by_link.entry(*index).or_default().push(have.net.addr());
            }
            let total = found.addresses.iter().filter(|(_, have)| !is_local(have.net.addr())).count();
            for (index, addresses) in by_link {
                let is_own = found.cookie == here;
                let link = || links.get(&index).copied().ok_or(index);
                let strange = if is_own { None } else { strange((found, total), link(), &addresses, host) };
                let place = strange.map(|words| {
                    live.places.push(words);
                    live.places.len().saturating_sub(1)
                });
                for address in addresses {
                    let known = live.addresses.entry(address).or_insert(place);
                    // If one use is plain, the address counts as plain.
                    *known = known.and(place);
                }
            }
        }
        live
    }

    /// Returns the use of the addresses in `nets`; `None` if they are not in use.
    pub(super) fn use_of(&self, nets: &[IpNet]) -> Option<Use> {
        let mut used = nets.iter().flat_map(|net| self.addresses.range(net.network()..=net.broadcast()));
        let (address, place) = used.next()?;
        let Some(place) = place.filter(|_| used.all(|(_, place)| place.is_some())) else { return Some(Use::Plain) };
        let place = self.places.get(place).map(String::as_str).unwrap_or_default();
        Some(Use::Strange(format!("{address} is on {place}")))
    }
}

/// Returns the link's place in words, if the link looks like no attachment's link. If the link is gone, only its index
/// is known. `total` is the number of addresses in the namespace.
fn strange(
    (found, total): (&LiveNamespace, usize),
    link: Result<&Link, u32>,
    addresses: &[IpAddr],
    host: &[Link],
) -> Option<String> {
    let is_attached = |link: &Link| InnerKind::has(link) || host_connection(host, link) != HostConnection::Nowhere;
    let count = addresses.iter().filter(|address| !is_local(**address)).count();
    // A path below `/proc` leads through a process. The process belongs to a runtime that mounts no namespaces, or to a
    // container.
    let is_mounted = !found.path.starts_with("/proc");
    let why = match (link.is_ok_and(is_attached), count, total) {
        (true, ..=FEW, ..=MOST) if is_mounted => return None,
        (true, ..=FEW, ..=MOST) => "whose namespace is not mounted on the node".to_owned(),
        (true, ..=FEW, _) => format!("whose namespace has {total} addresses"),
        (true, ..) => format!("which has {count} addresses"),
        (false, ..) => "which is like no attachment's link".to_owned(),
    };
    let name = link.map_or_else(|index| format!("link {index}"), |link| format!("\"{}\"", link.name));
    let process = found.process.map(|process| format!(", process {process}")).unwrap_or_default();
    let namespace = found.path.display();
    Some(format!(
        "{name}, {why}, in the namespace {namespace}{process}: remove the address from this link, or end the container of \
         this namespace"
    ))
}

/// True for an address that the kernel gives to each link, or that is valid only inside one namespace.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback()
        || match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
}

#[cfg(test)]
impl Live {
    /// Makes the live addresses of one plain place.
    pub(super) fn plain(addresses: &[&str]) -> Self {
        let addresses = addresses.iter().map(|address| (address.parse().unwrap(), None)).collect();
        Self { addresses, places: Vec::new() }
    }
}
