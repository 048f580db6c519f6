//! The events of leases: timers, and the steps of the client.

use crate::asks::{LOOK_MS, subject};
use crate::clock;
use crate::lease::{Due, KeptLease, Open, Phase, address};
use crate::opener::NotOpened;
use crate::service::Service;
use postern_dhcp::{Event, Family, INFINITE, Input, Lease, Outcome, Output};
use postern_kernel::Netlink;
use std::hash::{BuildHasher, RandomState};

/// The shortest wait before a step, while a lease is acquired and after it is bound. A server's times may be zero.
const LEAST_MS: u64 = 50;
const LEAST_BOUND_MS: u64 = 1000;

/// The time after which a failed step is tried again.
const AGAIN_MS: u64 = 10_000;

impl Service {
    /// Starts a step in each free process. Fails if a process has ended.
    pub fn begin_steps(&mut self) -> Result<(), String> {
        let now = clock::since_boot();
        for at in 0..self.runners.len() {
            let Some((runner, slot)) = self.runners.get_mut(at).filter(|(_, lease)| lease.is_none()) else { continue };
            // Leases that a client waits for come first. Other leases can wait for minutes.
            let ready = |entry: &KeptLease| {
                let settles = matches!(entry.phase, Phase::Settling { .. });
                !entry.is_running && !entry.events.is_empty() && !settles
            };
            let next = self.leases.iter().filter(|(_, entry)| ready(entry));
            let Some(key) = next.min_by_key(|(_, entry)| entry.acquirer.is_none()).map(|(key, _)| key.clone()) else {
                return Ok(());
            };
            let Some(entry) = self.leases.get_mut(&key) else { continue };
            let Some((event, sender)) = entry.events.pop_front() else { continue };
            (entry.is_running, entry.sender) = (true, sender);
            let asks_routers = matches!(event, Event::Start { .. } | Event::Timer);
            if entry.family == Family::Ipv6 && asks_routers && matches!(entry.phase, Phase::Acquiring) {
                entry.ask_routers(now);
            }
            let input = Input {
                client: entry.client(self.options.timeouts),
                state: entry.state.clone(),
                event,
                now_ms: now.saturating_add(entry.offset),
                random: RandomState::new().hash_one(now),
            };
            runner.begin(&input)?;
            *slot = Some((key, entry.serial));
        }
        Ok(())
    }

    /// Takes the result of a step. Fails if the process has ended, or no longer answers.
    pub fn end_step(&mut self, at: usize) -> Result<(), String> {
        let Some((runner, slot)) = self.runners.get_mut(at) else { return Ok(()) };
        let (key, serial) = slot.take().ok_or("a process for steps has ended")?;
        let result = runner.finish()?;
        // The lease may have ended meanwhile, and another lease may have its name.
        let Some(entry) = self.leases.get_mut(&key).filter(|entry| entry.serial == serial) else { return Ok(()) };
        entry.is_running = false;
        match result {
            Ok(output) => self.apply(&key, output),
            Err(words) => self.fail(&key, &words),
        }
        Ok(())
    }

    /// Carries out the output of a step.
    fn apply(&mut self, key: &str, output: Output) {
        let now = clock::since_boot();
        let Output { state, send, wake_ms, outcome } = output;
        let Some(entry) = self.leases.get_mut(key) else { return };
        let is_bound = matches!(entry.phase, Phase::Bound);
        let least = if is_bound || matches!(outcome, Some(Outcome::Bound { .. })) { LEAST_BOUND_MS } else { LEAST_MS };
        let is_new = entry.state.as_ref() != Some(&state);
        entry.state = Some(state);
        let wake_at = wake_ms.map(|wake| now.saturating_add(wake.max(least)));
        // If a client asked for a release meanwhile, the release is the next step: no timer may come before it.
        entry.wake_at = wake_at.filter(|_| !matches!(entry.phase, Phase::Releasing));
        if !send.is_empty() {
            // Before there is a lease, a packet for one server goes to the station that sent the server's packet.
            entry.hop = entry.sender.filter(|_| !is_bound).or(entry.hop);
            self.send(key, &send);
        }
        match outcome {
            Some(outcome) => self.decide(key, outcome),
            None if is_bound && is_new => self.keep(key),
            None => {}
        }
        // A release has only one step. Even after a failed step, the release is done.
        let is_done = |entry: &KeptLease| matches!(entry.phase, Phase::Releasing) && entry.is_idle();
        if self.leases.get(key).is_some_and(is_done) {
            self.finish(key);
        }
    }

    fn decide(&mut self, key: &str, outcome: Outcome) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        let is_acquiring = matches!(entry.phase, Phase::Settling { .. } | Phase::Acquiring | Phase::Probing(_));
        match outcome {
            // A server gave the lease during its release: the release needs the lease's address.
            Outcome::Bound { lease, .. } | Outcome::Kept { lease } if matches!(entry.phase, Phase::Releasing) => {
                if entry.is_given(&lease) {
                    entry.lease = Some(lease);
                }
            }
            Outcome::Bound { lease, probe } if is_acquiring => {
                entry.hop = entry.sender.or(entry.hop);
                match address(&lease, entry.family) {
                    None => {
                        let words = format!("the client found a lease without an {} address", entry.family.name());
                        self.fail_to_acquire(key, &words);
                    }
                    // A client that an attacker controls may name any address: it could decline or give back another
                    // client's address.
                    Some(address) if !entry.is_given(&lease) => {
                        let words = format!("the client found a lease of {address}, which no server has offered");
                        self.fail_to_acquire(key, &words);
                    }
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
                entry.hop = entry.sender.or(entry.hop);
                self.hold(key, lease);
            }
            // The lease is being released, and the step for the release comes next.
            Outcome::Lost { .. } | Outcome::Failed { .. } if matches!(entry.phase, Phase::Releasing) => {}
            Outcome::Lost { reason } | Outcome::Failed { reason } if is_acquiring => self.fail_to_acquire(key, &reason),
            Outcome::Lost { reason } | Outcome::Failed { reason } => self.lose(key, &reason),
            Outcome::Ended => self.finish(key),
        }
    }

    /// Handles a step without a result.
    fn fail(&mut self, key: &str, words: &str) {
        let now = clock::since_boot();
        let Some(entry) = self.leases.get_mut(key) else { return };
        if !entry.is_warned {
            entry.is_warned = true;
            postern_gate::say!("postern dhcp: {}: {words}", subject(&entry.attachment));
        }
        // Packets that make the client fail use up the lease's budget for packets.
        if entry.sender.is_some() {
            for _ in 0..8 {
                entry.packets.take(now);
            }
            return;
        }
        match entry.phase {
            Phase::Releasing if entry.events.is_empty() => self.finish(key),
            Phase::Settling { .. } | Phase::Acquiring | Phase::Probing(_) => self.fail_to_use(key, words),
            _ => entry.wake_at = Some(now.saturating_add(AGAIN_MS)),
        }
    }

    /// Ends a lease that could not be acquired. The waiting client can't use the lease of the other family alone, so
    /// that lease is given back.
    pub fn fail_to_acquire(&mut self, key: &str, reason: &str) {
        self.end_lease(key, |entry| entry.refusal(reason));
    }

    /// As [`Service::fail_to_acquire`], for a failure that the DHCP client does not know. A lease that a server gave is
    /// given back.
    pub fn fail_to_use(&mut self, key: &str, reason: &str) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        if let Some(id) = entry.acquirer.take() {
            let refusal = entry.refusal(reason);
            self.disappoint(id, &refusal);
        }
        self.abandon(key);
    }

    /// Binds a lease: a server has given it, and no other station has its address.
    pub fn bind(&mut self, key: &str, lease: Lease) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        entry.phase = Phase::Bound;
        entry.offered.clear();
        entry.previous = None;
        let acquirer = entry.acquirer;
        self.hold(key, lease);
        if let Some(entry) = self.leases.get(key) {
            self.note(entry, "dhcp.bound", &entry.lease, &Ok::<(), String>(()));
        }
        match acquirer {
            Some(id) => self.answer_acquirer(id),
            None => self.abandon(key),
        }
    }

    /// Stores the present data of a lease.
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
        if let Err(error) = self.store.write(entry) {
            postern_gate::say!("postern dhcp: {}: cannot write its file: {error}", subject(&entry.attachment));
        }
    }

    /// Marks a lease as lost: its address may no longer be used. The link is set down, as the native daemon does. If
    /// the other family has a lease, the link stays up, and only the address is removed from it.
    fn lose(&mut self, key: &str, reason: &str) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        match entry.acquirer {
            // The address of a kept lease is in use, unlike the address of a new lease.
            Some(id) if entry.is_kept => {
                let refusal = entry.refusal(reason);
                self.disappoint(id, &refusal);
            }
            // A client that asked for both families has no answer yet.
            Some(_) => return self.fail_to_acquire(key, reason),
            None => {}
        }
        let Some(entry) = self.leases.get_mut(key) else { return };
        entry.wake_at = None;
        entry.open = None;
        entry.events.clear();
        entry.phase = Phase::Lost(reason.to_owned());
        let protocol = entry.protocol();
        postern_gate::say!("postern dhcp: {}: the {protocol} lease is lost: {reason}", subject(&entry.attachment));
        let Some(entry) = self.leases.get(key) else { return };
        let is_shared = self.has_other_lease(entry);
        let done = match self.open_namespace(entry) {
            Ok(namespace) => self.home.visit(&namespace, || {
                let netlink = Netlink::open()?;
                match entry.link(&netlink)? {
                    Some(_) if is_shared => entry.take_addresses(&netlink),
                    Some(_) => netlink.set_down(entry.index),
                    None => Ok(()),
                }
            }),
            Err(NotOpened::Gone) => return self.finish(key),
            Err(NotOpened::Refused(words)) => Err(words),
        };
        let operation = if is_shared { "dhcp.address-gone" } else { "dhcp.link-down" };
        self.note(entry, operation, &serde_json::json!({"reason": reason, "lease": entry.lease}), &done);
        self.keep(key);
    }

    /// Handles all timers that are due.
    pub fn keep_time(&mut self) {
        let now = clock::since_boot();
        let due = |entry: &KeptLease| entry.timers().find(|(at, _)| *at <= now).map(|(_, due)| due);
        let late = self.leases.iter().filter(|(_, entry)| due(entry).is_some());
        for key in late.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            // The work for another lease may have ended this lease.
            let Some(entry) = self.leases.get_mut(&key) else { continue };
            // Before a lease ends, its sockets are closed.
            if matches!(due(entry), Some(Due::Close)) {
                entry.open = None;
            }
            match due(entry) {
                Some(Due::Settle) => self.settle(&key, now),
                Some(Due::Ask) => self.ask_link(&key),
                Some(Due::Forget) => self.finish(&key),
                Some(Due::Expire) => self.lose(&key, "it has expired"),
                Some(Due::Wake) => {
                    entry.wake_at = None;
                    entry.events.push_back((Event::Timer, None));
                    if matches!(entry.phase, Phase::Bound) {
                        // The container is looked at before any packet is sent for the lease.
                        self.look_at_one(&key);
                    }
                }
                Some(Due::Close) | None => {}
            }
        }
    }

    /// Begins to look for servers, once the link can send.
    fn settle(&mut self, key: &str, now: u64) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        let Phase::Settling { until, .. } = entry.phase else { return };
        // Some links, such as a dummy, never report their state.
        let is_ready = |open: &Open| {
            let link = open.netlink.link_by_index(entry.index);
            matches!(&link, Ok(Some(link)) if link.running || link.up && link.operstate == "unknown")
        };
        let ready = entry.open.as_ref().filter(|open| is_ready(open));
        // DHCPv6 is sent from a link-local address, for which the kernel first runs duplicate address detection.
        let source = ready.and_then(|open| entry.source(&open.netlink));
        let can_send = ready.is_some() && (entry.family == Family::Ipv4 || source.is_some());
        if let Some(open) = &mut entry.open {
            open.source = source;
        }
        if can_send || until <= now && entry.family == Family::Ipv4 {
            entry.phase = Phase::Acquiring;
        } else if until <= now {
            let words = format!(
                "its link \"{}\" has no IPv6 link-local address: IPv6 is off on this link, or another station has the \
                 address",
                entry.attachment.ifname
            );
            self.fail_to_acquire(key, &words);
        } else {
            entry.phase = Phase::Settling { until, next: now.saturating_add(LOOK_MS) };
        }
    }
}
