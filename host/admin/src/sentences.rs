//! What each function of `wit/` amounts to, one sentence per group of functions. A test holds this list against `wit/`:
//! a function without a sentence is a function that no reviewer is told of.

use crate::words::{Objects, Switch};

/// A group of functions that come to the same.
pub struct Group {
    /// WIT interface.
    pub capability: &'static str,
    /// One of these has to be imported.
    pub functions: &'static [&'static str],
    /// All of these as well: setters of what the function takes.
    pub with: &'static [&'static str],
    /// What it lets a plugin do, after "can"; `None` if no object that the policy grants is left.
    pub text: fn(&Objects<'_>) -> Option<String>,
    /// It leads out of the sandbox.
    pub host_privileges: bool,
}

/// A group that is the same whatever the policy says.
const fn group(
    capability: &'static str,
    functions: &'static [&'static str],
    text: fn(&Objects<'_>) -> Option<String>,
) -> Group {
    Group { capability, functions, with: &[], text, host_privileges: false }
}

/// The same with the setters that it takes.
const fn with(
    capability: &'static str,
    functions: &'static [&'static str],
    with: &'static [&'static str],
    text: fn(&Objects<'_>) -> Option<String>,
) -> Group {
    Group { capability, functions, with, text, host_privileges: false }
}

fn say(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A sentence about objects of a key, unless the policy leaves none.
fn about(objects: &Objects<'_>, key: &str, noun: &str, text: impl FnOnce(String) -> String) -> Option<String> {
    (!objects.none(key)).then(|| text(objects.words(key, noun)))
}

fn bridge(objects: &Objects<'_>, text: impl FnOnce(String) -> String) -> Option<String> {
    about(objects, "names", "bridge", text)
}

fn switched(objects: &Objects<'_>, key: &str, off: &str, text: &str) -> Option<String> {
    match objects.switch(key, off) {
        Switch::Off => None,
        Switch::On(when) => Some(format!("{text}{when}")),
    }
}

/// Functions that reach nothing outside of the sandbox, and have no sentence: what a route is made of.
pub const IN_THE_SANDBOX: &str = "routes#[method]route.";

/// Everything, in the order of `wit/world.wit`.
pub const GROUPS: &[Group] = &[
    group("link", &["own", "[method]link.attributes"], |_| say("look at its own link in the container")),
    group("link", &["[method]link.up"], |_| say("set its own link up")),
    group("link", &["[method]link.delete"], |_| say("delete its own link, and with it the other end of its pair")),
    group("veth", &["find", "[method]host-end.attributes", "[method]host-end.wait-running"], |_| {
        say("look at both ends of its own veth pair")
    }),
    group("veth", &["create"], |_| {
        say("create one veth pair between this container and the host, and no other while it lives")
    }),
    with("veth", &["create"], &["[method]options.set-mac"], |_| {
        say("choose the link-layer address of the container's end of that pair")
    }),
    with("veth", &["create"], &["[method]options.set-mtu"], |objects| match objects.switch("mtu", "0") {
        _ if !matches!(objects, Objects::Of(_)) => say("choose the MTU of that pair"),
        Switch::Off => None,
        Switch::On(_) => Some(format!("give that pair {}", objects.words_but("mtu", "MTU", "0"))),
    }),
    group("addresses", &["add"], |_| {
        say("put on its own link the addresses that IPAM gave this attachment, and no others")
    }),
    group("addresses", &["list", "settle"], |_| say("look at the addresses of its own link")),
    group("routes", &["add"], |_| say("add routes through its own link, in the container")),
    group("routes", &["remove-connected"], |_| say("remove the kernel's own routes to its networks, in the container")),
    group("routes", &["list"], |_| say("look at the routes through its own link")),
    group("link-sysctl", &["set-accept-dad", "set-enhanced-dad"], |_| {
        say("switch duplicate address detection of its own link on or off (accept_dad, enhanced_dad)")
    }),
    group("link-sysctl", &["set-arp-notify"], |_| {
        say("have its own link announce itself when it comes up (arp_notify)")
    }),
    group("link-sysctl", &["set-keep-addr-on-down"], |_| {
        say("have its own link keep its addresses while it is down (keep_addr_on_down)")
    }),
    group("link-sysctl", &["set-disable-ipv6"], |_| say("switch IPv6 of its own link on or off (disable_ipv6)")),
    group("bridge", &["find", "[method]bridge.attributes", "[method]bridge.promisc"], |objects| {
        bridge(objects, |bridge| format!("look at {bridge}"))
    }),
    group("bridge", &["ensure"], |objects| {
        bridge(objects, |bridge| format!("create {bridge} if it is missing, and set it up"))
    }),
    with("bridge", &["ensure"], &["[method]options.set-mtu"], |objects| match objects.switch("mtu", "0") {
        _ if !matches!(objects, Objects::Of(_)) => say("create that bridge with any MTU"),
        Switch::Off => None,
        Switch::On(_) => Some(format!("create that bridge with {}", objects.words_but("mtu", "MTU", "0"))),
    }),
    with("bridge", &["ensure"], &["[method]options.set-vlan-filtering"], |objects| {
        bridge(objects, |_| "create that bridge with VLAN filtering".to_owned())
    }),
    with("bridge", &["ensure"], &["[method]options.set-promisc"], |objects| {
        switched(objects, "promisc", "false", "set that bridge promiscuous")
    }),
    group("bridge", &["[method]bridge.attach"], |objects| {
        bridge(objects, |bridge| {
            let isolated = match (objects, objects.switch("isolated", "false")) {
                (Objects::Of(_), Switch::On(when)) => format!(", as an isolated port only{when}"),
                _ => String::new(),
            };
            format!("attach its own end of the pair, and no other link, to {bridge}{isolated}")
        })
    }),
    with("bridge", &["[method]bridge.attach"], &["[method]port.set-vlan"], |objects| {
        match objects.switch("vlan", "0") {
            Switch::Off => None,
            Switch::On(_) => Some(format!(
                "join that bridge in {} only, if the bridge filters VLANs",
                objects.words_but("vlan", "VLAN", "0")
            )),
        }
    }),
    with("bridge", &["[method]bridge.attach"], &["[method]port.set-trunk"], |objects| {
        about(objects, "trunk", "VLAN", |vlans| format!("have its port carry {vlans}, tagged, and no others"))
    }),
    with("bridge", &["[method]bridge.attach"], &["[method]port.set-preserve-default-vlan"], |objects| {
        switched(objects, "preserve-default-vlan", "false", "keep the default VLAN on its port")
    }),
    with("bridge", &["[method]bridge.attach"], &["[method]port.set-hairpin"], |objects| {
        bridge(objects, |_| "let frames leave through the port that they came in by".to_owned())
    }),
    with("bridge", &["[method]bridge.attach"], &["[method]port.set-isolated"], |objects| {
        bridge(objects, |_| "isolate its port from other isolated ports".to_owned())
    }),
    group("bridge", &["[method]bridge.ensure-gateways"], |objects| {
        let when = objects.condition("gateways")?;
        bridge(objects, |bridge| {
            format!(
                "have the gateways of its own addresses, each in its address's network, put on {bridge}, or on its VLAN gateway{when}"
            )
        })
    }),
    group("bridge", &["[method]bridge.ensure-gateways"], |objects| {
        switched(objects, "force-address", "false", "replace an address of that bridge that is in the way")
    }),
    group("point-to-point", &["ensure"], |_| {
        say("have the host route its own addresses, and no others, to its own end of the pair")
    }),
    group("forwarding", &["enable"], |_| say("have the node's IP forwarding switched on (never off)")),
    group("masquerade", &["ensure"], |objects| {
        about(objects, "backends", "backend", |backends| {
            format!("masquerade its own addresses, and no others, with {backends}")
        })
    }),
    group("masquerade", &["check"], |_| say("compare the masquerading of its own addresses")),
    group("masquerade", &["remove"], |_| say("remove the masquerading of its own addresses")),
    group("mac-guard", &["ensure"], |objects| {
        let must = match objects.switch("required", "false") {
            Switch::On(when) if matches!(objects, Objects::Of(_)) => format!(" (and must{when})"),
            _ => String::new(),
        };
        Some(format!("have frames dropped that come from its own container under another source address{must}"))
    }),
    group("mac-guard", &["check"], |_| say("compare the rules that do so")),
    group("mac-guard", &["remove"], |_| say("remove the rules that do so, once its port is down")),
    group("ipam", &["add", "del", "check", "status", "gc"], |objects| {
        about(objects, "types", "IPAM plugin", |plugins| format!("run {plugins}, sandboxed under its own policy"))
    }),
    Group {
        capability: "ipam",
        functions: &["add", "del", "check", "status", "gc"],
        with: &[],
        text: |objects| {
            about(objects, "native", "native program", |program| {
                format!("RUN {program} WITH ALL OF THE HOST'S PRIVILEGES, outside of any sandbox")
            })
        },
        host_privileges: true,
    },
    group("leases", &["reserve"], |objects| {
        about(objects, "directories", "directory", |directories| {
            let ranges = objects.words("ranges", "range");
            format!("take leases of this network in {directories}, for this attachment only, out of {ranges}")
        })
    }),
    group("leases", &["held", "available"], |objects| {
        about(objects, "directories", "directory", |directories| {
            format!("look at its own leases in {directories}, and whether an address is free")
        })
    }),
    group("leases", &["release"], |objects| {
        about(objects, "directories", "directory", |directories| {
            format!("give its own leases in {directories} back, once its pair and its rules are gone")
        })
    }),
    group("leases", &["retain"], |objects| {
        about(objects, "directories", "directory", |directories| {
            format!("free this network's leases in {directories} whose owners the runtime no longer lists")
        })
    }),
    group("resolv-conf", &["read"], |objects| {
        about(objects, "files", "resolver file", |files| format!("read the name servers (never the text) of {files}"))
    }),
    group("loopback", &["up"], |_| say("set lo of the container up")),
    group("loopback", &["down"], |_| say("set lo of the container down")),
    group("loopback", &["addresses"], |_| say("look at lo of the container")),
    group("attachments", &["collect"], |_| {
        say("remove what it made itself for attachments of this network that the runtime no longer lists")
    }),
];

/// What a plugin that does not import a capability cannot do.
pub const CANNOT: &[(&str, &str)] = &[
    ("link", "touch a link in the container"),
    ("veth", "create interfaces"),
    ("addresses", "set addresses"),
    ("routes", "set routes"),
    ("link-sysctl", "write sysctls"),
    ("bridge", "touch a bridge"),
    ("point-to-point", "route addresses on the host"),
    ("forwarding", "switch IP forwarding"),
    ("masquerade", "masquerade"),
    ("mac-guard", "filter frames"),
    ("ipam", "run an IPAM plugin"),
    ("leases", "take leases"),
    ("resolv-conf", "read a resolver file"),
    ("loopback", "touch lo"),
    ("attachments", "collect garbage"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every function of `wit/`, as components spell it.
    fn functions() -> BTreeSet<(String, String)> {
        let mut all = BTreeSet::new();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "wit") {
                continue;
            }
            let (mut interface, mut resource) = (String::new(), None::<String>);
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let words: Vec<&str> = line.split([' ', ':', ';', '(']).filter(|word| !word.is_empty()).collect();
                match (words.as_slice(), line) {
                    (["interface", name, ..], _) => interface = (*name).to_owned(),
                    (["resource", name, ..], _) => resource = Some((*name).to_owned()),
                    (_, "    }") => resource = None,
                    ([name, "func", ..], _) => {
                        let name = name.trim_start_matches('%');
                        let full = resource.as_ref().map_or(name.to_owned(), |of| format!("[method]{of}.{name}"));
                        all.insert((interface.clone(), full));
                    }
                    _ => {}
                }
            }
        }
        all
    }

    #[test]
    fn every_function_of_wit_has_a_sentence() {
        let all = functions();
        assert!(all.len() > 50, "{all:?}");
        for (interface, function) in &all {
            if format!("{interface}#{function}").starts_with(IN_THE_SANDBOX) {
                continue;
            }
            let told = GROUPS.iter().any(|group| {
                group.capability == interface && group.functions.iter().chain(group.with).any(|name| name == function)
            });
            assert!(told, "{interface}#{function} has no sentence");
        }
        for group in GROUPS {
            for function in group.functions.iter().chain(group.with) {
                let key = (group.capability.to_owned(), (*function).to_owned());
                assert!(all.contains(&key), "{key:?} is not in wit/");
            }
        }
    }

    #[test]
    fn every_capability_of_wit_can_be_denied_in_words() {
        let of_wit: BTreeSet<String> = functions().into_iter().map(|(interface, _)| interface).collect();
        let told: BTreeSet<String> = CANNOT.iter().map(|(capability, _)| (*capability).to_owned()).collect();
        assert_eq!(of_wit, told);
    }
}
