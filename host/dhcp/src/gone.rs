//! Leases that nobody needs any more, because their container or its link is gone. They end without a word to the
//! server: there is no link for it.
//!
//! A lease that is renewed is looked at before each renewal. One that is lost, or has no end, has no such time, and a
//! timer of its own would wake an idle node. So it is looked at when somebody asks for anything: all before they are
//! listed, and a few whenever a lease is asked for. Leases of gone containers then can't pile up.

use crate::lease::{KeptLease, Phase};
use crate::opener::NotOpened;
use crate::service::Service;
use postern_kernel::Netlink;
use std::ops::Bound;

/// The leases that are looked at when another one is asked for.
const SOME: usize = 8;

/// The time after a start of the machine for which a lease without end is remembered, in milliseconds: a day. Its
/// container has come back by then, or will not.
pub const REMEMBERED_MS: u64 = 24 * 60 * 60 * 1000;

impl Service {
    /// Ends all leases whose container is gone. For one that will be renewed the namespace alone is looked at.
    pub fn look_at_all(&mut self) {
        let is_gone = |entry: &KeptLease| match entry.wake_at {
            Some(_) => self.open_namespace(entry).err() == Some(NotOpened::Gone),
            None => self.is_gone(entry),
        };
        let gone = self.leases.iter().filter(|(_, entry)| rests(entry) && is_gone(entry));
        for key in gone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.forget_gone(&key);
        }
    }

    /// Looks at the next few leases that no timer looks at, and ends those whose container is gone.
    pub fn look_at_some(&mut self) {
        let unwatched = |(_, entry): &(&String, &KeptLease)| rests(entry) && entry.wake_at.is_none();
        let from = (Bound::Excluded(self.looked_at.clone()), Bound::Unbounded);
        let behind = self.leases.range::<String, _>(from).filter(unwatched);
        let first = self.leases.range(..=self.looked_at.clone()).filter(unwatched);
        let keys: Vec<String> = behind.chain(first).take(SOME).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.look_at_one(&key);
            self.looked_at = key;
        }
    }

    /// Ends a lease if its container is gone.
    pub fn look_at_one(&mut self, key: &str) {
        if self.leases.get(key).is_some_and(|entry| self.is_gone(entry)) {
            self.forget_gone(key);
        }
    }

    /// True if the namespace of a lease, or its link, is gone.
    fn is_gone(&self, entry: &KeptLease) -> bool {
        match self.open_namespace(entry) {
            Err(NotOpened::Gone) => true,
            Err(NotOpened::Refused(_)) => false,
            Ok(namespace) => matches!(self.home.visit(&namespace, || entry.link(&Netlink::open()?)), Ok(None)),
        }
    }

    fn forget_gone(&mut self, key: &str) {
        if let Some(entry) = self.leases.get(key) {
            self.note(entry, "dhcp.forget", &entry.lease, &Ok::<(), String>(()));
            self.finish(key);
        }
    }
}

/// True if nothing happens for a lease at the moment.
fn rests(entry: &KeptLease) -> bool {
    matches!(entry.phase, Phase::Bound | Phase::Lost(_)) && entry.is_idle()
}
