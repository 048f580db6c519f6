//! Bridges that are to keep VLANs apart, and do not.

use super::{Examination, Node, Remedy, Severity};
use crate::lists::Entry;
use postern_gate::shell::quoted;
use serde_json::Value;

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(sight) = &node.sight else { return };
    examination.look("vlans", "bridges of networks with VLANs, and whether they filter them");
    for list in &node.lists {
        for plugin in list.entries().iter().filter(|plugin| plugin.plugin() == "bridge" && has_vlans(plugin)) {
            let named = plugin.get("bridge").and_then(Value::as_str).filter(|name| !name.is_empty());
            let name = named.unwrap_or("cni0");
            let bridge = sight.link(name).filter(|link| link.kind == "bridge");
            if bridge.is_some_and(|bridge| !bridge.vlan_filtering) {
                let what = format!("does not filter VLANs, and network \"{}\" has ports in VLANs there", list.name());
                let why = "every ADD of that network fails; ports that a native plugin attached there reach each other whatever \
                           their VLAN";
                let command = format!("ip link set {} type bridge vlan_filtering 1", quoted(name));
                examination.found(Severity::Error, name, what, why, Remedy::Command(command));
            }
        }
    }
}

/// Whether a network's ports are in VLANs. An empty trunk has none.
fn has_vlans(plugin: &Entry) -> bool {
    plugin.has("vlan") || plugin.has("vlanTrunk")
}
