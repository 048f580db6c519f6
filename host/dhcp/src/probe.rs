//! Asks whether another station has an address, before a lease is used.

use crate::asks::subject;
use crate::clock;
use crate::lease::{KeptLease, Phase};
use crate::packet::PacketSocket;
use crate::service::Service;
use crate::{frame, frame6};
use postern_dhcp::{Event, Lease};
use std::net::IpAddr;

/// The number of questions about an address, and the time to wait for each answer.
const PROBES: u32 = 2;
const PROBE_MS: u64 = 200;

/// The number of frames to read before other sockets have their turn.
const FRAMES: usize = 32;

/// A probe of an address (RFC 5227; RFC 4862, 5.4).
#[derive(Debug)]
pub struct Probe {
    /// The lease that is used if no station answers.
    pub lease: Lease,
    pub address: IpAddr,
    /// The socket for ARP, or for neighbour discovery.
    pub socket: PacketSocket,
    /// The number of questions that are still to be asked.
    left: u32,
    /// The time of the next question, or of the end.
    pub next: u64,
}

impl Service {
    /// Asks the link who has the address.
    pub fn probe(&mut self, key: &str, lease: Lease, address: IpAddr) {
        let Some(entry) = self.leases.get(key) else { return };
        let open = |entry: &KeptLease| match address {
            IpAddr::V4(_) => PacketSocket::arp(entry.index),
            IpAddr::V6(address) => PacketSocket::neighbours(entry.index, frame6::multicast_of(address)),
        };
        let namespace = self.open_namespace(entry).map_err(|error| format!("{error:?}"));
        let socket = namespace.and_then(|namespace| self.home.visit(&namespace, || open(entry)));
        let now = clock::since_boot();
        match socket {
            Ok(socket) => {
                let Some(entry) = self.leases.get_mut(key) else { return };
                entry.phase = Phase::Probing(Probe { lease, address, socket, left: PROBES, next: now });
                self.ask_link(key);
            }
            Err(words) => {
                if let Some(entry) = self.leases.get_mut(key) {
                    entry.lease = Some(lease);
                }
                self.fail_to_use(key, &format!("the link can't be asked who has {address}: {words}"));
            }
        }
    }

    /// Asks once more who has the address, or binds the lease.
    pub fn ask_link(&mut self, key: &str) {
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        let mac = entry.mac;
        let Phase::Probing(probe) = &mut entry.phase else { return };
        if probe.left > 0 {
            probe.left -= 1;
            probe.next = now.saturating_add(PROBE_MS);
            let question = match probe.address {
                IpAddr::V4(address) => frame::arp_probe(mac, address),
                IpAddr::V6(address) => frame6::neighbour_probe(mac, address),
            };
            // A lost probe has the effect of an unanswered probe.
            let _ = probe.socket.send(&question);
        } else {
            let lease = probe.lease.clone();
            self.bind(key, lease);
        }
    }

    /// Takes the waiting frames during a probe.
    pub fn take_claims(&mut self, key: &str) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        let Phase::Probing(probe) = &entry.phase else { return };
        for _ in 0..FRAMES {
            let Ok(Some(frame)) = probe.socket.receive() else { return };
            let is_anothers = match probe.address {
                IpAddr::V4(address) => frame::arp_conflicts(&frame.bytes, entry.mac, address),
                IpAddr::V6(address) => frame6::neighbour_conflicts(&frame.bytes, frame.is_summed, entry.mac, address),
            };
            if is_anothers {
                postern_gate::say!(
                    "postern dhcp: {}: another station has {}, which a server offers",
                    subject(&entry.attachment),
                    probe.address
                );
                entry.phase = Phase::Acquiring;
                entry.wake_at = None;
                entry.events.push_back((Event::Conflict, None));
                return;
            }
        }
    }
}
