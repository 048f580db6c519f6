//! The effect of changes to the attachment's link in the container, if this run did not make the link.
//!
//! A link that this run made needs no [`LinkState`]: its deletion removes all changes. Root in the container can change
//! each part of the effect. So each part is found by the link's index, and a missing part is no error.

use crate::capability::leaves::{ByContents, EffectKind};
use crate::capability::shared::write_before;
use crate::claims;
use crate::context::{Context, View};
use crate::effect::{Addresses, in_record};
use crate::errors::kernel_error;
use crate::in_container::{as_far_as_possible, give_addresses, give_back, listed_as_far_as_possible, losable};
use crate::journal::Undo;
use crate::right::Right;
use ipnet::IpNet;
use nix::errno::Errno;
use postern_kernel::{KernelError, Link, Sysctl, Worker};
use postern_state::{Claim, Stage, Summary};
use postern_types::{ErrorCode, KeptRoute, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The changes that one operation made to the attachment's link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// The link's index in the container's namespace. Root in the container cannot change the index.
    pub index: u32,
    /// True if the link was down, and was set up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub up: bool,
    /// The changed setting of the link or of `lo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<SettingBefore>,
    /// Addresses that the link got.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// Routes that the link got.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<KeptRoute>,
    /// Addresses that the link loses by the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_addresses: Vec<IpNet>,
    /// Routes that the link loses by the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_routes: Vec<KeptRoute>,
}

/// A setting, and its value before the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingBefore {
    /// Protocol and key, with a slash between them: `ipv6/accept_dad`.
    pub key: String,
    /// The value.
    pub value: String,
    /// True if the setting belongs to `lo`, and not to the attachment's link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_lo: bool,
}

impl LinkState {
    fn take_back(&self, run: &Context, container: &Worker) -> Result<(), OpError> {
        let netlink = container.netlink().map_err(kernel_error)?;
        let link = as_far_as_possible(|| netlink.link_by_index(self.index))?;
        let Some(link) = link else { return self.restore(run.view(), container, None) };
        for kept in self.routes.iter().rev() {
            run.fixed.deadline.in_time()?;
            as_far_as_possible(|| netlink.delete_kept_route(link.index, kept))?;
        }
        for address in self.addresses.iter().rev() {
            run.fixed.deadline.in_time()?;
            as_far_as_possible(|| is_gone(netlink.delete_address(link.index, *address)))?;
        }
        self.restore(run.view(), container, Some(&link))?;
        if self.up && link.up {
            let (addresses, _) = listed_as_far_as_possible(|| losable(netlink, link.index))?;
            as_far_as_possible(|| netlink.set_down(link.index))?;
            // A link that is down has no routes, so only addresses are given back.
            give_addresses(run.fixed, netlink, link.index, &addresses)?;
        }
        give_back(run, netlink, link.index, (&self.lost_addresses, &self.lost_routes))
    }

    /// Restores the earlier value, unless another attachment still needs the present value. If the link is gone, only a
    /// setting of `lo` is left to restore.
    fn restore(&self, view: View<'_>, container: &Worker, link: Option<&Link>) -> Result<(), OpError> {
        let Some(before) = &self.setting else { return Ok(()) };
        let Some((protocol, key)) = before.key.split_once('/') else { return Ok(()) };
        let of_lo = before.of_lo.then(|| "lo".to_owned());
        let Some(name) = of_lo.or(link.map(|link| link.name.to_string())) else { return Ok(()) };
        let mut others = self.others(view, container)?;
        // If two DELs run at once, each DEL first notes its own end, and then reads the other record. So at least one
        // DEL restores the setting.
        others.retain_mut(|other| self.is_still_of(other));
        // Each attachment that claims `lo` uses a setting of `lo`. Only attachments with a note on a setting use the
        // setting of another link.
        if before.of_lo && !others.is_empty() || self.before_others(&others).is_some() {
            return Ok(());
        }
        write_before(container, &[protocol, "conf", &name, key], &before.value)
    }

    /// Returns the claim of a note on a setting, in the container's namespace with the cookie `container`. All
    /// attachments that need `lo` claim it, with or without a note.
    pub fn claim(&self, container: u64) -> Option<Claim> {
        let SettingBefore { key, of_lo, .. } = self.setting.as_ref()?;
        Some(if *of_lo { Claim::loopback(container) } else { Claim::setting(container, self.index, key) })
    }

    /// True if `other` is a note on the same setting.
    fn is_about_same(&self, other: &Self) -> bool {
        let (Some(own), Some(of_other)) = (&self.setting, &other.setting) else { return false };
        (&own.key, own.of_lo) == (&of_other.key, of_other.of_lo) && (own.of_lo || self.index == other.index)
    }

    /// Returns the records of other attachments of this container that may use the setting.
    fn others(&self, view: View<'_>, container: &Worker) -> Result<Vec<Summary>, OpError> {
        let (cookie, own) = (container.cookie().map_err(kernel_error)?, view.key()?);
        let mut records = claims::claimants(view, self.claim(cookie).as_slice())?;
        records.retain(|summary| {
            let is_here = summary.header.as_ref().is_some_and(|header| header.netns_cookie == Some(cookie));
            is_here && summary.key.as_ref().is_some_and(|key| *key != own)
        });
        Ok(records)
    }

    /// Leaves out the effects of sections that are being removed. Returns false if the attachment no longer uses the
    /// setting: all its sections end, or all sections with a note on the setting end.
    fn is_still_of(&self, other: &mut Summary) -> bool {
        let is_noted = |other: &Summary| self.before_others(std::slice::from_ref(other)).is_some();
        let was_noted = is_noted(other);
        let Summary { effects, sections, .. } = other;
        let is_ending = |name: &str| sections.iter().any(|own| own.name == name && own.stage == Stage::Ending);
        effects.retain(|noted| !is_ending(&noted.section));
        let ends = !sections.is_empty() && sections.iter().all(|section| section.stage == Stage::Ending);
        !ends && (is_noted(other) || !was_noted)
    }

    /// Returns the value of the setting before other attachments changed it, from their records.
    fn before_others(&self, others: &[Summary]) -> Option<String> {
        let mut states = others.iter().flat_map(in_record::<Self>).filter(|state| self.is_about_same(state));
        states.find_map(|state| Some(state.setting?.value))
    }
}

/// A key of the settings that each link has, below `net/PROTOCOL/conf/LINK`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkKey {
    V4(&'static str),
    V6(&'static str),
}

impl LinkKey {
    /// Returns the setting of a link, and the setting's name in notes.
    fn of(self, link: &str) -> (Sysctl, String) {
        let link = link.to_owned();
        match self {
            Self::V4(key) => (Sysctl::Ipv4Conf(link, key), format!("ipv4/{key}")),
            Self::V6(key) => (Sysctl::Ipv6Conf(link, key), format!("ipv6/{key}")),
        }
    }
}

/// Writes a setting of the attachment's link, or a setting of `lo` for the attachment. On a link that this run did not
/// make, the earlier value is noted first, once. If other attachments of the container changed the setting before, the
/// noted value is the value before their changes. The last attachment restores this value.
pub(crate) fn write_setting(run: &mut Context, own: u32, link: &str, key: LinkKey, value: &str) -> Result<(), OpError> {
    let (sysctl, name) = key.of(link);
    if of_another(run, own)?.is_some() {
        let noted = |value: String| {
            let setting = Some(SettingBefore { key: name.clone(), value, of_lo: link == "lo" });
            LinkState { index: own, setting, ..LinkState::default() }
        };
        let wanted = noted(value.to_owned());
        let is_noted = |undo: &Undo| LinkState::of(&undo.effect).is_some_and(|state| state.is_about_same(&wanted));
        let is_known = run.journal.has_made(is_noted);
        let container = run.system.container_required()?;
        let now = container.sysctl_get(&sysctl).map_err(setting_error)?;
        let of_others = match is_known || now.is_none() {
            true => None,
            false => wanted.before_others(&wanted.others(run.view(), container)?),
        };
        if let Some(before) = of_others.or(now).filter(|before| before != value && !is_known) {
            let mut note = noted(before);
            if name == "ipv6/disable_ipv6" && value == "1" {
                let netlink = container.netlink().map_err(kernel_error)?;
                (note.lost_addresses, note.lost_routes) = losable(netlink, own).map_err(kernel_error)?;
            }
            run.journal.intend(run.view(), note)?;
        }
    }
    let container = run.system.container_required()?;
    let cookie = container.cookie().map_err(kernel_error)?;
    container.sysctl_set(&sysctl, value).map(drop).map_err(setting_error)?;
    if link == "lo" { run.journal.index(run.view(), &[Claim::loopback(cookie)]).map(drop) } else { Ok(()) }
}

/// Converts the kernel's refusal: the guest learns whether a key is missing, or whether access to the file failed.
fn setting_error(error: KernelError) -> OpError {
    let error = kernel_error(error);
    let code = if error.code == ErrorCode::NotFound { error.code } else { ErrorCode::Io };
    OpError { code, ..error }
}

/// Treats an object that is gone already as removed.
fn is_gone(removed: Result<(), KernelError>) -> Result<(), KernelError> {
    removed.or_else(|error| {
        if [Errno::EADDRNOTAVAIL, Errno::ENODEV].iter().any(|errno| error.is(*errno)) { Ok(()) } else { Err(error) }
    })
}

impl EffectKind for LinkState {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let Some(container) = run.journal.container_with(run.system, "link")? else { return Ok(()) };
        self.take_back(run, container)
    }

    fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.up {
            parts.push("being up".to_owned());
        }
        if let Some(SettingBefore { key, value, of_lo }) = &self.setting {
            let of = if *of_lo { " of lo" } else { "" };
            parts.push(format!("another value than {value} for {key}{of}"));
        }
        let addresses = self.addresses.iter().map(|address| format!("address {address}"));
        let routes = self.routes.iter().map(|kept| format!("route to {}", kept.route.dst));
        parts.extend(addresses.chain(routes));
        if parts.is_empty() {
            parts.extend(self.lost_routes.iter().map(|kept| format!("no route to {}", kept.route.dst)));
        }
        format!("changed state of the link: {}", parts.join(", "))
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn right(&self) -> Right<'_> {
        Right::Container
    }
}

impl ByContents for LinkState {
    fn addresses(&self) -> Addresses<'_> {
        // Lost addresses are restored too. A lost address must not come back after its lease was given back.
        let has_none = self.addresses.is_empty() && self.lost_addresses.is_empty();
        if has_none { Addresses::Unconcerned } else { Addresses::Used }
    }
}

/// Returns the attachment's link of this index, if this run did not make the link. Then each change of the link must be
/// recorded.
pub(crate) fn of_another(run: &Context, index: u32) -> Result<Option<Link>, OpError> {
    if run.journal.has_made_link() {
        return Ok(None);
    }
    run.system.container_netlink()?.link_by_index(index).map_err(kernel_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;
    use postern_state::{DataPath, Section};

    /// Of two DELs at once, the DEL that reads last sees that the other attachment ends. A section that stays keeps the
    /// setting.
    #[test]
    fn what_is_being_removed_needs_no_setting() {
        let section = |name: &str, stage: Stage| Section {
            name: name.to_owned(),
            digest: String::new(),
            config: None,
            made_link: false,
            joined: false,
            begun: 0,
            stage,
            since: 0,
            addresses: Vec::new(),
            path: DataPath::default(),
            note: None,
        };
        let setting = Some(SettingBefore { key: "ipv6/disable_ipv6".to_owned(), value: "0".to_owned(), of_lo: true });
        let state = LinkState { index: 2, setting, ..LinkState::default() };
        let noted = postern_state::NotedEffect {
            seq: 1,
            section: "tuning".to_owned(),
            effect: serde_json::to_value(Effect::from(state.clone())).unwrap(),
            handles: Vec::new(),
            tables: Vec::new(),
        };
        for (bridge, tuning, is_noted, uses) in [
            (Stage::Given, Stage::Given, true, true),
            (Stage::Given, Stage::Ending, true, false),
            (Stage::Ending, Stage::Given, true, true),
            (Stage::Ending, Stage::Ending, true, false),
            // A plugin that made the link also uses `lo`, without a note.
            (Stage::Given, Stage::Ending, false, true),
            (Stage::Ending, Stage::Ending, false, false),
        ] {
            let mut other = Summary {
                path: "/record".into(),
                key: None,
                header: None,
                effects: if is_noted { vec![noted.clone()] } else { Vec::new() },
                sections: vec![section("bridge", bridge), section("tuning", tuning)],
                problems: Vec::new(),
                is_of_other_version: false,
                unread: None,
            };
            assert_eq!(state.is_still_of(&mut other), uses, "{bridge:?} {tuning:?} {is_noted}");
        }
    }
}
