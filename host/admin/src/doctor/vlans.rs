//! Finds bridges that should separate VLANs and do not. Also finds ports with other VLANs than the network demands, or
//! without the demanded isolation.

use super::{Examination, Node, Remedy, Severity};
use crate::account;
use crate::lists::Entry;
use postern_account::attachment::{Account, State};
use postern_account::node_state::NodeState;
use postern_gate::policies;
use postern_gate::shell::quoted;
use postern_policy::{Granted, port};
use serde_json::Value;

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(node_state) = &node.node_state else { return };
    examination.look("vlans", "bridges of networks with VLANs, and their VLAN filtering");
    for list in &node.lists {
        for plugin in list.entries().iter().filter(|plugin| plugin.plugin() == "bridge" && has_vlans(plugin)) {
            let named = plugin.get("bridge").and_then(Value::as_str).filter(|name| !name.is_empty());
            let name = named.unwrap_or("cni0");
            let bridge = node_state.link(name).filter(|link| link.kind == "bridge");
            if bridge.is_some_and(|bridge| !bridge.vlan_filtering) {
                let what = format!("does not filter VLANs, and network \"{}\" has ports in VLANs there", list.name());
                let why = "every ADD of that network fails; ports that a native plugin attached reach each other, \
                           whatever their VLAN";
                let command = format!("ip link set {} type bridge vlan_filtering 1", quoted(name));
                examination.found(Severity::Error, name, what, why, Remedy::Command(command));
            }
        }
    }
    ports(examination, node, node_state);
}

/// Compares the ports of attachments with the network's demands, as the gate does before it accepts an ADD. The demands
/// come from the plugin's policy and the present configuration of the network.
fn ports(examination: &mut Examination, node: &Node, node_state: &NodeState) {
    examination.look("ports", "VLANs and isolation of attachments' ports");
    for list in &node.lists {
        for (entry, request) in list.requests() {
            let granted = node
                .catalog_of(entry.plugin())
                .and_then(|catalog| policies::load_with(None, catalog, entry.plugin()).ok())
                .map(|policy| policy.resolve(&request.into(), ""));
            let Some(Ok(granted)) = granted else { continue };
            let of_network = |account: &&Account| {
                let is_whole = matches!(account.state, State::Ok | State::Drift) && !account.is_held;
                let of = account.header.as_ref().is_some_and(|header| header.network == list.name());
                is_whole && of && account.sections.iter().any(|section| section.plugin() == entry.plugin())
            };
            for account in node.accounts.iter().filter(of_network) {
                compare(examination, node_state, &granted, account);
            }
        }
    }
}

fn compare(examination: &mut Examination, node_state: &NodeState, granted: &Granted, account: &Account) {
    let Some(grant) = granted.bridge().filter(|grant| port::demands(grant)) else { return };
    // Another check reports a host end without a bridge.
    let Some(end) = node_state.end_of(account).filter(|end| end.master.is_some()) else { return };
    let vlans = match port::has_vlans(grant) {
        true => match node_state.port_vlans(end) {
            Ok(vlans) => vlans,
            Err(reason) => return examination.leave_out(format!("VLANs of {}: {reason}", end.name)),
        },
        false => Vec::new(),
    };
    let Err((what, _)) = port::verify(grant, end.isolated, &vlans) else { return };
    let place = account.header.as_ref().map(account::name).unwrap_or_default();
    let what = format!("its port {} is {what}, but the network demands otherwise", end.name);
    let remedy = Remedy::Words(
        "start the container again, so that its runtime calls DEL and ADD; or restore the configuration that \
         the network had at ADD"
            .to_owned(),
    );
    let why =
        "the container may reach ports that its network must not reach, or lack access; CHECK may overlook such a port";
    examination.found(Severity::Error, place, what, why, remedy);
}

/// True if a network's ports are in VLANs. An empty trunk has no VLANs.
fn has_vlans(plugin: &Entry) -> bool {
    plugin.has("vlan") || plugin.has("vlanTrunk")
}
