//! The service's data of a lease: its phase, and its open sockets.

use crate::asks::{refused, subject};
use crate::budget::RefillingBudget;
use crate::connections::Id;
use crate::frame::MacBytes;
use crate::namespace::Identity;
use crate::packet::PacketSocket;
use crate::probe::Probe;
use crate::store::name;
use postern_dhcp::{Client, Event, Family, Hex, Lease, State, Timeouts, client_id, duid, provided_id};
use postern_dhcp_channel::{Answer, Attachment, HeldLease, INTERNAL, Standing};
use postern_kernel::{KernelError, Link, Netlink};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

/// The most events that wait for a step. Further packets are dropped, because a server sends again.
pub const WAITING: usize = 8;

/// The budget of sent packets: the number at once, and the milliseconds until one more.
const SENDS: RefillingBudget = RefillingBudget::new(16, 1000);

/// The budget of packets for the client: the number at once, and the milliseconds until one more.
const PACKETS: RefillingBudget = RefillingBudget::new(64, 125);

/// The most offered addresses that are remembered while a lease is acquired. False offers can't push the true offer out
/// within 20 seconds. A packet has four addresses at most, and there are 64 packets at once and 8 a second
/// ([`PACKETS`]).
const MOST_OFFERED: usize = 1024;

/// The phase of a lease: the event for which the lease waits.
#[derive(Debug, Default)]
pub enum Phase {
    /// The lease waits until its link can send.
    Settling {
        /// The time at which the service stops waiting and starts anyway.
        until: u64,
        /// The time of the next look at the link.
        next: u64,
    },
    /// The lease waits for a server.
    #[default]
    Acquiring,
    /// The lease waits for other stations to claim its address.
    Probing(Probe),
    /// The lease is valid, and waits for its renewal.
    Bound,
    /// The lease waits for the step that gives it back.
    Releasing,
    /// The lease is lost, and waits for DEL. The link was set down.
    Lost(String),
    /// The lease waits for the container to come back after a reboot.
    Remembered,
}

/// The sockets of a lease while it speaks with servers. The sockets keep the container's namespace alive.
#[derive(Debug)]
pub struct Open {
    /// The netlink socket for the link.
    pub netlink: Netlink,
    /// The packet socket for DHCP, or for DHCPv6 and router advertisements.
    pub packets: PacketSocket,
    /// The link-local address that DHCPv6 is sent from.
    pub source: Option<Ipv6Addr>,
    /// The time at which the sockets are closed, for a bound lease.
    pub until: u64,
}

/// A lease. An attachment with addresses of both families has two leases. A lease's file has all fields that serde does
/// not skip.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct KeptLease {
    /// The lease's number, which is never used again. A lease may replace another lease of the same name.
    #[serde(skip)]
    pub serial: u64,
    /// The attachment, with all data that the client needs.
    pub attachment: Attachment,
    /// The family of the lease's address.
    #[serde(default)]
    pub family: Family,
    pub namespace: Identity,
    /// The index of the lease's link.
    pub index: u32,
    /// The link's hardware address.
    pub mac: MacBytes,
    /// The hardware address that the last answer came from: the server, or the router to it.
    pub hop: Option<MacBytes>,
    /// The client's state.
    pub state: Option<State>,
    /// The lease, once a server has given it.
    pub lease: Option<Lease>,
    /// The time of the next step, by this boot's clock.
    pub wake_at: Option<u64>,
    /// The end of the lease, by this boot's clock; `None` for an endless lease.
    pub expires_at: Option<u64>,
    /// The difference between the client's time and this boot's clock.
    pub offset: u64,
    #[serde(skip)]
    pub phase: Phase,
    /// True if servers must broadcast their answers.
    #[serde(skip)]
    pub broadcast: bool,
    /// The latest addresses that servers have offered. The client can ask only for these addresses.
    #[serde(skip)]
    pub offered: VecDeque<IpAddr>,
    /// The address of an earlier lease, which the client asks for first.
    #[serde(skip)]
    pub previous: Option<IpAddr>,
    /// The events that wait for a step. A packet comes with the hardware address of its sender.
    #[serde(skip)]
    pub events: VecDeque<(Event, Option<MacBytes>)>,
    /// True if a step is running.
    #[serde(skip)]
    pub is_running: bool,
    /// The sender of the packet that the last step handled; `None` if the step handled no packet.
    #[serde(skip)]
    pub sender: Option<MacBytes>,
    #[serde(skip)]
    pub open: Option<Open>,
    /// The connection that waits for the lease.
    #[serde(skip)]
    pub acquirer: Option<Id>,
    /// True if the lease existed before the waiting connection asked for it together with another lease. This lease
    /// stays if the other lease fails.
    #[serde(skip)]
    pub is_kept: bool,
    /// The connections that wait for the lease's end.
    #[serde(skip)]
    pub releasers: Vec<Id>,
    /// The lease's budget of sent packets.
    #[serde(skip)]
    pub sends: RefillingBudget,
    /// The lease's budget of packets for the client.
    #[serde(skip)]
    pub packets: RefillingBudget,
    /// The number of router solicitations that were sent.
    #[serde(skip)]
    pub solicitations: u8,
    /// True if a refusal was reported: further refusals are not reported.
    #[serde(skip)]
    pub is_warned: bool,
}

impl KeptLease {
    /// Returns the lease with values for the fields that exist only in memory.
    pub fn begun(self, phase: Phase) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Self { serial, phase, sends: SENDS, packets: PACKETS, ..self }
    }

    /// Returns the name of the lease's file, which no other lease has.
    pub fn key(&self) -> String {
        name(&self.attachment, self.family)
    }

    /// Returns the protocol's name, for messages.
    pub fn protocol(&self) -> &'static str {
        match self.family {
            Family::Ipv4 => "DHCP",
            Family::Ipv6 => "DHCPv6",
        }
    }

    /// Returns the client's identifier, as option 61 has it; for DHCPv6 its DUID.
    pub fn id(&self) -> Vec<u8> {
        let Attachment { container_id, network, ifname, configuration, args, .. } = &self.attachment;
        match self.family {
            Family::Ipv4 => {
                provided_id(configuration, args).unwrap_or_else(|| client_id(container_id, network, ifname))
            }
            Family::Ipv6 => duid(container_id, network, ifname),
        }
    }

    /// Returns the client's data for a step.
    pub fn client(&self, timeouts: Timeouts) -> Client {
        Client {
            family: self.family.number(),
            id: Hex(self.id()),
            mac: self.mac,
            configuration: self.attachment.configuration.clone(),
            args: self.attachment.args.clone(),
            broadcast: self.broadcast,
            timeouts,
        }
    }

    /// Returns the address of the lease, or the address that is being probed.
    pub fn address(&self) -> Option<IpAddr> {
        if let Phase::Probing(probe) = &self.phase {
            return Some(probe.address);
        }
        self.lease.as_ref().and_then(|lease| address(lease, self.family))
    }

    /// Remembers an address that a server has offered.
    pub fn note_offer(&mut self, address: IpAddr) {
        if !self.offered.contains(&address) {
            self.offered.push_back(address);
        }
        if self.offered.len() > MOST_OFFERED {
            self.offered.pop_front();
        }
    }

    /// True if the host saw a server offer the address of `lease`, or if this lease has the address already.
    pub fn is_given(&self, lease: &Lease) -> bool {
        let given = address(lease, self.family);
        given.is_some_and(|given| self.offered.contains(&given)) || given.is_some() && given == self.address()
    }

    /// Returns the lease's link, if the link still has the hardware address. Another link may have the index by now.
    pub fn link(&self, netlink: &Netlink) -> Result<Option<Link>, KernelError> {
        Ok(netlink.link_by_index(self.index)?.filter(|link| link.mac == Some(self.mac)))
    }

    /// Returns the answer for a connection whose lease failed.
    pub fn refusal(&self, reason: &str) -> Answer {
        refused(INTERNAL, format!("no {} lease for {}: {reason}", self.protocol(), subject(&self.attachment)), "")
    }

    /// Removes the addresses of the lease from the link. Missing addresses are no error.
    pub fn take_addresses(&self, netlink: &Netlink) -> Result<(), KernelError> {
        for leased in self.lease.iter().flat_map(|lease| &lease.addresses) {
            let taken = netlink.delete_address(self.index, leased.address);
            if let Err(error) = taken
                && netlink.addresses(self.index)?.iter().any(|have| have.net == leased.address)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// True if the lease is being acquired, is valid, or is being released.
    pub fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Lost(_) | Phase::Remembered)
    }

    /// True if no step of the lease runs or waits.
    pub fn is_idle(&self) -> bool {
        !self.is_running && self.events.is_empty()
    }

    /// Returns the lease's line in the list of all leases.
    pub fn held(&self, now: u64) -> HeldLease {
        let standing = match &self.phase {
            Phase::Settling { .. } | Phase::Acquiring | Phase::Probing(_) => Standing::Acquiring,
            Phase::Bound | Phase::Releasing => Standing::Bound,
            Phase::Lost(reason) => Standing::Lost(reason.clone()),
            Phase::Remembered => Standing::Remembered,
        };
        let left = self.expires_at.map(|end| end.saturating_sub(now) / 1000);
        HeldLease {
            container_id: self.attachment.container_id.clone(),
            network: self.attachment.network.clone(),
            ifname: self.attachment.ifname.clone(),
            netns: self.attachment.netns.clone(),
            family: self.family,
            seconds_left: left.filter(|_| !matches!(standing, Standing::Lost(_))),
            standing,
            lease: self.lease.clone(),
        }
    }

    /// Returns the times at which actions are due. If several times have passed, only the first action is done.
    pub fn timers(&self) -> impl Iterator<Item = (u64, Due)> + use<> {
        let of_phase = match &self.phase {
            Phase::Settling { next, .. } => Some((*next, Due::Settle)),
            Phase::Probing(probe) => Some((probe.next, Due::Ask)),
            Phase::Bound => self.open.as_ref().map(|open| (open.until, Due::Close)),
            Phase::Remembered => self.expires_at.map(|end| (end, Due::Forget)),
            Phase::Acquiring | Phase::Releasing | Phase::Lost(_) => None,
        };
        // An expired lease ends even if the client fails.
        let end = self.expires_at.filter(|_| self.is_idle() && matches!(self.phase, Phase::Bound));
        let end = end.map(|end| (end.saturating_add(GRACE_MS), Due::Expire));
        let wake = self.wake_at.filter(|_| self.is_idle()).map(|wake| (wake, Due::Wake));
        [of_phase, end, wake].into_iter().flatten()
    }
}

/// The action for a lease when its time has come.
#[derive(Debug)]
pub enum Due {
    /// Look at the link.
    Settle,
    /// Ask the other stations whether one has the address, or use the lease.
    Ask,
    /// Close the sockets: no answer of a server is expected any more.
    Close,
    /// The container has not come back.
    Forget,
    /// The lease has ended.
    Expire,
    /// Run the client's next step.
    Wake,
}

/// The time after the end of a lease in which the client can report the end.
const GRACE_MS: u64 = 3000;

/// Returns the address of a lease, if the address has this family.
pub fn address(lease: &Lease, family: Family) -> Option<IpAddr> {
    let address = lease.addresses.first()?.address.addr();
    Some(address).filter(|address| address.is_ipv4() == (family == Family::Ipv4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload6;

    #[test]
    fn false_offers_do_not_push_the_true_one_out() {
        let mut entry = KeptLease { family: Family::Ipv6, ..KeptLease::default() }.begun(Phase::Acquiring);
        let offered = "fd00::1".parse().unwrap();
        entry.note_offer(offered);
        // For 20 seconds a station sends as many packets as the lease's budget allows, each with the largest number of
        // addresses that are read.
        let mut others = (1..).map(|number: u128| IpAddr::V6(Ipv6Addr::from((0xfd01 << 112) + number)));
        let mut count = 0;
        for now in 0..20_000 {
            while entry.packets.take(now) {
                others.by_ref().take(payload6::MOST).for_each(|other| entry.note_offer(other));
                count += payload6::MOST;
            }
        }
        assert!(count > 800, "{count}");
        assert!(entry.offered.contains(&offered), "{count} others pushed it out");
    }
}
