//! The effect of what a plugin did to the attachment's link in the container, where this run did not make the link.
//!
//! A link that this run made takes all of it along, and needs no such effect. Root in the container can change everything
//! here. So each part is found by the link's index, and a part that is gone is no error.

use super::{Addresses, AttachmentLink, Leaves, Reapplied, RecordTiming};
use crate::errors::{about, kernel_error};
use crate::need::Need;
use crate::session::Session;
use ipnet::IpNet;
use nix::errno::Errno;
use postern_kernel::sysctl::Setting;
use postern_kernel::{KernelError, Link, Netlink, Sysctl, Worker};
use postern_types::{ErrorCode, KeptRoute, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What one operation changed of the attachment's link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// The link's index in the container's namespace. Root in the container cannot change it.
    pub index: u32,
    /// True if the link was down, and was set up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub up: bool,
    /// A setting of the link.
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
    /// The same for its routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_routes: Vec<KeptRoute>,
}

/// A setting and its value before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingBefore {
    /// Protocol and key, with a slash between them: `ipv6/accept_dad`.
    pub key: String,
    /// The value.
    pub value: String,
    /// True if it is that of `lo`, and not of the attachment's link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_lo: bool,
}

impl LinkState {
    /// Describes it for people.
    pub fn words(&self) -> String {
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

    fn take_back(&self, container: &Worker) -> Result<(), OpError> {
        let netlink = container.netlink().map_err(kernel_error)?;
        // Without the link, nothing of it is left but a setting of `lo`.
        let Some(link) = netlink.link_by_index(self.index).map_err(kernel_error)? else {
            return self
                .setting
                .iter()
                .filter(|before| before.of_lo)
                .try_for_each(|before| before.restore(container, ""));
        };
        let failed = |error| about(&link.name)(error);
        for kept in self.routes.iter().rev() {
            netlink.delete_kept_route(link.index, kept).map_err(failed)?;
        }
        for address in self.addresses.iter().rev() {
            is_gone(netlink.delete_address(link.index, *address)).map_err(failed)?;
        }
        if let Some(before) = &self.setting {
            before.restore(container, &link.name.to_string())?;
        }
        if self.up && link.up {
            let (addresses, _) = losable(netlink, link.index)?;
            netlink.set_down(link.index).map_err(failed)?;
            // Without the link being up there are no routes.
            give_back(netlink, link.index, &addresses, &[]);
        }
        give_back(netlink, link.index, &self.lost_addresses, &self.lost_routes);
        Ok(())
    }
}

impl SettingBefore {
    /// Writes the value before, unless link or kernel has no such setting any more. Root in the container can give the link
    /// a name that no setting can have.
    fn restore(&self, container: &Worker, link: &str) -> Result<(), OpError> {
        let name = if self.of_lo { "lo" } else { link };
        let parts = self.key.split_once('/').map(|(protocol, key)| [protocol, "conf", name, key]);
        let Some(setting) = parts.and_then(Setting::new) else { return Ok(()) };
        match container.setting_write(&setting, &self.value) {
            Err(error) if error.is(Errno::ENOENT) => Ok(()),
            written => written.map_err(kernel_error),
        }
    }
}

/// A key of the settings that each link has, below `net/PROTOCOL/conf/LINK`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkKey {
    /// Of IPv4.
    V4(&'static str),
    /// Of IPv6.
    V6(&'static str),
}

impl LinkKey {
    fn of(self, link: &str) -> Sysctl {
        let link = link.to_owned();
        match self {
            Self::V4(key) => Sysctl::Ipv4Conf { link, key },
            Self::V6(key) => Sysctl::Ipv6Conf { link, key },
        }
    }

    fn text(self) -> String {
        match self {
            Self::V4(key) => format!("ipv4/{key}"),
            Self::V6(key) => format!("ipv6/{key}"),
        }
    }
}

/// Writes a setting of the attachment's link, or of `lo` for its sake. On a link that this run did not make, the value before
/// is noted first.
///
/// # Errors
/// The kernel has no such setting, or refuses the value. The record can't be written.
pub(crate) fn write_setting(
    session: &mut Session,
    own: u32,
    link: &str,
    key: LinkKey,
    value: &str,
) -> Result<(), OpError> {
    let sysctl = key.of(link);
    if of_another(session, own)?.is_some() {
        let container = session.container_required()?;
        let before = container.sysctl_get(&sysctl).map_err(setting_error)?;
        if let Some(before) = before.filter(|before| before != value) {
            let is_off = matches!(key, LinkKey::V6("disable_ipv6")) && value == "1";
            let (lost_addresses, lost_routes) = match is_off {
                true => losable(container.netlink().map_err(kernel_error)?, own)?,
                false => Default::default(),
            };
            let setting = Some(SettingBefore { key: key.text(), value: before, of_lo: link == "lo" });
            session.intend(LinkState { index: own, setting, lost_addresses, lost_routes, ..LinkState::default() })?;
        }
    }
    session.container_required()?.sysctl_set(&sysctl, value).map(drop).map_err(setting_error)
}

/// Converts the kernel's refusal: the guest is told of a key that is not there, and of a file that failed.
fn setting_error(error: KernelError) -> OpError {
    let mut converted = kernel_error(error);
    if converted.code != ErrorCode::NotFound {
        converted.code = ErrorCode::Io;
    }
    converted
}

/// Returns the global IPv6 addresses of a link, and its IPv6 routes: the kernel removes them when the link goes down, or
/// when IPv6 is switched off for it.
///
/// # Errors
/// The kernel refuses to show them.
pub(crate) fn losable(netlink: &Netlink, index: u32) -> Result<(Vec<IpNet>, Vec<KeptRoute>), OpError> {
    let addresses = netlink.addresses(index).map_err(kernel_error)?;
    let addresses = addresses.into_iter().filter(|address| address.net.addr().is_ipv6() && address.scope == 0);
    let routes = routes_of(netlink, index)?.into_iter().filter(|kept| kept.route.dst.addr().is_ipv6());
    Ok((addresses.map(|address| address.net).collect(), routes.collect()))
}

/// Returns the routes of all tables through a link.
///
/// # Errors
/// The kernel refuses to show them.
pub(crate) fn routes_of(netlink: &Netlink, index: u32) -> Result<Vec<KeptRoute>, OpError> {
    let routes = netlink.kept_routes().map_err(kernel_error)?;
    Ok(routes.into_iter().filter(|(link, _)| *link == index).map(|(_, kept)| kept).collect())
}

/// Gives a link what it lost. Root in the container may have made some of it impossible, and the kernel has made some by
/// itself: what is not possible stays away.
fn give_back(netlink: &Netlink, index: u32, addresses: &[IpNet], routes: &[KeptRoute]) {
    for address in addresses {
        // The link had it until now, so that nobody else has.
        let _ = netlink.add_known_address(index, *address);
    }
    // A next hop needs the route to its own network first.
    let (near, far): (Vec<_>, Vec<_>) = routes.iter().partition(|kept| kept.route.gateway.is_none());
    for kept in near.into_iter().chain(far) {
        let _ = netlink.restore_route(index, kept);
    }
}

/// What is gone already needs no removal.
fn is_gone(removed: Result<(), KernelError>) -> Result<(), KernelError> {
    removed.or_else(|error| {
        let gone = [Errno::EADDRNOTAVAIL, Errno::ENODEV].iter().any(|errno| error.is(*errno));
        if gone { Ok(()) } else { Err(error) }
    })
}

impl Leaves for LinkState {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        match session.container_with("link")? {
            Some(container) => self.take_back(container),
            None => Ok(()),
        }
    }

    fn reapply(&self, _: &mut Session) -> Result<Reapplied, OpError> {
        Ok(Reapplied::NoRules)
    }

    fn words(&self) -> String {
        self.words()
    }

    fn addresses(&self) -> Addresses<'_> {
        // What was lost comes back too, and not after the address was given back.
        let has_none = self.addresses.is_empty() && self.lost_addresses.is_empty();
        if has_none { Addresses::Unconcerned } else { Addresses::Used }
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn record_timing(&self) -> RecordTiming {
        RecordTiming::EachTime
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        None
    }

    fn outlives_boot(&self) -> bool {
        false
    }

    fn needs(&self) -> Need<'_> {
        Need::Container
    }
}

/// Returns the attachment's link of this index, if this run did not make it: what changes it then has to be recorded.
///
/// # Errors
/// The kernel refuses to show it.
pub(crate) fn of_another(session: &Session, index: u32) -> Result<Option<Link>, OpError> {
    if session.has_made_link() {
        return Ok(None);
    }
    session.container_required()?.netlink().map_err(kernel_error)?.link_by_index(index).map_err(kernel_error)
}
