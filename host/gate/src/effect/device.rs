//! A link of the node that was moved into the container. It stays the node's, and comes home.
//!
//! Its place is looked up each time: in the container, or at home already. When the container's namespace ends, the
//! kernel moves a driver's device to the machine's first namespace, under its name in the container. A virtual link
//! ends with the namespace.

use super::{Addresses, AttachmentLink, Leaves, Reapplied, RecordTiming};
use crate::errors::{kernel_error, native_error};
use crate::need::Need;
use crate::session::Session;
use nix::errno::Errno;
use postern_cni::CniResult;
use postern_kernel::{Link, Netlink};
use postern_types::{ErrorCode, Mac, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time that the kernel may take to bring a device home from a namespace that has ended.
const HOME_WITHIN: Duration = Duration::from_secs(3);

/// A moved link, as it was on the host. The record notes its index in the container beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// The kind of link; empty for a driver's device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The driver's device: bus and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<(String, String)>,
    /// The address that its driver gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent: Option<Mac>,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// True if it was up.
    pub up: bool,
    /// True if it was in promiscuous mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub promisc: bool,
    /// True if it took all multicast frames.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allmulti: bool,
    /// The length of its queue, in packets. Earlier versions did not write it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_queue_length: Option<u32>,
    /// Its alias.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// Its alternative names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_names: Vec<String>,
    /// Index of the bridge (or bond, …) of which it was a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<u32>,
    /// Index of its other end, or of the link that it is stacked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
}

impl Device {
    /// Returns the data of a link of the host, before it is moved.
    pub fn of_link(link: &Link) -> Self {
        Self {
            name: link.name.clone(),
            index: link.index,
            kind: link.kind.clone(),
            device: link.device.as_ref().map(|device| (device.bus.clone(), device.name.clone())),
            permanent: link.permanent.map(Mac),
            mac: link.mac.map(Mac),
            mtu: link.mtu,
            up: link.up,
            promisc: link.promisc,
            allmulti: link.allmulti,
            tx_queue_length: Some(link.tx_queue_length),
            alias: link.alias.clone().unwrap_or_default(),
            other_names: link.other_names.clone(),
            master: link.master,
            peer: link.peer_index,
        }
    }

    /// True if this is the link, by the link's own data. A driver's device is identified by its bus, name and permanent
    /// address, which cannot be forged. A virtual link is identified by its kind and the link that it leads to.
    pub fn is_same(&self, link: &Link) -> bool {
        let device = link.device.as_ref().map(|device| (device.bus.clone(), device.name.clone()));
        match (&self.device, device) {
            (Some(own), Some(device)) => *own == device && self.permanent == link.permanent.map(Mac),
            (None, None) => self.kind == link.kind && self.peer == link.peer_index,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// True if this link of the host is the device. A virtual link must also have its name and index.
    pub fn is_claim(&self, link: &Link) -> bool {
        let is_virtual = self.device.is_none();
        self.is_same(link) && (!is_virtual || self.name == link.name && self.index == link.index)
    }

    /// Returns the link in the container's namespace.
    fn find(&self, session: &Session, container: &Netlink) -> Result<Option<Link>, OpError> {
        let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
        let own = effects.into_iter().filter(|noted| Self::of(&noted.effect) == Some(self));
        let indices: Vec<u64> = own.flat_map(|noted| noted.handles).collect();
        // A driver's device is identified by its own data. For other links the index is noted after the move. A run
        // that was killed before that left the link under one of the two names.
        let names = [&self.name, &session.request.ifname];
        let is_own = |link: &Link| match (self.device.is_some(), indices.is_empty()) {
            (true, _) => true,
            (false, false) => indices.contains(&u64::from(link.index)),
            (false, true) => names.contains(&&link.name),
        };
        Ok(container.links().map_err(kernel_error)?.into_iter().find(|link| self.is_same(link) && is_own(link)))
    }

    /// Returns the link on the host. A driver's device may have any name there; a virtual link must have its own.
    fn find_on_host(&self, host: &Netlink) -> Result<Option<Link>, OpError> {
        match self.device {
            Some(_) => Ok(host.links().map_err(kernel_error)?.into_iter().find(|link| self.is_same(link))),
            None => Ok(host.link_by_name(&self.name).map_err(kernel_error)?.filter(|link| self.is_same(link))),
        }
    }

    /// Moves it home, and restores its settings.
    ///
    /// # Errors
    /// The kernel refuses, or its name is taken there.
    pub fn bring_home(&self, session: &Session, container: &Netlink, away: &Link) -> Result<(), OpError> {
        let host = session.host()?;
        self.has_room(host, &format!("it is \"{}\" in {}", away.name, session.request.netns))?;
        // A failure can be a passing one (ENOBUFS), and would keep the device down.
        let leads_here = || session.leads_here(away).or_else(|_| session.leads_here(away));
        let anchored = self.device.is_some()
            || leads_here().unwrap_or_else(|error| {
                crate::say!("postern: {}: where its other end is can't be told: {error}", self.name);
                false
            });
        self.move_to(container, session.home()?.fd(), away)?;
        let Some(link) = host.link_by_name(&self.name).map_err(kernel_error)? else {
            return Err(OpError::new(ErrorCode::Kernel, &self.name, "the link was moved and is not there"));
        };
        let is_alone = self.delete_stacked(session, container, &link);
        self.settle(session, host, link, anchored && is_alone);
        Ok(())
    }

    /// Deletes the links that the container stacked on the device: they stayed behind, and would keep its wire. The
    /// container can add none, since the device is at home. Returns false if one is left.
    fn delete_stacked(&self, session: &Session, container: &Netlink, link: &Link) -> bool {
        let delete = || -> Result<(), OpError> {
            let Some(home) = container.namespace_number(session.home()?.fd()).map_err(kernel_error)? else {
                return Ok(());
            };
            for upper in container.links().map_err(kernel_error)? {
                if upper.is_stacked() && upper.peer_index == Some(link.index) && upper.peer_netnsid == Some(home) {
                    container.delete_link(upper.index).map_err(kernel_error)?;
                    crate::say!(
                        "postern: {}: the link {:?}, which the container stacked on it, is deleted",
                        self.name,
                        upper.name
                    );
                }
            }
            Ok(())
        };
        // A failure can be a passing one (ENOBUFS), and would keep the device down.
        let deleted = delete().or_else(|_| delete());
        if let Err(error) = &deleted {
            crate::say!("postern: {}: links of the container may be stacked on it: {error}", self.name);
        }
        deleted.is_ok()
    }

    /// Moves it by one message. Alternative names that were added in the container are removed first: they could be
    /// taken at home.
    fn move_to(&self, container: &Netlink, home: BorrowedFd<'_>, away: &Link) -> Result<(), OpError> {
        let mut away = away.clone();
        for _ in 0..3 {
            let foreign: Vec<String> =
                away.other_names.iter().filter(|name| !self.other_names.contains(name)).cloned().collect();
            container.change_other_names(away.index, &foreign, false).map_err(kernel_error)?;
            match container.hand_over(away.index, home, &self.name, &self.alias) {
                // Root in the container may have added a name meanwhile.
                Err(error) if error.is(Errno::EEXIST) => {}
                moved => {
                    return moved.map_err(|error| native_error(error, &self.name, "failed to move the device home"));
                }
            }
            match container.link_by_index(away.index).map_err(kernel_error)? {
                Some(link) => away = link,
                None => return Ok(()),
            }
        }
        let message = format!("failed to move the device home: one of its names is taken there: {}", self.name);
        Err(OpError::new(ErrorCode::TryAgain, &self.name, message))
    }

    /// Fails if another link on the host has its name.
    fn has_room(&self, host: &Netlink, place: &str) -> Result<(), OpError> {
        match host.link_by_name(&self.name).map_err(kernel_error)? {
            None => Ok(()),
            Some(other) => {
                let message = format!(
                    "the host has another link that is called \"{}\", so that the device can't come home: {place}",
                    self.name
                );
                Err(OpError::new(ErrorCode::Exists, &self.name, message)
                    .hint(format!("give link {} of the host another name, and run DEL again", other.index)))
            }
        }
    }

    /// Restores the settings of a device that is at home, and reports each of them. A failure is reported only: the
    /// device stays usable. `anchored` is true if it is certainly the same link, and no link of the container uses it.
    /// Any other stays down, and so does a device that may have a program of the container.
    fn settle(&self, session: &Session, host: &Netlink, link: Link, anchored: bool) {
        let mut failed = self.put_right(session, host, &link, anchored);
        // A failure can be a passing one (ENOBUFS): whatever is not yet right is tried once more.
        if !failed.is_empty()
            && let Ok(Some(link)) = host.link_by_index(link.index)
        {
            failed = self.put_right(session, host, &link, anchored);
        }
        for failure in failed {
            crate::say!("postern: {}, which is at home again, is not as it was: {failure}", self.name);
        }
    }

    /// Restores each setting that differs, and returns the failures.
    fn put_right(&self, session: &Session, host: &Netlink, link: &Link, anchored: bool) -> Vec<String> {
        let mut failed = Vec::new();
        let mut put_back = |what: &str, done: postern_kernel::Result<()>| match done {
            Ok(()) => crate::say!("postern: {}: {what}", self.name),
            Err(error) => failed.push(format!("{what}: {error}")),
        };
        let foreign: Vec<String> =
            link.other_names.iter().filter(|name| !self.other_names.contains(name)).cloned().collect();
        if !foreign.is_empty() {
            put_back(
                "the names that it got in the container are taken away",
                host.change_other_names(link.index, &foreign, false),
            );
        }
        let lost: Vec<String> =
            self.other_names.iter().filter(|name| !link.other_names.contains(name)).cloned().collect();
        if !lost.is_empty() {
            put_back("it has its other names again", host.change_other_names(link.index, &lost, true));
        }
        let mut is_clean = true;
        if link.has_xdp {
            let removed = host.remove_xdp(link.index).and_then(|()| host.link_by_index(link.index));
            is_clean = removed.as_ref().is_ok_and(|link| link.as_ref().is_some_and(|link| !link.has_xdp));
            put_back("the XDP program of the container is taken off", removed.map(drop));
        }
        // Netlink neither shows nor removes these.
        let is_unseen = match session.sight().has_program(link.index) {
            Ok(has) => {
                is_clean &= !has;
                false
            }
            Err(error) => {
                put_back("no program reads its packets", Err(error));
                true
            }
        };
        if link.promisc != self.promisc {
            put_back("promiscuous mode is as it was", host.set_promisc(link.index, self.promisc));
        }
        if link.allmulti != self.allmulti {
            put_back("reception of all multicast frames is as it was", host.set_allmulti(link.index, self.allmulti));
        }
        if let Some(length) = self.tx_queue_length.filter(|length| link.tx_queue_length != *length) {
            put_back(
                &format!("its queue length was {}, and is {length} again", link.tx_queue_length),
                host.set_tx_queue_length(link.index, length),
            );
        }
        if link.mtu != self.mtu {
            put_back(
                &format!("its MTU was {}, and is {} again", link.mtu, self.mtu),
                host.set_mtu(link.index, self.mtu),
            );
        }
        if let Some(mac) = self.mac.filter(|mac| link.mac != Some(mac.0)) {
            put_back(&format!("its address is {mac} again"), host.set_mac(link.index, mac.0));
        }
        if link.alias.clone().unwrap_or_default() != self.alias {
            put_back("its alias is as it was", host.set_alias(link.index, &self.alias));
        }
        let master = self.master.filter(|_| anchored && link.master.is_none());
        if let Some(master) = master {
            put_back("it is a port again", host.set_master(link.index, Some(master)));
        }
        if !is_clean {
            failed.push("it stays down, because a program of the container reads its packets".to_owned());
        } else if is_unseen {
            failed.push(format!(
                "it stays down, because a program of the container may read its packets: look with `bpftool net show dev \
                 {0}`, and set it up with `ip link set dev {0} up` if there is none",
                self.name
            ));
        } else if self.up
            && anchored
            && !link.up
            && let Err(error) = host.set_up(link.index)
        {
            failed.push(format!("set it up: {error}"));
        }
        failed
    }

    /// Gives a device its own name again, after the kernel or a run that did not end brought it home.
    fn restore_name(&self, session: &Session, host: &Netlink, link: Link) -> Result<(), OpError> {
        let mut link = link;
        if link.name != self.name {
            self.has_room(host, &format!("it is \"{}\" on the host", link.name))?;
            host.set_down(link.index).map_err(kernel_error)?;
            host.rename(link.index, &self.name)
                .map_err(|error| native_error(error, &self.name, "failed to give the device its own name"))?;
            link = Link { name: self.name.clone(), up: false, ..link };
        }
        // If the device is up again, a user of the node has configured it since.
        let was_away = link.alias.as_ref() == Some(&self.name) && link.alias.as_ref() != Some(&self.alias);
        if was_away || !link.up {
            let container = session.container().filter(|_| self.has_left(session));
            let is_alone = match container {
                Some(container) => self.delete_stacked(session, container.netlink().map_err(kernel_error)?, &link),
                None => true,
            };
            self.settle(session, host, link, is_alone);
        }
        Ok(())
    }

    /// True if it has been in the container that the runtime names. A device that was down, and that no run has noted there,
    /// may never have left: what the container has stacked on it since is not ours.
    fn has_left(&self, session: &Session) -> bool {
        let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
        let is_noted = effects.iter().any(|noted| Self::of(&noted.effect) == Some(self) && !noted.handles.is_empty());
        !session.has_foreign_record() && (self.up || is_noted)
    }

    /// Brings it home from a living namespace. Returns false if it is not there.
    fn leave_container(&self, session: &Session, container: &Netlink) -> Result<bool, OpError> {
        match self.find(session, container)? {
            Some(away) => self.bring_home(session, container, &away).map(|()| true),
            None => Ok(false),
        }
    }
}

impl Leaves for Device {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        // In a DEL or ADD, the runtime names the container's namespace; a collection has looked for it.
        let container = session.container().filter(|_| !session.has_foreign_record());
        if let Some(container) = container
            && self.leave_container(session, container.netlink().map_err(kernel_error)?)?
        {
            return Ok(());
        }
        let host = session.host()?;
        let until = (Instant::now() + HOME_WITHIN).min(session.deadline);
        loop {
            if let Some(link) = self.find_on_host(host)? {
                return self.restore_name(session, host, link);
            }
            if let Some(why) = session.hidden() {
                let message = format!("its namespace may be alive, and \"{}\" of this node in it: {why}", self.name);
                return Err(OpError::new(ErrorCode::TryAgain, &session.request.netns, message)
                    .hint("run DEL, or `postern gc` once the container is gone"));
            }
            // A virtual link ends with its namespace. A device that is missing in a living namespace was moved away
            // from there.
            if self.device.is_none() || container.is_some() || Instant::now() >= until {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        if let Some((bus, device)) = &self.device {
            crate::say!(
                "postern: \"{}\" ({bus} {device}) is neither in the container nor on this host: when a namespace ends, the kernel \
                 moves its devices to the machine's first namespace",
                self.name
            );
        }
        Ok(())
    }

    fn reapply(&self, _: &mut Session) -> Result<Reapplied, OpError> {
        Ok(Reapplied::NoRules)
    }

    fn words(&self) -> String {
        format!("device {}", self.name)
    }

    fn addresses(&self) -> Addresses<'_> {
        Addresses::Used
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    fn record_timing(&self) -> RecordTiming {
        RecordTiming::Once
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        Some(self)
    }

    fn outlives_boot(&self) -> bool {
        false
    }

    fn needs(&self) -> Need<'_> {
        Need::Device
    }
}

impl AttachmentLink for Device {
    fn is_there(&self, session: &Session) -> Result<bool, OpError> {
        let Some(container) = session.container().filter(|_| !session.has_foreign_record()) else { return Ok(false) };
        self.find(session, container.netlink().map_err(kernel_error)?).map(|link| link.is_some())
    }

    fn is_named(&self, result: &CniResult) -> bool {
        let is_own = |address: &str| self.mac.is_none_or(|mac| address.parse() == Ok(mac));
        result.interfaces.iter().any(|link| !link.sandbox.is_empty() && is_own(&link.mac))
    }

    fn is_among(&self, _: &[Link], container: Option<&[Link]>) -> Option<bool> {
        container.map(|links| links.iter().any(|link| self.is_same(link)))
    }
}

/// Returns the devices that the record lists.
pub fn recorded(session: &Session) -> Vec<Device> {
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    effects.iter().filter_map(|noted| Device::of(&noted.effect)).cloned().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_what_nobody_can_make() {
        let link = |kind: &str, device: Option<&str>, peer: Option<u32>| {
            let mut link = plain();
            kind.clone_into(&mut link.kind);
            link.device = device.map(|name| postern_kernel::Device { bus: "pci".to_owned(), name: name.to_owned() });
            link.permanent = device.map(|_| [2, 0, 0, 0, 0, 1]);
            link.peer_index = peer;
            link
        };
        let own = Device::of_link(&link("", Some("0000:3b:00.1"), None));
        assert!(own.is_same(&Link {
            name: "eth0".to_owned(),
            mac: None,
            mtu: 9,
            ..link("", Some("0000:3b:00.1"), None)
        }));
        for other in [link("", Some("0000:3b:00.2"), None), link("dummy", None, None), link("veth", None, Some(4))] {
            assert!(!own.is_same(&other), "{other:?}");
        }
        assert!(!own.is_same(&Link { permanent: Some([2; 6]), ..link("", Some("0000:3b:00.1"), None) }));
        let pair = Device::of_link(&link("veth", None, Some(4)));
        assert!(pair.is_same(&link("veth", None, Some(4))));
        assert!(!pair.is_same(&link("veth", None, Some(5))) && !pair.is_same(&link("macvlan", None, Some(4))));
    }

    pub fn plain() -> Link {
        Link {
            index: 3,
            name: "eth1".to_owned(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            kind: String::new(),
            up: false,
            promisc: false,
            allmulti: false,
            tx_queue_length: 1000,
            running: false,
            operstate: "down",
            master: None,
            peer_index: None,
            peer_netnsid: None,
            isolated: false,
            vlan_filtering: false,
            macvlan_mode: None,
            ipvlan_mode: None,
            vlan_id: None,
            vrf_table: None,
            alias: None,
            permanent: None,
            other_names: Vec::new(),
            has_xdp: false,
            device: None,
        }
    }
}
