//! Random sequences of host calls under random policies, checked by an oracle. For any request, only objects change
//! that the policy grants and the attachment owns. After DEL, only granted node objects are left.
//!
//! `POSTERN_FUZZ_SEED` sets the first seed, `POSTERN_FUZZ_RUNS` the number of sequences. Without `POSTERN_FUZZ_RUNS`,
//! the test runs for `SECONDS`. `make fuzz` runs for the time in `POSTERN_FUZZ_SECONDS`.

use crate::attack::attacked_node::AttackedNode;
use anyhow::{Context, Result, anyhow, bail, ensure};
use postern_tests::proof::number;
use postern_tests::{Random, merge};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The duration of the run in `make test`, in seconds.
const SECONDS: u64 = 20;
/// The number of concurrent nodes.
const THREADS: u64 = 2;
/// The number of calls in the longest sequence.
const CALLS: u64 = 120;

/// Capabilities without an object.
const PLAIN: [&str; 12] = [
    "link",
    "veth",
    "addresses",
    "routes",
    "link-sysctl",
    "point-to-point",
    "forwarding",
    "mac-guard",
    "loopback",
    "attachments",
    "resolv-conf",
    "bandwidth",
];

/// The policy of one sequence.
#[derive(Debug)]
struct Rules {
    toml: String,
    granted: Vec<&'static str>,
    bridges: Vec<&'static str>,
    promisc: bool,
    force: bool,
    /// The beginnings of the addresses that may be leased.
    leases: Vec<&'static str>,
    /// The ports of the node that may lead to the container, if the network's configuration has them too.
    ports: (u16, u16),
    /// True if a native plugin has made the link, and the kernel confirms `prevResult`.
    behind: bool,
    /// True if the bridge plugin may run as the delegate, with the operator's [`DELEGATE`].
    delegates: bool,
}

/// The ports of the node in the configuration. One of them, 9443, leads to a bystander already.
const LISTED: [(u16, u16, &str, &str); 6] = [
    (8080, 80, "tcp", ""),
    (8081, 81, "tcp", ""),
    (8053, 53, "udp", ""),
    (22, 22, "tcp", ""),
    (9443, 443, "tcp", ""),
    (8090, 80, "tcp", "192.0.2.1"),
];
/// Ports that lead to a bystander.
const TAKEN: [u16; 3] = [9443, 9053, 9444];
/// The bystanders' addresses.
const FOREIGN: [&str; 2] = ["10.77.0.2", "10.9.0.2"];

/// In some sequences, a native plugin has made a pair on a bridge. Root in the container has also put addresses of
/// other attachments on the container's end.
const NATIVE: &str = "
    ip link add port1 type veth peer name eth0 netns c1
    ip link set port1 up master hostile0; ip -n c1 link set eth0 up
    for address in 10.9.0.77/24 10.77.0.2/24 192.0.2.1/24 10.9.0.2/24; do ip -n c1 addr add $address dev eth0; done";
const NO_NATIVE: &str = "ip link del port1 2>/dev/null || true";
/// The only address of [`NATIVE`] that belongs to the attachment.
const OF_NATIVE: &str = "10.9.0.77";
/// The addresses that `prevResult` claims.
const CLAIMED: [&str; 5] = ["10.9.0.77/24", "10.77.0.2/24", "192.0.2.1/24", "10.9.0.2/24", "10.9.0.78/24"];
/// The operator's bridge for the delegate. No guest can choose another bridge.
const DELEGATE: &str = "hostile0";
/// flanneld's subnet file.
const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// Makes flanneld's file on a node.
const FLANNEL: &str = "mkdir -p /run/flannel; printf \
    'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.9.0.1/24\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n' > /run/flannel/subnet.env";
/// The capabilities that a plugin behind the native plugin may be granted.
const BEHIND: [&str; 6] = ["masquerade", "forwarding", "attachments", "bandwidth", "port-mappings", "firewall"];

/// Returns the configuration of one sequence, as an operator writes it for ports and packet filters.
fn configured(random: &mut Random, rules: &Rules) -> Value {
    let mapping = |(host, container, protocol, ip): &(u16, u16, &str, &str)| json!({"hostPort": host, "containerPort": container, "protocol": protocol, "hostIP": ip});
    let mappings: Vec<Value> = LISTED.iter().map(mapping).collect();
    let mut config = json!({
        "runtimeConfig": {"portMappings": mappings},
        "backend": random.one_of(&["nftables", "iptables"]),
        "ingressPolicy": random.one_of(&["open", "same-bridge", "isolated"]),
        "snat": random.chance(3), "masqAll": random.chance(1),
        "ingressRate": 800_000, "ingressBurst": 800_000, "egressRate": 800_000, "egressBurst": 800_000,
    });
    if random.chance(1) {
        merge(&mut config, &json!({"externalSetMarkChain": "KUBE-MARK-MASQ"}));
    }
    if rules.behind {
        let claimed: Vec<Value> =
            CLAIMED.iter().filter(|_| random.chance(3)).map(|net| json!({"address": net, "interface": 2})).collect();
        let first = random.one_of(&["hostile0", "hostile0", "cni0", "op0"]);
        let links = json!([{"name": first}, {"name": "port1"}, {"name": "eth0", "sandbox": "/run/netns/c1"}]);
        merge(
            &mut config,
            &json!({"prevResult": {"cniVersion": "1.1.0", "interfaces": links, "ips": claimed}, "ipam": null}),
        );
    } else if random.chance(3) {
        let first = random.one_of(&["hostile0", "hostile0", "hostile0", "hostile1", "cni0", "op0"]);
        let ips = [json!({"address": "10.77.0.2/24"}), json!({"address": "192.0.2.1/24"})];
        merge(
            &mut config,
            &json!({"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": first}], "ips": ips}}),
        );
    }
    config
}

impl Rules {
    fn random(random: &mut Random) -> Self {
        let mut rules = Self {
            toml: String::new(),
            granted: Vec::new(),
            bridges: Vec::new(),
            promisc: false,
            force: false,
            leases: Vec::new(),
            ports: (1, 65535),
            behind: random.chance(1),
            delegates: false,
        };
        if rules.behind {
            rules.leases.push(OF_NATIVE);
        }
        let mut tables = String::new();
        let mut withdrawn = Vec::new();
        let with_objects = [
            "bridge",
            "masquerade",
            "ipam",
            "leases",
            "parent",
            "macvlan",
            "vlan",
            "ipvlan",
            "dummy",
            "tap",
            "device",
            "port-mappings",
            "firewall",
            "namespace-sysctl",
            "link-settings",
            "source-routes",
            "vrf",
            "delegate",
            "dhcp",
        ];
        for name in PLAIN.into_iter().chain(with_objects) {
            if !random.chance(3) || rules.behind && !BEHIND.contains(&name) {
                withdrawn.push(name);
                continue;
            }
            rules.granted.push(name);
            let _ = writeln!(tables, "[grant.{name}]");
            let keys = match name {
                "veth" => random.one_of(&["", "mtu = \"1400\"\n"]).to_owned(),
                "forwarding" => random.one_of(&["", "when = [\"false\", \"true\"]\n"]).to_owned(),
                "resolv-conf" => "files = [\"/etc/hostile.conf\"]\n".to_owned(),
                "masquerade" => {
                    let backends =
                        random.one_of(&["\"nftables\"", "\"iptables\"", "\"nftables\", \"iptables\"", "\"nftables\""]);
                    format!("backends = [{backends}]\n")
                }
                "port-mappings" => {
                    rules.ports = random.one_of(&[(1, 65535), (1024, 65535), (8080, 8080)]);
                    let backends = random.one_of(&["\"nftables\"", "\"iptables\"", "\"nftables\", \"iptables\""]);
                    format!("ports = [\"{}-{}\"]\nbackends = [{backends}]\n", rules.ports.0, rules.ports.1)
                }
                "firewall" => {
                    let ingress = random.one_of(&["${config.ingressPolicy | open}", "same-bridge"]);
                    format!("backends = [\"iptables\"]\nadmin-chains = [\"CNI-ADMIN\"]\ningress = [\"{ingress}\"]\n")
                }
                "ipam" => {
                    rules.leases.push("10.9.0.");
                    "types = [\"host-local\"]\n".to_owned()
                }
                "leases" => {
                    let (range, beginning) = random.one_of(&[
                        ("10.9.0.0/24", "10.9.0."),
                        ("10.8.0.0/24", "10.8.0."),
                        ("fd00:9::/64", "fd00:9::"),
                    ]);
                    rules.leases.push(beginning);
                    format!("directories = [\"/var/lib/hostile\"]\nranges = [\"{range}\"]\n")
                }
                "bridge" => rules.bridge(random),
                "parent" => random
                    .one_of(&["names = [\"wire0\"]\n", "names = [\"${node.default-link}\", \"wire*\"]\n"])
                    .to_owned(),
                "macvlan" => random
                    .one_of(&[
                        "modes = [\"bridge\"]\n",
                        "modes = [\"bridge\", \"private\", \"passthru\"]\nmtu = \"1400\"\n",
                    ])
                    .to_owned(),
                "vlan" => random.one_of(&["ids = [\"7\"]\n", "ids = [\"0\", \"4094\"]\nmtu = \"1400\"\n"]).to_owned(),
                "ipvlan" => random.one_of(&["modes = [\"l2\"]\n", "modes = [\"l2\", \"l3\", \"l3s\"]\n"]).to_owned(),
                "tap" => random
                    .one_of(&["owners = [\"0\"]\n", "mtu = \"1400\"\nmulti-queue = \"true\"\nbridges = [\"*\"]\n", ""])
                    .to_owned(),
                "namespace-sysctl" => random
                    .one_of(&["keys = [\"net.*\"]\n", "keys = [\"net.core.*\"]\nother-links = \"true\"\n"])
                    .to_owned(),
                "link-settings" => random
                    .one_of(&[
                        "directories = [\"/var/lib/hostile/*\"]\nmtu = [\"1400\"]\npromisc = [\"true\"]\n",
                        "directories = [\"/var/lib/hostile/tuned\"]\nmacs = [\"02:00:00:00:00:01\"]\ntx-queue-length = [\"5\"]\n",
                    ])
                    .to_owned(),
                "vrf" => random.one_of(&["names = [\"blue\"]\n", "names = [\"*\"]\ntables = [\"10\"]\n"]).to_owned(),
                "delegate" => rules.delegate(random),
                "dhcp" => "sockets = [\"/run/cni/dhcp.sock\"]\n".to_owned(),
                "source-routes" => random.one_of(&["", "tables = [\"100\", \"254\"]\n"]).to_owned(),
                "device" => random.one_of(&["names = [\"wire1\"]\n", "names = [\"wire*\", \"cni0\"]\n"]).to_owned(),
                _ => String::new(),
            };
            tables.push_str(&keys);
        }
        let (operations, handles) = (random.one_of(&[3, 20, 200, 1000]), random.one_of(&[1, 3, 64]));
        if rules.behind {
            tables.push_str("[previous]\nin-container = \"true\"\n");
        }
        rules.toml = format!(
            "withdraw = {withdrawn:?}\n[limits]\nseconds = 5\noperations = {operations}\nhandles = {handles}\n{tables}"
        );
        rules
    }

    fn bridge(&mut self, random: &mut Random) -> String {
        self.bridges = random.one_of(&[&["hostile0"][..], &["hostile1"], &["hostile0", "hostile1"]]).to_vec();
        (self.promisc, self.force) = (random.chance(1), random.chance(1));
        format!(
            "names = {:?}\npromisc = \"{}\"\nforce-address = \"{}\"\nisolated = \"{}\"\nmtu = \"{}\"\nvlan = \"{}\"\ngateways = [\"{}\"]\n",
            self.bridges,
            self.promisc,
            self.force,
            random.chance(1),
            random.one_of(&[0, 1400]),
            random.one_of(&[0, 0, 100]),
            random.chance(2),
        )
    }

    /// The delegate acts under bridge's own policy: on the operator's bridge, with addresses of the subnet.
    fn delegate(&mut self, random: &mut Random) -> String {
        let [granted, file, directory] = [random.below(6), random.below(6), random.below(6)].map(|number| number > 0);
        self.delegates = granted && file && directory;
        if self.delegates {
            self.leases.push("10.9.0.");
        }
        format!(
            "types = [\"{}\"]\nfiles = [\"{}\"]\ndirectories = [\"{}\"]\n",
            if granted { "bridge" } else { "ptp" },
            if file { SUBNET_FILE } else { "/run/flannel/other" },
            if directory { "/var/lib/hostile/*" } else { "/var/lib/cni/flannel" },
        )
    }

    fn grants(&self, name: &str) -> bool {
        self.granted.contains(&name)
    }

    /// Returns true if policy grants the capability, or if bridge needs it as the delegate.
    fn may(&self, name: &str) -> bool {
        self.grants(name) || self.delegates && ["veth", "forwarding", "bridge"].contains(&name)
    }

    /// Returns true if the link is a granted bridge, its VLAN gateway, or the gateway's other end.
    fn is_bridge(&self, link: &str) -> bool {
        let link = link.trim_start_matches("veth(host:").trim_end_matches(')');
        let of_delegate = self.delegates.then_some(&DELEGATE);
        let mut bridges = self.bridges.iter().chain(of_delegate);
        bridges.any(|bridge| link.strip_prefix(bridge).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }

    /// Returns true if a path of the snapshot may differ. `attached` means between a successful ADD and DEL.
    fn allow(&self, path: &str, after: Option<&str>, attached: bool) -> bool {
        if let Some(place) = path.strip_prefix("c1/") {
            // Changes of lo and its IPv6 belong to the namespace and end with it.
            let lo = place.starts_with("links/lo/")
                || place.starts_with("routes/") && place.contains("dev:lo")
                || place.starts_with("sysctls/ipv6/conf/lo/disable_ipv6");
            let own = match place.split_once('/') {
                Some(("links", link)) => link == "eth0" || link.starts_with("eth0/"),
                Some(("routes", route)) => route.contains("dev:eth0"),
                Some(("sysctls", key)) => key.contains("/conf/eth0/"),
                _ => false,
            };
            // The paths have the rules' positions, so a new rule moves the kernel's own rules.
            if place.starts_with("rules/") {
                let is_kernels = |rule: &str| rule.contains("protocol:kernel") && rule.contains("src:all");
                let is_own =
                    |rule: &str| ["src:10.9.0.", "src:10.8.0.", "src:fd00:9:"].iter().any(|src| rule.contains(src));
                let is_fine = |rule: &str| is_kernels(rule) || is_own(rule) && !rule.contains("table:main");
                return attached && self.grants("source-routes") && after.is_none_or(is_fine);
            }
            return own
                && attached
                && ["veth", "macvlan", "vlan", "ipvlan", "dummy", "tap", "device"].iter().any(|name| self.may(name))
                || lo && (self.grants("loopback") || self.grants("link-sysctl"));
        }
        let Some(place) = path.strip_prefix("host/") else { return false };
        let (kind, rest) = place.split_once('/').unwrap_or((place, ""));
        let link = match kind {
            "links" => rest.split('/').next().unwrap_or_default().to_owned(),
            "routes" => rest.split(',').find_map(|word| word.strip_prefix("dev:")).unwrap_or_default().to_owned(),
            "sysctls" if rest.ends_with("/forwarding") || rest == "ipv4/ip_forward" => {
                // A link that appears or disappears has its own entries.
                let of = rest.split('/').nth(2).unwrap_or_default();
                if self.may("forwarding") || of == "all" || of == "default" || rest == "ipv4/ip_forward" {
                    return self.may("forwarding");
                }
                of.to_owned()
            }
            "sysctls" => rest.split('/').nth(2).unwrap_or_default().to_owned(),
            // No other attachment on this node limits a rate.
            "shaping" => {
                let of_native = |line: &str| self.behind && line.contains("port1");
                let is_own = |line: &str| line.contains("veth(c1/eth0)") || line.contains("bwp") || of_native(line);
                return attached && self.grants("bandwidth") && after.is_some_and(is_own);
            }
            _ => return false,
        };
        // The device is in the container, and its other end on the node shows this.
        if ["wire0", "wire1"].contains(&link.as_str()) && attached && self.grants("device") {
            return true;
        }
        // The parent link receives frames for the address of the stacked link.
        if link == "wire0" && rest == "wire0/promiscuity" {
            return attached
                && self.grants("parent")
                && ["macvlan", "vlan", "ipvlan"].iter().any(|name| self.grants(name));
        }
        if rest == "port1/qdisc" {
            return attached && self.behind && self.grants("bandwidth");
        }
        // This link limits the rate of the container's frames.
        if link.starts_with("bwp") {
            return attached && self.grants("bandwidth");
        }
        if link == "veth(c1:eth0)" || link == "veth(?)" && kind == "routes" {
            return attached && self.may("veth");
        }
        // Promiscuous mode is a separate grant.
        let promisc = after.is_some_and(|after| after.contains("PROMISC") || after.contains("\"promiscuity\":1"));
        self.is_bridge(&link) && (!promisc || self.promisc)
    }

    /// Checks rules of packet filters: all earlier rules still exist, and new rules belong to this attachment.
    fn allow_rules(&self, before: &Value, after: &Value, config: &Value, attached: bool) -> Result<()> {
        let filters = ["masquerade", "mac-guard", "port-mappings", "firewall"].iter().any(|name| self.grants(name));
        let empty = serde_json::Map::new();
        for which in ["nft", "iptables"] {
            let of = |tree: &Value| {
                tree.pointer(&format!("/host/{which}")).and_then(Value::as_object).unwrap_or(&empty).clone()
            };
            let (before, after) = (of(before), of(after));
            let lines = |tree: &serde_json::Map<String, Value>, key: &str| -> Vec<String> {
                tree.get(key).and_then(Value::as_array).into_iter().flatten().map(Value::to_string).collect()
            };
            for key in before.keys().chain(after.keys()) {
                let (had, has) = (lines(&before, key), lines(&after, key));
                if let Some(lost) = had.iter().find(|line| !has.contains(line)) {
                    bail!("{which}: {key}: {lost} is gone");
                }
                for new in has.iter().filter(|line| !had.contains(line)) {
                    let appeared = || format!("{which}: {key}: {new} appeared");
                    let tagged = new.contains("c1");
                    // The attachment's chains and the shared base chains are allowed. nft shows comments of iptables
                    // without their text. The iptables listing has the text, and is checked too.
                    let elsewhere = which == "nft" && new.contains("{\"xt\":{\"name\":\"comment\"");
                    let tagged = tagged || elsewhere;
                    let chain = key.contains(": chain ") || key.contains("CNI-") || !key.contains("rules of");
                    ensure!(filters && (chain || tagged && attached), "{}", appeared());
                    // 10.9.0.21 is another address than 10.9.0.2.
                    let names = |address: &str| {
                        new.split(address).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
                    };
                    let is_foreign = FOREIGN.iter().any(|address| names(address));
                    ensure!(!is_foreign, "{}, for a bystander", appeared());
                    self.allow_forward(key, new, attached).with_context(appeared)?;
                    self.allow_forwarding(key, new, config, attached).with_context(appeared)?;
                }
            }
        }
        Ok(())
    }

    /// Checks a rule that forwards packets of a port. Configuration and policy must have the port, and the address must
    /// be the attachment's own.
    fn allow_forward(&self, key: &str, new: &str, attached: bool) -> Result<()> {
        let of_nft = key.contains("cni_hostport: rules of hostports");
        let of_iptables = key.contains("rules of CNI-DN-") && new.contains("--to-destination");
        if !of_nft && !of_iptables {
            return Ok(());
        }
        ensure!(attached && self.grants("port-mappings"), "a forward without a grant");
        let behind = if of_nft { "\"right\":" } else { "--dport " };
        // With a host IP, the rule also has an address before the port.
        let ports: Vec<u16> = new.split(behind).skip(1).filter_map(leading_number).collect();
        let is_listed = |port: &u16| LISTED.iter().any(|listed| listed.0 == *port) && !TAKEN.contains(port);
        let is_granted = |port: &u16| (self.ports.0..=self.ports.1).contains(port);
        ensure!(ports.iter().any(|port| is_listed(port) && is_granted(port)), "port {ports:?}");
        ensure!(!ports.iter().any(|port| TAKEN.contains(port)), "port {ports:?}");
        let target = match of_nft {
            true => new.split("\"addr\":\"").nth(1).and_then(|rest| rest.split('"').next()),
            false => new.split("--to-destination ").nth(1).map(|rest| rest.trim_start_matches('[')),
        };
        let target = target.unwrap_or_default();
        let target = target.split(']').next().unwrap_or_default();
        let target = if target.contains('.') { target.split(':').next().unwrap_or_default() } else { target };
        let is_own = self.leases.iter().any(|beginning| target.starts_with(beginning));
        ensure!(is_own && !FOREIGN.contains(&target), "to {target:?}");
        Ok(())
    }

    /// Checks a rule of the firewall plugin. It must be for the attachment's own address, or isolate a granted bridge
    /// as the network says.
    fn allow_forwarding(&self, key: &str, new: &str, config: &Value, attached: bool) -> Result<()> {
        if !key.starts_with("ip") || !key.contains("filter: rules of CNI-") || !new.starts_with("\"-A") {
            return Ok(());
        }
        ensure!(self.grants("firewall"), "a firewall rule without a grant");
        let after = |option: &str| new.split(option).nth(1).and_then(|rest| rest.split([' ', '/']).next());
        if key.contains("rules of CNI-FORWARD") {
            let address = after(" -s ").or_else(|| after(" -d ")).unwrap_or_default();
            let is_own = self.leases.iter().any(|beginning| address.starts_with(beginning));
            ensure!(attached && is_own && !FOREIGN.contains(&address), "for {address}");
        } else {
            let wanted = config.get("ingressPolicy").and_then(Value::as_str).unwrap_or_default();
            let bridge = after(" -i ").or_else(|| after(" -o ")).unwrap_or_default();
            // The host end may belong to the native plugin or the delegate.
            let is_of_others = self.behind && bridge == "hostile0" || self.delegates && bridge == DELEGATE;
            ensure!(self.bridges.contains(&bridge) || is_of_others, "of {bridge}");
            ensure!(
                wanted != "open" && (wanted == "isolated" || !new.contains("ingressPolicy: isolated)")),
                "{wanted}"
            );
        }
        Ok(())
    }

    /// Checks files: only leases of this container in granted ranges, and Postern's own data about these leases, may
    /// change.
    fn allow_file(&self, path: &str, content: Option<&str>, attached: bool) -> bool {
        if let Some(name) = path.strip_prefix("files//var/lib/hostile/tuned/") {
            let is_own = |grants: bool, file: &str| grants && (name.is_empty() || attached && name == file);
            return is_own(self.grants("link-settings"), "c1_eth0.json") || is_own(self.delegates, "c1");
        }
        let Some(name) = path.strip_prefix("files//var/lib/hostile/net/") else {
            return path == "files//var/lib/hostile/net/";
        };
        let owned = content.is_some_and(|content| content.contains("c1\\r\\neth0"));
        name.starts_with("last_reserved_ip.")
            || name == "lock"
            || attached && owned && self.leases.iter().any(|beginning| name.starts_with(beginning))
    }

    /// Checks records, notes and policies: only the attachment's own record may change.
    fn allow_note(&self, path: &str, before: Option<&String>, after: Option<&String>, attached: bool) -> bool {
        match (before, after) {
            (None, Some(new)) if path.starts_with("/run/postern/attachments/") => {
                attached && new.contains("\"container_id\":\"c1\"")
            }
            (_, Some(_) | None) if path.starts_with("/run/postern/verified") => true,
            (None, Some(new)) if path.starts_with("/run/postern/node") => {
                self.bridges.iter().any(|bridge| new.contains(bridge))
                    || self.delegates && new.contains(DELEGATE)
                    || self.behind
                        && self.grants("firewall")
                        && new.contains("\"isolation\"")
                        && new.contains("hostile0")
                    || new.contains("\"forwarding\"") && self.may("forwarding")
                    || new.contains("\"route-localnet\"") && self.grants("port-mappings")
                    || new.starts_with("4")
            }
            // A granted bridge was gone and was made again, with another index. No other part of the note may differ.
            (Some(old), Some(new)) if path.starts_with("/run/postern/node/bridge-") => {
                let same = |text: &str| text.split("\"created\"").next().map(str::to_owned);
                let of_delegate = self.delegates.then_some(&DELEGATE);
                self.bridges.iter().chain(of_delegate).any(|bridge| new.contains(bridge)) && same(old) == same(new)
            }
            // A granted isolation was requested again or loosened, so it is noted again.
            (Some(old), Some(new)) if path.starts_with("/run/postern/node/isolation-") => {
                let same = |text: &str| text.split("\"created\"").next().map(str::to_owned);
                let is_granted = self.behind || self.bridges.iter().any(|bridge| new.contains(bridge));
                is_granted && self.grants("firewall") && same(old) == same(new)
            }
            _ => false,
        }
    }

    fn judge(&self, attacked: &mut AttackedNode, config: &Value, attached: bool) -> Result<()> {
        let (before, after) = attacked.trees()?;
        let mut wrong = Vec::new();
        for mismatch in postern_tests::compare(&before.0, &after.0) {
            // Paths of links contain the separator of symbols.
            let path = &mismatch.path.replace("veth(c1/", "veth(c1:").replace("veth(host/", "veth(host:");
            let fine = if path.starts_with("host/nft/") || path.starts_with("host/iptables") {
                true
            } else if path.starts_with("host/nft comments") {
                ["masquerade", "mac-guard", "port-mappings"].iter().any(|name| self.grants(name))
            } else if path.starts_with("files/") {
                self.allow_file(path, mismatch.ours.as_deref(), attached)
            } else {
                self.allow(path, mismatch.ours.as_deref(), attached)
            };
            if !fine {
                wrong.push(mismatch.to_string().chars().take(400).collect::<String>());
            }
        }
        if let Err(error) = self.allow_rules(&before.0, &after.0, config, attached) {
            wrong.push(format!("{error:#}"));
        }
        for path in before.1.keys().chain(after.1.keys()) {
            let (had, has) = (before.1.get(path), after.1.get(path));
            if had != has && !self.allow_note(path, had, has, attached) {
                wrong.push(format!("{path}: {had:?} became {has:?}"));
            }
        }
        wrong.truncate(6);
        ensure!(wrong.is_empty(), "attached: {attached}\n{}", wrong.join("\n"));
        Ok(())
    }
}

/// Operations that need many earlier steps. The run prints the number of their successes.
const COUNTED: [&str; 6] = [
    "port-mappings.ensure",
    "port-mappings.check",
    "firewall.admit",
    "firewall.isolate",
    "bandwidth.limit",
    "delegate.add",
];

/// Returns the number at the beginning of a text.
fn leading_number(text: &str) -> Option<u16> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Runs one sequence on ADD, a second sequence on a later verb, and then a DEL.
fn run(attacked: &mut AttackedNode, seed: u64, calls: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let rules = Rules::random(&mut random);
    let failed = |what: &str, error: anyhow::Error| anyhow!("{what}: {error:#}\nunder\n{}", rules.toml);
    // `behind` is the component `hostile`, installed as a plugin that makes no link. DEL of `hostile` would remove the
    // link.
    let plugin = if rules.behind { "behind" } else { "hostile" };
    attacked.operator_policy(plugin, &rules.toml)?;
    let mut config = crate::attack::base();
    merge(&mut config, &configured(&mut random, &rules));
    if rules.behind {
        attacked.prepare(NATIVE)?;
    }
    let claimed = if rules.behind { CLAIMED.join(" ") } else { String::new() };
    let ending = random.one_of(&["good", "good", "silent", "trap"]);
    merge(
        &mut config,
        &json!({
            "type": plugin, "hostile": ending, "sequence": format!("{seed} {calls} {claimed}"), "cni.dev/valid-attachments": [],
            "dataDir": "/var/lib/hostile/tuned", "delegate": {"bridge": DELEGATE}, "mac": random.one_of(&["", "02:00:00:00:00:01"]),
            "sysctl": {"net.core.somaxconn": "500", "net.core.rmem_max": "1", "net.ipv4.conf.eth9.arp_filter": "1"},
        }),
    );
    let added = attacked.plugin(plugin, "ADD", &config)?;
    ensure!(added.status == 0 || added.status == 1, "seed {seed}: {added:?}");
    rules.judge(attacked, &config, added.status == 0).map_err(|error| failed("after ADD", error))?;
    let verb = random.one_of(&["CHECK", "DEL", "STATUS", "DEL"]);
    merge(&mut config, &json!({"on": verb, "sequence": format!("{} {calls} {claimed}", seed ^ 0xffff)}));
    let later = attacked.plugin(plugin, verb, &config)?;
    ensure!(later.status == 0 || later.status == 1, "seed {seed}: {later:?}");
    merge(&mut config, &json!({"on": "never"}));
    attacked.plugin(plugin, "DEL", &config)?.success()?;
    rules.judge(attacked, &config, false).map_err(|error| failed(&format!("after {verb} and DEL"), error))?;
    attacked.operator_policy(plugin, "")?;
    if rules.behind {
        attacked.node().sh(NO_NATIVE)?;
    }
    if random.chance(1) {
        attacked.node().sh(
            "ip link del hostile1 2>/dev/null || true; ip addr flush dev hostile0; ip link set hostile0 promisc off",
        )?;
    }
    attacked.look()
}

/// A node, with a subnet file.
fn place() -> Result<AttackedNode> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(FLANNEL)?;
    Ok(attacked)
}

/// Halves the number of calls while the sequence fails on a fresh node.
fn shrink(seed: u64, mut calls: u64, mut error: anyhow::Error) -> anyhow::Error {
    while calls > 1 {
        let half = place().and_then(|mut attacked| run(&mut attacked, seed, calls / 2));
        match half {
            Ok(()) => break,
            Err(smaller) => (calls, error) = (calls / 2, smaller),
        }
    }
    error.context(format!("POSTERN_FUZZ_SEED={seed} POSTERN_FUZZ_RUNS=1, {calls} calls"))
}

#[test]
fn random_sequences_stay_within_their_policy() -> Result<()> {
    let first = number("POSTERN_FUZZ_SEED").unwrap_or(1);
    let asked = number("POSTERN_FUZZ_RUNS");
    let runs = asked.unwrap_or(u64::MAX);
    // If a number of sequences is given, the time has no limit.
    let seconds = number("POSTERN_FUZZ_SECONDS").unwrap_or(if asked.is_some() { 1 << 20 } else { SECONDS });
    let until = Instant::now() + Duration::from_secs(seconds);
    let next = AtomicU64::new(0);
    let totals = std::thread::scope(|scope| {
        let work = || -> Result<BTreeMap<String, u64>> {
            let mut attacked = place()?;
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= runs || Instant::now() >= until {
                    return decisions(&attacked);
                }
                let (seed, calls) = (first + at, 1 + (first + at) * 7 % CALLS);
                if let Err(error) = run(&mut attacked, seed, calls) {
                    next.store(runs, Ordering::Relaxed);
                    return Err(shrink(seed, calls, error));
                }
            }
        };
        let threads: Vec<_> = (0..THREADS.min(runs)).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect::<Result<Vec<_>>>()
    })?;
    let total = |what: &str| totals.iter().filter_map(|total| total.get(what)).sum::<u64>();
    let sequences = next.load(Ordering::Relaxed).saturating_sub(THREADS.min(runs)).min(runs);
    let (allowed, denied, failed) = (total("ok"), total("deny"), total("failed"));
    println!(
        "{sequences} sequences: {} host calls, {allowed} carried out, {denied} denied, {failed} failed otherwise",
        allowed + denied + failed
    );
    let carried_out = COUNTED.map(|operation| format!("{operation} {}", total(operation)));
    println!("carried out: {}", carried_out.join(", "));
    ensure!(sequences > 0 && allowed > 0 && denied > 0, "no sequence ran, or no call was allowed or denied");
    Ok(())
}

/// Returns the outcomes of the guest's calls in the audit log.
fn decisions(attacked: &AttackedNode) -> Result<BTreeMap<String, u64>> {
    let mut totals = BTreeMap::new();
    let log = attacked.node().sh("cat /var/log/postern/audit.jsonl*")?;
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let is = |key: &str, value: &str| line.get(key).and_then(Value::as_str) == Some(value);
        if is("plugin", "hostile") || is("plugin", "behind") {
            let what = if is("decision", "deny") {
                "deny"
            } else if is("result", "ok") {
                "ok"
            } else {
                "failed"
            };
            *totals.entry(what.to_owned()).or_default() += 1;
            let operation = line.get("operation").and_then(Value::as_str).unwrap_or_default();
            if what == "ok" && COUNTED.contains(&operation) {
                *totals.entry(operation.to_owned()).or_default() += 1;
            }
        }
    }
    Ok(totals)
}
