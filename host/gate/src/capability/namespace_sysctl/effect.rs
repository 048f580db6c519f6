//! The effect of a changed kernel setting of the container's namespace.
//!
//! If some settings change, the kernel itself changes other values. A value of `all` is copied to each link, and a link
//! without IPv6 loses its IPv6 addresses and routes. These links may belong to attachments of other networks. So all
//! these changes are noted before, and are undone later.

use crate::capability::leaves::EffectKind;
use crate::capability::shared::write_before;
use crate::context::{Context, Fixed, View};
use crate::errors::kernel_error;
use crate::in_container::{give_back, give_routes, listed_as_far_as_possible, losable, losable_of_all};
use crate::right::Right;
use ipnet::IpNet;
use nix::errno::Errno;
use postern_kernel::Worker;
use postern_kernel::sysctl::Setting;
use postern_types::{ErrorCode, KeptRoute, OpError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A setting, and its value before the change. The change ends with the namespace: no record lists the change, and DEL
/// does not undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceSetting {
    /// The parts of the setting's name below `net`, with slashes between them.
    pub key: String,
    /// The setting's value before the change.
    pub before: String,
    /// Common settings of all links that the kernel changes too: their names as in `key`, and their values before the
    /// change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<(String, String)>,
    /// The links that the kernel changes too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkBefore>,
}

/// The things that the kernel changes on one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkBefore {
    /// The link's index in the container's namespace.
    pub index: u32,
    /// A setting of the link, by protocol and key with a slash between them, and its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<(String, String)>,
    /// The IPv6 addresses that the link can lose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// The IPv6 routes that the link can lose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<KeptRoute>,
}

/// The things that the kernel changes with a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change<'a> {
    /// The link that is changed; `None` stands for all links.
    link: Option<&'a str>,
    /// The setting of the links that is changed, by protocol and key.
    setting: Option<(&'a str, &'a str)>,
    /// True if the setting of the same key below `default` changes, too. `also` names another common setting that
    /// changes.
    default: bool,
    also: Option<&'static str>,
    /// True if links can lose IPv6 addresses or routes.
    loses: bool,
}

/// Returns the things that the kernel changes with a setting; `None` if it changes only the setting itself.
///
/// A setting below `default` of IPv4 needs no entry. The kernel copies it to links without an own value, also when the
/// earlier value is restored.
fn change(path: &str) -> Option<Change<'_>> {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        // The kernel has one value for both settings.
        ["ipv4", "ip_forward"] | ["ipv4", "conf", "all", "forwarding"] => Some(Change {
            setting: Some(("ipv4", "forwarding")),
            default: true,
            also: Some("ipv4/conf/all/accept_redirects"),
            ..Change::default()
        }),
        [
            protocol @ "ipv6",
            "conf",
            "all",
            key
            @ ("disable_ipv6" | "forwarding" | "force_forwarding" | "addr_gen_mode" | "ignore_routes_with_linkdown"),
        ] => Some(Change {
            setting: Some((protocol, key)),
            default: true,
            // A router forgets the default routes of router advertisements.
            loses: matches!(*key, "disable_ipv6" | "forwarding"),
            ..Change::default()
        }),
        ["ipv6", "conf", "default", "stable_secret"] => {
            Some(Change { setting: Some(("ipv6", "addr_gen_mode")), ..Change::default() })
        }
        ["ipv6", "conf", link, "stable_secret"] => {
            Some(Change { link: Some(link), setting: Some(("ipv6", "addr_gen_mode")), ..Change::default() })
        }
        ["ipv6", "conf", link, "disable_ipv6" | "forwarding"] if *link != "default" => {
            Some(Change { link: Some(link), loses: true, ..Change::default() })
        }
        _ => None,
    }
}

/// Returns the value of a setting; `None` if the setting is missing. Root in the container can give a link a name that
/// no setting can have, or remove the link.
fn value(container: &Worker, parts: &[&str]) -> Result<Option<String>, OpError> {
    let Some(setting) = Setting::new(parts.iter().copied()) else { return Ok(None) };
    match container.setting_read(&setting) {
        Err(error) if error.is(Errno::ENOENT) => Ok(None),
        read => read.map(Some).map_err(kernel_error),
    }
}

impl NamespaceSetting {
    /// Returns the note on a setting before its change, with all things that the kernel will change itself.
    pub(crate) fn note(view: View<'_>, key: String, before: String) -> Result<Self, OpError> {
        let (mut beside, mut links) = (Vec::new(), Vec::new());
        if let Some(change) = change(&key) {
            let container = view.system.container_required()?;
            let of_default = change.setting.filter(|_| change.default);
            let of_default = of_default.map(|(protocol, name)| format!("{protocol}/conf/default/{name}"));
            for name in of_default.into_iter().chain(change.also.map(str::to_owned)) {
                if let Some(value) = value(container, &name.split('/').collect::<Vec<_>>())? {
                    beside.push((name, value));
                }
            }
            links = change.links(view.fixed, container)?;
        }
        Ok(Self { key, before, beside, links })
    }

    pub(crate) fn setting(key: &str) -> Result<Setting, OpError> {
        Setting::new(key.split('/'))
            .ok_or_else(|| OpError::new(ErrorCode::InvalidArgument, key, format!("invalid net sysctl key: {key:?}")))
    }
}

impl Change<'_> {
    /// Returns the links that the kernel will change, with their present values.
    fn links(&self, fixed: &Fixed, container: &Worker) -> Result<Vec<LinkBefore>, OpError> {
        let netlink = container.netlink().map_err(kernel_error)?;
        let found = match self.link {
            Some(link) => netlink.link_by_name(link).map_err(kernel_error)?.into_iter().collect(),
            None => netlink.links().map_err(kernel_error)?,
        };
        let lost = match (self.loses, self.link, found.first()) {
            (true, None, _) => losable_of_all(netlink).map_err(kernel_error)?,
            (true, Some(_), Some(own)) => {
                BTreeMap::from([(own.index, losable(netlink, own.index).map_err(kernel_error)?)])
            }
            _ => BTreeMap::new(),
        };
        let mut links = Vec::new();
        for link in found {
            fixed.deadline.in_time()?;
            let setting = match self.setting {
                Some((protocol, key)) => value(container, &[protocol, "conf", &link.name.to_string(), key])?
                    .map(|value| (format!("{protocol}/{key}"), value)),
                None => None,
            };
            let (addresses, routes) = lost.get(&link.index).cloned().unwrap_or_default();
            links.push(LinkBefore { index: link.index, setting, addresses, routes });
        }
        Ok(links)
    }
}

impl EffectKind for NamespaceSetting {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let Some(container) = run.system.container() else { return Ok(()) };
        for (key, before) in std::iter::once((&self.key, &self.before)).chain(self.beside.iter().map(|(k, v)| (k, v))) {
            write_before(container, &key.split('/').collect::<Vec<_>>(), before)?;
        }
        if self.links.is_empty() {
            return Ok(());
        }
        let netlink = container.netlink().map_err(kernel_error)?;
        let there = listed_as_far_as_possible(|| netlink.links())?;
        let names: BTreeMap<u32, String> = there.into_iter().map(|link| (link.index, link.name.to_string())).collect();
        let links = || self.links.iter().filter_map(|link| Some((link, names.get(&link.index)?)));
        for (link, name) in links() {
            run.fixed.deadline.in_time()?;
            if let Some((key, value)) = &link.setting
                && let Some((protocol, key)) = key.split_once('/')
            {
                write_before(container, &[protocol, "conf", name, key], value)?;
            }
        }
        for (link, _) in links() {
            give_back(run, netlink, link.index, (&link.addresses, &link.routes))?;
        }
        // All addresses come before all routes: a route can have an address of a later link as its source.
        links().try_for_each(|(link, _)| give_routes(run.fixed, netlink, link.index, link.routes.iter()))
    }

    fn words(&self) -> String {
        format!("setting net/{} of the container", self.key)
    }

    fn right(&self) -> Right<'_> {
        Right::Network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_changes_beside_a_setting_is_known() {
        for (path, link, loses) in [
            ("ipv4/ip_forward", None, false),
            ("ipv4/conf/all/forwarding", None, false),
            ("ipv6/conf/all/forwarding", None, true),
            ("ipv6/conf/all/disable_ipv6", None, true),
            ("ipv6/conf/all/addr_gen_mode", None, false),
            ("ipv6/conf/eth0/disable_ipv6", Some("eth0"), true),
            ("ipv6/conf/lo/disable_ipv6", Some("lo"), true),
            ("ipv6/conf/eth0/stable_secret", Some("eth0"), false),
        ] {
            let change = change(path).unwrap();
            assert_eq!((change.link, change.loses), (link, loses), "{path}");
        }
        for path in ["core/somaxconn", "ipv4/conf/eth0/forwarding", "ipv6/conf/default/disable_ipv6", "ipv6/conf/all"] {
            assert_eq!(change(path), None, "{path}");
        }
    }
}
