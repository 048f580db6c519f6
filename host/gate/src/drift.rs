//! What the records say beside what the kernel has: an account of the node for `postern ls`, `show` and `doctor`.
//!
//! Reading only: nothing is made, no lock is kept. Much of what is looked at (links and addresses in a container, the
//! names of its files) is the container's to choose: whoever prints it makes it fit for a terminal.

pub use crate::shell::quoted;

use crate::alive::is_alive;
use crate::capability::mac_guard;
use crate::effect::Effect;
use crate::sight::Sight;
use ipnet::IpNet;
use postern_firewall::MasqueradeKey;
use postern_kernel::{Found, Link};
use postern_state::{Header, Owner, RecordKey, Section, Stage, Summary};
use postern_types::{Backend, Mac};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// How it is with an attachment, the worst that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Record and kernel agree.
    Ok,
    /// Its ADD, or its DEL, has not ended.
    Incomplete,
    /// Its network namespace is not there any more.
    ContainerGone,
    /// It was made before the machine was started: nothing of it is left in the kernel.
    PreviousBoot,
    /// Record and kernel differ.
    Drift,
    /// Its record can't be read.
    Damaged,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Incomplete => "incomplete",
            Self::ContainerGone => "container gone",
            Self::PreviousBoot => "previous boot",
            Self::Drift => "drift",
            Self::Damaged => "damaged",
        })
    }
}

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deviation {
    /// What the record says and what there is.
    pub what: String,
    /// The way out: a command where there is one.
    pub remedy: String,
    /// Whether the remedy is a command.
    pub is_command: bool,
}

/// One effect of the record, and what there is of it.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// The plugin that caused it.
    pub plugin: String,
    /// What it is: `host end`, `leases`, `masquerading`, …
    pub kind: &'static str,
    /// What there is, in words.
    pub found: String,
}

/// An attachment by its record.
#[derive(Clone, Debug)]
pub struct Account {
    /// The record's file.
    pub path: PathBuf,
    /// Whose it is; `None` if that can't be read.
    pub header: Option<Header>,
    /// The plugins that were called for it, and how far they got.
    pub sections: Vec<Section>,
    /// What they left.
    pub effects: Vec<Effect>,
    /// Its addresses, by its sections or else by its effects.
    pub addresses: Vec<IpNet>,
    /// How it is.
    pub state: State,
    /// A living process is at work on it.
    pub is_held: bool,
    /// Why its namespace may be alive nevertheless, if its state is [`State::ContainerGone`].
    pub doubt: Option<String>,
    /// Effect by effect, what there is.
    pub facts: Vec<Fact>,
    /// Where the two differ.
    pub deviations: Vec<Deviation>,
}

impl Account {
    /// The key of its masquerading rules.
    pub fn masquerade_key(&self) -> Option<MasqueradeKey> {
        self.header.as_ref().map(|header| MasqueradeKey {
            network: header.network.clone(),
            container_id: header.container_id.clone(),
            ifname: header.ifname.clone(),
        })
    }

    /// What the rules of its spoofing protection can be named after.
    pub fn guard_ids(&self) -> Vec<String> {
        self.header.as_ref().map(mac_guard::ids).into_iter().flatten().collect()
    }

    fn differs(&mut self, what: impl Into<String>, remedy: impl Into<String>, is_command: bool) {
        self.deviations.push(Deviation { what: what.into(), remedy: remedy.into(), is_command });
    }

    /// Nobody uses it any more: garbage for who knows all of its record.
    fn is_left(&mut self, what: impl Into<String>) {
        let is_known = self.deviations.iter().all(|deviation| deviation.remedy != WRITER);
        self.differs(what, if is_known { COLLECT } else { WRITER }, is_known);
    }

    fn fact(&mut self, plugin: &str, kind: &'static str, found: impl Into<String>) {
        self.facts.push(Fact { plugin: plugin.to_owned(), kind, found: found.into() });
    }
}

/// What helps where no command can: the runtime knows the configuration, the record does not.
const AGAIN: &str = "start the container again, so that its runtime calls DEL and ADD";
/// What helps where nobody uses the attachment any more.
const COLLECT: &str = "postern gc";
/// What helps where a record tells of what this version does not know: neither DEL nor `postern gc` removes that.
const WRITER: &str = "use the version of postern that wrote it";

impl Sight {
    /// An account of each attachment of this host's namespace, and of the records that can't be read.
    pub fn accounts(&self, records: Vec<Summary>) -> Vec<Account> {
        let is_ours = |summary: &Summary| {
            summary.header.as_ref().is_none_or(|head| head.host_netns_cookie == self.here || head.boot_id != self.boot)
        };
        let accounts = records.into_iter().filter(is_ours).map(|summary| self.account(summary));
        // Of one that has been removed meanwhile nothing is left to compare.
        let there = accounts.filter(|account| account.path.symlink_metadata().is_ok());
        there.map(|account| self.unless_made_again(account)).collect()
    }

    fn account(&self, summary: Summary) -> Account {
        let Summary { path, key, header, effects, sections, problems, is_of_other_version } = summary;
        let mut account = Account {
            path,
            header,
            sections,
            effects: Vec::new(),
            addresses: Vec::new(),
            state: State::Ok,
            is_held: false,
            doubt: None,
            facts: Vec::new(),
            deviations: Vec::new(),
        };
        let mut noted = Vec::new();
        for effect in effects {
            match serde_json::from_value::<Effect>(effect.effect) {
                Ok(known) => noted.push((effect.plugin, known)),
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
        account.state = self.state(&mut account, &header);
        account
    }

    /// A record that was removed while it was compared may have been made again by now: then it is another one.
    fn unless_made_again(&self, mut account: Account) -> Account {
        let key = account.header.as_ref().map(Header::key);
        if account.state == State::Drift && key.is_some_and(|key| self.is_held(&key)) {
            account.is_held = true;
            account.state = State::Incomplete;
            account.deviations.clear();
        }
        account
    }

    /// Whether a living process is at work on a record, or has been since this look began; one whose lock can't be asked
    /// for is taken as idle.
    fn is_held(&self, key: &RecordKey) -> bool {
        postern_state::is_busy(&self.places.state, key, self.started).unwrap_or(false)
    }

    /// The host end of the pair that the record tells of.
    fn pair(&self, effects: &[(String, Effect)]) -> Option<&Link> {
        effects.iter().find_map(|(_, effect)| match effect {
            Effect::Veth { host, mac } => self.link(host).filter(|link| link.kind == "veth" && link.mac == Some(mac.0)),
            _ => None,
        })
    }

    fn state(&self, account: &mut Account, header: &Header) -> State {
        let unfinished = account.sections.iter().find(|section| section.stage != Stage::Given);
        let alive = is_alive(header, &account.effects, &self.links, &self.namespaces);
        if alive != Ok(true) {
            account.deviations.retain(|deviation| deviation.remedy == WRITER);
            account.doubt = alive.err();
            let doubt = account.doubt.iter().map(|gap| format!(", or can't be found from here: {gap}"));
            let what = format!("its network namespace is gone{}", doubt.collect::<String>());
            account.is_left(what);
            return State::ContainerGone;
        }
        if let Some(section) = unfinished {
            let verb = if section.stage == Stage::Ending { "DEL" } else { "ADD" };
            let what = format!("the {verb} of {} was killed before it ended", section.plugin);
            if !account.is_held {
                account.is_left(what);
            }
            return State::Incomplete;
        }
        match account.deviations.is_empty() {
            true => State::Ok,
            // A DEL that has just begun has removed something, and not yet said so.
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
        container: Option<&Found>,
    ) {
        match effect {
            Effect::Veth { host, mac } => self.host_end(account, plugin, host, *mac),
            Effect::Masquerade { backend, addresses } => self.masquerading(account, plugin, *backend, addresses),
            Effect::MacGuard { id, .. } => self.guard(account, header, plugin, id.clone(), container),
            Effect::Lease { directory } => self.lease(account, header, plugin, Path::new(directory)),
            Effect::Native { plugin: native, .. } => {
                account.fact(plugin, "native IPAM", format!("{native} was run; only it knows what it did"));
            }
            Effect::LoopbackUp => {}
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
            account.differs(format!("{name} is no veth, and not this attachment's"), AGAIN, false);
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
        if plugin == "bridge" && link.master.is_none() {
            let bridge = self.bridge_of(&account.addresses);
            let remedy =
                bridge.map(|bridge| format!("ip link set dev {} master {}", quoted(name), quoted(&bridge.name)));
            let is_command = remedy.is_some();
            let remedy = remedy.unwrap_or_else(|| AGAIN.to_owned());
            account.differs(format!("the host end {name} is a port of no bridge"), remedy, is_command);
        }
    }

    /// A bridge that has an address in the network of one of these.
    fn bridge_of(&self, addresses: &[IpNet]) -> Option<&Link> {
        let host = self.namespaces.by_cookie(self.here)?;
        let (index, _) = host.addresses.iter().find(|(index, have)| {
            let is_bridge = self.link_at(*index).is_some_and(|link| link.kind == "bridge");
            is_bridge && addresses.iter().any(|address| address.contains(&have.net.addr()))
        })?;
        self.link_at(*index)
    }

    fn masquerading(&self, account: &mut Account, plugin: &str, backend: Backend, addresses: &[IpNet]) {
        let Some(key) = account.masquerade_key() else { return };
        for address in addresses {
            let (name, present) = match backend {
                Backend::Nftables => (
                    "nftables",
                    self.rules().and_then(|rules| rules.masquerade(&key, &[*address]).map_err(|e| e.to_string())),
                ),
                Backend::Iptables => (
                    "iptables",
                    self.iptables().and_then(|tables| tables.has(&key, &[*address]).map_err(|e| e.to_string())),
                ),
            };
            let found = match present {
                Ok(true) => format!("{} by {name}", address.addr()),
                Ok(false) => {
                    let what = format!("{} is not masqueraded: its rules in {name} are gone", address.addr());
                    account.differs(what, AGAIN, false);
                    format!("{} by {name}: its rules are gone", address.addr())
                }
                Err(reason) => format!("{} by {name}: can't be looked at: {reason}", address.addr()),
            };
            account.fact(plugin, "masquerading", found);
        }
    }

    fn guard(
        &self,
        account: &mut Account,
        header: &Header,
        plugin: &str,
        id: Option<String>,
        container: Option<&Found>,
    ) {
        let host = account.effects.iter().find_map(|effect| match effect {
            Effect::Veth { host, .. } => Some(host.clone()),
            _ => None,
        });
        let own = container.and_then(|found| found.links.iter().find(|link| link.name == header.ifname));
        let id = id.or_else(|| account.guard_ids().into_iter().next());
        let (Some(host), Some(mac), Some(id)) = (host, own.and_then(|own| own.mac), id) else {
            return account.fact(plugin, "spoofing protection", "can't be compared without the pair");
        };
        let found = match self.rules().and_then(|rules| rules.guard(&id, &host, mac).map_err(|e| e.to_string())) {
            Ok(true) => format!("{host} may send as {} only", Mac(mac)),
            Ok(false) => {
                let what = format!(
                    "the spoofing protection of {host} is not all there, or for another address than {}",
                    Mac(mac)
                );
                account.differs(what, AGAIN, false);
                format!("not all there for {}", Mac(mac))
            }
            Err(reason) => format!("can't be looked at: {reason}"),
        };
        account.fact(plugin, "spoofing protection", found);
    }

    fn lease(&self, account: &mut Account, header: &Header, plugin: &str, directory: &Path) {
        let leases = self.leases(directory, &header.network);
        let leases = match leases.as_ref() {
            Ok(leases) => leases,
            Err(reason) => return account.fact(plugin, "leases", format!("can't be looked at: {reason}")),
        };
        let own = Owner::new(&header.container_id, &header.ifname);
        for held in leases.iter().filter(|held| held.owner.as_ref() == Some(&own)) {
            account.fact(plugin, "lease", format!("{} in {}", held.address, held.path.display()));
        }
        for address in account.addresses.clone() {
            let held = leases.iter().find(|held| held.address == address.addr());
            match held.map(|held| held.owner.as_ref()) {
                Some(Some(owner)) if *owner == own => {}
                Some(owner) => {
                    let by = owner.map_or_else(
                        || "nobody known".to_owned(),
                        |owner| format!("{} {}", owner.container_id, owner.ifname),
                    );
                    account.differs(format!("address {} is leased to {by} too", address.addr()), AGAIN, false);
                }
                None => {
                    let file = directory.join(&header.network).join(address.addr().to_string());
                    let remedy = format!(
                        "printf '%s\\r\\n%s' {} {} > {}",
                        quoted(&header.container_id),
                        quoted(&header.ifname),
                        quoted(&file.display().to_string())
                    );
                    let what = format!("the lease of {} is gone, and another may get the address", address.addr());
                    account.differs(what, remedy, true);
                }
            }
        }
    }

    /// What is in the container's namespace.
    fn inside(&self, account: &mut Account, header: &Header, container: Option<&Found>, pair: Option<&Link>) {
        let Some(found) = container else {
            if pair.is_some() && header.netns_cookie.is_some() {
                account.fact(
                    "",
                    "container",
                    "its namespace can't be found from here, and is alive: the pair is there",
                );
            }
            return;
        };
        let Some(own) = found.links.iter().find(|link| link.name == header.ifname) else {
            if let Some(reason) = &found.unread {
                return account.fact("", "container", format!("can't be looked at: {reason}"));
            }
            account.fact("", "container", format!("{} has no link {}", found.path.display(), header.ifname));
            // Without the pair that is no wonder, and said already.
            if pair.is_some() || !account.effects.iter().any(|effect| matches!(effect, Effect::Veth { .. })) {
                account.differs(format!("the container has no link {}", header.ifname), AGAIN, false);
            }
            return;
        };
        let have: Vec<IpNet> =
            found.addresses.iter().filter(|(index, _)| *index == own.index).map(|(_, have)| have.net).collect();
        let shown: Vec<String> = have.iter().map(ToString::to_string).collect();
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
    }
}

/// What helps with a damaged record: what it lists nothing else knows of. One that can be read but for some lines is the
/// attachment's still.
fn by_hand(path: &Path, is_lost: bool) -> String {
    let file = quoted(&path.display().to_string());
    match is_lost {
        true => format!("look at what it lists, `cat {file}`, and remove that; only then `rm {file}`"),
        false => format!("look at what the damaged line lists, `cat {file}`: DEL does not remove that"),
    }
}

/// The addresses of an attachment: those of its sections, or else those whose traffic is masqueraded.
fn addresses(sections: &[Section], effects: &[(String, Effect)]) -> Vec<IpNet> {
    let mut addresses: Vec<IpNet> =
        sections.iter().flat_map(|section| &section.addresses).filter_map(|text| text.parse().ok()).collect();
    if addresses.is_empty() {
        for (_, effect) in effects {
            if let Effect::Masquerade { addresses: masqueraded, .. } = effect {
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

    #[test]
    fn addresses_are_those_of_sections_or_else_of_rules() {
        let address = |text: &str| text.parse::<IpNet>().unwrap();
        let rules = Effect::Masquerade { backend: Backend::Nftables, addresses: vec![address("10.0.0.2/24")] };
        let effects = vec![("bridge".to_owned(), rules)];
        assert_eq!(addresses(&[], &effects), [address("10.0.0.2/24")]);
        let section = Section {
            plugin: "bridge".to_owned(),
            digest: String::new(),
            begun: 1,
            stage: Stage::Given,
            since: 1,
            addresses: vec!["10.0.0.3/24".to_owned(), "nonsense".to_owned(), "10.0.0.3/24".to_owned()],
        };
        assert_eq!(addresses(&[section], &effects), [address("10.0.0.3/24")]);
    }
}
