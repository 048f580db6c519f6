//! Ends a lease if its container or its link is gone. The server gets no message, because the link to the server is
//! gone.
//!
//! A lease that is renewed is looked at before each renewal. A lost or an endless lease has no renewal, and a timer for
//! it would wake an idle node. So the service looks at these leases when a client sends a request. It looks at all
//! leases before it lists them, and at a few leases before each new lease. So leases of gone containers can't pile up.

use crate::lease::{KeptLease, Phase};
use crate::opener::NotOpened;
use crate::service::Service;
use postern_kernel::Netlink;
use std::ops::Bound;

/// The number of leases to look at when a client asks for another lease.
const SOME: usize = 8;

/// The time in milliseconds for which a lease without end is remembered after the machine's start: a day. A container
/// that has not come back within a day will not come back.
pub const REMEMBERED_MS: u64 = 24 * 60 * 60 * 1000;

impl Service {
    /// Ends all leases whose container is gone. For a lease that will be renewed only its namespace is looked at.
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

    /// Looks at the next few leases that have no timer, and ends the leases whose container is gone.
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

    /// True if the namespace of a lease, or the lease's link, is gone.
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

/// True if a lease is bound or lost, and no step for it runs or waits.
fn rests(entry: &KeptLease) -> bool {
    matches!(entry.phase, Phase::Bound | Phase::Lost(_)) && entry.is_idle()
}
