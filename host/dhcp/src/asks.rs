//! What clients ask for.

use crate::clock;
use crate::connections::{Id, Question};
use crate::lease::{Entry, Phase};
use crate::namespace::{Identity, identity};
use crate::opener::NotOpened;
use crate::service::Service;
use crate::store::name;
use postern_dhcp::Event;
use postern_dhcp_channel::{Answer, Ask, Attachment, INTERNAL};
use postern_kernel::{Link, Netlink};
use postern_types::IpvlanMode;
use std::os::fd::OwnedFd;

/// CNI's "try again later".
const AGAIN: u32 = 11;
/// CNI's "unknown container".
const UNKNOWN: u32 = 3;
/// CNI's "invalid environment variables".
const ENVIRONMENT: u32 = 4;
/// CNI's "invalid network config".
const CONFIGURATION: u32 = 7;

/// The longest configuration, in bytes: each step reads it.
const LONGEST_CONFIGURATION: usize = 256 << 10;

/// The longest name or path, in bytes.
const LONGEST_NAME: usize = 4096;

/// The most leases.
const MOST: usize = 16 << 10;

/// The time for a link to become able to send, in milliseconds. After it, packets are sent all the same.
const SETTLES_WITHIN_MS: u64 = 2000;

/// The time between two looks at it.
pub const LOOK_MS: u64 = 20;

impl Service {
    /// Answers a question; `None` if the answer comes later.
    pub fn ask(&mut self, id: Id, question: Question) -> Option<Answer> {
        let Question { ask, namespace } = question;
        match ask {
            Ask::Alive => Some(Answer::Done),
            Ask::Leases => {
                self.look_at_all();
                let now = clock::since_boot();
                Some(Answer::Leases(self.leases.values().map(|entry| entry.held(now)).collect()))
            }
            Ask::Acquire(attachment) => self.acquire(id, attachment, namespace).err(),
            Ask::Check(attachment) => Some(self.check(&attachment, namespace)),
            Ask::Release(attachment) => self.release(id, &attachment, namespace),
        }
    }

    fn acquire(&mut self, id: Id, attachment: Attachment, given: Option<OwnedFd>) -> Result<(), Answer> {
        checked(&attachment)?;
        self.look_at_some();
        let key = name(&attachment);
        let (namespace, identity) = self.namespace_of(&attachment, given)?;
        let link = self.link(&attachment, &namespace)?;
        carries_broadcasts(&attachment, &link)?;
        let mut previous = None;
        if let Some(entry) = self.leases.get(&key) {
            let is_same = entry.namespace == identity;
            if !is_same && entry.is_live() && self.find_namespace(entry).is_ok() {
                return Err(other_namespace(entry));
            }
            match entry.phase {
                Phase::Bound if is_same && (entry.index, Some(entry.mac)) == (link.index, link.mac) => {
                    let lease = entry.lease.clone().map(Answer::Lease);
                    return Err(lease.unwrap_or(Answer::Done));
                }
                Phase::Settling { .. } | Phase::Acquiring | Phase::Probing(_) | Phase::Releasing if is_same => {
                    let words = format!("the DHCP lease of {} is being acquired or released", subject(&attachment));
                    return Err(refused(AGAIN, words, "try again when that has ended"));
                }
                Phase::Bound | Phase::Remembered => previous = entry.address(),
                _ => {}
            }
        } else if self.leases.len() >= MOST {
            return Err(refused(INTERNAL, format!("the service keeps {MOST} leases, and takes no more"), ""));
        }
        let mac = link.mac.ok_or_else(|| {
            let words =
                format!("link \"{}\" has no hardware address of six bytes, and DHCP needs one", attachment.ifname);
            refused(CONFIGURATION, words, "")
        })?;
        let now = clock::since_boot();
        let phase = Phase::Settling { until: now.saturating_add(SETTLES_WITHIN_MS), next: now };
        let mut entry = Entry::new(attachment, identity, link.index, mac, phase);
        // Links of one parent share its hardware address, so an answer must be for all of them.
        entry.broadcast = self.options.broadcast || link.kind == "ipvlan";
        entry.acquirer = Some(id);
        if let Some(before) = self.leases.remove(&key) {
            // The client's time never goes back.
            entry.offset = before.offset;
            self.forget(&before);
            self.tell_all(&before, &Answer::Done);
        }
        if let Err(words) = self.open_for(&mut entry, &namespace) {
            return Err(refused(INTERNAL, words, ""));
        }
        entry.events.push_back(Event::Start { previous });
        self.leases.insert(key, entry);
        Ok(())
    }

    fn check(&mut self, attachment: &Attachment, given: Option<OwnedFd>) -> Answer {
        let Some(entry) = self.leases.get(&name(attachment)) else {
            let words = format!("the DHCP service keeps no lease for {}", subject(attachment));
            return refused(UNKNOWN, words, "a new container gets one with ADD");
        };
        if let Ok(Some(other)) = self.differs(entry, attachment, given) {
            return other;
        }
        match &entry.phase {
            Phase::Lost(reason) => {
                let words = format!("the DHCP lease of {} is lost: {reason}", subject(attachment));
                refused(INTERNAL, words, "the link was set down; start the container again")
            }
            Phase::Bound => match self.look_at(entry) {
                Ok(true) => entry.lease.clone().map_or(Answer::Done, Answer::Lease),
                Ok(false) => {
                    let words =
                        format!("link \"{}\" of the DHCP lease of {} is down", attachment.ifname, subject(attachment));
                    refused(INTERNAL, words, "")
                }
                Err(words) => refused(INTERNAL, words, ""),
            },
            _ => refused(AGAIN, format!("the DHCP lease of {} is not there yet", subject(attachment)), ""),
        }
    }

    fn release(&mut self, id: Id, attachment: &Attachment, given: Option<OwnedFd>) -> Option<Answer> {
        let key = name(attachment);
        let Some(entry) = self.leases.get(&key) else { return Some(Answer::Done) };
        // By the record alone there may be no namespace to compare: the three names count then.
        if let Ok(Some(other)) = self.differs(entry, attachment, given) {
            return Some(other);
        }
        if !entry.is_live() {
            self.finish(&key);
            return Some(Answer::Done);
        }
        if let Some(entry) = self.leases.get_mut(&key) {
            entry.releasers.push(id);
        }
        // It may end at once, and the answer is given then.
        self.abandon(&key);
        None
    }

    /// Gives a lease back, or stops acquiring it.
    pub fn abandon(&mut self, key: &str) {
        let Some(entry) = self.leases.get_mut(key) else { return };
        let acquirer = entry.acquirer.take();
        let names = subject(&entry.attachment);
        // Without a state no server knows of the client.
        if entry.state.is_none() && entry.running.is_none() {
            self.finish(key);
        } else if !matches!(entry.phase, Phase::Releasing) {
            // An address that is still being probed is given back too.
            if let Phase::Probing(probe) = std::mem::replace(&mut entry.phase, Phase::Releasing) {
                entry.lease = Some(probe.lease);
            }
            entry.wake_at = None;
            entry.events.clear();
            entry.senders.clear();
            entry.events.push_back(Event::Release);
        }
        if let Some(id) = acquirer {
            let words = format!("the DHCP lease of {names} was released while it was being acquired");
            self.tell(id, &refused(AGAIN, words, ""));
        }
    }

    /// Ends a lease: nothing is left of it, and all who wait are told.
    pub fn finish(&mut self, key: &str) {
        if let Some(entry) = self.leases.remove(key) {
            self.forget(&entry);
            self.tell_all(&entry, &Answer::Done);
        }
    }

    fn tell_all(&mut self, entry: &Entry, answer: &Answer) {
        for id in &entry.releasers {
            self.tell(*id, answer);
        }
    }

    /// Opens the namespace that an ask is about. What came with the ask must be the same one.
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
        if found == self.home.identity() {
            return Err(refused(
                ENVIRONMENT,
                format!("\"{path}\" is the namespace of the node, not of a container"),
                "",
            ));
        }
        Ok((namespace, found))
    }

    /// Returns a refusal if an ask is about another namespace than the lease's, and that one is alive.
    fn differs(
        &self,
        entry: &Entry,
        attachment: &Attachment,
        given: Option<OwnedFd>,
    ) -> Result<Option<Answer>, NotOpened> {
        let asked = match given {
            Some(given) => identity(&given).map_err(|errno| NotOpened::Refused(errno.to_string()))?,
            None => self.open_path(&attachment.netns)?.1,
        };
        let is_other = asked != entry.namespace && self.find_namespace(entry).is_ok();
        Ok(is_other.then(|| other_namespace(entry)))
    }

    /// Finds the attachment's link, and sets it up.
    fn link(&self, attachment: &Attachment, namespace: &OwnedFd) -> Result<Link, Answer> {
        let found = self.home.visit(namespace, || {
            let netlink = Netlink::open()?;
            let link = netlink.link_by_name(&attachment.ifname)?;
            if let Some(link) = &link
                && !link.up
            {
                netlink.set_up(link.index)?;
            }
            Ok::<_, postern_kernel::KernelError>(link)
        });
        let found =
            found.map_err(|errno| refused(ENVIRONMENT, format!("cannot enter {}: {errno}", attachment.netns), ""))?;
        let found = found.map_err(|error| refused(INTERNAL, error.to_string(), ""))?;
        found.ok_or_else(|| {
            let words = format!(
                "namespace {} has no link \"{}\", over which DHCP could be asked",
                attachment.netns, attachment.ifname
            );
            refused(
                CONFIGURATION,
                words,
                "the plugin \"dhcp\" needs one that makes its link first: bridge, macvlan, vlan, ipvlan",
            )
        })
    }

    /// True if the lease's link is there and up.
    fn look_at(&self, entry: &Entry) -> Result<bool, String> {
        let gone = || format!("the network namespace of {} is gone", subject(&entry.attachment));
        let namespace = self.open_namespace(entry).map_err(|_| gone())?;
        let link = self.home.visit(&namespace, || Netlink::open()?.link_by_index(entry.index));
        let link = link.map_err(|errno| errno.to_string())?.map_err(|error| error.to_string())?;
        let link = link.filter(|link| link.mac == Some(entry.mac));
        link.map(|link| link.up)
            .ok_or_else(|| format!("the link of the DHCP lease of {} is gone", subject(&entry.attachment)))
    }
}

/// Checks the names of an attachment that is to get a lease.
fn checked(attachment: &Attachment) -> Result<(), Answer> {
    let Attachment { container_id, network, ifname, netns, configuration, args, .. } = attachment;
    for (what, text) in [("container ID", container_id), ("network's name", network), ("interface's name", ifname)] {
        if text.is_empty() || text.len() > LONGEST_NAME {
            return Err(refused(ENVIRONMENT, format!("the {what} is empty or too long for a DHCP lease"), ""));
        }
    }
    if netns.len() > LONGEST_NAME || configuration.len() + args.len() > LONGEST_CONFIGURATION {
        let words =
            format!("the configuration is longer than {LONGEST_CONFIGURATION} bytes, which the DHCP service takes");
        return Err(refused(CONFIGURATION, words, ""));
    }
    Ok(())
}

/// Refuses a link over which no server can be found. An ipvlan that routes has neither broadcasts nor ARP.
fn carries_broadcasts(attachment: &Attachment, link: &Link) -> Result<(), Answer> {
    let mode = match link.ipvlan_mode {
        Some(IpvlanMode::L3) => "l3",
        Some(IpvlanMode::L3s) => "l3s",
        Some(IpvlanMode::L2) | None => return Ok(()),
    };
    let words = format!(
        "link \"{}\" is an ipvlan in mode {mode}, which carries no broadcasts, and DHCP needs them",
        attachment.ifname
    );
    Err(refused(CONFIGURATION, words, "mode \"l2\" has them; or take another IPAM plugin, such as host-local"))
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

fn other_namespace(entry: &Entry) -> Answer {
    let words = format!(
        "the DHCP lease of {} belongs to the namespace at {}, which is still there",
        subject(&entry.attachment),
        entry.attachment.netns
    );
    refused(ENVIRONMENT, words, "DEL gives it back")
}
