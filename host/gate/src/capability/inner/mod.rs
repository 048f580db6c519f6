//! The common part of `macvlan`, `vlan`, `ipvlan`, `dummy` and `tap`: an inner link is the attachment's own link, and
//! exists only in the container. An attachment has at most one existing inner link in its record.

pub mod effect;

use crate::capability::inner::effect as inner_link;
use crate::context::Context;
use crate::effect::{Effect, InnerKind, InnerLink};
use crate::errors::{about, kernel_error, link_gone, native_error};
use crate::gate::Gate;
use crate::guest_state::{Object, Parent};
use postern_kernel::{InnerLinkKind, InnerSpec, Link, Netlink, random_veth_name};
use postern_types::{ErrorCode, IpvlanMode, LinkInfo, Mac, OpError};
use std::fmt::Display;

impl Parent {
    /// Fails for an MTU above the parent's MTU.
    pub(crate) fn can_carry(&self, mtu: Option<u32>) -> Result<(), OpError> {
        let Some(mtu) = mtu.filter(|mtu| *mtu > self.mtu) else { return Ok(()) };
        let message = format!("invalid MTU {mtu}, must be [0, master MTU({})]", self.mtu);
        Err(OpError::new(ErrorCode::InvalidArgument, mtu.to_string(), message))
    }

    pub(crate) fn link(&self, gate: &Gate<'_>) -> Result<Link, OpError> {
        self.namespace(gate)?.link_by_index(self.index).map_err(kernel_error)?.ok_or_else(|| link_gone("parent"))
    }

    /// Returns the links that are stacked on this parent in the parent's namespace.
    pub fn stacked<'g>(&self, gate: &'g Gate<'_>) -> Result<impl Iterator<Item = Link> + use<'g>, OpError> {
        let index = self.index;
        let links = self.namespace(gate)?.links().map_err(kernel_error)?;
        Ok(links.into_iter().filter(move |link| link.peer_index == Some(index) && link.peer_netnsid.is_none()))
    }

    /// Returns the socket of the parent's namespace.
    fn namespace<'g>(&self, gate: &'g Gate<'_>) -> Result<&'g Netlink, OpError> {
        if self.in_container { gate.run.system.container_netlink() } else { gate.run.system.host() }
    }
}

/// A link before it is made.
pub struct NewLink {
    /// The kind, with the data that only this kind has.
    pub spec: InnerLinkKind,
    /// The MTU in bytes.
    pub mtu: Option<u32>,
    /// The link's own link-layer address. `None` for a link with its parent's address.
    pub mac: Option<Mac>,
    /// True if the link is made from the host's namespace, where its parent is.
    pub from_host: bool,
    /// For an ipvlan on a link of the host: the index of the lowest link, and the mode. All ipvlans on that link share
    /// one mode.
    pub shares: Option<(u32, IpvlanMode)>,
}

impl NewLink {
    /// Makes the data of a link on a parent, with the parent's address.
    pub(crate) const fn on(parent: &Parent, spec: InnerLinkKind, mtu: Option<u32>) -> Self {
        Self { spec, mtu, mac: None, from_host: !parent.in_container, shares: None }
    }

    /// Returns the kind for people, messages and the record.
    pub(crate) const fn kind(&self) -> InnerKind {
        match self.spec {
            InnerLinkKind::Dummy => InnerKind::Dummy,
            InnerLinkKind::Macvlan { .. } => InnerKind::Macvlan,
            InnerLinkKind::Vlan { .. } => InnerKind::Vlan,
            InnerLinkKind::Ipvlan { .. } => InnerKind::Ipvlan,
        }
    }

    /// Returns the link's effect. `born` is the link's first name, if this name is not `CNI_IFNAME`.
    fn effect(&self, born: Option<String>) -> Effect {
        let on_host = Some(self.spec).filter(|_| self.from_host);
        let vlan = if let Some(InnerLinkKind::Vlan { parent, id }) = on_host { Some((parent, id)) } else { None };
        InnerLink { kind: self.kind(), mac: self.mac, born, shares: self.shares, vlan }.recorded()
    }
}

/// Makes the link with the name `CNI_IFNAME`, and leaves it down. `ask` is called when the intent is in the record, so
/// that two ADDs at once see each other.
pub(crate) fn create(
    gate: &mut Gate<'_>,
    wanted: &NewLink,
    ask: impl FnOnce(&Gate<'_>) -> Result<(), OpError>,
) -> Result<LinkInfo, OpError> {
    is_free(gate, wanted.kind())?;
    let name = gate.run.request.ifname.clone();
    let kind = wanted.kind().name();
    // A link that is made from the host gets a random name first, because the kernel also compares the name with the
    // host's links. In the container, the link then gets the attachment's interface name.
    let born = wanted.from_host.then(random_veth_name);
    let effect = wanted.effect(born.clone());
    gate.run.journal.intend(gate.run.view(), effect.clone())?;
    ask(gate)?;
    let container = gate.run.system.container_netlink()?;
    let spec = InnerSpec {
        name: born.as_deref().unwrap_or(&name),
        kind: wanted.spec,
        mtu: wanted.mtu,
        mac: wanted.mac.map(|mac| mac.0),
        namespace: if wanted.from_host { Some(gate.run.system.namespace()?.fd()) } else { None },
    };
    let netlink = if wanted.from_host { gate.run.system.host()? } else { container };
    if let Err(error) = netlink.create_inner(&spec) {
        let error = wanted.explain(native_error(error, &name, format_args!("failed to create {kind}")), netlink);
        // No link was made, so the effect is removed from the record: a link that was just refused can't have been
        // moved away.
        if matches!(container.link_by_name(spec.name), Ok(None)) {
            gate.run.journal.gone(|made| *made == effect);
        }
        return Err(error);
    }
    let made = container.link_by_name(spec.name).map_err(kernel_error)?.ok_or_else(|| link_gone(&name))?;
    gate.run.journal.known_link(&effect, made.index)?;
    if wanted.from_host {
        let renamed = container.rename(made.index, &name.as_str().into());
        renamed.map_err(|error| native_error(error, &name, format_args!("failed to rename {kind} to \"{name}\"")))?;
    }
    gate.run.own.container_mac = made.mac.map(Mac);
    show(gate, Link { name: name.into(), ..made })
}

/// Checks that the name is free, that the attachment has no inner link, and that there is room for a handle. The check
/// comes before anything is recorded. Otherwise the undo of a failed ADD could remove the link of an earlier ADD.
pub(crate) fn is_free(gate: &mut Gate<'_>, kind: InnerKind) -> Result<(), OpError> {
    is_name_free(gate.run, format_args!("failed to create {}", kind.name()))?;
    if let Some((other, living)) = inner_link::retire(gate.run)? {
        let other = other.name();
        let message = format!("this attachment has a {other} link already, which is called \"{}\"", living.name);
        return Err(OpError::new(ErrorCode::Exists, &living.name, message).hint("run DEL first"));
    }
    gate.guest.room(1)
}

/// Checks that the container has no link of the attachment's name. `failed` begins the error message.
pub(crate) fn is_name_free(run: &Context, failed: impl Display) -> Result<(), OpError> {
    let name = &run.request.ifname;
    if run.system.container_netlink()?.link_by_name(name).map_err(kernel_error)?.is_none() {
        return Ok(());
    }
    let message = format!("{failed}: the container has \"{name}\" already");
    Err(OpError::new(ErrorCode::Exists, name, message).hint("the attachment exists already: run DEL first"))
}

/// True if the record lists a link of this kind with this index.
pub fn is_recorded(gate: &Gate<'_>, kind: InnerKind, index: u32) -> Result<bool, OpError> {
    let container = gate.run.system.container_netlink()?;
    let effects = gate.run.journal.effects();
    for made in effects.iter().filter_map(|noted| InnerLink::seen(&noted.effect)).filter(|made| made.kind == kind) {
        if made.find(gate.run, container)?.is_some_and(|link| link.index == index) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn find(gate: &Gate<'_>, kind: InnerKind) -> Result<Option<Link>, OpError> {
    let Some(netlink) = gate.run.system.netlink_inside()? else { return Ok(None) };
    let name = &gate.run.request.ifname;
    Ok(netlink.link_by_name(name).map_err(about(name))?.filter(|link| link.kind == kind.in_kernel()))
}

pub(crate) fn show(gate: &mut Gate<'_>, own: Link) -> Result<LinkInfo, OpError> {
    Ok(Gate::show(gate.grant(Object::Own { index: own.index, name: own.name.to_string() })?, own))
}
