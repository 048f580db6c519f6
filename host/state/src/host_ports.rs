//! An index of the node's ports that lead to containers: it tells which attachment has a port. No entry is ever
//! removed.
//!
//! The file has a slot for each protocol and port. Only blocks of used ports take room on the disk. An ADD holds the
//! lock from its look-up until it writes its entry. So the second of two ADDs for one port finds the record of the
//! first.

use crate::error::Result;
use crate::slots::{Index, IndexSubject, SLOT, SlotHolder};

/// Ports of the node.
#[derive(Debug)]
pub struct Ports;

impl IndexSubject for Ports {
    const SUBDIRECTORY: &'static str = "ports";
    const IS_RARE: bool = false;
}

/// The index of ports. A new index lacks the records of earlier versions. If the file was lost, the new index lacks all
/// earlier records.
pub type PortIndex = Index<Ports>;

const PORTS: u64 = 1 << 16;

impl PortIndex {
    /// Returns the entries of consecutive ports. `protocol` is the protocol's number in IP headers.
    pub fn holders(&self, protocol: u8, first: u16, count: u16) -> Result<Vec<SlotHolder>> {
        self.slots(place(protocol, first), usize::from(count))
    }

    /// Writes the entries of consecutive ports. After an error no effect may be made.
    pub fn set(&self, protocol: u8, first: u16, holders: &[SlotHolder]) -> Result<()> {
        self.set_slots(place(protocol, first), holders)
    }
}

fn place(protocol: u8, port: u16) -> u64 {
    (u64::from(protocol) * PORTS + u64::from(port)) * SLOT as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StateError;
    use crate::record::RecordKey;
    use std::time::{Duration, Instant};

    #[test]
    fn entries_are_read_back() {
        let root = std::env::temp_dir().join(format!("postern-ports-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let soon = || Instant::now() + Duration::from_millis(200);
        let index = PortIndex::open(&root, 7, soon()).unwrap();
        assert!(index.is_new().unwrap());
        let key = RecordKey::new(7, "n", "c", "eth0");
        assert_eq!(index.holders(6, 65535, 1).unwrap(), [SlotHolder::Nobody]);
        index.set(6, 80, &[SlotHolder::One(key), SlotHolder::Several]).unwrap();
        assert_eq!(
            index.holders(6, 79, 4).unwrap(),
            [SlotHolder::Nobody, SlotHolder::One(key), SlotHolder::Several, SlotHolder::Nobody]
        );
        assert_eq!(index.holders(17, 80, 1).unwrap(), [SlotHolder::Nobody], "another protocol");
        assert!(matches!(PortIndex::open(&root, 7, soon()), Err(StateError::Locked { .. })));
        drop(index);
        assert!(!PortIndex::open(&root, 7, soon()).unwrap().is_new().unwrap());
        assert!(PortIndex::open(&root, 8, soon()).unwrap().is_new().unwrap(), "another namespace");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
