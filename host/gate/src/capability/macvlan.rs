//! `macvlan`: the attachment's own link, stacked on a granted one. An attachment has one that lives, by its record.

use crate::capability::facts::{Facts, Needed};
use crate::effect::{Effect, Macvlan, inner_link};
use crate::errors::{about, kernel_error, link_gone, native_error};
use crate::front::Object;
use crate::gate::Gate;
use postern_kernel::{Link, MacvlanSpec, random_mac, random_veth_name};
use postern_types::{ErrorCode, Handle, Mac, MacvlanInfo, MacvlanMode, OpError, Reply, ops};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Macvlan) -> Result<Reply, OpError> {
    match operation {
        ops::Macvlan::Create { parent, mode, mtu, mac, queue } => {
            create(gate, *parent, &MacvlanSettings { mode: *mode, mtu: *mtu, mac: *mac, queue: *queue })
        }
        ops::Macvlan::Find => find(gate),
    }
}

/// How it is to be made.
struct MacvlanSettings {
    mode: MacvlanMode,
    mtu: Option<u32>,
    mac: Option<Mac>,
    queue: Option<u32>,
}

/// `macvlan.create`.
fn create(gate: &mut Gate<'_>, parent: Handle, wanted: &MacvlanSettings) -> Result<Reply, OpError> {
    let name = gate.session.request.ifname.clone();
    let (parent, in_container, most) = gate.front.parent(parent)?;
    if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu > most) {
        let message = format!("invalid MTU {mtu}, must be [0, master MTU({most})]");
        return Err(OpError::new(ErrorCode::InvalidArgument, mtu.to_string(), message));
    }
    let container = gate.session.container_required()?.netlink().map_err(kernel_error)?;
    // Looked at before it is recorded: undoing a failed ADD must not take away what an earlier one made.
    let exists = || {
        let message = format!("failed to create macvlan: the container has \"{name}\" already");
        OpError::new(ErrorCode::Exists, &name, message).hint("the attachment exists already: run DEL first")
    };
    if container.link_by_name(&name).map_err(kernel_error)?.is_some() {
        return Err(exists());
    }
    if let Some((kind, living)) = inner_link::retire(gate.session)? {
        let kind = kind.name();
        let message = format!("this attachment has a {kind} link already, which is called \"{}\"", living.name);
        return Err(OpError::new(ErrorCode::Exists, living.name, message).hint("run DEL first"));
    }
    gate.front.room(1)?;
    // In mode "passthru" it has its parent's.
    let mac = (wanted.mode != MacvlanMode::Passthru).then(|| wanted.mac.unwrap_or_else(|| Mac(random_mac())));
    // The kernel holds the name against the host's links too: it gets its own where it lives.
    let born = (!in_container).then(random_veth_name);
    let effect = Effect::from(Macvlan { mac, born: born.clone() });
    gate.session.intend(effect.clone())?;
    let container = gate.session.container_required()?.netlink().map_err(kernel_error)?;
    let spec = MacvlanSpec {
        name: born.as_deref().unwrap_or(&name),
        parent,
        mode: wanted.mode,
        mtu: wanted.mtu,
        mac: mac.map(|mac| mac.0),
        queue: wanted.queue,
        namespace: if in_container { None } else { Some(gate.session.namespace()?.fd()) },
    };
    let netlink = if in_container { container } else { gate.session.host()? };
    netlink.create_macvlan(&spec).map_err(|error| native_error(error, &name, "failed to create macvlan"))?;
    let made = container.link_by_name(spec.name).map_err(kernel_error)?.ok_or_else(|| link_gone(&name))?;
    gate.session.known_by(&effect, &[u64::from(made.index)]);
    if !in_container {
        let container = gate.session.container_required()?.netlink().map_err(kernel_error)?;
        let renamed = container.rename(made.index, &name);
        renamed.map_err(|error| native_error(error, &name, format_args!("failed to rename macvlan to \"{name}\"")))?;
    }
    gate.session.container_mac = made.mac.map(Mac);
    show(gate, Link { name, ..made }, Some(wanted.mode)).map(Reply::Macvlan)
}

/// `macvlan.find`.
fn find(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let none = Ok(Reply::MaybeMacvlan(None));
    let Some(container) = gate.session.container() else { return none };
    let name = gate.session.request.ifname.clone();
    let netlink = container.netlink().map_err(kernel_error)?;
    let found = netlink.link_by_name(&name).map_err(about(&name))?;
    let Some(own) = found.filter(|link| link.kind == Macvlan::KIND) else { return none };
    let mode = own.macvlan_mode;
    show(gate, own, mode).map(|found| Reply::MaybeMacvlan(Some(found)))
}

fn show(gate: &mut Gate<'_>, own: Link, mode: Option<MacvlanMode>) -> Result<MacvlanInfo, OpError> {
    let handle = gate.grant(Object::Own { index: own.index, name: own.name.clone() })?;
    Ok(MacvlanInfo { link: Gate::show(handle, own), mode })
}
