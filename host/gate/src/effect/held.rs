//! What a container keeps of the node after its DEL: a device that may not be clean or is where nobody sees it, and a VLAN of
//! the node's link.
//!
//! It is no attachment's any more: the container's address is free. It is a node object: a note tells why it is held. A held
//! device stays down until a look finds it clean, by the next ADD of it or by `postern gc`. An earlier postern refuses it as a
//! link of "other networks of this node".

use super::Device;
use super::device::home::Home;
use super::device::ordinary_name;
use crate::audit::Audit;
use crate::clock::now;
use crate::errors::{kernel_error, state_error};
use crate::session::Session;
use postern_kernel::{KernelError, Link, Netlink};
use postern_state::node::{self, NodeObject};
use postern_types::{ErrorCode, LinkName, OpError, VlanId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Kind of the note.
pub const HELD: &str = "held";

/// The end of each message about a held device.
const WAY_OUT: &str = "`postern gc` looks at it again";

/// The object that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Object {
    /// The device, as it was before it was given away.
    Device(Box<Device>),
    /// A VLAN of a link of the node.
    Vlan {
        /// The link's name.
        parent: String,
        /// Its index.
        index: u32,
        /// The VLAN.
        id: VlanId,
    },
}

impl Object {
    /// Its name in notes. A device has its own: by that an earlier postern knows it.
    fn name(&self) -> String {
        match self {
            Self::Device(device) => device.name.to_string(),
            Self::Vlan { parent, id, .. } => format!("{parent} VLAN {id}"),
        }
    }

    /// The names that a note on it may have: its own, and one for the case that the note on another object has that.
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

    /// True if this is the same object. Two devices can have one name: one of them was made later.
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

impl Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(device) => write!(f, "device {}", device.name),
            Self::Vlan { parent, id, .. } => write!(f, "VLAN {id} of {parent}"),
        }
    }
}

/// A note on a held object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The object.
    pub object: Object,
    /// The network of the attachment that had it.
    pub network: String,
    /// The container of that attachment.
    pub container_id: String,
    /// The interface of that attachment.
    pub ifname: String,
    /// The reasons.
    pub why: Vec<String>,
}

/// The notes on held objects, and the log of what is done with these objects.
pub struct Notes {
    state: PathBuf,
    audit: Audit,
    verb: &'static str,
}

impl Notes {
    /// The notes in the directory `state`; `audit` is the log of acts for `verb`.
    pub fn new(state: &Path, audit: Audit, verb: &'static str) -> Self {
        Self { state: state.to_owned(), audit, verb }
    }

    /// The notes of a run.
    pub(crate) fn of(session: &Session) -> Self {
        Self::new(&session.state, session.audit.beside(), session.request.verb.as_str())
    }

    /// The same notes, and another log for the same verb.
    pub(super) fn beside(&self) -> Self {
        Self::new(&self.state, self.audit.beside(), self.verb)
    }

    /// Writes an act into the log. `rule` is the reason why it may be done.
    pub fn log(
        &mut self,
        operation: &str,
        object: &Value,
        rule: &str,
        outcome: &Result<(), impl Display>,
        start: Instant,
    ) {
        self.audit.note_own(self.verb, operation, object, rule, outcome, start.elapsed());
    }

    /// Makes way on the host for a device that comes home: its name, as main or as alternative name, is that of a held device
    /// which has another one of its own. Root in a container had chosen it. Returns true if the name may be free now.
    pub(super) fn make_way(&mut self, host: &Netlink, name: &LinkName, other: &Link) -> Result<bool, OpError> {
        let (here, boot) = (host.cookie().map_err(kernel_error)?, postern_state::boot_id().map_err(state_error)?);
        let holds = |held: &Held| matches!(&held.object, Object::Device(device) if device.is_claim(other));
        let Some(held) = noted(&self.state, here, &boot, holds)? else { return Ok(false) };
        let held = of(&held, here, &boot);
        let Some(Held { object: Object::Device(device), .. }) = held else { return Ok(false) };
        if device.name == *name || device.other_names.contains(name) {
            return Ok(false);
        }
        let start = Instant::now();
        let done = match other.name == *name {
            true => {
                let free = ordinary_name(host, other.index)?;
                host.set_down(other.index).and_then(|()| host.rename(other.index, &free)).map(|()| free.to_string())
            }
            false => {
                host.change_other_names(other.index, std::slice::from_ref(name), false).map(|()| other.name.to_string())
            }
        };
        let object = json!({"object": format!("device {}", device.name), "name": name.to_string()});
        self.log("held.rename", &object, "note", &done.as_ref().map(drop).map_err(KernelError::to_string), start);
        if let Ok(free) = &done {
            crate::say!("postern: the held device {} gives the name \"{name}\" up, and is \"{free}\"", device.name);
        }
        Ok(done.is_ok())
    }
}

/// Notes that an object is held, and says so. The run succeeds.
///
/// # Errors
/// The note can't be written: the attachment then keeps the object on its record.
pub(super) fn hold(session: &Session, object: Object, why: &[String]) -> Result<(), OpError> {
    let request = &session.request;
    let held = Held {
        object,
        network: request.conf.name.clone(),
        container_id: request.container_id.clone(),
        ifname: request.ifname.clone(),
        why: why.to_vec(),
    };
    let start = Instant::now();
    let outcome = session.home_cookie().and_then(|here| write(&session.state, here, &held));
    let object = json!({"object": held.object.to_string(), "why": why});
    // The removal of the attachment's own effect is the reason.
    Notes::of(session).log("held.hold", &object, "record", &outcome, start);
    outcome?;
    let stays = if matches!(held.object, Object::Device(_)) { "it stays down; " } else { "" };
    crate::say!("postern: {} is held: {}; {stays}{WAY_OUT}", held.object, why.join("; "));
    Ok(())
}

fn write(state: &Path, here: u64, held: &Held) -> Result<(), OpError> {
    let boot = postern_state::boot_id().map_err(state_error)?;
    // The first note on it has the time when it began.
    if let Ok(Some(noted)) = noted(state, here, &boot, |other| other.object.is_same(&held.object)) {
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
    // What had the bus address or the index before is no longer there.
    node::update(state, &note(other)).map_err(state_error)
}

/// Returns the note of this kind on a held object.
fn noted(state: &Path, here: u64, boot: &str, wanted: impl Fn(&Held) -> bool) -> Result<Option<NodeObject>, OpError> {
    let (objects, _) = node::list(state).map_err(state_error)?;
    Ok(objects.into_iter().find(|object| of(object, here, boot).is_some_and(|held| wanted(&held))))
}

/// Returns what a note of this namespace and boot tells, if it is one about a held object.
pub fn of(object: &NodeObject, here: u64, boot: &str) -> Option<Held> {
    let is_here = object.kind == HELD && object.host_netns_cookie == here && object.boot_id == boot;
    serde_json::from_value(object.detail.clone()).ok().filter(|_| is_here)
}

impl Held {
    /// Looks at the object again. A device that is clean gets its settings and is no longer held. Returns the reasons why it
    /// still is.
    ///
    /// # Errors
    /// Kernel or state directory can't be asked.
    pub fn mend(&self, home: Home<'_>, notes: &mut Notes) -> Result<Vec<String>, OpError> {
        let start = Instant::now();
        let outcome = self.look(home, notes);
        let told = match &outcome {
            Ok(why) if why.is_empty() => Ok(()),
            Ok(why) => Err(why.join("; ")),
            Err(error) => Err(error.to_string()),
        };
        notes.log("held.mend", &json!({"object": self.object.to_string()}), "note", &told, start);
        outcome
    }

    fn look(&self, home: Home<'_>, notes: &Notes) -> Result<Vec<String>, OpError> {
        let here = home.host.cookie().map_err(kernel_error)?;
        let why = match &self.object {
            Object::Device(device) => device.look_again(home, notes)?,
            Object::Vlan { index, id, .. } => vlan_in_use(home.host, *index, *id)?.into_iter().collect(),
        };
        if !why.is_empty() && why == self.why {
            return Ok(why);
        }
        // Meanwhile another run may have mended it, and another container may have had it.
        let (state, boot) = (&notes.state, postern_state::boot_id().map_err(state_error)?);
        let Some(note) = noted(state, here, &boot, |other| self.is_noted_by(other))? else { return Ok(why) };
        if why.is_empty() {
            node::remove(state, HELD, &note.name, here).map_err(state_error)?;
            crate::say!("postern: {} is no longer held", self.object);
        } else {
            let held = Self { why: why.clone(), ..self.clone() };
            node::update(state, &NodeObject { detail: json!(held), ..note }).map_err(state_error)?;
        }
        Ok(why)
    }

    /// True if another note is about the same object and attachment.
    fn is_noted_by(&self, other: &Self) -> bool {
        let attachment = |held: &Self| (held.network.clone(), held.container_id.clone(), held.ifname.clone());
        self.object.is_same(&other.object) && attachment(self) == attachment(other)
    }

    /// Mends it for an ADD.
    ///
    /// # Errors
    /// As [`Held::mend`], and [`ErrorCode::TryAgain`] if it is still held.
    pub(crate) fn mend_for(&self, session: &Session) -> Result<(), OpError> {
        let why = self.mend(Home::of(session)?, &mut Notes::of(session))?;
        if why.is_empty() {
            return Ok(());
        }
        let name = self.object.name();
        let message = format!(
            "\"{name}\" is held since {} of container {} had it, in network {}: {}",
            self.ifname,
            self.container_id,
            self.network,
            why.join("; ")
        );
        Err(OpError::new(ErrorCode::TryAgain, name, message).hint(self.remedy()))
    }

    /// Returns what a user can do.
    pub fn remedy(&self) -> String {
        let Object::Device(device) = &self.object else {
            return "end the namespaces that its last container made, or make the node's link anew; then run `postern gc`"
                .to_owned();
        };
        let name = &device.name;
        match &device.device {
            Some((bus, device)) => format!(
                "end what keeps {bus} {device}: the namespaces that its last container made; then run `postern gc`. `postern gc \
                 --unbind` takes the device from its driver and gives it back, which ends all that others have on it"
            ),
            None => format!(
                "end what keeps it: the namespaces that its last container made, or delete \"{name}\" and make it anew; then run \
                 `postern gc`"
            ),
        }
    }
}

/// Returns the reason why a VLAN of a link of the host is held: somebody has it.
///
/// # Errors
/// The kernel can't be asked.
pub(super) fn vlan_in_use(host: &Netlink, parent: u32, id: VlanId) -> Result<Option<String>, OpError> {
    let Some(link) = host.link_by_index(parent).map_err(kernel_error)? else { return Ok(None) };
    let is_used = host.has_vlan(&link, id).map_err(kernel_error)?;
    Ok(is_used.then(|| {
        "it is in use in a namespace that nobody names: root in its container has moved its link there".to_owned()
    }))
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::plain;
    use super::*;
    use postern_kernel::Link;

    fn held(link: &Link, container: &str) -> Held {
        Held {
            object: Object::Device(Box::new(Device::of_link(link))),
            network: "net".to_owned(),
            container_id: container.to_owned(),
            ifname: "eth0".to_owned(),
            why: vec![container.to_owned()],
        }
    }

    #[test]
    fn two_devices_of_one_name_have_two_notes() {
        let root = std::env::temp_dir().join(format!("postern-held-{}", std::process::id()));
        let first = Link { kind: "dummy".to_owned(), ..plain() };
        let second = Link { kind: "veth".to_owned(), index: 9, peer_index: Some(8), ..plain() };
        write(&root, 1, &held(&first, "c1")).unwrap();
        write(&root, 1, &held(&second, "c2")).unwrap();
        // A new reason replaces the reasons of its own device only.
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
