//! Forwards by nftables. They are removed by the kernel's numbers (handles) of table and rules, from a record.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod common;

use common::{key, nft, own_namespace, ruleset, tool};
use postern_firewall::hostport::{HostPorts, MarkBy, PortForward};
use postern_types::{NatSources, Transport};

fn ports(container_id: &str, address: &str, host_port: u16) -> HostPorts {
    HostPorts {
        key: key(container_id),
        address: address.parse().unwrap(),
        forwards: vec![PortForward { protocol: Transport::Tcp, host_ip: None, host_port, container_port: 80 }],
        sources: NatSources::Own,
        mark: MarkBy::Bit(13),
        conditions: Vec::new(),
    }
}

/// The numbers of table and rules are enough for a removal, as long as they belong to the attachment's rules.
#[test]
fn forwards_are_removed_by_their_numbers() {
    own_namespace();
    let mut nft = nft();
    let (own, other) = (ports("cid1", "10.1.0.2/16", 8080), ports("cid2", "10.1.0.3/16", 8081));
    assert_eq!(own.nft_table(&mut nft).unwrap(), None);
    other.nft_ensure(&mut nft, true).unwrap();
    let table = own.nft_table(&mut nft).unwrap();
    let others = ruleset();
    assert!(table.is_some());
    let handles = own.nft_ensure(&mut nft, true).unwrap();
    assert_eq!(handles.len(), own.nft_count());
    assert_eq!(own.nft_remove(&mut nft, &handles, table).unwrap(), handles.len());
    assert_eq!(ruleset(), others);
    // A second removal finds nothing, and removes no foreign rule.
    assert_eq!(own.nft_remove(&mut nft, &handles, table).unwrap(), 0);
    assert_eq!(ruleset(), others);
    // One rule is gone already. The other rules are found by their content.
    let handles = own.nft_ensure(&mut nft, true).unwrap();
    tool("nftables", &format!("nft delete rule ip cni_hostport hostports handle {}", handles[0]));
    assert_eq!(own.nft_remove(&mut nft, &handles, table).unwrap(), handles.len() - 1);
    assert_eq!(ruleset(), others);
    // Some numbers, or the table's number, are missing.
    for (count, table) in [(1, table), (0, table), (handles.len(), None)] {
        let handles = own.nft_ensure(&mut nft, true).unwrap();
        assert_eq!(own.nft_remove(&mut nft, &handles[..count], table).unwrap(), handles.len(), "{count}");
        assert_eq!(ruleset(), others);
    }
    // The table was made again: the numbers of its rules start anew, and belong to another owner's rules.
    tool("nftables", "nft delete table ip cni_hostport");
    let again = other.nft_ensure(&mut nft, true).unwrap();
    let before = ruleset();
    assert_ne!(own.nft_table(&mut nft).unwrap(), table);
    assert_eq!(own.nft_remove(&mut nft, &again, table).unwrap(), 0);
    assert_eq!(ruleset(), before);
}
