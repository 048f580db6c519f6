//! An account of the node for `postern ls`, `show` and `doctor`: the records compared with the kernel.
//!
//! This code only reads: it makes no object, and keeps no lock. The container controls much of the data: its links, its
//! addresses, and the names of its files. So a caller must make the data safe for a terminal before it prints them.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

mod own;
mod path;

use crate::alive::{HostConnection, host_connection, is_alive};
use crate::attachment::{AGAIN, Account, OnHost, State, WRITER};
use crate::busy;
use crate::namespaces::LiveNamespace;
use crate::node_state::NodeState;
use ipnet::IpNet;
use nix::sys::stat::lstat;
use postern_gate::capability::leaves::EffectKind;
use postern_gate::effect::{Effect, Lease, LoopbackUp, Masquerade, Native, Port, Veth};
use postern_gate::shell::quoted;
use postern_kernel::Link;
use postern_state::{Header, RecordKey, Section, Stage, Summary};
use postern_types::Mac;
use std::path::Path;

/// The text for a runtime that used native plugins for a while. The effects in the record no longer exist. The record
/// doesn't list the container's present objects. So no command may change the node to match the record, or the record
/// to match the node.
const REPLACED: &str =
    "a program that writes no records has attached the container anew: the record lists objects that are gone";
/// The text for a DEL by native plugins. If only the link had been deleted, its lease and its rules would still exist.
const DETACHED: &str = "a program that writes no records has detached the container: link, leases and rules are gone";

impl NodeState {
    /// Returns an account of each attachment of this host's namespace, and of the records that can't be read.
    pub fn accounts(&self, records: Vec<Summary>) -> Vec<Account> {
        let is_ours = |summary: &Summary| {
            summary.header.as_ref().is_none_or(|head| head.host_netns_cookie == self.here || head.boot_id != self.boot)
        };
        let accounts = records.into_iter().filter(is_ours).map(|summary| self.account(summary));
        // A record that was removed meanwhile is not compared.
        let there = accounts.filter(|account| lstat(&account.path).is_ok());
        there.map(|account| self.unless_made_again(account)).collect()
    }

    fn account(&self, summary: Summary) -> Account {
        let Summary { path, key, header, effects, sections, problems, is_of_other_version, unread: _ } = summary;
        let mut account = Account {
            path,
            header,
            sections,
            effects: Vec::new(),
            addresses: Vec::new(),
            state: State::Ok,
            is_held: false,
            holders: Vec::new(),
            doubt: None,
            facts: Vec::new(),
            deviations: Vec::new(),
            unseen: Vec::new(),
            on_host: OnHost::default(),
        };
        let mut noted = Vec::new();
        for effect in effects {
            match serde_json::from_value::<Effect>(effect.effect) {
                Ok(known) => noted.push((effect.section, known)),
                Err(error) => account.differs(format!("an effect of the record is not known: {error}"), WRITER, false),
            }
        }
        let is_damaged = account.header.is_none() || key.is_none();
        for problem in problems {
            let remedy = if is_of_other_version { WRITER.to_owned() } else { by_hand(&account.path, is_damaged) };
            account.differs(format!("{}: {problem}", account.path.display()), remedy, false);
        }
        account.addresses = addresses(&account.sections, &noted);
        account.effects = noted.iter().map(|(_, effect)| effect.clone()).collect();
        let header = match (account.header.clone(), &key) {
            (Some(header), Some(key)) if !is_damaged => {
                account.is_held = self.is_held(key);
                header
            }
            _ => {
                account.state = State::Damaged;
                return account;
            }
        };
        if header.boot_id != self.boot {
            account.state = State::PreviousBoot;
            account.is_left("it was made before the machine was last started");
            return account;
        }
        let container = header.netns_cookie.and_then(|cookie| self.namespaces.by_cookie(cookie));
        let pair = self.pair(&noted);
        for (plugin, effect) in &noted {
            self.compare(&mut account, &header, plugin, effect, container);
        }
        self.inside(&mut account, &header, container, pair);
        let mut is_replaced = false;
        let seen = container.filter(|found| found.unread.is_none()).map(|found| found.links.as_slice());
        let is_released = account.is_released();
        let is_lost = noted.iter().any(|(_, effect)| own::is_lost_link(effect, &self.links, seen));
        if is_lost {
            // Only a DEL and a new ADD make a link again. Before that, a restored lease or address would have no user.
            account.deviations.retain(|deviation| !deviation.is_command);
        }
        let what = match (is_lost, is_released) {
            (true, _) if self.has_other_link(&header, container) => Some(REPLACED),
            (true, true) => Some(DETACHED),
            // A link without a host end is known only by its kind. A link that another program made again has other
            // addresses.
            (false, true) if has_other_addresses(&account, &header, container) => Some(REPLACED),
            _ => None,
        };
        if let Some(what) = what {
            account.deviations.retain(|deviation| deviation.remedy == WRITER);
            is_replaced = account.deviations.is_empty();
            account.differs(what, "nothing has to be done: the container's next DEL clears the record", false);
        }
        account.state = self.state(&mut account, &header);
        if is_replaced && account.state == State::Drift {
            account.state = State::Replaced;
        }
        if account.is_held {
            self.stuck(&mut account);
        }
        account
    }

    /// Reports a run that takes too long, with the processes that hold its record.
    fn stuck(&self, account: &mut Account) {
        let Ok(stat) = lstat(&account.path) else { return };
        account.holders = self.busy.get(&(stat.st_dev, stat.st_ino)).cloned().unwrap_or_default();
        let Some(first) = account.holders.iter().min_by_key(|holder| holder.since).cloned() else { return };
        if first.age < busy::PATIENCE {
            return;
        }
        let stage = account.sections.iter().map(|section| section.stage).find(|stage| *stage != Stage::Given);
        let run = match (first.verb(), stage) {
            (Some(verb), _) => verb.to_owned(),
            (None, Some(Stage::Ending)) => "DEL".to_owned(),
            (None, Some(_)) => "ADD".to_owned(),
            (None, None) => "run".to_owned(),
        };
        let what = format!("its {run} does not end: {}", busy::words(&account.holders, "its record"));
        // Differences in the middle of a run are no drift.
        account.deviations.clear();
        account.differs(what, busy::remedy(&account.holders), true);
        account.state = State::Stuck;
    }

    /// Discards the deviations if a run holds the record by now: the run may have removed the record and made it again.
    fn unless_made_again(&self, mut account: Account) -> Account {
        let key = account.header.as_ref().map(Header::key);
        if account.state == State::Drift && key.is_some_and(|key| self.is_held(&key)) {
            account.is_held = true;
            account.state = State::Incomplete;
            account.deviations.clear();
        }
        account
    }

    /// True if a living process holds a record's lock, or held the lock since this account began. A record whose lock
    /// can't be tested counts as idle.
    fn is_held(&self, key: &RecordKey) -> bool {
        postern_state::is_busy(&self.places.state, key, self.started).unwrap_or(false)
    }

    /// Returns the host end of the pair in the record.
    fn pair(&self, effects: &[(String, Effect)]) -> Option<&Link> {
        let mut pairs = effects.iter().filter_map(|(_, effect)| Veth::of(effect));
        pairs.find_map(|pair| self.link(&pair.host).filter(|link| pair.is_end(link)))
    }

    /// True if the container's link with the attachment's interface name leads to the host. If the link in the record
    /// is gone, a program that writes no records has attached the container again. (`Session::compare_with_kernel`
    /// makes this test for one run.)
    fn has_other_link(&self, header: &Header, container: Option<&LiveNamespace>) -> bool {
        let own = container.and_then(|found| found.links.iter().find(|link| link.name == header.ifname));
        own.is_some_and(|own| host_connection(&self.links, own) != HostConnection::Nowhere)
    }

    fn state(&self, account: &mut Account, header: &Header) -> State {
        let unfinished = account.sections.iter().find(|section| section.stage != Stage::Given);
        let alive = is_alive(header, &account.effects, &self.links, &self.namespaces);
        if alive != Ok(true) {
            account.deviations.retain(|deviation| deviation.remedy == WRITER);
            account.doubt = alive.err();
            let doubt: String =
                account.doubt.iter().map(|gap| format!(", or can't be found from here: {gap}")).collect();
            let what = match account.is_released() {
                true => format!("its leases and rules are gone, and so is its network namespace{doubt}"),
                false => format!("its network namespace is gone{doubt}"),
            };
            match account.doubt {
                Some(_) => {
                    account.differs(what, "run `postern gc` as root on the host, in the host's PID namespace", false)
                }
                None => account.is_left(what),
            }
            return State::ContainerGone;
        }
        if let Some(section) = unfinished {
            let verb = if section.stage == Stage::Ending { "DEL" } else { "ADD" };
            let what = format!("the {verb} of {} was killed before it ended", section.plugin());
            if !account.is_held {
                account.is_left(what);
            }
            return State::Incomplete;
        }
        match account.deviations.is_empty() {
            true => State::Ok,
            // A DEL that has just begun may have removed an effect and not yet noted the removal.
            false if account.is_held => State::Incomplete,
            false => State::Drift,
        }
    }

    fn compare(
        &self,
        account: &mut Account,
        header: &Header,
        plugin: &str,
        effect: &Effect,
        container: Option<&LiveNamespace>,
    ) {
        match effect {
            Effect::Veth(Veth { host, mac }) => self.host_end(account, plugin, host, *mac),
            Effect::Macvlan(made) => self.inner(account, header, plugin, &made.0, container),
            Effect::InnerLink(made) => self.inner(account, header, plugin, made, container),
            Effect::Device(device) => {
                let from = device.device.as_ref().map(|(bus, name)| format!(", {bus} {name}")).unwrap_or_default();
                account.fact(plugin, "device", format!("{} of this node{from}, is {}", device.name, header.ifname));
                if self.links.iter().any(|link| link.name == device.name && device.is_same(link)) {
                    let what = format!("the device {} is on the host, and not in the container", device.name);
                    account.differs(what, AGAIN, false);
                }
            }
            Effect::Masquerade(made) => self.masquerading(account, plugin, made),
            Effect::PortMappings(forwards) => self.port_mappings(account, plugin, forwards),
            Effect::Firewall(forwarded) => self.forwarded(account, plugin, forwarded),
            Effect::Isolation(isolation) => self.isolated(account, plugin, isolation),
            Effect::Bandwidth(limits) => self.limited(account, plugin, limits),
            Effect::MacGuard(guard) => self.guard(account, header, plugin, guard, container),
            Effect::Lease(Lease { directory }) => self.lease(account, header, plugin, Path::new(directory)),
            Effect::Native(Native { plugin: native, config: _ }) => {
                account.fact(plugin, "native IPAM", format!("{native} was run; its effects are unknown"));
            }
            Effect::Port(port) => self.port(account, plugin, port),
            Effect::LinkChange(change) => self.changed(account, plugin, change, container),
            Effect::Delegated(delegated) => {
                let of_native = if delegated.native { "; its effects are unknown" } else { "" };
                account.fact(plugin, "delegate", format!("{} was run{of_native}", delegated.plugin));
            }
            Effect::Dhcp(lease) => self.dhcp(account, header, plugin, lease),
            Effect::Vrf(vrf) => self.in_vrf(account, plugin, vrf, container),
            Effect::SourceRoutes(routing) => self.routed_by_source(account, plugin, routing, container),
            Effect::LinkState(changed) => account.fact(plugin, "link", changed.words()),
            // No record lists these effects.
            Effect::LoopbackUp(LoopbackUp {}) | Effect::NamespaceSetting(_) => {}
        }
    }

    fn host_end(&self, account: &mut Account, plugin: &str, name: &str, mac: Mac) {
        let Some(link) = self.link(name) else {
            account.fact(plugin, "host end", format!("{name} is gone"));
            return account.differs(format!("the host end {name} is gone, and with it the pair"), AGAIN, false);
        };
        let address = link.mac.map_or_else(|| "no address".to_owned(), |mac| Mac(mac).to_string());
        let master = link.master.map(|index| match self.link_at(index) {
            Some(master) => format!(", port of {}", master.name),
            None => format!(", port of link {index}"),
        });
        let up = if link.up { "up" } else { "down" };
        let master = master.unwrap_or_default();
        account.fact(plugin, "host end", format!("{name}, {address}, index {}, {up}{master}", link.index));
        if link.kind != "veth" {
            account.differs(format!("{name} is no veth, and does not belong to this attachment"), AGAIN, false);
        } else if link.mac != Some(mac.0) {
            let remedy = format!("ip link set dev {} address {mac}", quoted(name));
            account.differs(format!("the host end {name} has address {address}, and was given {mac}"), remedy, true);
        }
        if !link.up {
            account.differs(
                format!("the host end {name} is down"),
                format!("ip link set dev {} up", quoted(name)),
                true,
            );
        }
        self.beyond(account, plugin, link);
    }

    /// Compares a link that another plugin made and that is a port of a bridge.
    fn port(&self, account: &mut Account, plugin: &str, port: &Port) {
        let (name, bridge) = (&port.name, &port.bridge);
        let Some(link) = self.link_at(port.index) else {
            account.fact(plugin, "port", format!("{name} is gone"));
            return account.differs(format!("the port {name}, made by another plugin, is gone"), AGAIN, false);
        };
        let up = if link.up { "up" } else { "down" };
        let is_port = link.master == Some(port.master);
        let of = if is_port { format!("port of {bridge}") } else { format!("no port of {bridge}") };
        account.fact(plugin, "port", format!("{}, index {}, {up}, {of}", link.name, link.index));
        if !is_port {
            account.differs(format!("{} is no longer a port of {bridge}", link.name), AGAIN, false);
        } else if !link.up {
            let remedy = format!("ip link set dev {} up", quoted(&link.name));
            account.differs(format!("the port {} is down", link.name), remedy, true);
        }
        if is_port {
            self.beyond(account, plugin, link);
        }
    }

    /// Compares the content of the container's namespace.
    fn inside(&self, account: &mut Account, header: &Header, container: Option<&LiveNamespace>, pair: Option<&Link>) {
        let Some(found) = container else {
            if pair.is_some() && header.netns_cookie.is_some() {
                account.fact(
                    "",
                    "container",
                    "the container's namespace can't be found from here, but is alive, since the pair exists",
                );
            }
            return;
        };
        if let Some(reason) = &found.unread {
            return account.fact("", "container", format!("can't be looked at: {reason}"));
        }
        let Some(own) = found.links.iter().find(|link| link.name == header.ifname) else {
            account.fact("", "container", format!("{} has no link {}", found.path.display(), header.ifname));
            // Without the pair, nothing is expected in the container, and the missing pair was reported before. If
            // another plugin made the link, any content is valid.
            let joined = account.effects.iter().any(|effect| Port::of(effect).is_some());
            if !joined && (pair.is_some() || !account.effects.iter().any(|effect| Veth::of(effect).is_some())) {
                account.differs(format!("the container has no link {}", header.ifname), AGAIN, false);
            }
            return;
        };
        let have: Vec<IpNet> =
            found.addresses.iter().filter(|(index, _)| *index == own.index).map(|(_, have)| have.net).collect();
        let mut shown: Vec<String> = have.iter().take(path::SHOWN).map(ToString::to_string).collect();
        if have.len() > path::SHOWN {
            shown.push(format!("and {} more", have.len().saturating_sub(path::SHOWN)));
        }
        let mac = own.mac.map(|mac| format!(", {}", Mac(mac))).unwrap_or_default();
        let up = if own.up { "up" } else { "down" };
        let users = match found.processes {
            0 => "no process is in it".to_owned(),
            1 => "1 process is in it".to_owned(),
            many => format!("{many} processes are in it"),
        };
        let path = found.path.display();
        account.fact("", "container", format!("{}{mac}, {up}: {} ({path}, {users})", own.name, shown.join(", ")));
        if let Some(pair) = pair
            && pair.peer_index != Some(own.index)
        {
            let what = format!("{} in the container is not the other end of {}", own.name, pair.name);
            account.differs(what, AGAIN, false);
        }
        for address in account.addresses.clone().iter().filter(|address| !have.contains(address)) {
            let remedy = match found.path.starts_with("/proc") {
                true => AGAIN.to_owned(),
                false => format!(
                    "nsenter --net={} ip address add {address} dev {}",
                    quoted(&found.path.display().to_string()),
                    quoted(&own.name)
                ),
            };
            let is_command = !found.path.starts_with("/proc");
            account.differs(format!("{} in the container does not have {address}", own.name), remedy, is_command);
        }
        self.container_end(account, header, found, own);
    }
}

/// True if the container's link has addresses, but no address of the record.
fn has_other_addresses(account: &Account, header: &Header, container: Option<&LiveNamespace>) -> bool {
    let Some(found) = container else { return false };
    let Some(own) = found.links.iter().find(|link| link.name == header.ifname) else { return false };
    let have = found.addresses.iter().filter(|(index, _)| *index == own.index).map(|(_, have)| have.net);
    let global: Vec<IpNet> = have.filter(|have| !is_link_local(have)).collect();
    !global.is_empty() && !account.addresses.iter().any(|address| global.contains(address))
}

/// True for an address that the kernel, or the container, chooses itself.
fn is_link_local(address: &IpNet) -> bool {
    match address {
        IpNet::V4(address) => address.addr().is_link_local(),
        IpNet::V6(address) => address.addr().is_unicast_link_local(),
    }
}

/// Returns the remedy for a damaged record. No other file lists the record's effects. A record with some unreadable
/// lines still belongs to its attachment.
fn by_hand(path: &Path, is_lost: bool) -> String {
    let file = quoted(&path.display().to_string());
    match is_lost {
        true => format!("read the record, `cat {file}`, and remove the objects in it; then `rm {file}`"),
        false => format!("read the damaged line, `cat {file}`: DEL does not remove the object in this line"),
    }
}

/// Returns the addresses of an attachment: the addresses in its sections, or else the masqueraded addresses.
fn addresses(sections: &[Section], effects: &[(String, Effect)]) -> Vec<IpNet> {
    let mut addresses: Vec<IpNet> =
        sections.iter().flat_map(|section| &section.addresses).filter_map(|text| text.parse().ok()).collect();
    if addresses.is_empty() {
        for (_, effect) in effects {
            if let Some(Masquerade { addresses: masqueraded, .. }) = Masquerade::of(effect) {
                addresses.extend(masqueraded);
            }
        }
    }
    let mut seen = Vec::new();
    addresses.retain(|address| {
        !seen.contains(address) && {
            seen.push(*address);
            true
        }
    });
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_types::Backend;

    #[test]
    fn addresses_are_those_of_sections_or_else_of_rules() {
        let address = |text: &str| text.parse::<IpNet>().unwrap();
        let rules =
            Masquerade { backend: Backend::Nftables, variant: None, addresses: vec![address("10.0.0.2/24")] }.into();
        let effects = vec![("bridge".to_owned(), rules)];
        assert_eq!(addresses(&[], &effects), [address("10.0.0.2/24")]);
        let section = Section {
            name: "bridge".to_owned(),
            config: None,
            made_link: true,
            joined: false,
            digest: String::new(),
            begun: 1,
            stage: Stage::Given,
            since: 1,
            addresses: vec!["10.0.0.3/24".to_owned(), "nonsense".to_owned(), "10.0.0.3/24".to_owned()],
            path: postern_state::DataPath::default(),
            note: None,
        };
        assert_eq!(addresses(&[section], &effects), [address("10.0.0.3/24")]);
    }
}
