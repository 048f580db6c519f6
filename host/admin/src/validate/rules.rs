//! Checks several keys together: keys that exclude each other, and keys that need other keys. If a check here reports
//! an error, the plugin refuses the configuration too.

use super::finding::{Sheet, below, item};
use super::text::{Node, Tree, word_at};
use super::{addresses, plugin, sysctls};
use postern_cni::{BandwidthConf, Flannel, Json, NetConf, PortMap, Version, parse_ip};
use postern_firewall::hostport::Syntax;
use postern_keys::Plugin;
use std::collections::BTreeSet;

/// Checks the rules of a plugin.
pub fn check(sheet: &mut Sheet<'_>, node: &Node, path: &str, table: &Plugin, version: Option<Version>) {
    addresses_of_links(sheet, node, path, table);
    if ["bridge", "ptp"].contains(&table.name) {
        mtu_of_pair(sheet, node, path);
    }
    if ["bridge", "ptp", "macvlan", "ipvlan", "vlan"].contains(&table.name) {
        mtu_for_ipv6(sheet, node, path);
        addresses::of_links(sheet, node, path);
    }
    for key in ["master", "device"].iter().filter(|key| table.keys.iter().any(|one| one.name == **key)) {
        not_loopback(sheet, node, path, key);
    }
    match table.name {
        "bridge" => bridge(sheet, node, path, version),
        "ipvlan" => needs_addresses(sheet, node, path),
        "host-device" => device(sheet, node, path),
        "tuning" => sysctls::check(sheet, node, path),
        "sbr" => gateways(sheet, node, path),
        "vlan" => not_empty(sheet, node, path, "master"),
        "vrf" => {
            name_of_link(sheet, node, path, "vrfname");
        }
        "portmap" => portmap(sheet, node, path),
        "bandwidth" => bandwidth(sheet, node, path),
        "flannel" => flannel(sheet, node, path),
        _ => {}
    }
}

/// Returns the place of a key; if the key is missing, the place of the object.
fn place(node: &Node, path: &str, key: &str) -> (usize, String) {
    match node.member(key) {
        Some(member) => (member.at, below(path, key)),
        None => (node.at, path.to_owned()),
    }
}

fn has_ipam(node: &Node) -> bool {
    node.get("ipam").is_some_and(|ipam| !ipam.word("type").is_empty())
}

fn not_empty(sheet: &mut Sheet<'_>, node: &Node, path: &str, key: &str) {
    if let Some(value) = node.get(key).filter(|value| value.text() == Some("")) {
        sheet.error("bad-value", value.at, &below(path, key), format!("`{key}` is empty, and required"), "");
    }
}

/// Checks the link-layer addresses for links: the kernel refuses group addresses and the zero address.
fn addresses_of_links(sheet: &mut Sheet<'_>, node: &Node, path: &str, table: &Plugin) {
    let cni = || Some((node.get("args")?.get("cni")?, below(&below(path, "args"), "cni")));
    let places = [
        (table.keys, Some((node, path.to_owned()))),
        (table.runtime, node.get("runtimeConfig").map(|config| (config, below(path, "runtimeConfig")))),
        (table.args, cni()),
    ];
    for (keys, place) in places {
        let Some((object, here)) = place.filter(|_| keys.iter().any(|key| key.name == "mac")) else { continue };
        let Some(mac) = object.get("mac") else { continue };
        let digits: String = mac.text().unwrap_or_default().chars().filter(char::is_ascii_hexdigit).collect();
        let Ok(number) = u64::from_str_radix(&digits, 16) else { continue };
        // The lowest bit of the first byte marks a group address.
        let is_group = digits.len() == 12 && number & 1 << 40 != 0;
        if is_group || digits.len() == 12 && number == 0 {
            let what = if is_group { "is a multicast address" } else { "is the zero address" };
            let help = "a unicast address, such as 02:00:5e:10:00:01";
            sheet.error("bad-value", mac.at, &below(&here, "mac"), format!("this {what}"), help);
        }
    }
}

/// Checks the MTU of a pair, whose kernel driver has fixed limits.
fn mtu_of_pair(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    let Some(Node { at, tree: Tree::Number(number) }) = node.get("mtu") else { return };
    // A number of more than 32 bits has no effect.
    let is_refused = number.as_u64().is_some_and(|mtu| (1..68).contains(&mtu) || (65_536..1 << 32).contains(&mtu));
    if is_refused {
        let spelt = word_at(sheet.text, *at).unwrap_or_default();
        let message = format!("the kernel makes no pair with an MTU of {spelt}");
        sheet.error(
            "bad-value",
            *at,
            &below(path, "mtu"),
            message,
            "wanted: 68 to 65535, or 0 for the kernel's default",
        );
    }
}

/// Checks the MTU of a link that gets addresses of IPv6: the kernel has no IPv6 on a link with an MTU below 1280.
fn mtu_for_ipv6(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    let Some(Node { at, tree: Tree::Number(number) }) = node.get("mtu") else { return };
    let is_small = number.as_u64().is_some_and(|mtu| (68..1280).contains(&mtu));
    if is_small && node.get("ipam").is_some_and(|ipam| addresses::of_file(ipam).any(|one| one.addr().is_ipv6())) {
        let message = "`ipam` gives addresses of IPv6, and IPv6 needs an MTU of 1280";
        sheet.error("contradiction", *at, &below(path, "mtu"), message, "a greater `mtu`, or addresses of IPv4 alone");
    }
}

/// Refuses the loopback link: no link can be stacked on it, and it stays in its namespace.
fn not_loopback(sheet: &mut Sheet<'_>, node: &Node, path: &str, key: &str) {
    if let Some(value) = node.get(key).filter(|value| value.text() == Some("lo")) {
        let message = "the loopback link can't be moved, and no link can be made on it";
        sheet.error("bad-value", value.at, &below(path, key), message, "name a link of the node's network");
    }
}

/// Checks the name of a link that a plugin makes. The kernel has directories `all` and `default` for the settings of links,
/// and takes `%` for the place of a number.
fn name_of_link(sheet: &mut Sheet<'_>, node: &Node, path: &str, key: &str) {
    let Some((text, at)) = node.get(key).and_then(|node| Some((node.text()?, node.at))) else { return };
    let is_name = text.len() <= 15
        && !["", ".", "..", "all", "default"].contains(&text)
        && !text.contains(|c: char| c.is_ascii_whitespace() || "/:%".contains(c));
    if !is_name {
        let message = format!("{} is no name of a link", postern_cni::quote(text));
        let help = "a name has 1 to 15 bytes, without `/`, `:`, `%` and white space, and is not `all` or `default`";
        sheet.error("bad-value", at, &below(path, key), message, help);
    }
}

/// Warns of an access VLAN that is also in the trunk. The kernel keeps the last setting: the port then has this VLAN
/// only tagged.
fn access_in_trunk(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    let number = |node: &Node, key: &str| match node.get(key).map(|node| &node.tree) {
        Some(Tree::Number(number)) => number.as_u64(),
        _ => None,
    };
    let Some(vlan) = number(node, "vlan").filter(|vlan| *vlan != 0) else { return };
    let trunk = node.get("vlanTrunk").map(Node::items).unwrap_or_default();
    for (at, one) in trunk.iter().enumerate() {
        let range = number(one, "minID").zip(number(one, "maxID"));
        if number(one, "id") == Some(vlan) || range.is_some_and(|(first, last)| (first..=last).contains(&vlan)) {
            let message = format!(
                "VLAN {vlan} is also the access VLAN: the port then carries it only tagged, and drops untagged frames"
            );
            let help = "take this VLAN out of `vlanTrunk`, or leave `vlan` out";
            sheet.warning("contradiction", one.at, &item(&below(path, "vlanTrunk"), at), message, help);
        }
    }
}

fn bridge(sheet: &mut Sheet<'_>, node: &Node, path: &str, version: Option<Version>) {
    name_of_link(sheet, node, path, "bridge");
    access_in_trunk(sheet, node, path);
    if node.is_on("hairpinMode") && node.is_on("promiscMode") {
        let (at, path) = place(node, path, "promiscMode");
        sheet.error(
            "contradiction",
            at,
            &path,
            "`hairpinMode` and `promiscMode` exclude each other",
            "keep one of them",
        );
    }
    if has_ipam(node) && node.is_on("disableContainerInterface") {
        let (at, path) = place(node, path, "disableContainerInterface");
        let message = "`disableContainerInterface` leaves the link down, and `ipam` gives it addresses";
        sheet.error("contradiction", at, &path, message, "keep one of them");
    }
    if !has_ipam(node) {
        for key in ["isGateway", "isDefaultGateway", "ipMasq", "forceAddress"].into_iter().filter(|key| node.is_on(key))
        {
            let (at, path) = place(node, path, key);
            sheet.warning(
                "unused-key",
                at,
                &path,
                format!("without `ipam` there is no address: `{key}` has no effect"),
                "",
            );
        }
        if version.is_some_and(|version| version < Version::V0_3_0) {
            let help = "add `ipam`, or use a `cniVersion` of 0.3.0 or later";
            sheet.error(
                "version",
                node.at,
                path,
                "results of this CNI version have addresses, and there is no `ipam`",
                help,
            );
        }
    }
    let here = below(path, "vlanTrunk");
    for (at, entry) in node.get("vlanTrunk").map(Node::items).unwrap_or_default().iter().enumerate() {
        let path = item(&here, at);
        let number = |key: &str| match entry.get(key).map(|node| &node.tree) {
            Some(Tree::Number(number)) => number.as_i64(),
            _ => None,
        };
        match (number("minID"), number("maxID")) {
            (Some(min), Some(max)) if min > max => {
                sheet.error("contradiction", entry.at, &path, "`minID` is greater than `maxID`", "swap the numbers");
            }
            (Some(_), None) if entry.get("maxID").is_none() => {
                sheet.error(
                    "missing-key",
                    entry.at,
                    &path,
                    "`maxID` is missing beside `minID`",
                    "or use `id` for one VLAN",
                );
            }
            (None, Some(_)) if entry.get("minID").is_none() => {
                sheet.error(
                    "missing-key",
                    entry.at,
                    &path,
                    "`minID` is missing beside `maxID`",
                    "or use `id` for one VLAN",
                );
            }
            _ => {}
        }
    }
}

fn needs_addresses(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    // Later in a list, the addresses of an earlier plugin count.
    let is_first = path.is_empty() || path == item("plugins", 0);
    if is_first && !has_ipam(node) && node.get("prevResult").is_none() {
        sheet.error("missing-key", node.at, path, "`ipam` is missing, and no earlier plugin gives addresses", "");
    }
}

fn device(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    const KEYS: [&str; 4] = ["device", "hwaddr", "kernelpath", "pciBusID"];
    let given: Vec<&str> = KEYS.into_iter().filter(|key| !node.word(key).is_empty()).collect();
    let of_runtime = node.get("capabilities").is_some_and(|capabilities| capabilities.is_on("deviceID"))
        || node.get("runtimeConfig").is_some_and(|config| !config.word("deviceID").is_empty());
    if given.is_empty() && !of_runtime && !KEYS.iter().any(|key| node.get(key).is_some_and(|one| one.text().is_none()))
    {
        let help = "`device`, `hwaddr`, `kernelpath` or `pciBusID`, or the capability `deviceID`";
        sheet.error("missing-key", node.at, path, "no key names the device", help);
    }
    if let [first, second, ..] = given.as_slice() {
        let (at, path) = place(node, path, second);
        sheet.warning(
            "unused-key",
            at,
            &path,
            format!("`{first}` names the device already: `{second}` is ignored"),
            "",
        );
    }
}

fn gateways(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    let Some(list) = node.get("gateways") else { return };
    let here = below(path, "gateways");
    let mut families = BTreeSet::new();
    for (at, one) in list.items().iter().enumerate() {
        let Some(Ok(address)) = one.text().map(parse_ip) else { continue };
        if !families.insert(address.is_ipv4()) {
            let message = "there is a gateway of this IP version already";
            sheet.error("contradiction", one.at, &item(&here, at), message, "at most one for each IP version");
        }
    }
}

/// If no error was found, reads the configuration again, with the reader that plugin and host share.
fn shared(sheet: &mut Sheet<'_>, node: &Node, path: &str, read: impl Fn(&NetConf) -> Result<(), postern_cni::Error>) {
    if sheet.has_errors_below(path) {
        return;
    }
    let outcome = NetConf::parse(Json::from(node.to_value())).and_then(|conf| read(&conf));
    if let Err(error) = outcome {
        let (at, path) = match node.members().iter().find(|member| error.msg.contains(&member.name)) {
            Some(member) if member.name.len() > 4 => (member.at, below(path, &member.name)),
            _ => (node.at, path.to_owned()),
        };
        sheet.error("contradiction", at, &path, error.msg, error.details);
    }
}

fn has_capability(node: &Node, name: &str) -> bool {
    node.get("capabilities").is_some_and(|capabilities| capabilities.is_on(name))
        || node.get("runtimeConfig").is_some_and(|config| config.get(name).is_some())
}

fn portmap(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    shared(sheet, node, path, |conf| PortMap::read(conf).and_then(|map| map.backend().map(drop)));
    for (key, v6) in [("conditionsV4", false), ("conditionsV6", true)] {
        let list = node.get(key).map(Node::items).unwrap_or_default();
        let words: Option<Vec<String>> = list.iter().map(|word| word.text().map(str::to_owned)).collect();
        let words = words.unwrap_or_default();
        let Some(Err(error)) = Syntax::of(&words).map(|syntax| syntax.read(&words, v6)) else { continue };
        let (at, path) = place(node, path, key);
        let message = format!("forwards with these conditions are refused: {error}");
        // Many containers have no IPv6 address. For such a container the key is not read.
        match v6 || !has_capability(node, "portMappings") {
            true => sheet.warning("bad-value", at, &path, message, ""),
            false => sheet.error("bad-value", at, &path, message, ""),
        }
    }
    if !has_capability(node, "portMappings") {
        let help = "`\"capabilities\": {\"portMappings\": true}`";
        sheet.warning("chain", node.at, path, "without the capability `portMappings` portmap forwards nothing", help);
    }
}

fn bandwidth(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    shared(sheet, node, path, |conf| BandwidthConf::read(conf).map(drop));
    let keys = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
    let given = keys.iter().find_map(|key| node.member(key));
    match (given, node.get("capabilities").is_some_and(|capabilities| capabilities.is_on("bandwidth"))) {
        (None, _) if !has_capability(node, "bandwidth") => {
            let help = "`\"capabilities\": {\"bandwidth\": true}`, or rates for all containers";
            sheet.warning(
                "chain",
                node.at,
                path,
                "without rates and the capability `bandwidth` the plugin limits nothing",
                help,
            );
        }
        (Some(member), true) => {
            let message = "the network's rates win: the runtime's rates are ignored";
            sheet.warning(
                "unused-capability",
                member.at,
                &below(path, &member.name),
                message,
                "keep the rates or the capability",
            );
        }
        _ => {}
    }
}

fn flannel(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    shared(sheet, node, path, |conf| Flannel::read(conf).map(drop));
    let Some(delegate) = node.get("delegate").filter(|node| matches!(node.tree, Tree::Object(_))) else { return };
    let name = match delegate.word("type") {
        "" => "bridge",
        name => name,
    };
    plugin::check_delegate(sheet, delegate, &below(path, "delegate"), name);
}
