//! Chains of iptables that a network names, and that another program makes: portmap's ADD fails where they are missing.
//!
//! The chain of `iptablesAdminChainName` is none of them: firewall makes it.

use super::finding::{Sheet, below};
use super::network::Entry;
use postern_cni::{Json, NetConf, PortMap};
use postern_confine::Direct;
use postern_firewall::FirewallError;
use postern_firewall::hostport::HostPorts;
use postern_firewall::iptables::ProgramRunner;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// The longest time to look for a chain.
const WITHIN: Duration = Duration::from_secs(5);

const KEY: &str = "externalSetMarkChain";

/// Warns of chains that are not on this node. The program that makes them can come later: this is no error.
pub fn check(sheet: &mut Sheet<'_>, entries: &[Entry<'_>]) {
    for entry in entries {
        if sheet.named(entry.node.word("type")) != "portmap" {
            continue;
        }
        let Ok(map) = NetConf::parse(Json::from(entry.node.to_value())).and_then(|conf| PortMap::read(&conf)) else {
            continue;
        };
        // Without masquerading nothing is marked.
        let is_used = map.snat && map.backend() == Ok(Some("iptables"));
        let Some(chain) = map.set_mark_chain.filter(|_| is_used) else { continue };
        match is_there(&chain) {
            Ok(true) => {}
            Ok(false) => {
                let at = entry.node.member(KEY).map_or(entry.node.at, |member| member.at);
                let name = postern_cni::quote(&chain);
                let message =
                    format!("an ADD with port mappings would fail now: table nat of iptables has no chain {name}");
                let help = "start the program that makes it (kube-proxy in mode nftables makes none), or leave the key out: \
                            portmap then makes a chain of its own";
                sheet.warning("add-fails", at, &below(&entry.path, KEY), message, help);
            }
            Err(error) => sheet.note(format!("chain {chain} ({KEY}) was not looked for: {error}")),
        }
    }
}

/// True if the chain is there for one IP version: that of the containers' addresses is not known.
fn is_there(chain: &str) -> Result<bool, FirewallError> {
    let nft = RefCell::new(None);
    let means = ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: Some(&nft) };
    let [v4, v6] = [false, true].map(|v6| HostPorts::iptables_has_mark_chain(chain, v6, means));
    // Where one IP version can't be looked at, only the other one counts.
    match (v4, v6) {
        (Ok(true), _) | (_, Ok(true)) => Ok(true),
        (Ok(false), _) | (_, Ok(false)) => Ok(false),
        (Err(error), Err(_)) => Err(error),
    }
}
