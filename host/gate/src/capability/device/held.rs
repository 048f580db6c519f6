//! Held objects: objects of the node that a container may still use after its DEL. A held object is a device that may
//! not be clean or that is in an unknown namespace, or a VLAN of the node's link.
//!
//! A held object belongs to no attachment, and reserves no address. A note in the form of a node object's note
//! has the reason. A held device stays down until a check finds it clean. The next ADD of the device and `postern gc`
//! make this check. Earlier versions refuse a held device as a link of "other networks of this node".

use crate::audit::Audit;
use crate::capability::device::effect::home::DeviceHome;
use crate::capability::device::effect::ordinary_name;
use crate::clock::now;
use crate::context::{Context, View};
use crate::effect::{Device, in_record};
use crate::errors::{kernel_error, state_error};
use postern_kernel::{KernelError, Link, Netlink};
use postern_state::Header;
use postern_state::node::{self, NodeObject};
use postern_types::{ErrorCode, LinkName, OpError, VlanId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The kind of a note on a held object.
pub const HELD: &str = "held";

/// The end of each message about a held object.
const WAY_OUT: &str = "`postern gc` examines the object again";

/// The object that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeldObject {
    /// The device, as it was before it was given away.
    Device(Box<Device>),
    /// A VLAN of a link of the node.
    Vlan {
        /// The link's name.
        parent: String,
        /// The link's index.
        index: u32,
        /// The VLAN.
        id: VlanId,
    },
}

impl HeldObject {
    /// Returns the device, if the object is a device.
    pub fn device(&self) -> Option<&Device> {
        if let Self::Device(device) = self { Some(device) } else { None }
    }

    /// Returns the object's name in notes. For a device it is the device's name, by which earlier versions find the
    /// note.
    fn name(&self) -> String {
        match self {
            Self::Device(device) => device.name.to_string(),
            Self::Vlan { parent, id, .. } => format!("{parent} VLAN {id}"),
        }
    }

    /// Returns the names that a note on the object may have: the object's name, and a second name. The second name is
    /// used if the note on another object has the first name.
    fn note_names(&self) -> [String; 2] {
        let name = self.name();
        let other = match self {
            Self::Device(device) => match &device.device {
                Some((bus, address)) => format!("{name} {bus} {address}"),
                None => format!("{name} index {}", device.index),
            },
            Self::Vlan { index, .. } => format!("{name} index {index}"),
        };
        [name, other]
    }

    /// True if `other` is the same object. Two devices with the same name are two objects if one device was made later.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Device(one), Self::Device(other)) => match (&one.device, &other.device) {
                (Some(own), Some(device)) => own == device && one.permanent == other.permanent,
                (None, None) => {
                    (&one.name, one.index, &one.kind, one.peer) == (&other.name, other.index, &other.kind, other.peer)
                }
                (Some(_), None) | (None, Some(_)) => false,
            },
            (Self::Vlan { index, id, .. }, Self::Vlan { index: other, id: number, .. }) => {
                (index, id) == (other, number)
            }
            (Self::Device(_), Self::Vlan { .. }) | (Self::Vlan { .. }, Self::Device(_)) => false,
        }
    }
}

impl Display for HeldObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(device) => write!(f, "device {}", device.name),
            Self::Vlan { parent, id, .. } => write!(f, "VLAN {id} of {parent}"),
        }
    }
}

/// A note on a held object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNote {
    /// The object.
    pub object: HeldObject,
    /// The network of the attachment that had the object.
    pub network: String,
    /// The container ID of the attachment that had the object.
    pub container_id: String,
    /// The interface name of the attachment that had the object.
    pub ifname: String,
    /// The reasons.
    pub why: Vec<String>,
    /// The present name of a device on the host, if another link has the device's own name. The device waits for its
    /// own name. Earlier versions wrote the present name only for virtual devices, or never. A device gets its own
    /// name by its next ADD, or by `postern gc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_now: Option<String>,
}

impl Display for HeldNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.object)?;
        self.name_now.as_ref().map_or(Ok(()), |name| write!(f, " (\"{name}\" now)"))
    }
}

/// The notes on held objects, and the log of acts on these objects.
pub struct Notes {
    state: PathBuf,
    audit: Audit,
    verb: &'static str,
}

impl Notes {
    /// Makes the notes of the directory `state`. `audit` is the log of acts for `verb`.
    pub fn new(state: &Path, audit: Audit, verb: &'static str) -> Self {
        Self { state: state.to_owned(), audit, verb }
    }

    pub(crate) fn of(run: &Context) -> Self {
        Self::new(&run.fixed.places.state, run.audit.beside(), run.request.verb.as_str())
    }

    /// Returns these notes with a new log for this verb.
    pub(crate) fn beside(&self) -> Self {
        Self::new(&self.state, self.audit.beside(), self.verb)
    }

    /// Writes an act into the log. `rule` is the reason why the act is allowed.
    pub fn log(&mut self, act: &str, object: &Value, rule: &str, outcome: &Result<(), impl Display>, start: Instant) {
        self.audit.note_own(self.verb, act, object, rule, outcome, start.elapsed());
    }

    /// Frees a name on the host for a device that comes home. The link `other` has this name as its main or alternative
    /// name. If `other` is another attachment's device with a different own name, root in a container chose the name.
    /// Then `other` loses the name. A link that is up and has the name as its main name keeps it, because an operator
    /// may use that link. Returns true if the name may be free now.
    pub(crate) fn make_way(&mut self, host: &Netlink, name: &LinkName, other: &Link) -> Result<bool, OpError> {
        let is_main = other.name == *name;
        if is_main && other.up {
            return Ok(false);
        }
        let Some((device, held)) = self.owner(host, other)? else { return Ok(false) };
        if device.name == *name || device.other_names.contains(name) {
            return Ok(false);
        }
        let free = if is_main { ordinary_name(host, other.index)? } else { other.name.clone() };
        let rule = if held.is_some() { "note" } else { "record" };
        let (object, start) =
            (json!({"object": format!("device {}", device.name), "name": name.to_string()}), Instant::now());
        // The log line comes first, because the run may end while it changes another attachment's device.
        self.log("held.rename", &object, rule, &Ok::<(), KernelError>(()), start);
        let done = match is_main {
            true => host.rename(other.index, &free),
            false => host.change_other_names(other.index, std::slice::from_ref(name), false),
        };
        match &done {
            Ok(()) => {
                let words = if held.is_some() { "held " } else { "" };
                crate::say!(
                    "postern: the {words}device {} loses the name \"{name}\", and is \"{free}\" now",
                    device.name
                );
                // The note gets the device's present name, because another device gets the earlier name.
                if let Some(Err(error)) = held.map(|held| held.note_again(&self.state, host)) {
                    crate::say!("postern: the note on the device {} still has the earlier name: {error}", device.name);
                }
            }
            Err(_) => self.log("held.rename", &object, rule, &done, start),
        }
        Ok(done.is_ok())
    }

    /// Gives held devices their own names again, if these names are free now. A device that came home may have freed
    /// such a name. A device stays held if the renaming fails. `home` is called only if an object is held.
    pub(crate) fn names_again<'a>(&mut self, home: impl FnOnce() -> Option<DeviceHome<'a>>) {
        let Ok((objects, _)) = node::list(&self.state) else { return };
        if !objects.iter().any(|object| object.kind == HELD) {
            return;
        }
        let Some(home) = home() else { return };
        let Ok(all) = among(&objects, || home.host.cookie().map_err(kernel_error)) else { return };
        for held in all.iter().filter(|held| held.name_now.is_some()) {
            let Some(device) = held.object.device() else { continue };
            // The device can have its own name already: a run may have written the note and ended before it moved the
            // device.
            let is_own = |link: Option<Link>| link.is_none_or(|link| device.is_claim(&link));
            if home.host.link_by_name(&device.name).is_ok_and(is_own) {
                let _ = held.look_and_log(home, self);
            }
        }
    }

    /// Returns the device of the host's link `other`, if a note or a record lists this device. Root in a container
    /// can bring its device to the host before the DEL. The note is returned too, if the device is held.
    fn owner(&self, host: &Netlink, other: &Link) -> Result<Option<(Device, Option<HeldNote>)>, OpError> {
        let here = host.cookie().map_err(kernel_error)?;
        let (objects, _) = node::list(&self.state).map_err(state_error)?;
        let held = among(&objects, || Ok(here))?.into_iter().find(|held| held.claims(other));
        if let Some(device) = held.as_ref().and_then(|held| held.object.device()).cloned() {
            return Ok(Some((device, held)));
        }
        let boot = postern_state::boot_id().map_err(state_error)?;
        let is_here = |header: &Header| header.host_netns_cookie == here && header.boot_id == boot;
        // Without the records the link has no known owner: the device that comes home gets another name.
        let Ok(records) = postern_state::list_known(&self.state) else { return Ok(None) };
        let records = records.iter().filter(|summary| summary.header.as_ref().is_some_and(is_here));
        Ok(records.flat_map(in_record::<Device>).find(|own| own.is_claim(other)).map(|device| (device, None)))
    }
}

/// Notes that an object is held, and reports it. The run succeeds.
///
/// # Errors
/// The note can't be written. Then the object stays in the attachment's record.
pub(crate) fn hold(run: &Context, object: HeldObject, why: &[String]) -> Result<(), OpError> {
    let name_now = name_now(run.system.host()?, &object);
    let held = HeldNote { name_now, ..of_run(run, object, why) };
    let start = Instant::now();
    let outcome = run.system.home_cookie().and_then(|here| write(&run.fixed.places.state, here, &held));
    let object = json!({"object": held.object.to_string(), "why": why, "name_now": held.name_now});
    // The rule is "record", because a held object is an effect of the record that is being removed.
    Notes::of(run).log("held.hold", &object, "record", &outcome, start);
    outcome?;
    let stays = if matches!(held.object, HeldObject::Device(_)) { "the device stays down; " } else { "" };
    crate::say!("postern: {held} is held: {}; {stays}{WAY_OUT}", why.join("; "));
    Ok(())
}

fn of_run(run: &Context, object: HeldObject, why: &[String]) -> HeldNote {
    let request = run.request;
    HeldNote {
        object,
        network: request.conf.name.clone(),
        container_id: request.container_id.clone(),
        ifname: request.ifname.clone(),
        why: why.to_vec(),
        name_now: None,
    }
}

/// Returns the present name of a device on the host, if it is not the device's own name.
fn name_now(host: &Netlink, object: &HeldObject) -> Option<String> {
    let device = object.device()?;
    let link = device.held_on_host(host).ok().flatten()?;
    (link.name != device.name).then(|| link.name.to_string())
}

/// Notes that a device is held, before the device comes home as `name`, which is not the device's own name. `index` is
/// the device's index in the container. The device keeps this index at home if the index is free there. If it is not
/// free, no note can be written before the move.
///
/// # Errors
/// The note can't be written. Then the device must not be moved.
pub(crate) fn note_before_move(
    run: &Context,
    device: &Device,
    index: u32,
    name: &LinkName,
    why: &str,
) -> Result<Option<HeldObject>, OpError> {
    if run.system.host()?.link_by_index(index).map_err(kernel_error)?.is_some() {
        return Ok(None);
    }
    let object = HeldObject::Device(Box::new(Device { index, ..device.clone() }));
    let held = HeldNote { name_now: Some(name.to_string()), ..of_run(run, object.clone(), &[why.to_owned()]) };
    write(&run.fixed.places.state, run.system.home_cookie()?, &held)?;
    Ok(Some(object))
}

/// Removes the note on a device that was not moved.
pub(crate) fn forget(view: View<'_>, object: &HeldObject) -> Result<(), OpError> {
    let here = view.system.home_cookie()?;
    let note = noted(&view.fixed.places.state, here, |held| held.object.is_same(object))?;
    let Some(NodeObject { name, .. }) = note else { return Ok(()) };
    node::remove(&view.fixed.places.state, HELD, &name, here).map(drop).map_err(state_error)
}

fn write(state: &Path, here: u64, held: &HeldNote) -> Result<(), OpError> {
    let boot = postern_state::boot_id().map_err(state_error)?;
    // An existing note is updated, because it has the time at which the object was first held.
    if let Ok(Some(noted)) = noted(state, here, |other| other.object.is_same(&held.object)) {
        return node::update(state, &NodeObject { detail: json!(held), ..noted }).map_err(state_error);
    }
    let [own, other] = held.object.note_names();
    let note = |name: String| NodeObject {
        kind: HELD.to_owned(),
        name,
        boot_id: boot.clone(),
        host_netns_cookie: here,
        created: now(),
        detail: json!(held),
    };
    if node::note(state, &note(own)).map_err(state_error)? {
        return Ok(());
    }
    // The device that had the bus address or the index before is gone, so its note is replaced.
    node::update(state, &note(other)).map_err(state_error)
}

/// Returns the note on a held object that `wanted` accepts.
fn noted(state: &Path, here: u64, wanted: impl Fn(&HeldNote) -> bool) -> Result<Option<NodeObject>, OpError> {
    let (objects, _) = node::list(state).map_err(state_error)?;
    let boot = postern_state::boot_id().map_err(state_error)?;
    Ok(objects.into_iter().find(|object| of(object, here, &boot).is_some_and(|held| wanted(&held))))
}

/// Returns the notes on all objects that are held in the namespace of a run.
pub(crate) fn known(view: View<'_>) -> Result<Vec<HeldNote>, OpError> {
    let (objects, _) = node::list(&view.fixed.places.state).map_err(state_error)?;
    among(&objects, || view.system.home_cookie())
}

/// Returns the notes on held objects among `objects`. `here` returns the cookie of the namespace, and is called only if
/// there may be such notes.
pub(crate) fn among(
    objects: &[NodeObject],
    here: impl FnOnce() -> Result<u64, OpError>,
) -> Result<Vec<HeldNote>, OpError> {
    if !objects.iter().any(|object| object.kind == HELD) {
        return Ok(Vec::new());
    }
    let (here, boot) = (here()?, postern_state::boot_id().map_err(state_error)?);
    Ok(objects.iter().filter_map(|object| of(object, here, &boot)).collect())
}

/// Returns the content of a note, if the note is on a held object of this namespace and boot.
pub fn of(object: &NodeObject, here: u64, boot: &str) -> Option<HeldNote> {
    let is_here = object.kind == HELD && object.host_netns_cookie == here && object.boot_id == boot;
    serde_json::from_value(object.detail.clone()).ok().filter(|_| is_here)
}

impl HeldNote {
    /// Checks the object again. A clean device gets its settings and is no longer held. An object that stays held is
    /// returned with its present reasons.
    pub fn mend(&self, home: DeviceHome<'_>, notes: &mut Notes) -> Result<Option<Self>, OpError> {
        let outcome = self.look_and_log(home, notes);
        if outcome.as_ref().is_ok_and(Option::is_none) {
            notes.names_again(|| Some(home));
        }
        outcome
    }

    fn look_and_log(&self, home: DeviceHome<'_>, notes: &mut Notes) -> Result<Option<Self>, OpError> {
        let start = Instant::now();
        let outcome = self.look(home, notes);
        let told = match &outcome {
            Ok(None) => Ok(()),
            Ok(Some(held)) => Err(held.why.join("; ")),
            Err(error) => Err(error.to_string()),
        };
        notes.log("held.mend", &json!({"object": self.object.to_string()}), "note", &told, start);
        outcome
    }

    fn look(&self, home: DeviceHome<'_>, notes: &Notes) -> Result<Option<Self>, OpError> {
        let why = match &self.object {
            HeldObject::Device(device) => device.look_again(home, notes)?,
            HeldObject::Vlan { index, id, .. } => vlan_in_use(home.host, *index, *id)?.into_iter().collect(),
        };
        if !why.is_empty() {
            return Self { why, ..self.clone() }.note_again(&notes.state, home.host).map(Some);
        }
        if let Some(note) = self.own_note(&notes.state, home.host)? {
            node::remove(&notes.state, HELD, &note.name, note.host_netns_cookie).map_err(state_error)?;
            crate::say!("postern: {} is no longer held", self.object);
        }
        Ok(None)
    }

    /// Writes the reasons and the device's present name into the note.
    fn note_again(self, state: &Path, host: &Netlink) -> Result<Self, OpError> {
        let held = Self { name_now: name_now(host, &self.object), ..self };
        let detail = json!(held);
        if let Some(note) = held.own_note(state, host)?.filter(|note| note.detail != detail) {
            node::update(state, &NodeObject { detail, ..note }).map_err(state_error)?;
        }
        Ok(held)
    }

    /// Returns the note of this object and attachment. The note is missing if another run released the object, or if
    /// another container got the object later.
    fn own_note(&self, state: &Path, host: &Netlink) -> Result<Option<NodeObject>, OpError> {
        noted(state, host.cookie().map_err(kernel_error)?, |other| self.is_noted_by(other))
    }

    /// True if `other` is about this object and attachment.
    fn is_noted_by(&self, other: &Self) -> bool {
        let own = (&self.network, &self.container_id, &self.ifname);
        self.object.is_same(&other.object) && own == (&other.network, &other.container_id, &other.ifname)
    }

    /// True if this link of the host is the held device.
    pub(crate) fn claims(&self, link: &Link) -> bool {
        self.object.device().is_some_and(|device| device.is_claim(link))
    }

    /// Checks the object again for an ADD. If the object is still held, the error asks the runtime to try again later.
    pub(crate) fn mend_for(&self, run: &Context) -> Result<(), OpError> {
        let Some(held) = self.mend(DeviceHome::of(run)?, &mut Notes::of(run))? else { return Ok(()) };
        let name = held.object.name();
        let message = format!(
            "\"{name}\" is held since {} of container {} had it, in network {}: {}",
            held.ifname,
            held.container_id,
            held.network,
            held.why.join("; ")
        );
        Err(OpError::new(ErrorCode::TryAgain, name, message).hint(held.remedy()))
    }

    /// Returns the remedy for an operator.
    pub fn remedy(&self) -> String {
        let Some(device) = self.object.device() else {
            return "end the namespaces that the VLAN's last container made, or make the node's link anew; then run \
                    `postern gc`"
                .to_owned();
        };
        let name = &device.name;
        match &device.device {
            Some((bus, device)) => format!(
                "end the namespaces that the last container of {bus} {device} made; then run `postern gc`. `postern gc \
                 --unbind` takes the device from its driver and gives it back, which ends all other uses"
            ),
            None => format!(
                "end the namespaces that the device's last container made, or delete \"{}\" and make \"{name}\" anew; \
                 then run `postern gc`",
                self.name_now.as_deref().unwrap_or(&name.to_string())
            ),
        }
    }
}

/// Returns the reason why a VLAN of a host's link is held, if a link of the VLAN still exists.
pub(crate) fn vlan_in_use(host: &Netlink, parent: u32, id: VlanId) -> Result<Option<String>, OpError> {
    let Some(link) = host.link_by_index(parent).map_err(kernel_error)? else { return Ok(None) };
    Ok(host
        .has_vlan(&link, id)
        .map_err(kernel_error)?
        .then(|| "root in the container has moved the VLAN's link to an unknown namespace".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::device::effect::tests::plain;
    use postern_kernel::Link;

    fn held(link: &Link, container: &str) -> HeldNote {
        HeldNote {
            object: HeldObject::Device(Box::new(Device::of_link(link))),
            network: "net".to_owned(),
            container_id: container.to_owned(),
            ifname: "eth0".to_owned(),
            why: vec![container.to_owned()],
            name_now: None,
        }
    }

    #[test]
    fn two_devices_of_one_name_have_two_notes() {
        let root = std::env::temp_dir().join(format!("postern-held-{}", std::process::id()));
        let first = Link { kind: "dummy".to_owned(), ..plain() };
        let second = Link { kind: "veth".to_owned(), index: 9, peer_index: Some(8), ..plain() };
        write(&root, 1, &held(&first, "c1")).unwrap();
        write(&root, 1, &held(&second, "c2")).unwrap();
        // A new reason replaces only the reasons of the same device.
        write(&root, 1, &held(&first, "c3")).unwrap();
        let (objects, _) = node::list(&root).unwrap();
        let mut found: Vec<(String, String)> = objects
            .iter()
            .filter_map(|object| Some((object.name.clone(), of(object, 1, &object.boot_id)?.container_id)))
            .collect();
        found.sort();
        let expected = [("eth1", "c3"), ("eth1 index 9", "c2")];
        assert_eq!(found, expected.map(|(name, container)| (name.to_owned(), container.to_owned())));
        assert!(held(&first, "c1").is_noted_by(&held(&first, "c1")));
        assert!(!held(&first, "c1").is_noted_by(&held(&first, "c3")));
        assert!(!held(&first, "c1").is_noted_by(&held(&second, "c1")));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
