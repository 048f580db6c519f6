//! Inner links: links that exist only in the container's namespace (macvlan, VLAN, ipvlan, dummy, tap). They end with
//! that namespace.

use crate::capability::device::held::{self, HeldObject};
use crate::capability::leaves::{AttachmentLink, EffectKind};
use crate::context::{Context, View};
use crate::effect::{Effect, in_record};
use crate::errors::kernel_error;
use crate::others;
use crate::right::Right;
use postern_cni::CniResult;
use postern_kernel::{Link, Netlink};
use postern_types::{IpvlanMode, Mac, OpError, VlanId};
use serde::{Deserialize, Serialize};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest time until the kernel has removed the links of an ended namespace.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The kinds of inner links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InnerKind {
    /// A macvlan. Its records have the form of [`Macvlan`].
    #[default]
    Macvlan,
    /// A VLAN of another link.
    Vlan,
    /// An ipvlan.
    Ipvlan,
    /// A dummy.
    Dummy,
    /// A tap.
    Tap,
}

impl InnerKind {
    const ALL: [Self; 5] = [Self::Macvlan, Self::Vlan, Self::Ipvlan, Self::Dummy, Self::Tap];

    /// True if a link is of one of these kinds.
    pub fn has(link: &Link) -> bool {
        Self::ALL.iter().any(|kind| kind.in_kernel() == link.kind)
    }

    /// Returns the name for people and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Macvlan => "macvlan",
            Self::Vlan => "vlan",
            Self::Ipvlan => "ipvlan",
            Self::Dummy => "dummy",
            Self::Tap => "tap",
        }
    }

    /// Returns the kernel's name for links of this kind.
    pub const fn in_kernel(self) -> &'static str {
        if matches!(self, Self::Tap) { "tun" } else { self.name() }
    }

    fn is_macvlan(&self) -> bool {
        *self == Self::Macvlan
    }
}

/// An inner link. The record also has the link's interface index, which root in the container can't change. Before the
/// index is recorded, the first name and the address identify the link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerLink {
    /// The link's kind. A macvlan is recorded as another effect, [`Macvlan`].
    pub kind: InnerKind,
    /// The address that the host gave the link; `None` if the link has its parent's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The first name, which the host chose. `None` if the link was made with the attachment's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<String>,
    /// For an ipvlan on a link of the host: the index of the lowest link, and the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<(u32, IpvlanMode)>,
    /// For a VLAN of a link of the host: the parent's index, and the VLAN. Earlier versions did not record this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<(u32, VlanId)>,
}

impl InnerLink {
    /// Returns the inner link of an effect, of any kind.
    pub fn seen(effect: &Effect) -> Option<&Self> {
        Macvlan::of(effect).map(|Macvlan(link)| link).or_else(|| Self::of(effect))
    }

    /// Returns the effect of this link, in the form of its kind.
    pub fn recorded(self) -> Effect {
        if self.kind.is_macvlan() { Macvlan(self).into() } else { self.into() }
    }

    /// Looks for the link in the namespace in which it was made.
    pub fn find(&self, run: &Context, container: &Netlink) -> Result<Option<Link>, OpError> {
        if let Some(index) = run.journal.indices(&self.clone().recorded()).first() {
            let link = container.link_by_index(*index).map_err(kernel_error)?;
            return Ok(link.filter(|link| link.kind == self.kind.in_kernel()));
        }
        let is_like =
            |link: &Link| link.kind == self.kind.in_kernel() && self.mac.is_none_or(|mac| link.mac == Some(mac.0));
        for name in self.born.iter().chain([&run.request.ifname]) {
            let link = container.link_by_name(name).map_err(kernel_error)?;
            if let Some(own) = link.filter(is_like) {
                return Ok(Some(own));
            }
        }
        Ok(None)
    }

    fn delete(&self, run: &Context, container: &Netlink) -> Result<(), OpError> {
        if let Some(link) = self.find(run, container)? {
            return container.delete_link(link.index).map(drop).map_err(kernel_error);
        }
        let indices = run.journal.indices(&self.clone().recorded());
        let is_deleted = indices.iter().any(|index| run.own.deleted.contains(index));
        // The gate can't distinguish a deleted link from a moved link.
        if !is_deleted && matches!(self.kind, InnerKind::Macvlan | InnerKind::Ipvlan) {
            crate::say!(
                "postern: the attachment's {} link is not in the container: root in the container has deleted or moved the link. \
                 A moved link uses its master's network until its new namespace ends",
                self.kind.name()
            );
        }
        Ok(())
    }

    /// Holds the VLAN if a link still uses it at the time `until`: the link may have been moved to another namespace.
    /// The function waits until then, because the kernel may still be removing the links of the container's namespace.
    fn look_for_vlan(&self, run: &Context, until: Instant) -> Result<(), OpError> {
        let Some((parent, id)) = self.vlan else { return Ok(()) };
        let host = run.system.host()?;
        let mut is_first = true;
        loop {
            let Some(why) = held::vlan_in_use(host, parent, id)? else { return Ok(()) };
            let is_late = Instant::now() >= until;
            // Another attachment or the node may have taken the VLAN after the attachment's link was gone.
            if (is_late || is_first) && self.has_other_owner(run.view())? {
                return Ok(());
            }
            is_first = false;
            if is_late {
                let link = host.link_by_index(parent).map_err(kernel_error)?;
                let name = link.map(|link| link.name.to_string()).unwrap_or_default();
                return held::hold(run, HeldObject::Vlan { parent: name, index: parent, id }, &[why]);
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// True if a link of the host or a record of another attachment has the VLAN.
    fn has_other_owner(&self, view: View<'_>) -> Result<bool, OpError> {
        let is_own = |link: &Link| {
            !link.is_provider_vlan && self.vlan == link.peer_index.zip(link.vlan_id) && link.peer_netnsid.is_none()
        };
        if view.system.host()?.links().map_err(kernel_error)?.iter().any(is_own) {
            return Ok(true);
        }
        others::is_claimed_by(view, |summary| in_record::<Self>(summary).any(|other| other.vlan == self.vlan))
    }
}

impl EffectKind for InnerLink {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        // In a DEL or ADD, the runtime names the container's namespace. A garbage collection has searched for this
        // namespace. If the namespace is gone, the link is gone too.
        match run.journal.container_with(run.system, &format!("{} link", self.kind.name()))? {
            Some(container) => {
                self.delete(run, container.netlink().map_err(kernel_error)?)?;
                self.look_for_vlan(run, Instant::now())
            }
            None => self.look_for_vlan(run, (Instant::now() + ENDS_WITHIN).min(run.fixed.deadline.at())),
        }
    }

    fn words(&self) -> String {
        let kind = self.kind.name();
        self.mac.map_or_else(|| kind.to_owned(), |mac| format!("{kind} {mac}"))
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        Some(self)
    }

    fn right(&self) -> Right<'_> {
        Right::Container
    }
}

impl AttachmentLink for InnerLink {
    fn is_there(&self, run: &Context) -> Result<bool, OpError> {
        let Some(container) = run.netlink_of_record()? else { return Ok(false) };
        Ok(self.find(run, container)?.is_some())
    }

    fn is_named(&self, result: &CniResult) -> bool {
        let is_own = |address: &str| self.mac.is_none_or(|mac| address.eq_ignore_ascii_case(&mac.to_string()));
        result.interfaces.iter().any(|link| !link.sandbox.is_empty() && is_own(&link.mac))
    }
}

/// A macvlan link. Its form in the record is older than the form of the other kinds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "MacvlanForm", into = "MacvlanForm")]
pub struct Macvlan(pub InnerLink);

#[derive(Serialize, Deserialize)]
struct MacvlanForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<Mac>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<String>,
}

impl From<Macvlan> for MacvlanForm {
    fn from(Macvlan(InnerLink { mac, born, .. }): Macvlan) -> Self {
        Self { mac, born }
    }
}

impl From<MacvlanForm> for Macvlan {
    fn from(MacvlanForm { mac, born }: MacvlanForm) -> Self {
        Self(InnerLink { kind: InnerKind::Macvlan, mac, born, shares: None, vlan: None })
    }
}

impl EffectKind for Macvlan {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        self.0.remove(run)
    }

    fn words(&self) -> String {
        self.0.words()
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        self.0.as_link()
    }

    fn right(&self) -> Right<'_> {
        Right::Container
    }
}

/// If an inner link no longer exists, takes its effect off the record. Returns an existing inner link, if there is one.
pub fn retire(run: &mut Context) -> Result<Option<(InnerKind, Link)>, OpError> {
    let mut living = None;
    let effects = run.journal.effects();
    for made in effects.iter().filter_map(|noted| InnerLink::seen(&noted.effect)) {
        let Some(container) = run.system.netlink_inside()? else { continue };
        match made.find(run, container)? {
            Some(link) => living = Some((made.kind, link)),
            None => run.journal.gone(|effect: &Effect| InnerLink::seen(effect) == Some(made)),
        }
    }
    Ok(living)
}
