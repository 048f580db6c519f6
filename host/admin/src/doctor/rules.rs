//! Rules that bear the marks of attachments of which nothing else is left.

use super::{Examination, Node, Remedy, Severity};
use postern_firewall::account::{Marked, strange_guards, strange_masquerades};
use postern_gate::drift::Account;

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(sight) = &node.sight else { return };
    examination.look("rules", "rules of attachments: nftables, spoofing protection, iptables");
    let keys: Vec<_> = node.accounts.iter().filter_map(Account::masquerade_key).collect();
    let ids: Vec<String> = node.accounts.iter().filter_map(Account::guard_id).collect();
    let mut all = Vec::new();
    let mut take = |examination: &mut Examination, name: &str, marked: Result<Vec<Marked>, String>| match marked {
        Ok(marked) => all.extend(marked),
        Err(reason) => examination.leave_out(format!("rules of {name}: {reason}")),
    };
    let masquerades = sight.nft(|nft| strange_masquerades(nft, &keys).map_err(|e| e.to_string()));
    take(examination, "nftables", masquerades);
    let guards = sight.nft(|nft| strange_guards(nft, &ids).map_err(|e| e.to_string()));
    take(examination, "spoofing protection", guards);
    take(examination, "iptables", sight.iptables().map(|tables| tables.strangers(&keys)));

    for Marked { place, mark, addresses, commands } in all {
        // A native plugin's container, which has no record.
        if addresses.iter().any(|address| sight.namespaces.with_address(*address).is_some()) {
            continue;
        }
        let of: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let of = if of.is_empty() { String::new() } else { format!(" for {}, which no namespace has", of.join(", ")) };
        let what = format!("rules of an attachment without a record{of}: {mark}");
        let why = "they are in the way of the next container that gets the address, and are looked at for every packet";
        // Spoofing protection names no address: a native container may be behind it.
        let is_certain = !addresses.is_empty() && sight.namespaces.is_complete();
        let severity = if is_certain { Severity::Error } else { Severity::Warning };
        let remedy = match commands.is_empty() {
            true => Remedy::Words("look at them, and delete them".to_owned()),
            false => Remedy::Command(commands.join(" && ")),
        };
        examination.found(severity, place, what, why, node.removal(&mark, remedy));
    }
}
