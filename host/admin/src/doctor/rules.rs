//! Unrecorded rules: they bear the mark of an attachment that has no record.
//!
//! An attachment of a native plugin has no record, and needs its rules while it lives. So only `postern gc --native`
//! may remove such rules. It removes only rules that it finds unused in two checks.

use super::{Examination, Node, Remedy, Severity};
use postern_account::attachment::Account;
use postern_account::node_state::NodeState;
use postern_firewall::account::{Marked, unrecorded_guards, unrecorded_masquerades};
use postern_firewall::macguard;
use std::collections::BTreeMap;

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(node_state) = &node.node_state else { return };
    examination.look("rules", "rules of attachments: nftables, spoofing protection, iptables");
    let first = unrecorded_rules(node_state, &node.accounts, &mut |left_out| examination.leave_out(left_out));
    // A current run writes its record before it makes a rule, and removes the rule before the record. So rules count as
    // unrecorded only if no record lists them, neither in a first nor in a second reading of the records.
    let again = match postern_state::list(&node_state.places.state) {
        Ok(records) if !first.is_empty() => unrecorded_rules(node_state, &node_state.accounts(records), &mut |_| {}),
        _ => Vec::new(),
    };
    let ports = ports(node_state);
    for marked in again.into_iter().filter(|marked| first.contains(marked)) {
        match (&marked.addresses[..], ports.get(&marked.mark)) {
            // Spoofing protection names no address, but a port. A living container may have this port.
            ([], Some(ports)) if ports.iter().any(|port| node_state.has_link(port)) => {}
            ([], Some(ports)) => {
                let what = format!(
                    "rules of an attachment without a record: {}, whose port {} is gone",
                    marked.mark,
                    ports.join(", ")
                );
                left_over(examination, node, &marked, what);
            }
            ([], None) => {
                let what = format!("rules of an attachment without a record: {}", marked.mark);
                let why =
                    "the rules name neither port nor address, so it is unknown whether a container needs the rules";
                examination.found(Severity::Note, &marked.place, what, why, look(&marked));
            }
            (addresses, _)
                if addresses.iter().any(|address| node_state.namespaces.with_address(*address).is_some()) => {}
            (addresses, _) => {
                let of: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                let what = format!("rules of an attachment without a record for {}: {}", of.join(", "), marked.mark);
                left_over(examination, node, &marked, what);
            }
        }
    }
}

/// Reports rules without a known user.
fn left_over(examination: &mut Examination, node: &Node, marked: &Marked, what: String) {
    let Ok(node_state) = &node.node_state else { return };
    let why = "the rules affect the next container that gets the address, and the kernel checks them for every packet";
    if node.is_offered(&marked.mark) {
        let remedy = Remedy::Command("postern gc --native".to_owned());
        // For rules without an address, only the port can show the user.
        let is_certain = !marked.addresses.is_empty() && node_state.namespaces.is_complete();
        let severity = if is_certain { Severity::Error } else { Severity::Warning };
        return examination.found(severity, &marked.place, what, why, remedy);
    }
    match node_state.namespaces.gap() {
        Some(_) => {
            let why = "a container may use the rules: not all namespaces could be looked at";
            examination.found(Severity::Warning, &marked.place, what, why, Remedy::Words(super::ELSEWHERE.to_owned()));
        }
        None => {
            let why =
                "no namespace has the address, but nothing shows that a native plugin made the rules for a container";
            examination.found(Severity::Warning, &marked.place, what, why, look(marked));
        }
    }
}

/// Returns a command that shows the rules. A person must look at them before they are deleted.
fn look(marked: &Marked) -> Remedy {
    let shows = match marked.place.split(' ').collect::<Vec<_>>().as_slice() {
        [program @ ("iptables" | "ip6tables"), ..] => format!("{program}-save -t nat"),
        ["bridge", ..] => "nft -a list table bridge nat".to_owned(),
        _ => "nft -a list table inet cni_plugins_masquerade".to_owned(),
    };
    Remedy::Words(format!("find out who made the rules: `{shows}` shows the rules"))
}

/// Returns the ports of spoofing protection, by the protection's ID.
fn ports(node_state: &NodeState) -> BTreeMap<String, Vec<String>> {
    let mut ports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for port in node_state.nft(|nft| macguard::list(nft).map_err(|e| e.to_string())).unwrap_or_default() {
        ports.entry(port.id).or_default().push(port.ifname);
    }
    ports
}

/// Returns the rules whose attachments are not in `known`.
fn unrecorded_rules(node_state: &NodeState, known: &[Account], leave_out: &mut dyn FnMut(String)) -> Vec<Marked> {
    let keys: Vec<_> = known.iter().filter_map(Account::masquerade_key).collect();
    let ids: Vec<String> = known.iter().flat_map(Account::guard_ids).collect();
    let looks = [
        ("nftables", node_state.nft(|nft| unrecorded_masquerades(nft, &keys).map_err(|e| e.to_string()))),
        ("spoofing protection", node_state.nft(|nft| unrecorded_guards(nft, &ids).map_err(|e| e.to_string()))),
        ("iptables", node_state.iptables().map(|tables| tables.unrecorded(&keys))),
    ];
    let mut all = Vec::new();
    for (name, marked) in looks {
        match marked {
            Ok(marked) => all.extend(marked),
            Err(reason) => leave_out(format!("rules of {name}: {reason}")),
        }
    }
    all
}
