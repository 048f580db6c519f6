//! Decides if an attachment's namespace is alive. All callers share this decision, so that views and removals agree.

use crate::namespaces::Namespaces;
use postern_gate::effect::{Effect, Veth};
use postern_kernel::{Link, Namespace, OpenError};
use postern_state::Header;
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest time for the search for namespaces.
const SEARCH: Duration = Duration::from_secs(20);

/// Returns all live namespaces that can be found from here.
///
/// # Errors
/// As [`Namespaces::find`].
pub fn all_namespaces() -> Result<Namespaces, String> {
    Namespaces::find(SEARCH, BTreeSet::new())
}

/// True if the namespace of an attachment is alive. The attachment must be of this boot and have these effects. If the
/// host's `links` contain the pair's host end, the pair's other end exists, and so does its namespace. Otherwise the
/// namespace is alive if it was found. If the search was incomplete, the namespace is gone only if both the
/// attachment's pair and the namespace's path are gone.
///
/// # Errors
/// The answer is unknown: a text for people with the places that could not be looked at.
pub fn is_alive(header: &Header, effects: &[Effect], links: &[Link], namespaces: &Namespaces) -> Result<bool, String> {
    let pairs: Vec<[u8; 6]> = effects.iter().filter_map(Veth::of).map(|pair| pair.mac.0).collect();
    // The link is found by its link-layer address: an operator may have renamed it.
    if links.iter().any(|link| link.kind == "veth" && link.mac.is_some_and(|mac| pairs.contains(&mac))) {
        return Ok(true);
    }
    let path = Namespace::open(&header.netns_path);
    let found = match header.netns_cookie {
        Some(cookie) => namespaces.is_alive(cookie),
        // A plugin that never entered the namespace recorded only the path.
        None => path.is_ok(),
    };
    // An unreadable list of links is no gap here, because the cookie of its namespace is known.
    match namespaces.gap_of_search() {
        _ if found => Ok(true),
        None => Ok(false),
        Some(_) if !pairs.is_empty() && matches!(path, Err(OpenError::NotExist { .. })) => Ok(false),
        Some(gap) => Err(gap),
    }
}

/// Returns the connection of a container's link to the host. The link may be an end of a pair, with the other end in
/// `links`. The link may also be stacked on one of `links`, or be a driver's device. (The gate's `others::leads_here`
/// decides this for one run.)
pub(crate) fn host_connection<'a>(links: &'a [Link], own: &Link) -> HostConnection<'a> {
    if own.device.is_some() {
        return HostConnection::Device;
    }
    let at = |index: u32| links.iter().find(|link| link.index == index);
    match own.peer_index.and_then(at) {
        Some(end) if own.kind == "veth" && end.kind == "veth" && end.peer_index == Some(own.index) => {
            HostConnection::End(end)
        }
        Some(_) if own.is_stacked() && own.peer_netnsid.is_some() => HostConnection::Stacked,
        _ => HostConnection::Nowhere,
    }
}

/// The connection of a container's link to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostConnection<'a> {
    /// The container's link is an end of a pair. The field is the other end.
    End(&'a Link),
    /// The container's link is stacked on a link of the host.
    Stacked,
    /// A driver's device.
    Device,
    /// No connection to the host.
    Nowhere,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::LiveNamespace;
    use postern_types::Mac;
    use std::collections::BTreeMap;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    fn header(netns_cookie: Option<u64>, path: &str) -> Header {
        Header {
            network: "net".to_owned(),
            container_id: "c".to_owned(),
            ifname: "eth0".to_owned(),
            boot_id: "boot".to_owned(),
            host_netns_cookie: 1,
            netns_cookie,
            netns_path: path.to_owned(),
            created: 1,
        }
    }

    fn namespaces(enclosed: bool) -> Namespaces {
        Namespaces { found: Vec::new(), held: BTreeMap::new(), unseen: Vec::new(), more_unseen: 0, enclosed }
    }

    fn link(name: &str, kind: &str) -> Link {
        Link {
            index: 3,
            name: name.into(),
            mac: Some(MAC),
            mtu: 1500,
            hardware: 1,
            kind: kind.to_owned(),
            up: true,
            promisc: false,
            allmulti: false,
            tx_queue_length: 1000,
            running: true,
            operstate: "up",
            master: None,
            peer_index: None,
            peer_netnsid: None,
            isolated: false,
            vlan_filtering: false,
            macvlan_mode: None,
            ipvlan_mode: None,
            vlan_id: None,
            is_provider_vlan: false,
            disabled_queues: None,
            vrf_table: None,
            alias: None,
            permanent: None,
            other_names: Vec::new(),
            accept_dad: None,
            disable_ipv6: false,
            has_xdp: false,
            device: None,
        }
    }

    #[test]
    fn what_a_link_is_made_of() {
        let host = [Link { peer_index: Some(9), ..link("veth0", "veth") }, Link { index: 4, ..link("eth0", "") }];
        let own = |kind: &str, peer: u32| Link { index: 9, peer_index: Some(peer), ..link("eth0", kind) };
        assert_eq!(host_connection(&host, &own("veth", 3)), HostConnection::End(&host[0]));
        let stacked = Link { peer_netnsid: Some(0), ..own("macvlan", 4) };
        assert_eq!(host_connection(&host, &stacked), HostConnection::Stacked);
        let device = postern_kernel::BusDevice { bus: "pci".to_owned(), name: "0000:00:03.0".to_owned() };
        assert_eq!(host_connection(&[], &Link { device: Some(device), ..link("eth0", "") }), HostConnection::Device);
        // The links are an end of another pair, a link stacked on an inner or a missing link, and a link of another
        // kind.
        let others = [own("veth", 4), own("macvlan", 4), Link { peer_netnsid: Some(0), ..own("macvlan", 7) }];
        for own in others.into_iter().chain([Link { peer_netnsid: Some(0), ..own("vxlan", 4) }, link("eth0", "dummy")])
        {
            assert_eq!(host_connection(&host, &own), HostConnection::Nowhere, "{own:?}");
        }
    }

    #[test]
    fn a_pair_is_known_by_its_address() {
        let pair = [Veth { host: "veth0".to_owned(), mac: Mac(MAC) }.into()];
        for (links, expected) in [
            (vec![link("veth0", "veth")], true),
            (vec![link("renamed", "veth")], true),
            (vec![link("veth0", "bridge")], false),
        ] {
            let found = is_alive(&header(Some(7), "/nowhere"), &pair, &links, &namespaces(false));
            assert_eq!(found, Ok(expected), "{links:?}");
        }
    }

    #[test]
    fn gone_is_what_nothing_speaks_for() {
        let pair = [Veth { host: "veth0".to_owned(), mac: Mac(MAC) }.into()];
        let own = "/proc/thread-self/ns/net";
        for (cookie, path, effects, enclosed, expected) in [
            (Some(7), "/nowhere", &pair[..], false, Some(false)),
            (Some(7), "/nowhere", &[], false, Some(false)),
            // By now the path may lead to another namespace.
            (Some(7), own, &pair, false, Some(false)),
            (None, own, &[], false, Some(true)),
            (None, "/nowhere", &[], false, Some(false)),
            (Some(7), "/nowhere", &pair, true, Some(false)),
            (Some(7), "/nowhere", &[], true, None),
            (Some(7), own, &pair, true, None),
            (None, "/nowhere", &[], true, None),
        ] {
            let found = is_alive(&header(cookie, path), effects, &[], &namespaces(enclosed));
            assert_eq!(found.ok(), expected, "{cookie:?} {path} {effects:?} {enclosed}");
        }
    }

    /// Root in a container can keep the host from reading the lists of links. The links are unknown then, but the
    /// namespace is known to be alive.
    #[test]
    fn a_namespace_with_changing_lists_hides_what_is_in_it_alone() {
        let found = LiveNamespace {
            identity: (1, 2),
            cookie: 8,
            path: "/proc/9/ns/net".into(),
            processes: 1,
            process: Some(9),
            links: Vec::new(),
            addresses: Vec::new(),
            unread: Some("list links: the list keeps changing while it is read".to_owned()),
            routes: None,
        };
        let all = Namespaces { found: vec![found], ..namespaces(false) };
        assert!(!all.is_complete() && all.gap().unwrap().contains("keeps changing"));
        assert_eq!(is_alive(&header(Some(8), "/nowhere"), &[], &[], &all), Ok(true));
        assert_eq!(is_alive(&header(Some(7), "/nowhere"), &[], &[], &all), Ok(false));
    }
}
