//! `device`: a link of the node that is moved into the container, and back.
//!
//! The network names the link by one of four keys, or the runtime names the link by `deviceID`. This module never opens
//! files of `/sys`, because a confined gate must not. A confined gate can read the targets of symbolic links below
//! `/sys`.

pub mod effect;
pub mod held;

use crate::capability::facts::{ALWAYS, Facts};
use crate::capability::inner::is_name_free;
use crate::capability::leaves::EffectKind;
use crate::context::{Context, View};
use crate::effect::{Device, Effect};
use crate::errors::{kernel_error, link_gone, native_error, state_error};
use crate::gate::Gate;
use crate::guest_state::Object;
use crate::others;
use crate::right::Right;
use crate::sysfs::{PCI, is_there, leads_to, pci_of, sys_path};
use effect::home::DeviceHome;
use effect::is_plain;
use held::{HELD, Notes};
use postern_cni::Verb;
use postern_kernel::{Link, Netlink};
use postern_policy::Granted;
use postern_policy::capability::device::{DEFAULT_LINK, PORTS, key_of};
use postern_state::node::NodeObject;
use postern_types::{DeviceKey, ErrorCode, LinkInfo, LinkName, Mac, OpError, host};
use std::path::{Path, PathBuf};

const AUXILIARY: &str = "/sys/bus/auxiliary/devices";
/// The drivers that leave a device to programs, so that the device has no link (native host-device,
/// `userspaceDrivers`).
const USERSPACE: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

pub(crate) const FACTS: Facts = Facts { keeps: |_, _| Some(Right::Device(None)), ..ALWAYS };

impl host::Device for Gate<'_> {
    fn find(&mut self, by: DeviceKey, value: &str) -> Result<Option<LinkInfo>, OpError> {
        if is_userspace(by, value)? {
            return Ok(None);
        }
        let link = look_up(self.run.system.host()?, by, value)?;
        // The link gets no usable handle: no operation of a guest acts on the link while it is on the host.
        Ok(Some(Gate::show(postern_types::Handle::MAX, link)))
    }

    fn take(&mut self, by: DeviceKey, value: &str) -> Result<LinkInfo, OpError> {
        let name = self.run.request.ifname.clone();
        let container = self.run.system.container_netlink()?;
        if is_userspace(by, value)? {
            let message = format!("a driver of user space has the device \"{value}\": there is no link to move");
            return Err(OpError::new(ErrorCode::InvalidArgument, value, message));
        }
        // The name is checked before the intent is recorded. Otherwise the undo of a failed ADD could remove an earlier
        // ADD's link.
        is_name_free(self.run, "failed to move link")?;
        if let Some(living) = self.run.journal.recorded::<Device>().first() {
            let message = format!("this attachment has a device already, \"{}\"", living.name);
            return Err(OpError::new(ErrorCode::Exists, &living.name, message).hint("run DEL first"));
        }
        let (objects, _) = postern_state::node::list(&self.run.fixed.places.state).map_err(state_error)?;
        let link = look_up_clean(self.run, by, value, &objects)?;
        may_go(self, &link, &objects)?;
        is_not_held(self.run.view(), &link)?;
        self.guest.room(1)?;
        let effect = Effect::from(Device::of_whole_link(self.run, &link)?);
        self.run.journal.intend(self.run.view(), effect.clone())?;
        let host = self.run.system.host()?;
        let moving = host.hand_over(link.index, self.run.system.namespace()?.fd(), &name.as_str().into(), &link.name);
        moving.map_err(|error| native_error(error, &link.name, "failed to move link"))?;
        let own = container.link_by_name(&name).map_err(kernel_error)?.ok_or_else(|| link_gone(&name))?;
        self.run.journal.known_link(&effect, own.index)?;
        container
            .set_up(own.index)
            .map_err(|error| native_error(error, &name, format_args!("failed to set {name:?} up")))?;
        self.run.own.container_mac = own.mac.map(Mac);
        self.run.own.path.up = true;
        Ok(Gate::show(self.grant(Object::Own { index: own.index, name })?, Link { up: true, ..own }))
    }

    fn give_back(&mut self) -> Result<(), OpError> {
        give_back(self.run, |own, alias| {
            let granted = self.guest.granted();
            alias.text().is_some_and(|alias| granted.has_object("device.names", alias))
                || names_of(own).any(|(by, value)| granted.has_object(key_of(by).1, &value))
        })
    }
}

/// Fails if a link may not leave the host, because it belongs to another attachment, or because the node needs it.
fn may_go(gate: &Gate<'_>, link: &Link, objects: &[NodeObject]) -> Result<(), OpError> {
    let run = &*gate.run;
    let belongs = |to: &str| {
        let message = format!("failed to move link: \"{}\" belongs to {to}", link.name);
        OpError::new(ErrorCode::InvalidArgument, &link.name, message)
    };
    // A link with neither a kind nor a driver's device could not be identified when it comes home.
    if link.kind.is_empty() && link.device.is_none() {
        let message =
            format!("failed to move link: \"{}\" is no device of a driver (Linux before 5.14 names none)", link.name);
        return Err(OpError::new(ErrorCode::InvalidArgument, &link.name, message));
    }
    if let Some(owner) = others::owner_of_link(run.view(), link)? {
        let name = owner.header.as_ref().map_or_else(String::new, |header| {
            format!(", {}/{}/{}", header.network, header.container_id, header.ifname)
        });
        let hint =
            format!("{}; run DEL of that attachment first", others::words_on_holder(run.view(), owner.key.as_ref()));
        return Err(belongs(&format!("another attachment{name}")).hint(hint));
    }
    let here = run.system.home_cookie()?;
    let is_shared = |object: &&NodeObject| object.kind != HELD && object.host_netns_cookie == here;
    if objects.iter().filter(is_shared).any(|object| object.name == link.name) {
        return Err(belongs("other networks of this node"));
    }
    let used = |what: &str, by: &'static str| {
        let message = format!("policy does not allow device.take on \"{}\", which {what}", link.name);
        let hint = gate.guest.granted().take_hint(by);
        Err(OpError::new(ErrorCode::Denied, &link.name, message).hint(hint))
    };
    let granted = gate.guest.granted();
    let (takes_ports, takes_default) = (granted.may_take(PORTS), granted.may_take(DEFAULT_LINK));
    if takes_ports && takes_default {
        return Ok(());
    }
    let links = with_stacked(run.system.host()?.links().map_err(kernel_error)?, link.index);
    if !takes_ports && links.iter().any(|link| link.master.is_some()) {
        return used("is a port, or carries a port", PORTS);
    }
    if !takes_default && has_default_route(run.system.host()?, &links)? {
        return used("carries a default route of this node", DEFAULT_LINK);
    }
    Ok(())
}

/// Returns the link of this index, and all links of the host that are stacked on it directly or indirectly (VLANs,
/// macvlans).
fn with_stacked(mut links: Vec<Link>, index: u32) -> Vec<Link> {
    let mut found: Vec<Link> = links.extract_if(.., |link| link.index == index).collect();
    loop {
        let is_above = |link: &mut Link| {
            let lower = link.peer_index.filter(|_| link.is_stacked() && link.peer_netnsid.is_none());
            lower.is_some_and(|lower| found.iter().any(|below| below.index == lower))
        };
        let above: Vec<Link> = links.extract_if(.., is_above).collect();
        if above.is_empty() {
            return found;
        }
        found.extend(above);
    }
}

/// True if a default route of any table leads through one of these links.
fn has_default_route(host: &Netlink, links: &[Link]) -> Result<bool, OpError> {
    let routes = host.all_routes().map_err(kernel_error)?;
    let is_default = |index: u32| routes.iter().any(|(link, route)| *link == index && route.dst.prefix_len() == 0);
    Ok(links.iter().any(|link| is_default(link.index)))
}

/// `device.give-back`. For a device without a record, `is_named` is true if this network names the device.
pub(crate) fn give_back(run: &mut Context, is_named: impl Fn(&Link, &LinkName) -> bool) -> Result<(), OpError> {
    run.journal.only_of_this_run(run.request, Device::is, "device")?;
    let recorded = run.journal.recorded::<Device>();
    for moved in &recorded {
        moved.remove(run)?;
        run.journal.gone(|listed| Device::of(listed) == Some(moved));
    }
    if !recorded.is_empty() || run.request.verb == Verb::Add {
        return Ok(());
    }
    // A native plugin keeps the device's name on the host as the link's alias. Root in the container can choose alias
    // and link.
    let Some(container) = run.system.netlink_inside()? else { return Ok(()) };
    let name = run.request.ifname.clone();
    let Some(own) = container.link_by_name(&name).map_err(kernel_error)? else { return Ok(()) };
    let Some(alias) = own.alias.clone().filter(|alias| !alias.is_empty()) else { return Ok(()) };
    if others::spares(run, &own)? {
        return Ok(());
    }
    let refuse = |why: &str| {
        let message = format!("\"{name}\" in the container can't be moved home as \"{alias}\": {why}");
        let by_hand = format!(
            "if \"{name}\" is a device of the node, move it by hand, in the container's namespace: `ip link set {name} \
             netns 1 name NAME`"
        );
        Err(OpError::new(ErrorCode::InvalidArgument, &name, message).hint(by_hand))
    };
    match others::claiming(run.view(), &own)?.map(|summary| summary.header) {
        None if !others::leads_here(run.system, &own)? => {
            return refuse("no record lists it, and it may have been made in the container");
        }
        // The record of this attachment may have another network's name. The link of another attachment stays: root in
        // the container may have swapped the names of two links.
        Some(listed) if !listed.as_ref().is_some_and(|header| others::is_of_this_interface(run.request, header)) => {
            let message =
                format!("\"{name}\" in the container stays, because a record lists it for another attachment");
            return Err(OpError::new(ErrorCode::InvalidArgument, &name, message));
        }
        None | Some(_) => {}
    }
    if !is_named(&own, &alias) {
        return refuse("it is no device of this network");
    }
    let is_text = |name: &LinkName| name.text().is_some();
    let moved = Device {
        name: if is_text(&alias) { alias } else { effect::ordinary_name(run.system.host()?, own.index)? },
        alias: LinkName::default(),
        other_names: own.other_names.iter().filter(|name| is_text(name)).cloned().collect(),
        up: false,
        ..Device::of_link(&own)
    };
    moved.bring_home(run, container, &own)
}

/// Returns the sysfs directories of the devices that an ADD may take: devices on the host, held or not.
pub(crate) fn files(view: View<'_>, granted: &Granted) -> Result<Vec<String>, OpError> {
    let Some(files) = view.system.link_files() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let links = view.system.host()?.links().map_err(kernel_error)?;
    // If no link matches, all links count: an address can be written in several ways.
    let is_any = !links.iter().any(|link| is_granted(granted, link));
    for link in links.iter().filter(|link| is_any || is_granted(granted, link)) {
        found.extend(files.directory(&link.name.to_string()).map_err(kernel_error)?);
    }
    for held in held::known(view)? {
        let directory = held.object.device().and_then(|device| device.sysfs.as_deref()?.rsplit_once('/'));
        found.extend(directory.map(|(above, _)| above.to_owned()));
    }
    Ok(found)
}

/// True if a network is granted this link of the host, by any key.
pub fn is_granted(granted: &Granted, link: &Link) -> bool {
    let names = std::iter::once(&link.name).chain(&link.other_names).filter_map(LinkName::text);
    let names = names.map(|name| (DeviceKey::Name, name.to_owned()));
    let path = device_path(link).and_then(|path| Some(path.to_str()?.to_owned()));
    let pci = pci_of(link).map(|pci| (DeviceKey::Pci, pci));
    let mut all = names.chain(names_of(link)).chain(pci).chain(path.map(|path| (DeviceKey::Path, path)));
    all.any(|(by, value)| granted.has_object(key_of(by).1, &value))
}

/// Returns the directory of a link's device below `/sys/devices`.
fn device_path(link: &Link) -> Option<PathBuf> {
    Some(sys_path(&link.name)?.parent()?.parent()?.to_owned())
}

/// Returns the keys and values by which a network may name a link that is in a container.
fn names_of(link: &Link) -> impl Iterator<Item = (DeviceKey, String)> {
    let addresses = link.permanent.into_iter().chain(link.mac).map(|mac| (DeviceKey::Address, Mac(mac).to_string()));
    let device = pci_of(link).or_else(|| link.device.as_ref().map(|device| device.name.clone()));
    addresses.chain(device.map(|device| (DeviceKey::Id, device)))
}

/// True if a driver of user space has a PCI device.
///
/// # Errors [`ErrorCode::NotFound`]: the device does not exist, or has no driver.
pub fn is_userspace(by: DeviceKey, value: &str) -> Result<bool, OpError> {
    if !matches!(by, DeviceKey::Pci | DeviceKey::Id) {
        return Ok(false);
    }
    is_bus_name(value)?;
    let device = Path::new(PCI).join(value);
    if by == DeviceKey::Id && !is_there(&device) {
        return Ok(false);
    }
    let driver = device.join("driver");
    let led = leads_to(&driver).ok_or_else(|| {
        let missing = if is_there(&device) { driver } else { device };
        OpError::new(ErrorCode::NotFound, value, format!("lstat {}: no such file or directory", missing.display()))
    })?;
    Ok(led.file_name().and_then(|name| name.to_str()).is_some_and(|name| USERSPACE.contains(&name)))
}

/// Fails unless the text can be a device's name on a bus, because the name becomes part of a path.
fn is_bus_name(value: &str) -> Result<(), OpError> {
    if !is_plain(value) {
        return Err(OpError::new(ErrorCode::InvalidArgument, value, format!("\"{value}\" is no name of a device")));
    }
    Ok(())
}

/// Returns the link that a network names. A held device is checked again, and is refused if it is still held.
fn look_up_clean(run: &Context, by: DeviceKey, value: &str, objects: &[NodeObject]) -> Result<Link, OpError> {
    let found = look_up(run.system.host()?, by, value);
    let mut mended = false;
    for held in held::among(objects, || run.system.home_cookie())? {
        let Some(device) = held.object.device() else { continue };
        match &found {
            // A link that was made anew with the name of a held device is another link. The note may be out of date.
            Ok(link) if !device.is_claim(link) => {
                if device.name == link.name {
                    held.mend(DeviceHome::of(run)?, &mut Notes::of(run))?;
                }
            }
            Err(_) if !device.has_key(by, value) => {}
            Ok(_) | Err(_) => {
                held.mend_for(run)?;
                mended = true;
            }
        }
    }
    if mended { look_up(run.system.host()?, by, value) } else { found }
}

/// Fails if a link is held now. Devices that were held at the start were checked before. But a DEL may have held the
/// link since, and removed the record that named its owner.
fn is_not_held(view: View<'_>, link: &Link) -> Result<(), OpError> {
    let Some(held) = held::known(view)?.into_iter().find(|held| held.claims(link)) else { return Ok(()) };
    let message = format!("failed to move link: \"{}\" is held: {}", link.name, held.why.join("; "));
    Err(OpError::new(ErrorCode::TryAgain, &link.name, message).hint(held.remedy()))
}

fn look_up(host: &Netlink, by: DeviceKey, value: &str) -> Result<Link, OpError> {
    let none = |message: String| OpError::new(ErrorCode::NotFound, value, message);
    match by {
        DeviceKey::Name => {
            host.link_by_any_name(value).map_err(kernel_error)?.ok_or_else(|| none("Link not found".to_owned()))
        }
        DeviceKey::Address => {
            let mac: Mac = value.parse().map_err(|error| {
                let message = format!("failed to parse MAC address \"{value}\": {error}");
                OpError::new(ErrorCode::InvalidArgument, value, message)
            })?;
            of_address(host.links().map_err(kernel_error)?, mac)
                .map_err(|names| {
                    let message = format!("several links have the address {value}: {names}");
                    OpError::new(ErrorCode::InvalidArgument, value, message).hint("name the link with the key `device`")
                })?
                .ok_or_else(|| none("failed to find physical interface".to_owned()))
        }
        DeviceKey::Path => {
            let directory = value.trim_end_matches('/');
            if !directory.starts_with("/sys/devices/") || directory.split('/').any(|name| name == "..") {
                let message = format!("kernel device path \"{value}\" must be absolute and begin with /sys/devices/");
                return Err(OpError::new(ErrorCode::InvalidArgument, value, message));
            }
            first(host, |link| device_path(link).as_deref() == Some(Path::new(directory)))?.ok_or_else(|| {
                none(format!(
                    "failed to read directory {directory}/net: \"open {directory}/net: no such file or directory\""
                ))
            })
        }
        DeviceKey::Pci => first(host, |link| pci_of(link).as_deref() == Some(value))?
            .ok_or_else(|| none(format!("failed to find network device with PCI address {value}"))),
        DeviceKey::Id => {
            is_bus_name(value)?;
            let is_on = |bus: &str| is_there(&Path::new(bus).join(value));
            if is_on(PCI) {
                return look_up(host, DeviceKey::Pci, value);
            }
            if !is_on(AUXILIARY) {
                return Err(none(format!("runtime config DeviceID {value} not found or unsupported")));
            }
            let is_own = |link: &Link| {
                link.device.as_ref().is_some_and(|device| device.bus == "auxiliary" && device.name == value)
            };
            first(host, is_own)?.ok_or_else(|| none(format!("no network device found for auxiliary device {value}")))
        }
    }
}

/// Returns the `wanted` link whose name comes first, in the order of a directory of `/sys`.
fn first(host: &Netlink, wanted: impl Fn(&Link) -> bool) -> Result<Option<Link>, OpError> {
    let found = host.links().map_err(kernel_error)?.into_iter().filter(wanted);
    Ok(found.min_by(|a, b| a.name.cmp(&b.name)))
}

/// Returns the only link with this address. Stacked links often have the lower link's address. Of several links,
/// only a link that got the address from its driver counts. The error names all links with the address.
fn of_address(links: Vec<Link>, mac: Mac) -> Result<Option<Link>, String> {
    let mut found: Vec<Link> = links.into_iter().filter(|link| link.mac == Some(mac.0)).collect();
    if found.len() > 1 {
        let names: Vec<String> = found.iter().map(|link| link.name.to_string()).collect();
        found.retain(|link| link.permanent == Some(mac.0) && !link.is_stacked());
        if found.len() != 1 {
            return Err(names.join(", "));
        }
    }
    Ok(found.pop())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::device::effect::tests::plain;

    #[test]
    fn of_several_links_with_an_address_the_drivers_own_counts() {
        let link = |name: &str, kind: &str, permanent: bool| {
            let mut link = plain();
            link.name = name.into();
            kind.clone_into(&mut link.kind);
            link.permanent = permanent.then_some([2, 0, 0, 0, 0, 1]);
            link
        };
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let named = |links: &[Link]| of_address(links.to_vec(), mac).map(|link| link.map(|link| link.name.to_string()));
        assert_eq!(named(&[link("a", "veth", false)]), Ok(Some("a".to_owned())));
        assert_eq!(named(&[link("a.5", "vlan", false), link("a", "", true)]), Ok(Some("a".to_owned())));
        assert_eq!(named(&[link("a", "veth", false), link("b", "veth", false)]), Err("a, b".to_owned()));
        assert_eq!(named(&[link("a", "", true), link("b", "", true)]), Err("a, b".to_owned()));
        assert_eq!(of_address(vec![link("a", "", true)], Mac([2; 6])), Ok(None));
    }

    #[test]
    fn a_device_is_no_path() {
        for value in ["../../../class/net/eth0", "", ".", "..", "a/b", "a\0b"] {
            for by in [DeviceKey::Pci, DeviceKey::Id] {
                assert_eq!(is_userspace(by, value).unwrap_err().code, ErrorCode::InvalidArgument, "{value}");
            }
        }
        assert_eq!(is_userspace(DeviceKey::Pci, "ffff:ff:1f.7").unwrap_err().code, ErrorCode::NotFound);
        assert_eq!(is_userspace(DeviceKey::Name, "ffff:ff:1f.7"), Ok(false));
    }
}
