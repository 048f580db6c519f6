//! The data path of an attachment: the container's end and its routes, the bridge with its gateways, the host's routes.
//!
//! The data path is compared with the data path in the record, noted by ADD ([`postern_state::DataPath`]). A record of
//! an earlier version has no data path. Then only the parts are compared that every attachment with addresses needs.

use super::{AGAIN, Account};
use crate::namespaces::LiveNamespace;
use crate::node::is_link_local;
use crate::node_state::NodeState;
use crate::results;
use ipnet::IpNet;
use postern_gate::effect::LinkChange;
use postern_gate::shell::quoted;
use postern_kernel::{Link, LinkAddress};
use postern_state::{DataPath, Header, Section};
use postern_types::Mac;
use std::net::IpAddr;

/// Returns a plugin's data path from the record.
pub(super) fn of<'a>(sections: &'a [Section], plugin: &str) -> Option<&'a DataPath> {
    sections.iter().find(|section| section.name == plugin).map(|section| &section.path)
}

/// Returns the data path of the plugin that made the pair.
pub(super) fn of_pair(account: &Account) -> DataPath {
    let known = account.sections.iter().map(|section| &section.path).find(|path| path.mac.is_some());
    let mut path = known.cloned().unwrap_or_default();
    // A later plugin may have given the link another address.
    let changes = account.effects.iter().filter_map(LinkChange::of);
    if let Some(mac) = changes.filter_map(|change| change.after.mac).next_back() {
        path.mac = Some(mac.to_string());
    }
    path
}

/// Returns a command that runs in the container's namespace, and true. If only a process's path leads to the namespace,
/// returns [`AGAIN`] and false.
fn inside(found: &LiveNamespace, command: &str) -> (String, bool) {
    match found.path.starts_with("/proc") {
        true => (AGAIN.to_owned(), false),
        false => (format!("nsenter --net={} {command}", quoted(&found.path.display().to_string())), true),
    }
}

/// Reads a route of a record: destination and next hop.
fn route(text: &str) -> Option<(IpNet, Option<IpAddr>)> {
    match text.split_once(' ') {
        Some((dst, gateway)) => Some((dst.parse().ok()?, Some(gateway.parse().ok()?))),
        None => Some((text.parse().ok()?, None)),
    }
}

/// Returns the command that switches an IPv6 setting of a link off. Slashes separate the parts of the key, because a
/// link's name may contain a dot.
fn setting(link: &str, key: &str) -> String {
    format!("sysctl -w net/ipv6/conf/{}/{key}=0", quoted(link))
}

/// Returns the commands that switch the link's IPv6 on, if the link needs IPv6 for this address. Each command is
/// followed by `&&`. The kernel switches IPv6 off if `accept_dad` is 2 and another node has the link-local address of
/// this link.
fn able(link: &Link, address: IpAddr) -> String {
    match address.is_ipv6() && link.disable_ipv6 {
        true => {
            let name = link.name.to_string();
            format!("{} && {} && ", setting(&name, "accept_dad"), setting(&name, "disable_ipv6"))
        }
        false => String::new(),
    }
}

/// Reads a gateway of a record: its link and its address.
fn gateway(text: &str) -> Option<(&str, IpNet)> {
    let (link, address) = text.split_once(' ')?;
    Some((link, address.parse().ok()?))
}

impl NodeState {
    /// Compares the bridge of the host end, and the gateways on the host.
    pub(super) fn beyond(&self, account: &mut Account, plugin: &str, end: &Link) {
        let path = of(&account.sections, plugin).cloned().unwrap_or_default();
        match end.master.and_then(|index| self.link_at(index)) {
            Some(master) => self.bridge(account, &path, end, master),
            None if end.master.is_none() && (plugin == "bridge" || path.bridge.is_some()) => {
                // A command can repair only a port without settings such as a VLAN: only ADD knows these settings.
                let bridge = path
                    .bridge
                    .as_deref()
                    .filter(|name| !path.port_settings && self.link(name).is_some_and(|link| link.kind == "bridge"));
                let join =
                    bridge.map(|bridge| format!("ip link set dev {} master {}", quoted(&end.name), quoted(bridge)));
                let is_command = join.is_some();
                let what = format!("the host end {} is a port of no bridge", end.name);
                account.differs(what, join.unwrap_or_else(|| AGAIN.to_owned()), is_command);
            }
            None => {}
        }
        self.gateways(account, &path, end);
        if path.routed || plugin == "ptp" {
            self.host_routes(account, end);
        }
    }

    fn bridge(&self, account: &mut Account, path: &DataPath, end: &Link, master: &Link) {
        // An operator may have renamed the bridge. So the host end counts as a port of another bridge only if bridges
        // of both names exist.
        if let Some(wanted) = path.bridge.as_ref().filter(|wanted| **wanted != master.name)
            && self.link(wanted).is_some()
        {
            let what = format!("the host end {} is a port of {}, and not of {wanted}", end.name, master.name);
            account.differs(what, AGAIN, false);
        }
        if !master.up {
            let remedy = format!("ip link set dev {} up", quoted(&master.name));
            account.differs(format!("{} {} is down", kind(master), master.name), remedy, true);
        }
    }

    fn gateways(&self, account: &mut Account, path: &DataPath, end: &Link) {
        let host = self.namespaces.by_cookie(self.here).filter(|host| host.unread.is_none());
        for (name, address) in path.gateways.iter().filter_map(|text| gateway(text)) {
            let (Some(host), Some(link)) = (host, self.link(name)) else {
                // If the bridge is gone, the port was reported already.
                if host.is_some() && path.bridge.as_deref() != Some(name) && end.name != name {
                    account.differs(format!("{name}, which had the gateway {address}, is gone"), AGAIN, false);
                }
                continue;
            };
            if !link.up && Some(link.index) != end.master && link.index != end.index {
                let remedy = format!("ip link set dev {} up", quoted(name));
                account.differs(format!("{name}, which has the gateway, is down"), remedy, true);
            }
            let add = format!("{}ip address add {address} dev {}", able(link, address.addr()), quoted(name));
            match host.addresses.iter().find(|(index, have)| *index == link.index && have.net == address) {
                None => account.differs(format!("{name} does not have the gateway {address}"), add, true),
                Some((_, have)) if have.dad_failed => {
                    let what = format!(
                        "the gateway {address} on {name} is not used: another machine on the link claims it (dadfailed)"
                    );
                    let remedy = format!("ip address delete {address} dev {} && {add} nodad", quoted(name));
                    account.differs(what, remedy, true);
                }
                Some(_) => {}
            }
            let is_failed =
                |have: &LinkAddress| have.dad_failed && have.net != address && is_link_local(have.net.addr());
            if address.addr().is_ipv6()
                && let Some((_, have)) =
                    host.addresses.iter().find(|(index, have)| *index == link.index && is_failed(have))
            {
                let (link, local) = (quoted(name), have.net);
                let what = format!(
                    "{name} does not use its address {local}: another machine on the link claims it (dadfailed)"
                );
                let remedy = format!(
                    "{} && ip address delete {local} dev {link} && ip address add {local} dev {link} nodad",
                    setting(name, "accept_dad")
                );
                account.differs(what, remedy, true);
            }
        }
    }

    /// Compares the host's route to each address of a routed pair.
    fn host_routes(&self, account: &mut Account, end: &Link) {
        for address in account.addresses.clone() {
            match self.host.link_towards(address.addr()) {
                Ok(towards) if towards == Some(end.index) => {}
                Ok(_) => {
                    let what = format!("packets of this node to {} do not go to {}", address.addr(), end.name);
                    // The command is not `replace`, because a route to another link may belong to another container.
                    let remedy = format!("ip route add {} dev {}", IpNet::from(address.addr()), quoted(&end.name));
                    account.differs(what, remedy, true);
                }
                Err(reason) => account.fact("", "route", format!("can't be looked at: {reason}")),
            }
        }
    }

    /// Returns the MAC address that the container's end should have: the address from its creation, or an address from
    /// a later plugin.
    pub(super) fn expected_mac(&self, header: &Header, path: &DataPath, have: Option<[u8; 6]>) -> Option<Mac> {
        let made = path.mac.as_ref().and_then(|text| text.parse::<Mac>().ok());
        let have = have.map(Mac);
        match made {
            Some(made) if have != Some(made) => {
                let changed = have.filter(|have| results::was_told(header, *have));
                Some(changed.unwrap_or(made))
            }
            _ => have,
        }
    }

    /// Compares the container's end and its routes.
    pub(super) fn container_end(&self, account: &mut Account, header: &Header, found: &LiveNamespace, own: &Link) {
        let path = of_pair(account);
        let name = quoted(&own.name);
        if let Some(wanted) = self.expected_mac(header, &path, own.mac)
            && own.mac != Some(wanted.0)
        {
            let have = own.mac.map_or_else(|| "no address".to_owned(), |mac| format!("address {}", Mac(mac)));
            let what = format!("{} in the container has {have}, and was given {wanted}", own.name);
            let (remedy, is_command) = inside(found, &format!("ip link set dev {name} address {wanted}"));
            account.differs(what, remedy, is_command);
        }
        if !own.up && (path.up || !account.addresses.is_empty()) {
            let (remedy, is_command) = inside(found, &format!("ip link set dev {name} up"));
            account.differs(format!("{} in the container is down", own.name), remedy, is_command);
        }
        self.container_routes(account, &path, found, own);
    }

    fn container_routes(&self, account: &mut Account, path: &DataPath, found: &LiveNamespace, own: &Link) {
        let Some(routes) = &found.routes else {
            return account.fact("", "routes", "there are too many to look at");
        };
        // Routes in every table count: a later plugin may have moved a route to another table (sbr, vrf).
        let have = |dst: IpNet, gateway: Option<IpAddr>| {
            routes.iter().any(|(index, route)| {
                *index == own.index && route.dst == dst && (gateway.is_none() || route.gateway == gateway)
            })
        };
        let shown: Vec<String> = path.routes.iter().take(SHOWN).map(|route| route.replace(' ', " via ")).collect();
        if !shown.is_empty() {
            let more = if path.routes.len() > SHOWN { ", …" } else { "" };
            account.fact("", "routes", format!("{}{more}", shown.join(", ")));
        }
        for (dst, gateway) in path.routes.iter().filter_map(|text| route(text)) {
            if have(dst, gateway) {
                continue;
            }
            let via = gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            let what = format!("the container has no route to {dst}{via} through {}", own.name);
            // A route without a next hop uses the gateway of the result, if there is exactly one gateway.
            let all: Vec<IpAddr> =
                path.gateways.iter().filter_map(|text| Some(self::gateway(text)?.1.addr())).collect();
            let mut hops =
                gateway.into_iter().chain(all.into_iter().filter(|hop| hop.is_ipv4() == dst.addr().is_ipv4()));
            let (remedy, is_command) = match (hops.next(), gateway.is_some() || hops.next().is_none()) {
                (Some(hop), true) => inside(found, &format!("ip route add {dst} via {hop} dev {}", quoted(&own.name))),
                _ => (AGAIN.to_owned(), false),
            };
            account.differs(what, remedy, is_command);
        }
        if !own.up {
            // The kernel makes the routes to the link's own networks when the link is set up.
            return;
        }
        for address in account.addresses.clone() {
            let network = address.trunc();
            let is_whole = address.prefix_len() == address.max_prefix_len();
            let is_there = found.addresses.iter().any(|(index, have)| *index == own.index && have.net == address);
            if is_whole || !is_there || have(network, None) {
                continue;
            }
            let what = format!("the container has no route to its own network {network} through {}", own.name);
            let (remedy, is_command) = match path.bridge.is_some() {
                true => {
                    inside(found, &format!("ip route add {network} dev {} src {}", quoted(&own.name), address.addr()))
                }
                // A routed pair has this route through its gateway: no simple command makes the route again.
                false => (AGAIN.to_owned(), false),
            };
            account.differs(what, remedy, is_command);
        }
    }
}

/// The largest number of routes, and of addresses, that are shown.
pub(super) const SHOWN: usize = 8;

/// Returns the name of a master's kind.
fn kind(link: &Link) -> &str {
    if link.kind == "bridge" { "the bridge" } else { "the master" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_record_says_is_read_as_addresses_only() {
        assert_eq!(route("10.0.0.0/8"), Some(("10.0.0.0/8".parse().unwrap(), None)));
        let default = route("0.0.0.0/0 10.9.0.1");
        assert_eq!(default, Some(("0.0.0.0/0".parse().unwrap(), Some("10.9.0.1".parse().unwrap()))));
        for bad in ["", "x", "0.0.0.0/0 ; reboot", "0.0.0.0/0 via 10.9.0.1", " 10.9.0.1"] {
            assert_eq!(route(bad), None, "{bad}");
        }
        assert_eq!(gateway("br9 10.9.0.1/24"), Some(("br9", "10.9.0.1/24".parse().unwrap())));
        for bad in ["", "br9", "br9 x", "br 9 10.9.0.1/24"] {
            assert_eq!(gateway(bad), None, "{bad}");
        }
    }
}
