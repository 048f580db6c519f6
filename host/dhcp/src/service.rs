//! The service: one thread that waits for connections, frames, timers and the ends of steps.

use crate::clock;
use crate::connections::{ClientConnection, Id};
use crate::lease::{KeptLease, Phase};
use crate::namespace::{Identity, OwnNamespace};
use crate::opener::{NotOpened, Opener};
use crate::options::Options;
use crate::steps::Runner;
use crate::store::Store;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::sys::timerfd::{Expiration, TimerFd, TimerSetTimeFlags};
use postern_dhcp_channel::Answer;
use postern_gate::audit::Audit;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// The longest time of a timer, in milliseconds: a year. After a year the service sets the timer again.
const FOREVER: u64 = 365 * 24 * 60 * 60 * 1000;

/// The largest number of connections.
const MOST_CONNECTIONS: usize = 1024;

/// The data of the service.
#[derive(Debug)]
pub struct Service {
    pub options: Options,
    /// The service's own namespace.
    pub home: OwnNamespace,
    pub opener: Opener,
    pub store: Store,
    /// The directory of the audit log.
    pub logs: PathBuf,
    /// The leases, by the names of their files.
    pub leases: BTreeMap<String, KeptLease>,
    /// The processes for steps, each with the lease whose step it runs, and the lease's serial number.
    pub runners: Vec<(Runner, Option<(String, u64)>)>,
    connections: BTreeMap<Id, ClientConnection>,
    next_id: u64,
    /// The last lease at which [`Service::look_at_some`] looked.
    pub looked_at: String,
}

/// The owner of a readable descriptor.
enum Source {
    Listener,
    Signals,
    Timer,
    Connection(Id),
    Runner(usize),
    Packets(String),
    Probe(String),
}

impl Service {
    /// Makes the service, and reads its leases.
    pub fn new(
        options: Options,
        home: OwnNamespace,
        opener: Opener,
        store: Store,
        logs: PathBuf,
        runners: Vec<Runner>,
    ) -> Result<Self, String> {
        let mut service = Self {
            options,
            home,
            opener,
            store,
            logs,
            leases: BTreeMap::new(),
            runners: runners.into_iter().map(|runner| (runner, None)).collect(),
            connections: BTreeMap::new(),
            next_id: 0,
            looked_at: String::new(),
        };
        let loaded = service.store.load().map_err(|error| format!("cannot list the leases: {error}"))?;
        for entry in loaded {
            let is_of_before = matches!(entry.phase, Phase::Remembered);
            if !is_of_before && service.open_namespace(&entry).err() == Some(NotOpened::Gone) {
                service.forget(&entry);
            } else {
                service.leases.insert(entry.key(), entry);
            }
        }
        Ok(service)
    }

    /// Serves until a signal says to stop. Fails if a process of the service has ended.
    pub fn run(&mut self, listener: &OwnedFd, signals: &SignalFd, timer: &TimerFd) -> Result<(), String> {
        loop {
            self.begin_steps()?;
            self.set(timer).map_err(|errno| errno.to_string())?;
            let ready = {
                let mut sources = Vec::new();
                let mut waits = Vec::new();
                let mut wait = |source, descriptor, flags| {
                    sources.push(source);
                    waits.push(PollFd::new(descriptor, flags));
                };
                let input = PollFlags::POLLIN;
                wait(Source::Signals, signals.as_fd(), input);
                wait(Source::Timer, timer.as_fd(), input);
                if self.connections.len() < MOST_CONNECTIONS {
                    wait(Source::Listener, listener.as_fd(), input);
                }
                for connection in self.connections.values() {
                    let flags = if connection.outgoing.is_empty() { input } else { input | PollFlags::POLLOUT };
                    wait(Source::Connection(connection.id), connection.socket.as_fd(), flags);
                }
                // An idle process whose socket is readable has ended.
                for (at, (runner, _)) in self.runners.iter().enumerate() {
                    wait(Source::Runner(at), runner.stream.as_fd(), input);
                }
                for (key, entry) in &self.leases {
                    if let Some(open) = &entry.open {
                        wait(Source::Packets(key.clone()), open.packets.0.as_fd(), input);
                    }
                    if let Phase::Probing(probe) = &entry.phase {
                        wait(Source::Probe(key.clone()), probe.socket.0.as_fd(), input);
                    }
                }
                match poll(&mut waits, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(errno) => return Err(errno.desc().to_owned()),
                }
                let ready = sources.into_iter().zip(&waits).filter(|(_, wait)| wait.any() == Some(true));
                ready.map(|(source, _)| source).collect::<Vec<_>>()
            };
            for source in ready {
                match source {
                    Source::Signals => return Ok(()),
                    Source::Timer => drop(nix::unistd::read(timer.as_fd(), &mut [0; 8])),
                    Source::Listener => self.accept(listener),
                    Source::Connection(id) => self.hear(id),
                    Source::Runner(at) => self.end_step(at)?,
                    Source::Packets(key) => self.take_packets(&key),
                    Source::Probe(key) => self.take_claims(&key),
                }
            }
            self.keep_time();
            self.speak();
        }
    }

    /// Sets the timer to the next time at which something has to be done.
    fn set(&self, timer: &TimerFd) -> nix::Result<()> {
        let leases = self.leases.values().flat_map(KeptLease::timers).map(|(at, _)| at);
        let connections = self.connections.values().filter_map(ClientConnection::closes_at);
        let Some(at) = leases.chain(connections).min() else { return timer.unset() };
        // A time in the past means now. Zero would switch the timer off.
        let left = Duration::from_millis(at.saturating_sub(clock::since_boot()).clamp(1, FOREVER));
        timer.set(Expiration::OneShot(left.into()), TimerSetTimeFlags::empty())
    }

    fn accept(&mut self, listener: &OwnedFd) {
        let id = Id(self.next_id);
        self.next_id += 1;
        if let Some(connection) = ClientConnection::accept(listener, id, clock::since_boot()) {
            self.connections.insert(id, connection);
        }
    }

    /// Reads the questions of a client, and answers the questions that need no wait.
    fn hear(&mut self, id: Id) {
        let now = clock::since_boot();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_there = connection.read(now);
        // The requests of a client that has gone are still carried out, because a release may be among them. A lease
        // for this client is given back.
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            match connection.question() {
                Ok(Some((ask, namespace))) => {
                    if let Some(answer) = self.ask(id, ask, namespace)
                        && let Some(connection) = self.connections.get_mut(&id)
                    {
                        connection.answer(&answer);
                    }
                }
                Ok(None) => break,
                Err(()) => return self.part(id),
            }
        }
        if !is_there {
            self.part(id);
        }
    }

    /// Ends a connection. Leases that its client still waits for are given back.
    fn part(&mut self, id: Id) {
        self.connections.remove(&id);
        self.abandon_for(id);
    }

    /// Writes answers, and closes connections that are silent for long.
    fn speak(&mut self) {
        let now = clock::since_boot();
        let mut gone = Vec::new();
        for connection in self.connections.values_mut() {
            if !connection.write() || connection.closes_at().is_some_and(|at| at <= now) {
                gone.push(connection.id);
            }
        }
        for id in gone {
            self.part(id);
        }
    }

    /// Answers a waiting client. False if the client has gone.
    pub fn tell(&mut self, id: Id, answer: &Answer) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.answer(answer);
        connection.write()
    }

    /// Opens the namespace of a lease. The namespace is gone if the path leads nowhere, or to another namespace.
    pub fn open_namespace(&self, entry: &KeptLease) -> Result<OwnedFd, NotOpened> {
        let (namespace, identity) = self.open_path(&entry.attachment.netns)?;
        if identity == entry.namespace { Ok(namespace) } else { Err(NotOpened::Gone) }
    }

    /// Opens the namespace at a path of the runtime.
    pub fn open_path(&self, path: &str) -> Result<(OwnedFd, Identity), NotOpened> {
        if path.is_empty() {
            return Err(NotOpened::Gone);
        }
        self.opener.open(&format!("{}{path}", self.options.host_prefix))
    }

    /// Notes an act in the audit log.
    pub fn note(
        &self,
        entry: &KeptLease,
        operation: &str,
        object: &impl serde::Serialize,
        outcome: &Result<(), impl Display>,
    ) {
        let names = &entry.attachment;
        let attachment = format!("{}/{}/{}", names.network, names.container_id, names.ifname);
        Audit::new(&self.logs, attachment).note_own("DHCP", operation, object, "lease", outcome, Duration::ZERO);
    }

    /// Removes a lease's file.
    pub fn forget(&self, entry: &KeptLease) {
        if let Err(error) = self.store.remove(entry) {
            postern_gate::say!("postern dhcp: cannot remove a lease's file: {error}");
        }
    }

    /// Ends the processes of the service, and closes all its sockets.
    pub fn end(self) {
        drop(self.runners);
        self.opener.0.end();
    }
}
