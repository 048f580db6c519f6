//! Whether an attachment's namespace is alive: one judgement, so that what shows attachments and what removes them agree.

use crate::namespaces::Namespaces;
use postern_gate::effect::{Effect, Veth};
use postern_kernel::{Link, Namespace, OpenError};
use postern_state::Header;
use std::time::Duration;

/// How long the search for namespaces may take.
const SEARCH: Duration = Duration::from_secs(20);

/// All live namespaces that can be found from here.
///
/// # Errors
/// As [`Namespaces::find`].
pub fn all_namespaces() -> Result<Namespaces, String> {
    Namespaces::find(SEARCH)
}

/// Whether the namespace of an attachment of this boot with these effects is alive. A pair whose host end is among the host's
/// `links` has another end, and so a namespace; else it is if it was found. Where not all could be looked at, it is gone only
/// if it had a pair that is gone, and its path too.
///
/// # Errors
/// Why that can't be told: what could not be looked at.
pub fn is_alive(header: &Header, effects: &[Effect], links: &[Link], namespaces: &Namespaces) -> Result<bool, String> {
    let pairs: Vec<[u8; 6]> = effects.iter().filter_map(Veth::of).map(|pair| pair.mac.0).collect();
    // By address: an operator may have given it another name.
    if links.iter().any(|link| link.kind == "veth" && link.mac.is_some_and(|mac| pairs.contains(&mac))) {
        return Ok(true);
    }
    let path = Namespace::open(&header.netns_path);
    let found = match header.netns_cookie {
        Some(cookie) => namespaces.by_cookie(cookie).is_some(),
        // Of a plugin that never entered it there is only the path.
        None => path.is_ok(),
    };
    match namespaces.gap() {
        _ if found => Ok(true),
        None => Ok(false),
        Some(_) if !pairs.is_empty() && matches!(path, Err(OpenError::NotExist { .. })) => Ok(false),
        Some(gap) => Err(gap),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_types::Mac;

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
        Namespaces { found: Vec::new(), unseen: Vec::new(), more_unseen: 0, enclosed }
    }

    fn link(name: &str, kind: &str) -> Link {
        Link {
            index: 3,
            name: name.to_owned(),
            mac: Some(MAC),
            mtu: 1500,
            kind: kind.to_owned(),
            up: true,
            promisc: false,
            running: true,
            operstate: "up",
            master: None,
            peer_index: None,
            peer_netnsid: None,
            isolated: false,
            vlan_filtering: false,
            macvlan_mode: None,
            alias: None,
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
            let told = is_alive(&header(Some(7), "/nowhere"), &pair, &links, &namespaces(false));
            assert_eq!(told, Ok(expected), "{links:?}");
        }
    }

    #[test]
    fn gone_is_what_nothing_speaks_for() {
        let pair = [Veth { host: "veth0".to_owned(), mac: Mac(MAC) }.into()];
        let own = "/proc/thread-self/ns/net";
        for (cookie, path, effects, enclosed, expected) in [
            (Some(7), "/nowhere", &pair[..], false, Some(false)),
            (Some(7), "/nowhere", &[], false, Some(false)),
            // A path may lead to another namespace by now.
            (Some(7), own, &pair, false, Some(false)),
            (None, own, &[], false, Some(true)),
            (None, "/nowhere", &[], false, Some(false)),
            (Some(7), "/nowhere", &pair, true, Some(false)),
            (Some(7), "/nowhere", &[], true, None),
            (Some(7), own, &pair, true, None),
            (None, "/nowhere", &[], true, None),
        ] {
            let told = is_alive(&header(cookie, path), effects, &[], &namespaces(enclosed));
            assert_eq!(told.ok(), expected, "{cookie:?} {path} {effects:?} {enclosed}");
        }
    }
}
