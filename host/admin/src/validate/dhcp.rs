//! Networks with `ipam.type: dhcp`: finds faults that the plugin, the gate or the service would refuse at each ADD.

use super::finding::{Sheet, below, item};
use super::text::Node;
use postern_dhcp::config::{NAMES, Options};
use postern_dhcp::{Family, families};
use serde_json::{Map, Value, json};

/// The longest path of a UNIX socket, in bytes.
const LONGEST_PATH: usize = 107;

/// Checks `ipam` of a plugin. The plugin's configuration is `conf`, at `place`. Types and keys are checked already.
pub fn check(sheet: &mut Sheet<'_>, plugin: &str, conf: &Node, ipam: &Node, place: &str) {
    let path = &below(place, "ipam");
    if let Some(why) = without_wire(plugin, conf) {
        let at = ipam.get("type").map_or(ipam.at, |node| node.at);
        let help = "use bridge, macvlan, vlan or ipvlan in mode l2, or another `ipam.type`";
        sheet.error("chain", at, &below(path, "type"), format!("no DHCP server can be asked: {why}"), help);
    }
    if let Some(socket) = ipam.get("daemonSocketPath")
        && let length = socket.text().unwrap_or_default().len()
        && length > LONGEST_PATH
    {
        let message = format!("the path has {length} bytes: a socket's path has at most {LONGEST_PATH}");
        let help = "have the service listen at a shorter path (`-socketpath`), and name that path";
        sheet.error("bad-value", socket.at, &below(path, "daemonSocketPath"), message, help);
    }
    for key in ["request", "provide"] {
        options(sheet, ipam, path, key);
    }
    if plugin == "bridge" {
        gateway(sheet, conf, ipam, place);
    }
}

/// Returns the reason why a container of this plugin has no link over which a DHCP server could be asked.
fn without_wire(plugin: &str, conf: &Node) -> Option<&'static str> {
    match plugin {
        "ptp" => Some("ptp makes its link after it has addresses"),
        "dummy" => Some("a dummy leads nowhere"),
        "tap" => Some("no program has opened the tap when `ipam` asks"),
        "ipvlan" if ["l3", "l3s"].contains(&conf.word("mode")) => Some("an ipvlan in this mode takes no broadcasts"),
        _ => None,
    }
}

/// Reads the options of a list with the client's own reader: one by one, and then together.
fn options(sheet: &mut Sheet<'_>, ipam: &Node, path: &str, key: &str) {
    let Some(list) = ipam.get(key) else { return };
    let here = below(path, key);
    let read = |entries: Value| {
        let ipam = Map::from_iter([(key.to_owned(), entries)]);
        Options::read(&json!({"ipam": ipam}).to_string(), "").err().map(|error| error.msg)
    };
    for (number, entry) in list.items().iter().enumerate() {
        let place = item(&here, number);
        if sheet.has_errors_below(&place) {
            continue;
        }
        let Some(message) = read(json!([entry.to_value()])) else { continue };
        let (key, help) = match message.starts_with("value too long") {
            true => ("value", "an option has at most 255 bytes".to_owned()),
            false => ("option", format!("the number of an option, or {}", NAMES.map(|(name, _)| name).join(", "))),
        };
        let (at, place) = match entry.get(key) {
            Some(node) => (node.at, below(&place, key)),
            None => (entry.at, place),
        };
        sheet.error("bad-value", at, &place, message, help);
    }
    if !sheet.has_errors_below(&here)
        && let Some(message) = read(list.to_value())
    {
        sheet.error("bad-value", list.at, &here, message, "send only the options that the server needs");
    }
}

/// Checks the gateway: a bridge gets no address that a DHCP server chose.
fn gateway(sheet: &mut Sheet<'_>, conf: &Node, ipam: &Node, path: &str) {
    let keys = ["isGateway", "isDefaultGateway"].into_iter().filter(|key| conf.is_on(key));
    let Some(member) = keys.filter_map(|key| conf.member(key)).next() else { return };
    let wanted = families(&json!({"ipam": ipam.to_value()}).to_string()).unwrap_or_default();
    let path = &below(path, &member.name);
    let help = format!("leave `{}` out: the router of the network is the gateway", member.name);
    match wanted.contains(&Family::Ipv6) {
        true => {
            let message = "the gateway of a DHCPv6 lease is a router's link-local address, which the bridge can't have";
            sheet.error("contradiction", member.at, path, message, help);
        }
        false => {
            let message = "the bridge gets no address that a DHCP server chose: each ADD fails, unless the bridge \
                           already has the address of the lease's router";
            sheet.warning("contradiction", member.at, path, message, help);
        }
    }
}
