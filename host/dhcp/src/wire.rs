//! The packets of leases: sockets on the links, and the checks of sent and received packets.

use crate::asks::subject;
use crate::clock;
use crate::frame::{self, ALL, End, MacBytes};
use crate::frame6;
use crate::lease::{KeptLease, Open, Phase, WAITING};
use crate::opener::NotOpened;
use crate::packet::PacketSocket;
use crate::payload::{self, Expected};
use crate::payload6;
use crate::service::Service;
use postern_dhcp::{Event, Family, Payload, Send, To};
use postern_kernel::Netlink;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// The time that the sockets of a bound lease stay open for an answer, in milliseconds.
const LISTEN_MS: u64 = 10_000;

/// The number of frames to read from one socket before other sockets have their turn.
const FRAMES: usize = 32;

/// The number of router solicitations (RFC 4861, 6.3.7).
const SOLICITATIONS: u8 = 3;

impl Service {
    /// Sends the client's packets that pass the checks.
    pub fn send(&mut self, key: &str, packets: &[Send]) {
        if let Err(words) = self.ensure_open(key) {
            let Some(entry) = self.leases.get(key) else { return };
            postern_gate::say!("postern dhcp: {}: cannot send: {words}", subject(&entry.attachment));
            return;
        }
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        let mut refusal = None;
        for packet in packets {
            match (entry.framed(packet), &mut entry.open) {
                (Err(words), _) => refusal = Some(words),
                (Ok(_), _) if !entry.sends.take(now) => refusal = Some("the client sends more packets than it needs"),
                (Ok(frame), Some(open)) => {
                    open.until = now.saturating_add(LISTEN_MS);
                    // The client sends a lost packet again.
                    let _ = open.packets.send(&frame);
                }
                (Ok(_), None) => {}
            }
        }
        if let Some(words) = refusal
            && !entry.is_warned
        {
            entry.is_warned = true;
            postern_gate::say!(
                "postern dhcp: {}: a packet of the client is not sent: {words}",
                subject(&entry.attachment)
            );
            if let Some(entry) = self.leases.get(key) {
                self.note(entry, "dhcp.send", &words, &Err::<(), _>("refused"));
            }
        }
    }

    /// Opens the sockets that a lease needs to speak with servers, if they are not open.
    fn ensure_open(&mut self, key: &str) -> Result<(), String> {
        let Some(entry) = self.leases.get(key).filter(|entry| entry.open.is_none()) else { return Ok(()) };
        let namespace = self.open_namespace(entry).map_err(|error| match error {
            NotOpened::Gone => "the attachment's network namespace is gone".to_owned(),
            NotOpened::Refused(words) => words,
        })?;
        let opened = self.open_for(entry, &namespace)?;
        if let Some(entry) = self.leases.get_mut(key) {
            entry.open = Some(opened);
        }
        Ok(())
    }

    /// Opens the sockets of a lease in its namespace.
    pub fn open_for(&self, entry: &KeptLease, namespace: &OwnedFd) -> Result<Open, String> {
        self.home.visit(namespace, || -> Result<Open, String> {
            let netlink = Netlink::open().map_err(|error| error.to_string())?;
            if entry.link(&netlink).map_err(|error| error.to_string())?.is_none() {
                let ifname = &entry.attachment.ifname;
                return Err(format!("the attachment's link \"{ifname}\" is gone, or has another hardware address"));
            }
            let packets = match entry.family {
                Family::Ipv4 => PacketSocket::dhcp(entry.index, entry.mac),
                Family::Ipv6 => PacketSocket::dhcpv6(entry.index),
            };
            let packets = packets.map_err(|errno| errno.to_string())?;
            let until = clock::since_boot().saturating_add(LISTEN_MS);
            Ok(Open { source: entry.source(&netlink), netlink, packets, until })
        })
    }

    /// Takes the waiting frames of a lease.
    pub fn take_packets(&mut self, key: &str) {
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        for _ in 0..FRAMES {
            let Some(open) = &entry.open else { return };
            let frame = match open.packets.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(errno) => {
                    // The link is down or gone. The next step that sends shows whether it is gone.
                    if errno != nix::errno::Errno::ENETDOWN || matches!(entry.phase, Phase::Bound) {
                        entry.open = None;
                    }
                    return;
                }
            };
            let received = match (entry.family, open.source) {
                (Family::Ipv4, _) => frame::read_udp(&frame.bytes, frame.is_summed),
                (Family::Ipv6, Some(own)) => frame6::read(&frame.bytes, frame.is_summed, own),
                (Family::Ipv6, None) => None,
            };
            let Some(frame::Received { from_mac, from, payload }) = received else { continue };
            let waits = matches!(entry.phase, Phase::Acquiring | Phase::Bound);
            if waits && entry.events.len() < WAITING && entry.packets.take(now) {
                if entry.family == Family::Ipv6 && frame6::is_advertisement(&payload) {
                    entry.solicitations = SOLICITATIONS;
                }
                if matches!(entry.phase, Phase::Acquiring) {
                    entry.note_offers(&payload);
                }
                entry.events.push_back((Event::Packet { payload: Payload(payload), from }, Some(from_mac)));
            }
        }
    }
}

impl KeptLease {
    /// Checks a packet of the client, and puts it into a frame. An error says what is wrong with the packet.
    fn framed(&self, packet: &Send) -> Result<Vec<u8>, &'static str> {
        let payload = &packet.payload.0;
        let offered: Vec<IpAddr> = self.offered.iter().chain(&self.previous).copied().collect();
        let client = Expected { mac: self.mac, id: &self.id(), address: self.address(), offered: &offered };
        match self.family {
            Family::Ipv4 => {
                let from = payload::check(payload, &client)?;
                Ok(frame::udp((self.mac, from), receiver(packet.to, self.hop)?, payload))
            }
            Family::Ipv6 => {
                payload6::check(payload, &client)?;
                if packet.to != To::Broadcast {
                    return Err("the packet is for one server, and not for the multicast address of all servers");
                }
                let source = self.open.as_ref().and_then(|open| open.source);
                let source = source.ok_or("the attachment's link has no IPv6 link-local address")?;
                Ok(frame6::udp(self.mac, source, payload))
            }
        }
    }

    /// Remembers which addresses a packet offers to the client. The host reads no other part of the packet.
    fn note_offers(&mut self, payload: &[u8]) {
        let offered = match self.family {
            Family::Ipv4 => payload::offered(payload).into_iter().collect(),
            Family::Ipv6 if frame6::is_advertisement(payload) => Vec::new(),
            Family::Ipv6 => payload6::offered(payload),
        };
        offered.into_iter().for_each(|address| self.note_offer(address));
    }

    /// Returns the link's own link-local address, after duplicate address detection found no other station with this
    /// address. DHCP for IPv4 needs no link-local address.
    pub fn source(&self, netlink: &Netlink) -> Option<Ipv6Addr> {
        if self.family == Family::Ipv4 {
            return None;
        }
        let addresses = netlink.addresses(self.index).ok()?;
        addresses.iter().filter(|one| !one.tentative && !one.dad_failed).find_map(|one| match one.net.addr() {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        })
    }

    /// Sends a router solicitation, unless a router has answered or `SOLICITATIONS` were sent.
    pub fn ask_routers(&mut self, now: u64) {
        let Some(open) = self.open.as_ref().filter(|_| self.solicitations < SOLICITATIONS) else { return };
        let Some(source) = open.source.filter(|_| self.sends.take(now)) else { return };
        self.solicitations += 1;
        // A lost solicitation has the effect of an unanswered solicitation.
        let _ = open.packets.send(&frame6::router_solicitation(self.mac, source));
    }
}

/// Returns the receiver of a packet. A single server is reached over the hop from which its last answer came.
fn receiver(to: To, hop: Option<MacBytes>) -> Result<End, &'static str> {
    match to {
        To::Broadcast => Ok((ALL, Ipv4Addr::BROADCAST)),
        To::Unicast(IpAddr::V4(server)) if is_server(server) => Ok((hop.unwrap_or(ALL), server)),
        To::Unicast(_) => Err("the packet is for an address that no server has"),
    }
}

fn is_server(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast())
}
