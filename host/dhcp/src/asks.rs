//! Answers the requests of clients.

use crate::clock;
use crate::connections::Id;
use crate::lease::{KeptLease, Phase};
use crate::namespace::{Identity, identity};
use crate::opener::NotOpened;
use crate::service::Service;
use crate::store::name;
use postern_dhcp::{Event, Family, Lease, State};
use postern_dhcp_channel::{Answer, Ask, Attachment, INTERNAL};
use postern_kernel::{KernelError, Link, Netlink};
use postern_types::IpvlanMode;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// CNI's "try again later".
const AGAIN: u32 = 11;
/// CNI's "unknown container".
const UNKNOWN: u32 = 3;
/// CNI's "invalid environment variables".
const ENVIRONMENT: u32 = 4;
/// CNI's "invalid network config".
const CONFIGURATION: u32 = 7;

/// The longest configuration, in bytes. Each step of a client reads the configuration again.
const LONGEST_CONFIGURATION: usize = 256 << 10;

/// The longest name or path, in bytes.
const LONGEST_NAME: usize = 4096;

/// The largest number of leases.
const MOST: usize = 16 << 10;

/// The longest wait for a link that can't send yet, in milliseconds. After that, packets are sent anyway.
const SETTLES_WITHIN_MS: u64 = 2000;

/// The additional time for duplicate address detection of the link's own IPv6 address. The detection has a pause of up
/// to a second, and a wait of a second (RFC 4862, 5.4.2).
const DAD_WITHIN_MS: u64 = 4000;

/// The time between two looks at the link.
pub const LOOK_MS: u64 = 20;

/// The address of an attachment's earlier lease, which the client asks for first, and the client's state.
type Before = (Option<IpAddr>, Option<State>);

impl Service {
    /// Answers a question; `None` if the answer comes later.
    pub fn ask(&mut self, id: Id, ask: Ask, namespace: Option<OwnedFd>) -> Option<Answer> {
        match ask {
            Ask::Alive => Some(Answer::Done),
            Ask::Leases => {
                self.look_at_all();
                let now = clock::since_boot();
                Some(Answer::Leases(self.leases.values().map(|entry| entry.held(now)).collect()))
            }
            Ask::Acquire(attachment) => self.acquire(id, &attachment, namespace).err(),
            Ask::Check(attachment) => Some(self.check(&attachment, namespace)),
            Ask::Release(attachment) => self.release(id, &attachment, namespace),
        }
    }

    fn acquire(&mut self, id: Id, attachment: &Attachment, given: Option<OwnedFd>) -> Result<(), Answer> {
        checked(attachment)?;
        self.look_at_some();
        let (namespace, identity) = self.namespace_of(attachment, given)?;
        let link = self.link(attachment, &namespace)?;
        carries_broadcasts(attachment, &link)?;
        let wanted = attachment.wanted();
        let (mut starts, mut kept) = (Vec::new(), Vec::new());
        for family in &wanted {
            match self.standing(attachment, *family, identity, &link)? {
                Some(before) => starts.push((*family, before)),
                None => kept.push(name(attachment, *family)),
            }
        }
        if self.leases.len() + starts.len() > MOST {
            return Err(refused(INTERNAL, format!("the service keeps {MOST} leases, and takes no more"), ""));
        }
        // Leases of families that the network no longer names are given back.
        for family in Family::ALL.into_iter().filter(|family| !wanted.contains(family)) {
            let key = name(attachment, family);
            match self.leases.get(&key) {
                Some(entry) if entry.namespace != identity => {}
                Some(entry) if entry.is_live() => self.abandon(&key),
                _ => self.finish(&key),
            }
        }
        // Existing leases are a part of the answer.
        for key in kept {
            if let Some(entry) = self.leases.get_mut(&key) {
                entry.acquirer = Some(id);
                entry.is_kept = true;
            }
        }
        for (family, before) in starts {
            if let Err(answer) = self.start(id, attachment, family, identity, &namespace, &link, before) {
                self.abandon_for(id);
                return Err(answer);
            }
        }
        // An attachment with all its leases gets its answer at once.
        self.answer_acquirer(id);
        Ok(())
    }

    /// Returns the data with which a new lease of an attachment and family begins; `None` if the present lease is kept.
    fn standing(
        &self,
        attachment: &Attachment,
        family: Family,
        identity: Identity,
        link: &Link,
    ) -> Result<Option<Before>, Answer> {
        let Some(entry) = self.leases.get(&name(attachment, family)) else { return Ok(Some(Before::default())) };
        let is_same = entry.namespace == identity;
        if !is_same && entry.is_live() && self.open_namespace(entry).is_ok() {
            return Err(other_namespace(entry));
        }
        let is_changing = match entry.phase {
            Phase::Settling { .. } | Phase::Acquiring | Phase::Probing(_) | Phase::Releasing => true,
            // Another client still waits for the lease of the other family.
            Phase::Bound => entry.acquirer.is_some(),
            Phase::Lost(_) | Phase::Remembered => false,
        };
        if is_same && is_changing {
            let words = format!("the DHCP lease of {} is being acquired or released", subject(attachment));
            return Err(refused(AGAIN, words, "try again later"));
        }
        match entry.phase {
            Phase::Bound if is_same && (entry.index, Some(entry.mac)) == (link.index, link.mac) => Ok(None),
            Phase::Bound | Phase::Remembered => Ok(Some((entry.address(), entry.state.clone()))),
            _ => Ok(Some(Before::default())),
        }
    }

    /// Begins to acquire one lease.
    #[expect(clippy::too_many_arguments, reason = "the caller knows all these values of the attachment")]
    fn start(
        &mut self,
        id: Id,
        attachment: &Attachment,
        family: Family,
        identity: Identity,
        namespace: &OwnedFd,
        link: &Link,
        (previous, state): Before,
    ) -> Result<(), Answer> {
        let mac = link.mac.ok_or_else(|| {
            let words =
                format!("link \"{}\" has no hardware address of six bytes, and DHCP needs one", attachment.ifname);
            refused(CONFIGURATION, words, "")
        })?;
        let now = clock::since_boot();
        let within = match family {
            Family::Ipv4 => SETTLES_WITHIN_MS,
            Family::Ipv6 => SETTLES_WITHIN_MS + DAD_WITHIN_MS,
        };
        let phase = Phase::Settling { until: now.saturating_add(within), next: now };
        let (attachment, index) = (attachment.clone(), link.index);
        let entry = KeptLease { attachment, family, namespace: identity, index, mac, ..KeptLease::default() };
        let mut entry = entry.begun(phase);
        // All ipvlans of a parent have the parent's hardware address, so servers must broadcast their answers.
        entry.broadcast = self.options.broadcast || link.kind == "ipvlan";
        entry.acquirer = Some(id);
        entry.previous = previous;
        let previous = match (family, previous) {
            (Family::Ipv4, Some(IpAddr::V4(address))) => Some(address),
            // The client of DHCPv6 finds the earlier address in its state.
            (Family::Ipv6, Some(_)) => {
                entry.state = state;
                None
            }
            _ => None,
        };
        let key = entry.key();
        let anew = |before: &KeptLease| {
            let names = subject(&before.attachment);
            let words = format!("the DHCP lease of {names} is acquired anew, for another namespace or link");
            refused(AGAIN, words, "try again")
        };
        if let Some(before) = self.end_lease(&key, anew) {
            // The client's time never goes back.
            entry.offset = before.offset;
        }
        entry.open = Some(self.open_for(&entry, namespace).map_err(|words| refused(INTERNAL, words, ""))?);
        entry.events.push_back((Event::Start { previous }, None));
        self.leases.insert(key, entry);
        Ok(())
    }

    /// Answers the client that waits for leases, once all leases are there. If the client has gone, its leases are
    /// given back.
    pub fn answer_acquirer(&mut self, id: Id) {
        let own = || self.leases.values().filter(|entry| entry.acquirer == Some(id));
        if own().any(|entry| !matches!(entry.phase, Phase::Bound)) {
            return;
        }
        // IPv4 comes first in the answer, although the network may name the families in any order.
        let mut parts: Vec<&KeptLease> = own().collect();
        parts.sort_by_key(|entry| entry.family);
        let leases = parts.into_iter().filter_map(|entry| entry.lease.clone());
        let Some(lease) = leases.reduce(Lease::joined_with) else { return };
        if !self.tell(id, &Answer::Lease(lease)) {
            return self.abandon_for(id);
        }
        for entry in self.leases.values_mut().filter(|entry| entry.acquirer == Some(id)) {
            entry.acquirer = None;
            entry.is_kept = false;
        }
    }

    /// Gives back all leases that were acquired for a client that has gone or failed. Leases that the attachment had
    /// before stay, because their addresses are in use.
    pub fn abandon_for(&mut self, id: Id) {
        let waiting = self.leases.iter().filter(|(_, entry)| entry.acquirer == Some(id));
        let waiting: Vec<String> = waiting.map(|(key, _)| key.clone()).collect();
        for key in waiting {
            let Some(entry) = self.leases.get_mut(&key) else { continue };
            entry.acquirer = None;
            if !std::mem::take(&mut entry.is_kept) {
                self.abandon(&key);
            }
        }
    }

    /// True if the link of a lease also has a lease of the other family. Equal names are not enough: an attachment with
    /// these names may have another namespace by now.
    pub fn has_other_lease(&self, entry: &KeptLease) -> bool {
        let link = |entry: &KeptLease| (entry.namespace, entry.index, entry.mac);
        self.leases.values().any(|other| other.serial != entry.serial && other.is_live() && link(other) == link(entry))
    }

    fn check(&self, attachment: &Attachment, given: Option<OwnedFd>) -> Answer {
        let wanted = attachment.wanted().into_iter();
        let leases = wanted.map(|family| self.check_one(attachment, family, given.as_ref()));
        match leases.collect::<Result<Vec<Lease>, Answer>>() {
            Ok(leases) => leases.into_iter().reduce(Lease::joined_with).map_or(Answer::Done, Answer::Lease),
            Err(answer) => answer,
        }
    }

    fn check_one(&self, attachment: &Attachment, family: Family, given: Option<&OwnedFd>) -> Result<Lease, Answer> {
        let Some(entry) = self.leases.get(&name(attachment, family)) else {
            let family = family.name();
            let words = format!("the DHCP service keeps no lease for {} ({family})", subject(attachment));
            return Err(refused(UNKNOWN, words, "a new container gets a lease with ADD"));
        };
        if let Ok(Some(other)) = self.differs(entry, attachment, given) {
            return Err(other);
        }
        let protocol = entry.protocol();
        match &entry.phase {
            Phase::Lost(reason) => {
                let words = format!("the {protocol} lease of {} is lost: {reason}", subject(attachment));
                let what = if self.has_other_lease(entry) {
                    "the address was taken from the link; start the container again"
                } else {
                    "the link was set down; start the container again"
                };
                Err(refused(INTERNAL, words, what))
            }
            Phase::Bound => match self.look_at(entry) {
                Ok(()) => Ok(entry.lease.clone().unwrap_or_default()),
                Err(words) => Err(refused(INTERNAL, words, "")),
            },
            _ => Err(refused(AGAIN, format!("the {protocol} lease of {} is not there yet", subject(attachment)), "")),
        }
    }

    /// Gives back all leases of an attachment, even of families that the network no longer names.
    fn release(&mut self, id: Id, attachment: &Attachment, given: Option<OwnedFd>) -> Option<Answer> {
        let mut held = Vec::new();
        for key in Family::ALL.map(|family| name(attachment, family)) {
            let Some(entry) = self.leases.get(&key) else { continue };
            // A DEL may have no namespace to compare. Then only the three names are compared.
            if let Ok(Some(other)) = self.differs(entry, attachment, given.as_ref()) {
                return Some(other);
            }
            held.push((key, entry.is_live()));
        }
        // The client is noted at all leases first. Otherwise, the end of the first lease would become the answer for
        // all leases.
        let mut is_awaited = false;
        for (key, _) in held.iter().filter(|(_, is_live)| *is_live) {
            if let Some(entry) = self.leases.get_mut(key) {
                entry.releasers.push(id);
                is_awaited = true;
            }
        }
        for (key, is_live) in &held {
            // A live lease may end at once. The client has its answer then.
            if *is_live { self.abandon(key) } else { self.finish(key) }
        }
        (!is_awaited).then_some(Answer::Done)
    }

    /// Gives a lease back, or stops acquiring it.
    pub fn abandon(&mut self, key: &str) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        let acquirer = entry.acquirer.take();
        let names = subject(&entry.attachment);
        // If the client has no state, no server knows the client.
        if entry.state.is_none() && !entry.is_running {
            self.finish(key);
        } else if !matches!(entry.phase, Phase::Releasing) {
            // A lease whose address is still being probed is given back too.
            if let Phase::Probing(probe) = std::mem::replace(&mut entry.phase, Phase::Releasing) {
                entry.lease = Some(probe.lease);
            }
            entry.wake_at = None;
            entry.events.clear();
            entry.events.push_back((Event::Release, None));
        }
        if let Some(id) = acquirer {
            let words = format!("the DHCP lease of {names} was released while it was being acquired");
            self.tell(id, &refused(AGAIN, words, ""));
        }
    }

    /// Ends a lease: removes its data, and answers all clients that wait.
    pub fn finish(&mut self, key: &str) {
        self.end_lease(key, |entry| {
            // This lease was complete, and the client still waited for the lease of the other family.
            let words = format!("the DHCP lease of {} ended while it was being acquired", subject(&entry.attachment));
            refused(AGAIN, words, "")
        });
    }

    /// Ends a lease, and returns it. The client that waits for the lease gets `answer`. The client that waits for the
    /// lease's end gets an answer, unless that client also waits for the end of another lease.
    pub fn end_lease(&mut self, key: &str, answer: impl FnOnce(&KeptLease) -> Answer) -> Option<KeptLease> {
        let ended = self.leases.remove(key)?;
        self.forget(&ended);
        if let Some(id) = ended.acquirer {
            self.disappoint(id, &answer(&ended));
        }
        for id in &ended.releasers {
            let waits = self.leases.values().any(|entry| entry.releasers.contains(id));
            if !waits {
                self.tell(*id, &Answer::Done);
            }
        }
        Some(ended)
    }

    /// Tells a client that waits for leases that one lease failed. The client can't use the other leases, so they are
    /// given back.
    pub fn disappoint(&mut self, id: Id, answer: &Answer) {
        self.tell(id, answer);
        self.abandon_for(id);
    }

    /// Opens the namespace that an ask names. A descriptor that came with the ask must lead to the same namespace.
    fn namespace_of(&self, attachment: &Attachment, given: Option<OwnedFd>) -> Result<(OwnedFd, Identity), Answer> {
        let path = &attachment.netns;
        let (namespace, found) = self.open_path(path).map_err(|error| match error {
            NotOpened::Gone => refused(ENVIRONMENT, format!("there is no network namespace at \"{path}\""), ""),
            NotOpened::Refused(words) => refused(ENVIRONMENT, words, ""),
        })?;
        if let Some(given) = given
            && identity(&given) != Ok(found)
        {
            let words = format!("\"{path}\" leads the DHCP service to another namespace than the plugin");
            return Err(refused(ENVIRONMENT, words, "the service needs the same files (--hostprefix)"));
        }
        if found == self.home.identity {
            let words = format!("\"{path}\" is the namespace of the node, not of a container");
            return Err(refused(ENVIRONMENT, words, ""));
        }
        Ok((namespace, found))
    }

    /// Returns a refusal if an ask names another namespace than the lease has, and the lease's namespace is alive.
    fn differs(
        &self,
        entry: &KeptLease,
        attachment: &Attachment,
        given: Option<&OwnedFd>,
    ) -> Result<Option<Answer>, NotOpened> {
        let asked = match given {
            Some(given) => identity(given).map_err(|errno| NotOpened::Refused(errno.to_string()))?,
            None => self.open_path(&attachment.netns)?.1,
        };
        let is_other = asked != entry.namespace && self.open_namespace(entry).is_ok();
        Ok(is_other.then(|| other_namespace(entry)))
    }

    /// Finds the attachment's link, and sets it up.
    fn link(&self, attachment: &Attachment, namespace: &OwnedFd) -> Result<Link, Answer> {
        let Attachment { netns, ifname, .. } = attachment;
        let look = || -> Result<Option<Link>, KernelError> {
            let netlink = Netlink::open()?;
            let link = netlink.link_by_name(ifname)?;
            if let Some(link) = link.as_ref().filter(|link| !link.up) {
                netlink.set_up(link.index)?;
            }
            Ok(link)
        };
        let found = self.home.visit(namespace, || Ok::<_, KernelError>(look()));
        let found = found.map_err(|words| refused(ENVIRONMENT, format!("cannot enter {netns}: {words}"), ""))?;
        let found = found.map_err(|error| refused(INTERNAL, error.to_string(), ""))?;
        found.ok_or_else(|| {
            let words = format!("namespace {netns} has no link \"{ifname}\", and DHCP needs a link");
            let way_out = "the plugin \"dhcp\" needs a plugin that makes its link first: bridge, macvlan, vlan, ipvlan";
            refused(CONFIGURATION, words, way_out)
        })
    }

    /// Checks that the lease's link is there and up.
    fn look_at(&self, entry: &KeptLease) -> Result<(), String> {
        let (ifname, protocol, subject) = (&entry.attachment.ifname, entry.protocol(), subject(&entry.attachment));
        let namespace = self.open_namespace(entry);
        let namespace = namespace.map_err(|_| format!("the network namespace of {subject} is gone"))?;
        match self.home.visit(&namespace, || entry.link(&Netlink::open()?))? {
            Some(link) if link.up => Ok(()),
            Some(_) => Err(format!("link \"{ifname}\" of the {protocol} lease of {subject} is down")),
            None => Err(format!("the link of the DHCP lease of {subject} is gone")),
        }
    }
}

/// Checks the names of an attachment before it gets a lease.
fn checked(attachment: &Attachment) -> Result<(), Answer> {
    let Attachment { container_id, network, ifname, netns, configuration, args, .. } = attachment;
    for (what, text) in [("container ID", container_id), ("network's name", network), ("interface's name", ifname)] {
        if text.is_empty() || text.len() > LONGEST_NAME {
            return Err(refused(ENVIRONMENT, format!("the {what} is empty or too long for a DHCP lease"), ""));
        }
    }
    if netns.len() > LONGEST_NAME || configuration.len() + args.len() > LONGEST_CONFIGURATION {
        let words =
            format!("the configuration is longer than {LONGEST_CONFIGURATION} bytes, the limit of the DHCP service");
        return Err(refused(CONFIGURATION, words, ""));
    }
    Ok(())
}

/// Refuses a link over which no server can be found: an ipvlan that routes has neither broadcasts nor ARP.
fn carries_broadcasts(attachment: &Attachment, link: &Link) -> Result<(), Answer> {
    let mode = match link.ipvlan_mode {
        Some(IpvlanMode::L3) => "l3",
        Some(IpvlanMode::L3s) => "l3s",
        Some(IpvlanMode::L2) | None => return Ok(()),
    };
    let ifname = &attachment.ifname;
    let words = format!(
        "link \"{ifname}\" is an ipvlan in mode {mode}, which carries no broadcasts, and DHCP needs broadcasts"
    );
    Err(refused(CONFIGURATION, words, "use mode \"l2\", or another IPAM plugin, such as host-local"))
}

/// Makes a refusal.
pub fn refused(code: u32, words: impl Into<String>, details: &str) -> Answer {
    Answer::Refused { code, words: words.into(), details: details.to_owned() }
}

/// Returns an attachment's names, for messages.
pub fn subject(attachment: &Attachment) -> String {
    let Attachment { container_id, network, ifname, .. } = attachment;
    format!("container {container_id}, network \"{network}\", interface {ifname}")
}

fn other_namespace(entry: &KeptLease) -> Answer {
    let (names, netns) = (subject(&entry.attachment), &entry.attachment.netns);
    let words = format!("the DHCP lease of {names} belongs to the namespace at {netns}, which is still there");
    refused(ENVIRONMENT, words, "DEL gives the lease back")
}
