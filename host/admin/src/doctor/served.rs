//! Rules of native plugins that lead traffic to an address of no living container. For example, portmap's rules stay if
//! the runtime called no DEL. Such rules would lead to the next container that gets the address.

use super::{Examination, Node, Remedy, Severity};
use postern_account::attachment::Account;
use postern_confine::Direct;
use postern_firewall::Served;
use postern_firewall::iptables::ProgramRunner;
use postern_gate::effect::{Effect, PortMappings};
use std::time::{Duration, Instant};

/// The longest time for a look at all rules.
const WITHIN: Duration = Duration::from_secs(20);

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(node_state) = &node.node_state else { return };
    examination.look("served", "rules that lead to addresses: nftables, iptables");
    let runner = || ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: None };
    let served = match node_state.nft(|nft| Served::look(nft, runner()).map_err(|error| error.to_string())) {
        Ok(served) => served,
        Err(reason) => return examination.leave_out(format!("rules that lead to addresses: {reason}")),
    };
    for (address, serving) in served.of_plugins() {
        if address.is_loopback() || node_state.namespaces.with_address(address).is_some() {
            continue;
        }
        // Forwards in a record are reported with the record.
        let has_forwards = |account: &Account| {
            let of = |effect: &Effect| PortMappings::of(effect).is_some_and(|own| own.address.addr() == address);
            account.effects.iter().any(of)
        };
        if node.accounts.iter().any(has_forwards) {
            continue;
        }
        let severity = if node_state.namespaces.is_complete() { Severity::Error } else { Severity::Warning };
        let what = format!("rules of a native plugin lead traffic to {address}, which no namespace has");
        let why = "the next container that gets the address would also get the old container's traffic";
        let words = "let the runtime remove the old container, or call DEL of its plugins; the address's lease stays \
                     until then";
        let remedy = match node.is_offered(&address.to_string()) {
            true => Remedy::Command("postern gc --native".to_owned()),
            false => Remedy::Words(words.to_owned()),
        };
        examination.found(severity, &serving.place, what, why, remedy);
    }
}
