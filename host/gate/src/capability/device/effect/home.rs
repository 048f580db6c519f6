//! The return of a device to the host. The device is moved, and its settings are restored. It is set up if it is
//! certainly clean.

use super::{Device, is_ordinary, ordinary_name};
use crate::capability::device::held::{self, HeldObject, Notes};
use crate::context::{Context, Journal, System};
use crate::errors::{kernel_error, native_error};
use crate::others;
use nix::errno::Errno;
use postern_kernel::tcx::Sight;
use postern_kernel::{Link, LinkFiles, LinkUse, Netlink, Settings, Treatment};
use postern_types::{ErrorCode, LinkName, OpError};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

/// The most attempts to move a device home. Each attempt may fail because root in the container gives the device names
/// that are taken on the host.
const MOST_MOVES: usize = 32;

type PutBack<'a> = &'a dyn Fn() -> postern_kernel::Result<()>;

/// The parts of the node that the return of a device needs.
#[derive(Clone, Copy)]
pub struct DeviceHome<'a> {
    /// A socket in the node's namespace.
    pub host: &'a Netlink,
    /// The kinds of BPF programs that a search can see.
    pub sight: Sight,
    /// The files of the node's links, if they can be read.
    pub files: Option<&'a LinkFiles>,
}

impl<'a> DeviceHome<'a> {
    /// Returns these parts for a run.
    pub fn of(run: &'a Context) -> Result<Self, OpError> {
        Ok(Self { host: run.system.host()?, sight: run.system.sight(), files: run.system.link_files() })
    }
}

impl Device {
    /// Moves the device home, and restores its settings. A device that may not be clean is held.
    pub fn bring_home(&self, run: &Context, container: &Netlink, away: &Link) -> Result<(), OpError> {
        let home = DeviceHome::of(run)?;
        let (name, taken) = self.name_there(home.host, None, || Notes::of(run))?;
        let doubt = self.doubt(run.system, away);
        // A device that comes home under another name is noted before the move. Otherwise a run that is killed after
        // the move would leave an unknown link.
        let noted = taken.as_ref().map(|why| held::note_before_move(run, self, away.index, &name, why)).transpose()?;
        if let Err(error) = self.move_to(container, run.system.home()?.fd(), away, &name) {
            noted.flatten().map_or(Ok(()), |noted| held::forget(run.view(), &noted))?;
            return Err(error);
        }
        let moved = home.host.link_by_name(&name).map_err(kernel_error)?;
        let Some(link) = moved.filter(|link| self.is_same(link)) else {
            return Err(OpError::new(ErrorCode::Kernel, &self.name, "the link was moved, but is not on the host"));
        };
        let stacked = self.delete_stacked(run.system, container, &link);
        self.arrive(run, home, &link, [stacked, doubt, taken].into_iter().flatten().collect())
    }

    /// Returns a name for the device on the host: its own name, or a free name and the reason. The reason is that
    /// another link has the device's own name. Root in another container may have given this name to a device that came
    /// home earlier. `own` is the device's link, if it is on the host already.
    fn name_there(
        &self,
        host: &Netlink,
        own: Option<&Link>,
        notes: impl FnOnce() -> Notes,
    ) -> Result<(LinkName, Option<String>), OpError> {
        let owner = || host.link_by_name(&self.name).map_err(kernel_error);
        let mut found = owner()?;
        if let Some(other) = &found {
            let made_way = match own.filter(|own| own.index == other.index) {
                // Root in the container made the device's own name an alternative name.
                Some(own) => host
                    .change_other_names(own.index, std::slice::from_ref(&self.name), false)
                    .map(|()| true)
                    .map_err(kernel_error)?,
                None => notes().make_way(host, &self.name, other)?,
            };
            if made_way {
                found = owner()?;
            }
        }
        let Some(other) = found else { return Ok((self.name.clone(), None)) };
        // A device that already has an ordinary name keeps this name.
        let name = match own.filter(|link| is_ordinary(&link.name)) {
            Some(own) => own.name.clone(),
            None => ordinary_name(host, own.map_or(self.index, |own| own.index))?,
        };
        let why =
            format!("link {} of the host is called \"{}\" too: give that link another name", other.index, self.name);
        Ok((name, Some(why)))
    }

    /// Returns the reason to doubt that a link of the container is this device. At home, the settings and the other end
    /// prove the identity. Records of earlier versions lack settings and other end.
    fn doubt(&self, system: &System, away: &Link) -> Option<String> {
        if self.device.is_some() || !self.settings.is_empty() {
            return None;
        }
        // A failure can be temporary (ENOBUFS), and would keep the device down.
        match others::leads_here(system, away).or_else(|_| others::leads_here(system, away)) {
            Ok(true) => None,
            Ok(false) => Some("the container may have put another link in its place".to_owned()),
            Err(error) => Some(format!("the place of its other end is unknown: {error}")),
        }
    }

    /// Restores the settings of a device that is at home, and holds the device if it may not be clean.
    fn arrive(&self, run: &Context, home: DeviceHome<'_>, link: &Link, doubts: Vec<String>) -> Result<(), OpError> {
        let why = self.settle(home, link, doubts);
        if why.is_empty() {
            return Ok(());
        }
        // A link can have another index at home.
        held::hold(run, HeldObject::Device(Box::new(Self { index: link.index, ..self.clone() })), &why)
    }

    /// Deletes the links that the container stacked on the device. These links stayed in the container, and would still
    /// use the device's wire. The container can add no more links, because the device is at home. If the deletion
    /// fails, the reason is returned.
    fn delete_stacked(&self, system: &System, container: &Netlink, link: &Link) -> Option<String> {
        let delete = || -> Result<(), OpError> {
            let Some(home) = container.namespace_number(system.home()?.fd()).map_err(kernel_error)? else {
                return Ok(());
            };
            let is_upper = |upper: &Link| {
                upper.is_stacked() && upper.peer_index == Some(link.index) && upper.peer_netnsid == Some(home)
            };
            for upper in container.links_with(is_upper).map_err(kernel_error)? {
                container.delete_link(upper.index).map_err(kernel_error)?;
                crate::say!(
                    "postern: {}: the link {:?}, which the container stacked on it, is deleted",
                    self.name,
                    upper.name
                );
            }
            Ok(())
        };
        // A failure can be temporary (ENOBUFS), and would keep the device down.
        let failed = delete().or_else(|_| delete()).err()?;
        Some(format!("links of the container may be stacked on it: {failed}"))
    }

    /// Moves the device by one message. Alternative names that were added in the container are removed first, because
    /// they could be taken on the host.
    fn move_to(&self, container: &Netlink, home: BorrowedFd<'_>, away: &Link, name: &LinkName) -> Result<(), OpError> {
        let mut away = away.clone();
        let mut names = self.foreign_names(&away);
        for _ in 0..MOST_MOVES {
            match container.change_other_names(away.index, &names, false) {
                // Root in the container may have removed a name meanwhile.
                Err(error) if error.is(Errno::ENOENT) => {}
                changed => changed.map_err(kernel_error)?,
            }
            match container.hand_over(away.index, home, name, &self.alias) {
                // Root in the container may have added a name meanwhile. Or a link of the host has a name that the
                // device had before.
                Err(error) if error.is(Errno::EEXIST) => {}
                moved => {
                    return moved.map_err(|error| native_error(error, &self.name, "failed to move the device home"));
                }
            }
            match container.link_by_index(away.index).map_err(kernel_error)? {
                // The next attempt removes all alternative names. At home the device gets its own names again, where
                // they are free.
                Some(link) => (names, away) = (link.other_names.clone(), link),
                None => return Ok(()),
            }
        }
        let message = format!("failed to move the device home: one of its names is taken on the host: {}", self.name);
        Err(OpError::new(ErrorCode::TryAgain, &self.name, message))
    }

    /// Returns the alternative names that the device did not have on the node.
    fn foreign_names(&self, link: &Link) -> Vec<LinkName> {
        link.other_names.iter().filter(|name| !self.other_names.contains(name)).cloned().collect()
    }

    /// Restores the settings of a device that is at home, and reports each setting. The device is set up if it was up
    /// before and is certainly clean. Returns the reasons why the device may not be clean. If there are reasons, the
    /// device is down.
    fn settle(&self, home: DeviceHome<'_>, link: &Link, doubts: Vec<String>) -> Vec<String> {
        let mut failed = self.put_right(home, link);
        // A failure can be temporary (ENOBUFS): settings that still differ are tried once more.
        if !failed.is_empty()
            && let Ok(Some(link)) = home.host.link_by_index(link.index)
        {
            failed = self.put_right(home, &link);
        }
        failed.extend(doubts);
        if failed.is_empty() {
            failed = self.uses(home, link.index);
        }
        if !failed.is_empty() {
            return failed;
        }
        // A failure can be temporary (ENOBUFS).
        let release = || self.release(home, link.index);
        release().or_else(|_| release()).err().into_iter().map(|error| error.to_string()).collect()
    }

    /// Makes a clean device a port again if it was a port before, and sets it up if it was up before.
    fn release(&self, home: DeviceHome<'_>, index: u32) -> postern_kernel::Result<()> {
        let Some(link) = home.host.link_by_index(index)? else { return Ok(()) };
        if let Some(master) = self.master.filter(|_| link.master.is_none()) {
            home.host.set_master(index, Some(master))?;
            crate::say!("postern: {}: it is a port again", self.name);
        }
        if self.up && !link.up { home.host.set_up(index) } else { Ok(()) }
    }

    /// Restores each setting that differs, and returns the failures.
    fn put_right(&self, home: DeviceHome<'_>, link: &Link) -> Vec<String> {
        let host = home.host;
        let mut failed = Vec::new();
        let mut put_back = |what: &str, put: PutBack<'_>| match put() {
            Ok(()) => crate::say!("postern: {}: {what}", self.name),
            Err(error) => failed.push(format!("failed: {what}: {error}")),
        };
        if link.up {
            put_back("it is down until it is clean", &|| host.set_down(link.index));
        }
        self.each_difference(host, link, put_back);
        failed.extend(self.put_settings_back(host, link.index).unwrap_or_else(|why| vec![why]));
        failed.extend(self.put_files_back(home.files, &link.name));
        failed
    }

    /// Calls `visit` for each of the link's own settings that differs, with a text about the restored setting and the
    /// function that restores it.
    fn each_difference(&self, host: &Netlink, link: &Link, mut visit: impl FnMut(&str, PutBack<'_>)) {
        let index = link.index;
        let foreign = self.foreign_names(link);
        if !foreign.is_empty() {
            let take_away = || host.change_other_names(index, &foreign, false);
            visit("the names that it got in the container are taken away", &take_away);
        }
        let lost: Vec<LinkName> =
            self.other_names.iter().filter(|name| !link.other_names.contains(name)).cloned().collect();
        if !lost.is_empty() {
            visit("it has its other names again", &|| host.change_other_names(index, &lost, true));
        }
        if link.has_xdp {
            visit("the XDP program of the container is taken off", &|| host.remove_xdp(index));
        }
        if link.promisc != self.promisc {
            visit("promiscuous mode is as it was", &|| host.set_promisc(index, self.promisc));
        }
        if link.allmulti != self.allmulti {
            visit("reception of all multicast frames is as it was", &|| host.set_allmulti(index, self.allmulti));
        }
        if let Some(length) = self.tx_queue_length.filter(|length| link.tx_queue_length != *length) {
            let what = format!("its queue length was {}, and is {length} again", link.tx_queue_length);
            visit(&what, &|| host.set_tx_queue_length(index, length));
        }
        if link.mtu != self.mtu {
            let what = format!("its MTU was {}, and is {} again", link.mtu, self.mtu);
            visit(&what, &|| host.set_mtu(index, self.mtu));
        }
        if let Some(mac) = self.mac.filter(|mac| link.mac != Some(mac.0)) {
            visit(&format!("its address is {mac} again"), &|| host.set_mac(index, mac.0));
        }
        if link.alias.clone().unwrap_or_default() != self.alias {
            visit("its alias is as it was", &|| host.set_alias(index, &self.alias));
        }
    }

    /// Restores the settings that only files below `/sys` have, and returns the settings that still differ. `name` is
    /// the device's present name.
    fn put_files_back(&self, files: Option<&LinkFiles>, name: &LinkName) -> Vec<String> {
        if self.files.is_empty() {
            return Vec::new();
        }
        let put_back = |files: &LinkFiles| -> postern_kernel::Result<Vec<String>> {
            let Some(directory) = files.directory(&name.to_string())? else {
                return Ok(vec!["it is gone".to_owned()]);
            };
            let before = files.read(&directory)?;
            // All files are written, even if they do not differ: one file also controls settings that it does not show
            // (netdev genl).
            files.put_back(&directory, &self.files);
            let now = files.read(&directory)?;
            for name in self.files.keys().filter(|name| before.get(*name) != now.get(*name)) {
                crate::say!("postern: {}: {name} below /sys: as before", self.name);
            }
            let names: BTreeSet<&String> = self.files.keys().chain(now.keys()).collect();
            let differing = names.into_iter().filter(|name| self.files.get(*name) != now.get(*name));
            Ok(differing.map(|name| format!("{name} below /sys: changed, and can't be set back")).collect())
        };
        let Some(files) = files else {
            return vec!["its settings below /sys can't be read".to_owned()];
        };
        put_back(files).unwrap_or_else(|error| vec![error.to_string()])
    }

    /// Restores the settings that rtnetlink shows and [`Self::each_difference`] leaves out. Returns the settings
    /// that still differ.
    fn put_settings_back(&self, host: &Netlink, index: u32) -> Result<Vec<String>, String> {
        let (before, differing) = self.differing_settings(host, index)?;
        let mut failed = Vec::new();
        for attribute in differing {
            match (Treatment::of(attribute), before.get(&attribute)) {
                (Treatment::NoSetting, _) => {}
                (Treatment::PutBack(what), Some(value)) => match host.put_back(index, attribute, value) {
                    Ok(()) => crate::say!("postern: {}: {what}: as before", self.name),
                    Err(error) => failed.push(format!("failed: {what}: as before: {error}")),
                },
                (Treatment::PutBack(what) | Treatment::Lasting(what), _) => {
                    failed.push(format!("{what}: changed, and can't be set back"));
                }
                (Treatment::Unknown, _) => failed.push(format!(
                    "its attribute {attribute} (IFLA_* of linux/if_link.h) is not as before, and postern does not know it"
                )),
            }
        }
        Ok(failed)
    }

    /// Returns the recorded settings by attribute, and the attributes that differ. Attributes that are no settings are
    /// left out. The error is the reason why the comparison is impossible.
    fn differing_settings(&self, host: &Netlink, index: u32) -> Result<(Settings, Vec<u16>), String> {
        let before = self.snapshot();
        if before.is_empty() {
            return Ok((before, Vec::new()));
        }
        let now = host.link_with_settings(index).map_err(|error| error.to_string())?.ok_or("it is gone")?.1;
        let attributes = before.keys().chain(now.keys().filter(|attribute| !before.contains_key(attribute)));
        let differing = attributes
            .filter(|attribute| before.get(attribute) != now.get(attribute))
            .filter(|attribute| Treatment::of(**attribute) != Treatment::NoSetting)
            .copied()
            .collect();
        Ok((before, differing))
    }

    /// True if a setting of the device differs from the record, or if the comparison is impossible. Nothing is set.
    fn is_changed(&self, home: DeviceHome<'_>, link: &Link) -> bool {
        let differs_in_files = || {
            let files = home.files?;
            let directory = files.directory(&link.name.to_string()).ok()??;
            Some(files.read(&directory).ok()? != self.files)
        };
        let mut is_changed = false;
        self.each_difference(home.host, link, |_, _| is_changed = true);
        is_changed
            || self.differing_settings(home.host, link.index).map_or(true, |(_, differing)| !differing.is_empty())
            || !self.files.is_empty() && differs_in_files().unwrap_or(true)
    }

    /// Returns the uses of a device by which a container could get the node's traffic: programs, stacked links,
    /// readers, a changed other end.
    fn uses(&self, home: DeviceHome<'_>, index: u32) -> Vec<String> {
        // A failure keeps the device down, but can be temporary (ENOBUFS). The second attempt has a new socket, because
        // a late answer may wait in the old socket.
        let again = |_| Netlink::open().and_then(|host| self.look_for_uses(DeviceHome { host: &host, ..home }, index));
        self.look_for_uses(home, index)
            .or_else(again)
            .unwrap_or_else(|error| vec![format!("the check that it is clean failed: {error}")])
    }

    fn look_for_uses(&self, home: DeviceHome<'_>, index: u32) -> postern_kernel::Result<Vec<String>> {
        let links = home.host.links()?;
        let Some(link) = links.iter().find(|link| link.index == index) else {
            return Ok(vec!["it is gone".to_owned()]);
        };
        let mut uses = Vec::new();
        if link.has_xdp {
            uses.push("a program of the container reads the device's packets".to_owned());
        }
        // Netlink neither shows nor removes programs that tcx attached.
        match home.sight.has_program(index) {
            Ok(false) => {}
            Ok(true) => uses.push("a program of the container reads the device's packets".to_owned()),
            Err(error) => uses.push(format!(
                "a program of the container may read the device's packets: see `bpftool net show dev {}`: {error}",
                self.name
            )),
        }
        if !self.settings.is_empty() && (self.peer, self.peer_netnsid) != (link.peer_index, link.peer_netnsid) {
            uses.push("its other end is not where it was".to_owned());
        }
        let is_on =
            |other: &&Link| other.is_stacked() && other.peer_index == Some(index) && other.peer_netnsid.is_none();
        let own: Vec<Link> = links.iter().filter(is_on).cloned().collect();
        // A bridge or bond of the node takes the frames of its port itself, and tolerates no other reader of these
        // frames.
        let takes_all = |other: &Link| matches!(other.kind.as_str(), "bridge" | "bond");
        let is_port = links.iter().any(|other| link.master == Some(other.index) && takes_all(other));
        let mut others = home.host.uses_from_elsewhere(link, &own)?;
        others.retain(|other| !is_port || *other != LinkUse::Receiver);
        uses.extend(LinkUse::words(&others));
        uses.dedup();
        Ok(uses)
    }

    /// Gives a device its own name again, after the kernel or a run that was killed brought it home.
    pub(super) fn restore_name(&self, run: &Context, link: Link) -> Result<(), OpError> {
        let home = DeviceHome::of(run)?;
        let (link, taken) = self.rename(home.host, link, || Notes::of(run))?;
        let has_our_alias = link.alias.as_ref() == Some(&self.name) && link.alias.as_ref() != Some(&self.alias);
        if link.up && !has_our_alias {
            // A device that never left the node belongs to its user on the node, who may have changed the device since.
            // A device that left the node must be as it was. An alias proves nothing, because root in the container can
            // remove the alias.
            let is_as_it_was = || !self.is_changed(home, &link) && self.uses(home, link.index).is_empty();
            if !self.is_noted(run.journal) || is_as_it_was() {
                return Ok(());
            }
        }
        // A device that was down may never have left, if no run recorded its index in the container. Links that are
        // stacked on such a device are not deleted.
        let container = run.netlink_of_record()?.filter(|_| self.up || self.is_noted(run.journal));
        let stacked = container.and_then(|container| self.delete_stacked(run.system, container, &link));
        self.arrive(run, home, &link, stacked.into_iter().chain(taken).collect())
    }

    /// Checks a held device again, and restores its settings if it is on the host. Returns the reasons why it stays
    /// held.
    pub(crate) fn look_again(&self, home: DeviceHome<'_>, notes: &Notes) -> Result<Vec<String>, OpError> {
        match self.held_on_host(home.host)? {
            // The device is up, so an operator uses it. Its present settings are the operator's.
            Some(link) if link.up => Ok(self.uses(home, link.index)),
            Some(link) => {
                let (link, taken) = self.rename(home.host, link, || notes.beside())?;
                Ok(self.settle(home, &link, taken.into_iter().collect()))
            }
            None => Ok(self.is_away(home.host)?.into_iter().collect()),
        }
    }

    /// Returns the link of this held device on the host.
    pub(in crate::capability::device) fn held_on_host(&self, host: &Netlink) -> Result<Option<Link>, OpError> {
        let found = match self.device {
            Some(_) => self.find_on_host(host, &[])?,
            None => host.link_by_index(self.index).map_err(kernel_error)?,
        };
        Ok(found.filter(|link| self.is_claim(link)))
    }

    /// Gives the device's link on the host the device's own name again. If another link has this name, the device gets
    /// a free name, and the reason is returned.
    fn rename(
        &self,
        host: &Netlink,
        link: Link,
        notes: impl FnOnce() -> Notes,
    ) -> Result<(Link, Option<String>), OpError> {
        if link.name == self.name {
            return Ok((link, None));
        }
        let (name, taken) = self.name_there(host, Some(&link), notes)?;
        if link.name == name {
            return Ok((link, taken));
        }
        host.set_down(link.index).map_err(kernel_error)?;
        host.rename(link.index, &name)
            .map_err(|error| native_error(error, &self.name, "failed to give the device a name of the node"))?;
        // The link is read again, because its alternative names may have changed.
        let link = host.link_by_index(link.index).map_err(kernel_error)?.unwrap_or(Link { name, up: false, ..link });
        Ok((link, taken))
    }

    /// True if the record has an index of the device in the container.
    fn is_noted(&self, journal: &Journal) -> bool {
        !journal.indices(self).is_empty()
    }
}
