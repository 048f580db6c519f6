//! What happens to leases: frames, timers, and the steps of the client.

use crate::asks::{LOOK_MS, refused, subject};
use crate::clock;
use crate::frame::{self, ALL, Ends, Mac, Received};
use crate::lease::{Entry, Open, Phase, Probe, Running, WAITING, address};
use crate::opener::NotOpened;
use crate::packet::PacketSocket;
use crate::payload::{self, Client};
use crate::service::Service;
use postern_dhcp::{Event, INFINITE, Input, Lease, Outcome, Output, Payload, To};
use postern_dhcp_channel::{Answer, INTERNAL};
use postern_kernel::{KernelError, Netlink};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

/// The time that sockets stay open for an answer to a lease that is bound, in milliseconds.
const LISTEN_MS: u64 = 10_000;

/// The least time until a step, while a lease is acquired and when it is bound. A server's times may be zero.
const LEAST_MS: u64 = 50;
const LEAST_BOUND_MS: u64 = 1000;

/// The time after which a step is tried again that failed.
const AGAIN_MS: u64 = 10_000;

/// The questions who has an address, and the time for each to be answered.
const PROBES: u32 = 2;
const PROBE_MS: u64 = 200;

/// The frames that are read at once from one socket. Others have their turn then.
const FRAMES: usize = 32;

impl Service {
    /// Starts steps, as many as there are free processes for them.
    ///
    /// # Errors
    /// A process has ended.
    pub fn begin_steps(&mut self) -> Result<(), String> {
        let now = clock::since_boot();
        for at in 0..self.runners.len() {
            let Some((runner, slot)) = self.runners.get_mut(at).filter(|(_, lease)| lease.is_none()) else { continue };
            // Those with a client that waits come first: others have minutes.
            let ready = |entry: &Entry| {
                let settles = matches!(entry.phase, Phase::Settling { .. });
                entry.running.is_none() && !entry.events.is_empty() && !settles
            };
            let next = self.leases.iter().filter(|(_, entry)| ready(entry));
            let Some(key) = next.min_by_key(|(_, entry)| entry.acquirer.is_none()).map(|(key, _)| key.clone()) else {
                return Ok(());
            };
            let Some(entry) = self.leases.get_mut(&key) else { continue };
            let Some(event) = entry.events.pop_front() else { continue };
            let sender = if matches!(event, Event::Packet { .. }) { entry.senders.pop_front() } else { None };
            entry.running = Some(Running { sender, is_timer: matches!(event, Event::Timer) });
            let input = Input {
                client: entry.client(self.options.timeouts),
                state: entry.state.clone(),
                event,
                now_ms: now.saturating_add(entry.offset),
                random: RandomState::new().hash_one(now),
            };
            runner.begin(&input)?;
            *slot = Some(key);
        }
        Ok(())
    }

    /// Takes the result of a step.
    ///
    /// # Errors
    /// The process has ended, or answers no more.
    pub fn end_step(&mut self, at: usize) -> Result<(), String> {
        let Some((runner, slot)) = self.runners.get_mut(at) else { return Ok(()) };
        let key = slot.take().ok_or("a process for steps has ended")?;
        let result = runner.finish()?;
        let Some(entry) = self.leases.get_mut(&key) else { return Ok(()) };
        let Some(running) = entry.running.take() else { return Ok(()) };
        match result {
            Ok(output) => self.apply(&key, output, running),
            Err(words) => self.fail(&key, &words, running),
        }
        Ok(())
    }

    /// Does what a step wants.
    fn apply(&mut self, key: &str, output: Output, running: Running) {
        let now = clock::since_boot();
        let Output { state, send, wake_ms, outcome } = output;
        let Some(entry) = self.leases.get_mut(key) else { return };
        let is_bound = matches!(entry.phase, Phase::Bound);
        let least = if is_bound || matches!(outcome, Some(Outcome::Bound { .. })) { LEAST_BOUND_MS } else { LEAST_MS };
        let is_new = entry.state.as_ref() != Some(&state);
        entry.state = Some(state);
        let wake_at = wake_ms.map(|wake| now.saturating_add(wake.max(least)));
        // A release has been asked for meanwhile, and its step is next: no timer comes before it.
        entry.wake_at = wake_at.filter(|_| !matches!(entry.phase, Phase::Releasing));
        if !send.is_empty() {
            self.send(key, &send);
        }
        match outcome {
            Some(outcome) => self.decide(key, outcome, running),
            None if is_bound && is_new => self.keep(key),
            None => {}
        }
        // A release is one step, whatever comes of it.
        let is_done = self.leases.get(key).is_some_and(|entry| {
            matches!(entry.phase, Phase::Releasing) && entry.events.is_empty() && entry.running.is_none()
        });
        if is_done {
            self.finish(key);
        }
    }

    fn decide(&mut self, key: &str, outcome: Outcome, running: Running) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        let is_acquiring = matches!(entry.phase, Phase::Settling { .. } | Phase::Acquiring | Phase::Probing(_));
        match outcome {
            // The lease was given while it is being released: its address is known for that.
            Outcome::Bound { lease, .. } | Outcome::Kept { lease } if matches!(entry.phase, Phase::Releasing) => {
                entry.lease = Some(lease);
            }
            Outcome::Bound { lease, probe } if is_acquiring => {
                entry.hop = running.sender.or(entry.hop);
                match address(&lease) {
                    None => self.fail_to_acquire(key, "the client found a lease without an IPv4 address"),
                    Some(address) if probe => self.probe(key, lease, address),
                    Some(_) => self.bind(key, lease),
                }
            }
            Outcome::Bound { .. } => self.lose(key, "the client began anew while the lease was held"),
            Outcome::Kept { lease } => {
                let addresses = |lease: &Lease| lease.addresses.iter().map(|one| one.address).collect::<Vec<_>>();
                if entry.lease.as_ref().map(addresses) != Some(addresses(&lease)) {
                    return self.lose(key, "the server gave another address at the renewal");
                }
                entry.hop = running.sender.or(entry.hop);
                self.hold(key, lease);
            }
            Outcome::Lost { reason } | Outcome::Failed { reason } if is_acquiring => self.fail_to_acquire(key, &reason),
            Outcome::Lost { reason } | Outcome::Failed { reason } => self.lose(key, &reason),
            Outcome::Ended => self.finish(key),
        }
    }

    /// Deals with a step without a result.
    fn fail(&mut self, key: &str, words: &str, running: Running) {
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        if !entry.is_warned {
            entry.is_warned = true;
            postern_gate::say!("postern dhcp: {}: {words}", subject(&entry.attachment));
        }
        // Packets that the client can't bear cost a share of what it is given.
        if running.sender.is_some() {
            for _ in 0..8 {
                entry.packets.take(now);
            }
            return;
        }
        match entry.phase {
            Phase::Releasing if entry.events.is_empty() => self.finish(key),
            Phase::Settling { .. } | Phase::Acquiring | Phase::Probing(_) => self.fail_to_acquire(key, words),
            _ => entry.wake_at = Some(now.saturating_add(AGAIN_MS)),
        }
    }

    fn fail_to_acquire(&mut self, key: &str, reason: &str) {
        let Some(entry) = self.leases.remove(key) else { return };
        self.forget(&entry);
        let words = format!("no DHCP lease for {}: {reason}", subject(&entry.attachment));
        if let Some(id) = entry.acquirer {
            self.tell(id, &refused(INTERNAL, words, ""));
        }
        for id in &entry.releasers {
            self.tell(*id, &Answer::Done);
        }
    }

    /// Asks the link who has the address.
    fn probe(&mut self, key: &str, lease: Lease, address: Ipv4Addr) {
        let Some(entry) = self.leases.get(key) else { return };
        let socket = self.open_namespace(entry).map_err(|error| format!("{error:?}")).and_then(|namespace| {
            let opened = self.home.visit(&namespace, || PacketSocket::arp(entry.index));
            opened.and_then(|opened| opened).map_err(|errno| errno.to_string())
        });
        let now = clock::since_boot();
        match socket {
            Ok(socket) => {
                let Some(entry) = self.leases.get_mut(key) else { return };
                entry.phase = Phase::Probing(Probe { lease, address, socket, left: PROBES, next: now });
                self.ask_link(key);
            }
            Err(words) => self.fail_to_acquire(key, &format!("its link can't be asked who has {address}: {words}")),
        }
    }

    /// Asks once more who has the address, or takes the lease.
    fn ask_link(&mut self, key: &str) {
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        let mac = entry.mac;
        let Phase::Probing(probe) = &mut entry.phase else { return };
        if probe.left > 0 {
            probe.left -= 1;
            probe.next = now.saturating_add(PROBE_MS);
            // A probe that is lost is as one that nobody answers.
            let _ = probe.socket.send(&frame::arp_probe(mac, probe.address));
        } else {
            let lease = probe.lease.clone();
            self.bind(key, lease);
        }
    }

    /// A server has given the lease, and nobody else has its address.
    fn bind(&mut self, key: &str, lease: Lease) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        entry.phase = Phase::Bound;
        self.hold(key, lease.clone());
        let Some(entry) = self.leases.get_mut(key) else { return };
        let acquirer = entry.acquirer.take();
        self.note_lease(key, "dhcp.bound");
        let is_told = acquirer.is_some_and(|id| self.tell(id, &Answer::Lease(lease)));
        if !is_told {
            self.abandon(key);
        }
    }

    /// Takes a lease as it is from now on.
    fn hold(&mut self, key: &str, lease: Lease) {
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        let length = u64::from(lease.seconds) * 1000;
        entry.expires_at = (lease.seconds != INFINITE).then(|| now.saturating_add(length));
        entry.lease = Some(lease);
        entry.open = None;
        entry.is_warned = false;
        self.keep(key);
    }

    /// Writes the lease's file.
    fn keep(&mut self, key: &str) {
        let Some(entry) = self.leases.get(key) else { return };
        if let Some(parts) = entry.parts()
            && let Err(error) = self.store.write(parts)
        {
            postern_gate::say!("postern dhcp: {}: cannot write its file: {error}", subject(&entry.attachment));
        }
    }

    /// The address may no longer be used: the link is set down, as the native daemon does.
    fn lose(&mut self, key: &str, reason: &str) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        entry.wake_at = None;
        entry.open = None;
        entry.events.clear();
        entry.senders.clear();
        entry.phase = Phase::Lost(reason.to_owned());
        postern_gate::say!("postern dhcp: {}: the lease is lost: {reason}", subject(&entry.attachment));
        let Some(entry) = self.leases.get(key) else { return };
        let down = match self.open_namespace(entry) {
            Ok(namespace) => {
                let visited = self.home.visit(&namespace, || -> Result<(), KernelError> {
                    let netlink = Netlink::open()?;
                    let link = netlink.link_by_index(entry.index)?;
                    // Another link may have the number by now.
                    if link.is_some_and(|link| link.mac == Some(entry.mac)) {
                        netlink.set_down(entry.index)
                    } else {
                        Ok(())
                    }
                });
                visited.map_err(|errno| errno.to_string()).and_then(|down| down.map_err(|error| error.to_string()))
            }
            Err(NotOpened::Gone) => return self.finish(key),
            Err(NotOpened::Refused(words)) => Err(words),
        };
        self.note(entry, "dhcp.link-down", &serde_json::json!({"reason": reason, "lease": entry.lease}), &down);
        self.keep(key);
    }

    fn note_lease(&self, key: &str, operation: &str) {
        if let Some(entry) = self.leases.get(key) {
            self.note(entry, operation, &entry.lease, &Ok::<(), String>(()));
        }
    }

    /// Sends packets of the client, those that pass the checks.
    fn send(&mut self, key: &str, packets: &[postern_dhcp::Send]) {
        if let Err(words) = self.ensure_open(key) {
            let Some(entry) = self.leases.get(key) else { return };
            postern_gate::say!("postern dhcp: {}: cannot send: {words}", subject(&entry.attachment));
            return;
        }
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        let id = entry.id();
        let client = Client { mac: entry.mac, id: &id, address: entry.address() };
        let mut refusal = None;
        for packet in packets {
            let checked = payload::check(&packet.payload.0, &client).and_then(|checked| {
                receiver(packet.to, entry.hop).map(|(to_mac, to)| Ends {
                    from_mac: entry.mac,
                    to_mac,
                    from: checked.from,
                    to,
                })
            });
            let ends = match checked {
                Ok(ends) if entry.sends.take(now) => ends,
                Ok(_) => {
                    refusal = Some("it sends more than a client does");
                    continue;
                }
                Err(words) => {
                    refusal = Some(words);
                    continue;
                }
            };
            if let Some(open) = &mut entry.open {
                open.until = now.saturating_add(LISTEN_MS);
                // A packet that is lost is sent again by the client.
                let _ = open.packets.send(&frame::udp(&ends, &packet.payload.0));
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

    /// Opens what a lease needs to speak with servers, if it is not open.
    ///
    /// # Errors
    /// The namespace or the link is gone, or the kernel refuses.
    fn ensure_open(&mut self, key: &str) -> Result<(), String> {
        let Some(mut entry) = self.leases.remove(key) else { return Ok(()) };
        let opened = if entry.open.is_some() {
            Ok(())
        } else {
            let namespace = self.open_namespace(&entry).map_err(|error| match error {
                NotOpened::Gone => "its network namespace is gone".to_owned(),
                NotOpened::Refused(words) => words,
            });
            namespace.and_then(|namespace| self.open_for(&mut entry, &namespace))
        };
        self.leases.insert(key.to_owned(), entry);
        opened
    }

    /// Opens sockets in a namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open_for(&self, entry: &mut Entry, namespace: &OwnedFd) -> Result<(), String> {
        let opened = self.home.visit(namespace, || -> Result<Open, String> {
            let netlink = Netlink::open().map_err(|error| error.to_string())?;
            let link = netlink.link_by_index(entry.index).map_err(|error| error.to_string())?;
            if link.and_then(|link| link.mac) != Some(entry.mac) {
                return Err(format!(
                    "its link \"{}\" is gone, or has another hardware address",
                    entry.attachment.ifname
                ));
            }
            let packets = PacketSocket::dhcp(entry.index, entry.mac).map_err(|errno| errno.to_string())?;
            Ok(Open { netlink, packets, until: clock::since_boot().saturating_add(LISTEN_MS) })
        });
        entry.open = Some(opened.map_err(|errno| errno.to_string())??);
        Ok(())
    }

    /// Takes the frames that wait for a lease.
    pub fn take_packets(&mut self, key: &str) {
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        for _ in 0..FRAMES {
            let Some(open) = &entry.open else { return };
            let frame = match open.packets.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(errno) => {
                    // The link is down or gone. A step that sends will find out which.
                    if errno != nix::errno::Errno::ENETDOWN || matches!(entry.phase, Phase::Bound) {
                        entry.open = None;
                    }
                    return;
                }
            };
            let Some(Received { from_mac, from, payload }) = frame::read_udp(&frame.bytes, frame.is_summed) else {
                continue;
            };
            let waits = matches!(entry.phase, Phase::Acquiring | Phase::Bound);
            if waits && entry.events.len() < WAITING && entry.packets.take(now) {
                entry.events.push_back(Event::Packet { payload: Payload(payload), from: IpAddr::V4(from) });
                entry.senders.push_back(from_mac);
            }
        }
    }

    /// Takes the ARP frames that wait, while the link is asked who has the address.
    pub fn take_arp(&mut self, key: &str) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        let Phase::Probing(probe) = &entry.phase else { return };
        for _ in 0..FRAMES {
            let Ok(Some(frame)) = probe.socket.receive() else { return };
            if frame::arp_conflicts(&frame.bytes, entry.mac, probe.address) {
                postern_gate::say!(
                    "postern dhcp: {}: another station has {}, which a server offers",
                    subject(&entry.attachment),
                    probe.address
                );
                entry.phase = Phase::Acquiring;
                entry.wake_at = None;
                entry.events.push_back(Event::Conflict);
                return;
            }
        }
    }

    /// Does all whose time has come.
    pub fn keep_time(&mut self) {
        let now = clock::since_boot();
        let due = self.leases.iter().filter(|(_, entry)| entry.deadline().is_some_and(|at| at <= now));
        let due: Vec<String> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.keep_time_of(&key, now);
        }
    }

    fn keep_time_of(&mut self, key: &str, now: u64) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        match &mut entry.phase {
            Phase::Settling { until, next } => {
                let link = entry.open.as_ref().map(|open| open.netlink.link_by_index(entry.index));
                // The state of some links is never known, such as that of a dummy.
                let can_send =
                    matches!(&link, Some(Ok(Some(link))) if link.running || link.up && link.operstate == "unknown");
                if can_send || *until <= now {
                    entry.phase = Phase::Acquiring;
                } else {
                    *next = now.saturating_add(LOOK_MS);
                }
            }
            Phase::Probing(probe) if probe.next <= now => self.ask_link(key),
            Phase::Remembered => self.finish(key),
            Phase::Bound => {
                let has_ended = entry.expires_at.is_some_and(|end| end.saturating_add(crate::lease::GRACE_MS) <= now);
                let is_closed = entry.open.as_ref().is_some_and(|open| open.until <= now);
                if is_closed {
                    entry.open = None;
                }
                if has_ended && entry.running.is_none() && entry.events.is_empty() {
                    self.lose(key, "it has expired");
                } else if entry.wake_at.is_some_and(|at| at <= now)
                    && entry.running.is_none()
                    && entry.events.is_empty()
                {
                    entry.wake_at = None;
                    entry.events.push_back(Event::Timer);
                    self.look_before_renewal(key);
                }
            }
            _ => {
                if entry.wake_at.is_some_and(|at| at <= now) && entry.events.is_empty() {
                    entry.wake_at = None;
                    entry.events.push_back(Event::Timer);
                }
            }
        }
    }
}

/// Returns where a packet goes. One server is reached over the hop that its last answer came from.
fn receiver(to: To, hop: Option<Mac>) -> Result<(Mac, Ipv4Addr), &'static str> {
    match to {
        To::Broadcast => Ok((ALL, Ipv4Addr::BROADCAST)),
        To::Unicast(IpAddr::V4(server)) if is_server(server) => Ok((hop.unwrap_or(ALL), server)),
        To::Unicast(_) => Err("it is for an address that no server has"),
    }
}

fn is_server(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast())
}
