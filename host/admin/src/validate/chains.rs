//! Chains of iptables that a network names, and that a program such as kube-proxy makes. Without these chains,
//! portmap's ADD fails.
//!
//! The chain of `iptablesAdminChainName` does not count: the plugin firewall makes this chain.

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

/// Warns of chains that this node lacks. The program that makes such a chain may start later, so this is no error.
pub fn check(sheet: &mut Sheet<'_>, entries: &[Entry<'_>]) {
    for entry in entries {
        if sheet.named(entry.node.word("type")) != "portmap" {
            continue;
        }
        let Ok(map) = NetConf::parse(Json::from(entry.node.to_value())).and_then(|conf| PortMap::read(&conf)) else {
            continue;
        };
        // Without masquerading no packet is marked, and the chain is not used.
        let is_used = map.snat && map.backend() == Ok(Some("iptables"));
        let Some(chain) = map.set_mark_chain.filter(|_| is_used) else { continue };
        match is_there(&chain) {
            Ok(true) => {}
            Ok(false) => {
                let at = entry.node.member(KEY).map_or(entry.node.at, |member| member.at);
                let name = postern_cni::quote(&chain);
                let message =
                    format!("an ADD with port mappings would fail now: table nat of iptables has no chain {name}");
                let help = "start the program that makes this chain (kube-proxy in mode nftables does not), or leave the \
                            key out: portmap then makes its own chain";
                sheet.warning("add-fails", at, &below(&entry.path, KEY), message, help);
            }
            Err(error) => sheet.note(format!("chain {chain} ({KEY}) was not looked for: {error}")),
        }
    }
}

/// True if the chain exists for some IP version: the IP version of the containers' addresses is unknown.
fn is_there(chain: &str) -> Result<bool, FirewallError> {
    let nft = RefCell::new(None);
    let means = ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: Some(&nft) };
    let [v4, v6] = [false, true].map(|v6| HostPorts::iptables_has_mark_chain(chain, v6, means));
    // If one IP version can't be looked at, only the other IP version counts.
    match (v4, v6) {
        (Ok(true), _) | (_, Ok(true)) => Ok(true),
        (Ok(false), _) | (_, Ok(false)) => Ok(false),
        (Err(error), Err(_)) => Err(error),
    }
}
