//! Rules that bear the marks of attachments of which nothing else is left.

use super::{Examination, Node, Remedy, Severity};
use postern_firewall::account::{Marked, strange_guards, strange_masquerades};
use postern_gate::drift::Account;
use postern_gate::sight::Sight;

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(sight) = &node.sight else { return };
    examination.look("rules", "rules of attachments: nftables, spoofing protection, iptables");
    let first = strangers(sight, &node.accounts, &mut |left_out| examination.leave_out(left_out));
    // A run that is under way writes its record before it makes a rule, and takes the rule away before the record: what
    // is strange before and after the records are read once more is nobody's.
    let again = match postern_state::list(&sight.places.state) {
        Ok(records) if !first.is_empty() => strangers(sight, &sight.accounts(records), &mut |_| {}),
        _ => Vec::new(),
    };
    let all = again.into_iter().filter(|marked| first.contains(marked));
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

/// Rules of attachments other than these.
fn strangers(sight: &Sight, known: &[Account], leave_out: &mut dyn FnMut(String)) -> Vec<Marked> {
    let keys: Vec<_> = known.iter().filter_map(Account::masquerade_key).collect();
    let ids: Vec<String> = known.iter().flat_map(Account::guard_ids).collect();
    let looks = [
        ("nftables", sight.nft(|nft| strange_masquerades(nft, &keys).map_err(|e| e.to_string()))),
        ("spoofing protection", sight.nft(|nft| strange_guards(nft, &ids).map_err(|e| e.to_string()))),
        ("iptables", sight.iptables().map(|tables| tables.strangers(&keys))),
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
