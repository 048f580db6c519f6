//! Other settings on the node that block containers' packets.

use super::{Examination, Node, Remedy, Severity};
use crate::account;
use crate::lists::Entry;
use ipnet::IpNet;
use postern_account::attachment::{Account, State};
use postern_account::node_state::NodeState;
use postern_confine::{Direct, Environment, Program, Run as _, locate};
use postern_firewall::account::forward_chains;
use postern_firewall::firewalld;
use postern_firewall::iptables::{self, ProgramRunner};
use postern_gate::effect::{Effect, Firewall, Masquerade};
use postern_gate::packet_filter;
use postern_policy::NODE_FILE;
use postern_types::{Backend, FirewallBackend, IptablesVariant};
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The longest time for a program to print a rule set.
const WITHIN: Duration = Duration::from_secs(10);

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(node_state) = &node.node_state else { return };
    examination.look("conflicts", "forwarding, its sysctls, and other programs' rules");
    forwarding(examination, node);
    let networks = networks(node);
    forward_policy(examination, node_state, &networks);
    backends(examination, node);
    out_of_reach(examination, node);
    zones(examination, node);
    default_filter(examination);
    if value("net/ipv4/conf/all/rp_filter").as_deref() == Some("1") {
        let why = "packets are dropped if their answers would leave by another link: networks with several uplinks \
            lose packets";
        let remedy = set("net/ipv4/conf/all/rp_filter", "2");
        examination.found(Severity::Note, "net.ipv4.conf.all.rp_filter", "is strict (1)", why, remedy);
    }
}

/// Reads a sysctl of this network namespace.
fn value(path: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{path}")).ok().map(|text| text.trim().to_owned())
}

/// Returns the command that sets a sysctl. Some nodes lack sysctl(8).
fn set(path: &str, value: &str) -> Remedy {
    Remedy::Command(match locate("sysctl") {
        Some(_) => format!("sysctl -w {}={value}", path.replace('/', ".")),
        None => format!("echo {value} > /proc/sys/{path}"),
    })
}

/// Returns the addresses of attachments whose packets the node forwards. Packets of links without a host end are not
/// forwarded.
fn forwarded(node: &Node) -> impl Iterator<Item = &IpNet> {
    let has_host_end = |account: &&Account| {
        !account
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Macvlan(_) | Effect::InnerLink(_) | Effect::Device(_)))
    };
    let is_attached = |account: &&Account| account.state != State::Replaced;
    node.accounts.iter().filter(has_host_end).filter(is_attached).flat_map(|account| &account.addresses)
}

/// Returns the networks of attachments, whose packets must pass.
fn networks(node: &Node) -> Vec<IpNet> {
    let networks: BTreeSet<IpNet> = forwarded(node).map(IpNet::trunc).collect();
    networks.into_iter().collect()
}

/// Finds forwarding that is off while a network needs it.
fn forwarding(examination: &mut Examination, node: &Node) {
    let is_masqueraded = |effects: &[Effect]| effects.iter().any(|effect| Masquerade::of(effect).is_some());
    let attached = node.accounts.iter().filter(|account| is_masqueraded(&account.effects));
    let mut users: BTreeSet<String> =
        attached.filter_map(|account| account.header.as_ref()).map(|header| header.network.clone()).collect();
    let has_attachments = |name: &str| {
        node.accounts.iter().filter_map(|account| account.header.as_ref()).any(|header| header.network == name)
    };
    for list in node.lists.iter().filter(|list| has_attachments(list.name())) {
        let needs = ["isGateway", "isDefaultGateway", "ipMasq"];
        let routed = |plugin: &Entry| plugin.plugin() == "ptp" || needs.iter().any(|key| plugin.is_on(key));
        if list.entries().iter().any(routed) {
            users.insert(list.name().to_owned());
        }
    }
    if users.is_empty() {
        return;
    }
    for (path, v4) in [("net/ipv4/ip_forward", true), ("net/ipv6/conf/all/forwarding", false)] {
        let has_family = forwarded(node).any(|address| address.addr().is_ipv4() == v4);
        if has_family && value(path).as_deref() == Some("0") {
            let name = path.replace('/', ".");
            let users: Vec<String> = users.iter().cloned().collect();
            let why = format!("containers of {} reach nothing beyond this node", users.join(", "));
            examination.found(Severity::Error, &name, "is off", &why, set(path, "1"));
        }
    }
}

/// Finds chains that drop packets by default and accept no packets of a container.
fn forward_policy(examination: &mut Examination, node_state: &NodeState, networks: &[IpNet]) {
    let chains = match node_state.nft(|nft| forward_chains(nft).map_err(|e| e.to_string())) {
        Ok(chains) => chains,
        Err(reason) => return examination.leave_out(format!("chains of other programs: {reason}")),
    };
    let mut drops: Vec<(String, Result<String, String>, bool)> = Vec::new();
    for (chain, _) in chains.iter().filter(|(_, drops)| *drops) {
        let mut words = chain.split(' ');
        if let (Some(family), Some(table)) = (words.next(), words.next()) {
            let arguments = ["list", "table", family, table].map(str::to_owned).to_vec();
            drops.push((chain.clone(), shown("nft", arguments), family != "ip6"));
        }
    }
    let tables = fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    if tables.lines().any(|table| table == "filter") {
        let text = shown("iptables-legacy-save", vec!["-t".to_owned(), "filter".to_owned()]);
        if text.as_ref().is_ok_and(|text| text.lines().any(|line| line.starts_with(":FORWARD DROP"))) {
            drops.push(("iptables-legacy filter FORWARD".to_owned(), text, true));
        }
    }
    let through = match value("net/bridge/bridge-nf-call-iptables").as_deref() {
        Some("1") => "; with net.bridge.bridge-nf-call-iptables on, not even containers of one bridge reach each other",
        _ => "",
    };
    for (chain, text, v4) in drops {
        let why = format!("containers reach nothing beyond their bridge{through}");
        let text = match text {
            Ok(text) => text,
            Err(reason) => {
                examination.leave_out(format!("whether {chain}, which drops by default, accepts containers: {reason}"));
                continue;
            }
        };
        for network in networks.iter().filter(|network| network.addr().is_ipv4() == v4 || chain.starts_with("inet")) {
            if !accepts(&text, network, &bridges(node_state, network)) {
                let what = format!("drops packets by default, and no rule accepts packets of {network}");
                examination.found(Severity::Warning, &chain, what, &why, acceptance(&chain, network));
            }
        }
    }
    if chains.iter().any(|(chain, _)| chain.starts_with("inet firewalld")) {
        let why = "a reload of firewalld may remove rules of iptables, such as masquerading";
        let remedy = Remedy::Words(format!(
            "`packet-filter = \"nftables\"` in {NODE_FILE}: later ADDs make rules that firewalld keeps"
        ));
        examination.found(Severity::Note, "firewalld", "is in use", why, remedy);
    }
}

/// Returns the command that makes a chain accept a network's packets. The command uses a program of the node that knows
/// the chain.
fn acceptance(chain: &str, network: &IpNet) -> Remedy {
    let twice = |command: &str, from: &str, to: &str, accept: &str| {
        Remedy::Command(format!("{command} {from} {network} {accept} && {command} {to} {network} {accept}"))
    };
    let words: Vec<&str> = chain.split(' ').collect();
    let family = if network.addr().is_ipv4() { "ip" } else { "ip6" };
    match words.as_slice() {
        ["iptables-legacy", ..] if locate("iptables-legacy").is_some() => {
            twice("iptables-legacy -I FORWARD", "-s", "-d", "-j ACCEPT")
        }
        ["inet", "firewalld", ..] if locate("firewall-cmd").is_some() => {
            Remedy::Command(format!("firewall-cmd --zone=trusted --add-source={network}"))
        }
        // `nft` has shown the chain. A name with special characters can't be typed.
        [of @ ("ip" | "ip6" | "inet"), table, chain] if [*table, *chain].iter().all(|name| is_plain(name)) => {
            let insert = format!("nft insert rule {of} {table} {chain}");
            twice(&insert, &format!("{family} saddr"), &format!("{family} daddr"), "accept")
        }
        _ => Remedy::Words(format!("add to this chain a rule that accepts packets from and to {network}")),
    }
}

/// True if nft(8) accepts this as a name.
fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// Returns the names of the bridges that have an address in a network.
fn bridges(node_state: &NodeState, network: &IpNet) -> Vec<String> {
    let Some(host) = node_state.namespaces.by_cookie(node_state.here) else { return Vec::new() };
    let inside = host.addresses.iter().filter(|(_, have)| network.contains(&have.net.addr()));
    inside.filter_map(|(index, _)| node_state.link_at(*index)).map(|link| link.name.to_string()).collect()
}

/// True if some rule accepts packets and mentions the network, an address of the network, or the network's bridge. Only
/// packets can show the real effect of a rule set; a missing rule for the network is the usual mistake.
fn accepts(rules: &str, network: &IpNet, bridges: &[String]) -> bool {
    rules.lines().filter(|line| line.contains("accept") || line.contains("ACCEPT")).any(|line| {
        line.split([' ', '"', ',', '{', '}', '\t']).any(|word| {
            let is_bridge = bridges.iter().any(|bridge| bridge == word);
            let address = word.parse::<IpNet>().or_else(|_| word.parse::<IpAddr>().map(IpNet::from));
            is_bridge || address.is_ok_and(|address| address.contains(network) || network.contains(&address))
        })
    })
}

/// Returns the output of a program.
fn shown(name: &str, arguments: Vec<String>) -> Result<String, String> {
    let path = locate(name).ok_or_else(|| format!("there is no {name}"))?;
    let program = Program { path, arguments, environment: Environment::Empty, input: String::new() };
    let output = Direct.run(&program, Instant::now() + WITHIN).map_err(|e| e.to_string())?;
    match output.status {
        Some(0) => Ok(output.stdout),
        _ => Err(format!("{name}: {}: {}", output.ended, output.stderr.trim())),
    }
}

/// Finds both kinds of iptables in use at the same time.
fn backends(examination: &mut Examination, node: &Node) {
    let legacy = fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    let (Some(first), Ok(nft)) = (legacy.lines().next(), shown("nft", vec!["list".to_owned(), "tables".to_owned()]))
    else {
        return;
    };
    let Some(table) = nft.lines().find(|line| ["table ip nat", "table ip filter"].contains(&line.trim())) else {
        return;
    };
    let what = format!("iptables-legacy has a table {first}, and nftables has {}", table.trim());
    let why =
        "both filter every packet, and the rules of one variant do not show which packets the other variant drops";
    // A flushed table would cut containers off. Later ADDs make their rules in the variant of the installed programs.
    let users = |variant| node.accounts.iter().filter(|account| is_in(account, variant)).count();
    let (in_nft, in_legacy) = (users(Some(IptablesVariant::Nft)), users(Some(IptablesVariant::Legacy)));
    let in_one = users(None);
    let remedy = match (in_nft, in_legacy, in_one) {
        (0, 0, 0) => {
            "choose one variant for all programs of the node: `update-alternatives --config iptables`; no record has \
                   rules in either variant"
                .to_owned()
        }
        _ => format!(
            "choose one variant for all programs of the node, and flush no table: by the records, {in_nft} attachments \
             have rules in nf_tables, {in_legacy} in legacy iptables, and {in_one} in an unrecorded variant; \
             DEL removes these rules, as long as iptables-legacy is installed"
        ),
    };
    examination.found(Severity::Warning, "iptables", what, why, Remedy::Words(remedy));
}

/// Returns each set of iptables rules of a record: the variant, the addresses, and true for firewall rules.
fn in_iptables(account: &Account) -> impl Iterator<Item = (Option<IptablesVariant>, Vec<IpNet>, bool)> {
    account.effects.iter().filter_map(|effect| match effect {
        Effect::Masquerade(made) if made.backend == Backend::Iptables => {
            Some((made.variant, made.addresses.clone(), false))
        }
        Effect::PortMappings(made) if made.backend == Backend::Iptables => {
            Some((made.variant, vec![made.address], false))
        }
        Effect::Firewall(made) if made.backend == FirewallBackend::Iptables => {
            Some((made.variant, made.addresses.clone(), true))
        }
        _ => None,
    })
}

/// True if the record has rules in this variant. `None` asks for rules without a recorded variant.
fn is_in(account: &Account, variant: Option<IptablesVariant>) -> bool {
    in_iptables(account).any(|(noted, ..)| noted == variant)
}

/// Finds attachments with rules that no installed program can remove. DEL of these attachments fails.
fn out_of_reach(examination: &mut Examination, node: &Node) {
    let means = || ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: None };
    let unreachable = |account: &Account| {
        in_iptables(account).find_map(|(variant, addresses, is_filter)| {
            iptables::in_reach(variant, &addresses, is_filter, means()).err()
        })
    };
    let mut found = node.accounts.iter().filter_map(|account| Some((account, unreachable(account)?)));
    let Some((first, error)) = found.next() else { return };
    let more = found.count();
    let name = first.header.as_ref().map(account::name).unwrap_or_else(|| first.path.display().to_string());
    let place = if more == 0 { name } else { format!("{name} and {more} more") };
    let what = format!("has rules, by its record, that no program of this node can remove: {error}");
    let why = "DEL and `postern gc` fail for this attachment. Its ports and addresses stay taken, \
               because the rules stay in force";
    let remedy = format!("install the package with {}; this package need not be the node's default", error.object);
    examination.found(Severity::Error, place, what, why, Remedy::Words(remedy));
}

/// Finds a firewalld that does not answer about an attachment's address: DEL of that attachment fails.
fn zones(examination: &mut Examination, node: &Node) {
    let means = || ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: None };
    let sources = |account: &Account| {
        account.effects.iter().filter_map(Firewall::of).find_map(|made| {
            let address = made.addresses.first()?.addr();
            made.zone.clone().map(|zone| (zone, address))
        })
    };
    let mut users = node.accounts.iter().filter_map(|account| Some((account, sources(account)?)));
    let Some((first, (zone, address))) = users.next() else { return };
    // If firewalld does not run, it has no sources.
    let refusal = match firewalld::runs(means()) {
        Ok(false) => None,
        Ok(true) => firewalld::query(&zone, address, means()).err(),
        Err(error) => Some(error),
    };
    let Some(error) = refusal else { return };
    let more = users.count();
    let name = first.header.as_ref().map(account::name).unwrap_or_else(|| first.path.display().to_string());
    let place = if more == 0 { name } else { format!("{name} and {more} more") };
    let what = format!("has addresses in a zone, by its record, and firewalld answers with an error: {error}");
    let why = "DEL and `postern gc` fail for this attachment. Its addresses stay taken, because the zone \
               may still accept their packets";
    let remedy = "repair or stop firewalld: when firewalld stops, its zones lose their sources";
    examination.found(Severity::Error, place, what, why, Remedy::Words(remedy.to_owned()));
}

/// Reports that nftables would be the better default packet filter of this node.
fn default_filter(examination: &mut Examination) {
    let means = ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: None };
    if iptables::is_legacy() && packet_filter::of_node(means) == Ok(Backend::Iptables) {
        let what = "networks that name no packet filter use legacy iptables, as native plugins do";
        let why = "two programs run for each change, and wait for one lock of the node";
        let remedy = format!(
            "if no other program on the node needs legacy iptables: `packet-filter = \"nftables\"` in {NODE_FILE}"
        );
        examination.found(Severity::Note, "iptables", what, why, Remedy::Words(remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_about_a_network_by_address_or_bridge() {
        let network = "10.1.0.0/16".parse().unwrap();
        let bridges = ["cni0".to_owned()];
        for (rule, is_about) in [
            ("-A FORWARD -s 10.1.0.0/16 -j ACCEPT", true),
            ("-A CNI-FORWARD -d 10.1.0.7/32 -j ACCEPT", true),
            ("iifname \"cni0\" counter accept", true),
            ("ip saddr { 10.0.0.0/8, 192.168.0.0/16 } accept", true),
            ("-A FORWARD -s 10.1.0.0/16 -j DROP", false),
            ("-A FORWARD -s 10.2.0.0/16 -j ACCEPT", false),
            ("iifname \"docker0\" accept", false),
        ] {
            assert_eq!(accepts(rule, &network, &bridges), is_about, "{rule}");
        }
    }
}
