//! A snapshot of everything on a node that a plugin may change, as a JSON tree. Random values and values that depend on
//! time are left out.
//!
//! These values are left out: interface and namespace indexes, rule handles, timers and counters. The kernel adds other
//! values later: link-local addresses and their routes, IPv6 local routes, and carrier state. These later values are
//! left out, too. The values that cause them (flags, sysctls, addresses, masters) are included.

use crate::{Names, Node, netlink};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// The arguments and the input with which `ip` prints both IP versions.
const BOTH: (&[&str], &str) = (&["-j", "-d", "-batch", "-"], "addr show\nroute show table all\nrule show\n");

/// The output of `ip` for IPv6 rules. The key is the kernel's answer. Most namespaces have the same rules, so `ip`
/// seldom has to run.
static RULES_V6: Mutex<BTreeMap<Vec<u8>, String>> = Mutex::new(BTreeMap::new());

/// The sysctls of a namespace, below /proc/sys/net: a directory, and the names in each of its subdirectories.
const SYSCTLS: [(&str, &[&str]); 2] = [
    (
        "ipv4/conf",
        &["forwarding", "arp_notify", "arp_ignore", "rp_filter", "route_localnet", "proxy_arp", "accept_local"],
    ),
    (
        "ipv6/conf",
        &[
            "forwarding",
            "accept_ra",
            "accept_dad",
            "enhanced_dad",
            "disable_ipv6",
            "keep_addr_on_down",
            "ndisc_notify",
            "proxy_ndp",
            "addr_gen_mode",
        ],
    ),
];

/// The size in bytes above which a digest stands for a file's content. Only programs are larger.
const LARGE: u64 = 256 << 10;

/// A script that prints the qdiscs that a plugin set, and the ingress filters of links. It leaves out the kernel's
/// numbers of actions and references.
const SHAPING: &str = r#"
tc qdisc show | grep -v ' 0: ' | sed 's/ refcnt [0-9]*//; s/ direct_packets_stat [0-9]*//'
tc qdisc show | sed -n 's/^qdisc ingress .* dev \([^ ]*\) .*/\1/p' | while read -r link; do
  tc filter show dev "$link" ingress | sed -n "s/^/$link /; s/index [0-9].*//; /flowid\|match\|action/p"
done
"#;

impl Node {
    /// Returns the snapshot of the host, of those `containers` that still exist, and of the files below `/run` and
    /// `/var/lib`. `names` learns the random values of the snapshot and replaces them.
    ///
    /// # Errors
    /// A tool fails, or its output is not as expected.
    pub fn snapshot(&self, containers: &[&str], names: &mut Names) -> Result<Value> {
        let mut namespaces: Vec<(String, Network)> = Vec::new();
        for container in containers.iter().filter(|container| self.path(self.netns(container)).exists()) {
            let network = self.network(Some(container)).with_context(|| format!("of container {container}"))?;
            namespaces.push(((*container).to_owned(), network));
        }
        let mut host = self.network(None).context("of the host")?;
        self.firewall(&mut host).context("of the host")?;
        // Few cases limit a rate, so most snapshots save the start of tc.
        if host.links.iter().any(|link| text(link, "qdisc") != "noqueue" && text(link, "qdisc") != "noop") {
            host.shaping = self.sh(SHAPING)?.lines().map(str::to_owned).collect();
        }
        learn(&host, &namespaces, names);

        let mut tree = Map::new();
        namespaces.push(("host".to_owned(), host));
        for (name, network) in namespaces {
            tree.insert(name, network.tree(names)?);
        }
        let mut files = BTreeMap::new();
        for root in ["/var/lib", "/run"] {
            collect_files(&self.path(root), root, &mut files)?;
        }
        tree.insert("files".to_owned(), apply(names, &json!(files))?);
        Ok(Value::Object(tree))
    }

    /// Returns the output of a tool in a container's namespace, or in the node's own.
    fn tool(&self, container: Option<&str>, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.run(container, Command::new(program).args(arguments), Some(input.as_bytes()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} {}: {}: {said}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns links, routes, rules and sysctls of a namespace.
    fn network(&self, container: Option<&str>) -> Result<Network> {
        let [links, routes, rules4] = arrays(&self.tool(container, "ip", BOTH.0, BOTH.1)?)?;
        let [rules6] = arrays(&self.rules_v6(container)?)?;
        Ok(Network {
            links,
            routes,
            rules: [rules4, rules6].concat(),
            sysctls: self.within(container, || Ok(sysctls()))?,
            nft: Vec::new(),
            nft_text: String::new(),
            iptables: String::new(),
            shaping: Vec::new(),
        })
    }

    /// Returns the output of `ip` for the IPv6 rules of a namespace.
    fn rules_v6(&self, container: Option<&str>) -> Result<String> {
        let key = self.within(container, netlink::rules_v6)?;
        if let Some(printed) = RULES_V6.lock().ok().and_then(|known| known.get(&key).cloned()) {
            return Ok(printed);
        }
        let printed = self.tool(container, "ip", &["-6", "-j", "-d", "rule", "show"], "")?;
        if let Ok(mut known) = RULES_V6.lock() {
            known.insert(key, printed.clone());
        }
        Ok(printed)
    }

    /// Adds the rules of nftables and of the legacy iptables. nft and the iptables programs run only if tables exist.
    fn firewall(&self, network: &mut Network) -> Result<()> {
        let mut rules = String::new();
        if self.within(None, netlink::has_nft_tables)? {
            rules = self.tool(None, "nft", &["-j", "list", "ruleset"], "")?;
            network.nft_text = self.tool(None, "nft", &["-s", "list", "ruleset"], "")?;
            network.iptables = self.tool(None, "iptables-save", &[], "")?;
            network.iptables.push_str("# ip6\n");
            network.iptables.push_str(&self.tool(None, "ip6tables-save", &[], "")?);
        }
        for (names, mark, program) in [
            ("/proc/thread-self/net/ip_tables_names", "# legacy\n", "iptables-legacy-save"),
            ("/proc/thread-self/net/ip6_tables_names", "# legacy6\n", "ip6tables-legacy-save"),
        ] {
            if self.within(None, || Ok(!fs::read(names).unwrap_or_default().is_empty()))? {
                network.iptables.push_str(mark);
                network.iptables.push_str(&self.tool(None, program, &[], "")?);
            }
        }
        let rules: Value = match rules.trim() {
            "" => Value::Null,
            rules => serde_json::from_str(rules).context("nft -j list ruleset")?,
        };
        network.nft = rules.get("nftables").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(())
    }
}

/// Returns the sysctls of this thread's network namespace. A link that disappears meanwhile may lack sysctls.
fn sysctls() -> BTreeMap<String, String> {
    let read = |name: String| Some((name.clone(), fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?));
    let mut sysctls: BTreeMap<String, String> = read("ipv4/ip_forward".to_owned()).into_iter().collect();
    for (directory, names) in SYSCTLS {
        for link in fs::read_dir(Path::new("/proc/sys/net").join(directory)).into_iter().flatten().flatten() {
            let link = link.file_name().to_string_lossy().into_owned();
            sysctls.extend(names.iter().filter_map(|name| read(format!("{directory}/{link}/{name}"))));
        }
    }
    sysctls.values_mut().for_each(|value| value.truncate(value.trim_end().len()));
    sysctls
}

/// The output of the tools for one namespace.
struct Network {
    links: Vec<Value>,
    routes: Vec<Value>,
    rules: Vec<Value>,
    sysctls: BTreeMap<String, String>,
    nft: Vec<Value>,
    /// The nftables rules as text. The JSON of older nft versions lacks the comments of tables and chains.
    nft_text: String,
    iptables: String,
    shaping: Vec<String>,
}

impl Network {
    fn tree(&self, names: &Names) -> Result<Value> {
        let links: Map<_, _> =
            self.links.iter().map(|link| (text(link, "ifname").to_owned(), tidy_link(link.clone()))).collect();
        let routes: Map<_, _> = self
            .routes
            .iter()
            .filter(|route| steady_route(route))
            .map(|route| (one_line(tidy_route(route.clone())), json!(true)))
            .collect();
        let tree = json!({
            "links": links,
            "routes": routes,
            "rules": self.rules.iter().cloned().map(one_line).collect::<Vec<_>>(),
            "sysctls": self.sysctls,
            "nft": nft_tree(&self.nft),
            "nft comments": nft_comments(&self.nft_text),
            "iptables": iptables_tree(&self.iptables),
            "shaping": self.shaping,
        });
        apply(names, &tree)
    }
}

/// Reads several JSON arrays, one after the other.
fn arrays<const N: usize>(text: &str) -> Result<[Vec<Value>; N]> {
    let mut result = [const { Vec::new() }; N];
    for (slot, array) in result.iter_mut().zip(serde_json::Deserializer::from_str(text).into_iter::<Vec<Value>>()) {
        *slot = array.with_context(|| format!("ip -j: {text}"))?;
    }
    Ok(result)
}

/// Names each host end after the container's link at the other end, then each hardware address after its link.
fn learn(host: &Network, containers: &[(String, Network)], names: &mut Names) {
    for link in &host.links {
        let (name, index, peer) = (text(link, "ifname"), link.get("ifindex"), link.get("link_index"));
        let other = containers.iter().find_map(|(container, network)| {
            let other = network
                .links
                .iter()
                .find(|other| peer.is_some() && other.get("ifindex") == peer && other.get("link_index") == index)?;
            Some(format!("{container}/{}", text(other, "ifname")))
        });
        // A pair with both ends on the host belongs to a VLAN gateway.
        let other = other.or_else(|| Some(format!("host/{}", link.get("link")?.as_str()?)));
        if let Some(other) = other {
            names.link(name, &format!("veth({other})"));
        }
    }
    let all = containers.iter().map(|(name, network)| (name.as_str(), network)).chain([("host", host)]);
    for (place, network) in all {
        let mut owners: Vec<_> =
            network.links.iter().map(|link| (names.apply(text(link, "ifname")), text(link, "address"))).collect();
        owners.sort();
        for (owner, address) in owners {
            names.hardware(address, &format!("{place}/{owner}"));
        }
    }
}

fn tidy_link(mut link: Value) -> Value {
    let name = text(&link, "ifname").to_owned();
    if let Some(map) = link.as_object_mut() {
        for key in ["ifindex", "ifname", "link", "link_index", "link_netnsid", "operstate"] {
            map.remove(key);
        }
        if let Some(flags) = map.get_mut("flags").and_then(Value::as_array_mut) {
            flags.retain(|flag| !matches!(flag.as_str(), Some("LOWER_UP" | "NO-CARRIER" | "M-DOWN")));
        }
        for kind in ["info_data", "info_slave_data"] {
            if let Some(info) =
                map.get_mut("linkinfo").and_then(|info| info.get_mut(kind)).and_then(Value::as_object_mut)
            {
                info.retain(|key, _| {
                    !key.contains("timer")
                        && !key.starts_with("topology")
                        && !key.contains("_id")
                        && !key.starts_with("designated")
                        && key != "no"
                        && key != "id"
                        && key != "state"
                });
            }
        }
        let addresses = map.remove("addr_info").unwrap_or_default();
        let addresses = addresses.as_array().cloned().unwrap_or_default();
        let addresses: Map<_, _> = addresses
            .into_iter()
            .filter(|address| text(address, "scope") != "link" || text(address, "family") == "inet")
            .map(|mut address| {
                let key = format!("{}/{}", text(&address, "local"), address.get("prefixlen").unwrap_or(&Value::Null));
                if let Some(map) = address.as_object_mut() {
                    map.retain(|key, _| !matches!(key.as_str(), "local" | "prefixlen" | "family"));
                    // A plugin waits until a container's addresses are ready. It does not wait for a bridge's
                    // addresses.
                    if !name.starts_with("eth") {
                        map.remove("tentative");
                    }
                }
                (key, address)
            })
            .collect();
        map.insert("addresses".to_owned(), Value::Object(addresses));
    }
    link
}

/// True if the kernel adds the route at once, and not later.
fn steady_route(route: &Value) -> bool {
    let destination = text(route, "dst");
    let v6 = destination.contains(':') || text(route, "gateway").contains(':');
    let kernels_own =
        destination.starts_with("fe80:") || destination.starts_with("ff00:") || text(route, "type") == "multicast";
    let late = v6 && text(route, "table") == "local";
    !kernels_own && !late
}

fn tidy_route(mut route: Value) -> Value {
    if let Some(map) = route.as_object_mut() {
        map.remove("flags");
    }
    route
}

/// Returns the tables with their chains, and the rules in order.
fn nft_tree(objects: &[Value]) -> Value {
    let mut tree: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for object in objects {
        let Some((kind, body)) = object.as_object().and_then(|map| map.iter().next()) else { continue };
        if kind == "metainfo" {
            continue;
        }
        let mut body = body.clone();
        strip(&mut body);
        let place = if kind == "rule" {
            format!("rules of {}", text(&body, "chain"))
        } else {
            format!("{kind} {}", text(&body, "name"))
        };
        let table = if kind == "table" { text(&body, "name") } else { text(&body, "table") };
        let key = format!("{} {table}: {place}", text(&body, "family"));
        tree.entry(key).or_default().push(body);
    }
    json!(tree)
}

/// Returns the comments of tables and chains.
fn nft_comments(text: &str) -> Value {
    let (mut tree, mut table, mut place) = (BTreeMap::new(), "", String::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
            place = table.to_owned();
        } else if let Some(name) = line.strip_prefix("chain ") {
            place = format!("{table} {}", name.trim_end_matches(" {"));
        } else if line.starts_with("comment ") {
            tree.insert(place.clone(), line.to_owned());
        }
    }
    json!(tree)
}

/// Removes handles and the values of counters, at any depth.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| key != "handle" && key != "index" && key != "packets" && key != "bytes");
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Returns policies of chains, and rules in order, for each table.
fn iptables_tree(text: &str) -> Value {
    let mut tree: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut section, mut table) = (String::from("ip"), String::new());
    for line in text.lines() {
        match line.chars().next() {
            Some('#') => {
                if matches!(line, "# ip6" | "# legacy" | "# legacy6") {
                    section = line.trim_start_matches("# ").to_owned();
                }
            }
            Some('*') => table = line.trim_start_matches('*').to_owned(),
            Some(':') => {
                let chain = line.split(" [").next().unwrap_or_default();
                tree.entry(format!("{section} {table}: {chain}")).or_default();
            }
            Some('-') => {
                let chain = line.split(' ').nth(1).unwrap_or_default();
                tree.entry(format!("{section} {table}: rules of {chain}")).or_default().push(line.to_owned());
            }
            _ => {}
        }
    }
    json!(tree)
}

/// Collects files with their mode and content. Namespaces, the lock of iptables and Postern's own state are left out.
fn collect_files(real: &Path, shown: &str, files: &mut BTreeMap<String, Value>) -> Result<()> {
    for entry in fs::read_dir(real)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let shown = format!("{shown}/{name}");
        if name.starts_with("postern") || matches!(shown.as_str(), "/run/netns" | "/run/lock" | "/run/xtables.lock") {
            continue;
        }
        let metadata = entry.path().symlink_metadata()?;
        let mode = format!("{:o}", metadata.permissions().mode());
        if metadata.is_dir() {
            files.insert(format!("{shown}/"), json!(mode));
            collect_files(&entry.path(), &shown, files)?;
        } else {
            let content = match () {
                () if !metadata.is_file() => String::new(),
                () if metadata.len() > LARGE => digest(&entry.path())?,
                () => String::from_utf8_lossy(&fs::read(entry.path())?).into_owned(),
            };
            files.insert(shown, json!([mode, content]));
        }
    }
    Ok(())
}

/// Returns the SHA-256 of a file. sha256sum(1) computes the digest, because tests are built without optimisation.
fn digest(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output().context("sha256sum (package coreutils)")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let digest = said.split(' ').next().filter(|digest| output.status.success() && digest.len() == 64);
    Ok(format!("SHA-256 {}", digest.with_context(|| format!("the SHA-256 of {}", file.display()))?))
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn one_line(value: Value) -> String {
    let text = value.to_string();
    text.chars().filter(|char| !matches!(char, '"' | '{' | '}')).collect()
}

fn apply(names: &Names, tree: &Value) -> Result<Value> {
    serde_json::from_str(&names.apply(&tree.to_string())).context("names break JSON")
}
