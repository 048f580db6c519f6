//! Tests of the pages in `docs/plugins`. `postern net validate` finds no mistake in the first list of a page. `postern
//! net` attaches a container with the list, checks and detaches it, and leaves nothing. Each page names its plugin's
//! keys and grants.

use anyhow::{Context, Result, ensure};
use postern_tests::dhcp::{lease, play};
use postern_tests::kernel::has_or_skips_part;
use postern_tests::proof::{PRIVATE_ETC, each};
use postern_tests::{Node, plugin_bin, shipped};
use serde_json::{Value, json};
use std::path::Path;

/// The kinds of links that a kernel may lack. Each kind has the name of the plugin that makes it.
const KINDS: [&str; 6] = ["macvlan", "ipvlan", "vlan", "dummy", "tap", "vrf"];

/// The link of the node that some pages need.
const CARD: &str = "ip link add eth1 type veth peer name wire1; ip link set eth1 up; ip link set wire1 up";

/// flanneld's file, as flannel's page shows it.
const SUBNET: &str =
    "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

/// The runtime's data for plugins that declare the capability: a port of the node.
const ARGUMENTS: &str = r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}"#;

/// The grants that `docs/plugins/README.md` calls common.
const COMMON: [&str; 6] = ["link", "addresses", "routes", "link-sysctl", "attachments", "ipam"];

/// Returns the page of a plugin.
fn page(plugin: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plugins").join(format!("{plugin}.md"));
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Returns the first list of a page.
fn example(page: &str) -> Result<&str> {
    let (_, rest) = page.split_once("\n```json\n").context("the page has no list")?;
    let (list, _) = rest.split_once("\n```\n").context("the page's list has no end")?;
    Ok(list)
}

/// The answer of a DHCP service that gives every attachment the same lease.
fn answer(ask: &Value) -> Value {
    match ask {
        Value::Object(ask) if !ask.contains_key("release") => lease("10.9.0.42/24", "10.9.0.1"),
        Value::String(ask) if ask == "leases" => json!({"leases": []}),
        _ => json!("done"),
    }
}

/// A node with a page's list, the objects that the list needs, and a container.
struct Place {
    node: Node,
    network: String,
    interface: &'static str,
    /// The links of the container before ADD.
    inside: String,
}

impl Place {
    fn new(plugin: &str, list: &str) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(PRIVATE_ETC)?;
        node.sh("mkdir -p /run/net.d")?;
        std::fs::write(node.path("/run/net.d/10-page.conflist"), list)?;
        match plugin {
            "macvlan" | "ipvlan" | "vlan" | "host-device" => drop(node.sh(CARD)?),
            "flannel" => {
                node.sh("mkdir -p /run/flannel")?;
                std::fs::write(node.path("/run/flannel/subnet.env"), SUBNET)?;
            }
            "dhcp" => play(&node, |ask| answer(&ask))?,
            _ => {}
        }
        let parsed: Value = serde_json::from_str(list).context("the list is no JSON")?;
        let network = parsed.get("name").and_then(Value::as_str).context("the list has no name")?.to_owned();
        let inside = links(&node)?;
        // A runtime calls loopback with interface `lo`.
        let interface = if plugin == "loopback" { "lo" } else { "eth0" };
        Ok(Self { node, network, interface, inside })
    }

    /// Runs a verb of `postern net`, and returns its output.
    fn net(&self, verb: &str) -> Result<String> {
        let bin = plugin_bin()?;
        let (bin, netns) = (bin.display(), self.node.netns("c1"));
        let variables =
            format!("CNI_PATH={bin} NETCONFPATH=/run/net.d CNI_IFNAME={} CAP_ARGS='{ARGUMENTS}'", self.interface);
        self.node.sh(&format!("{variables} {bin}/postern net {verb} {} {netns}", self.network))
    }

    /// Fails if `postern net validate` reports a problem in the list.
    fn is_valid(&self) -> Result<()> {
        let bin = plugin_bin()?;
        let said =
            self.node.sh(&format!("{}/postern net validate --file-only /run/net.d/10-page.conflist", bin.display()))?;
        ensure!(said.contains("0 errors, 0 warnings"), "{said}");
        Ok(())
    }

    /// Fails if a record, a lease, a cached result, a link, or a rule for these addresses is left.
    fn is_clean(&self, addresses: &[String]) -> Result<()> {
        let left = self.node.sh("ls -A /run/postern/attachments 2> /dev/null || true
             find /var/lib/cni -type f -not -name '*lock' -not -name 'last_reserved*' 2> /dev/null || true
             (ip -o link show type veth; ip -o link show type ifb) | grep -v -e eth1 -e wire1 || true")?;
        ensure!(left.trim().is_empty(), "left: {left}");
        let inside = links(&self.node)?;
        ensure!(inside == self.inside, "links of the container: {inside}");
        let rules = self.node.sh("(nft list ruleset; iptables-save; ip6tables-save) 2> /dev/null || true")?;
        for address in addresses {
            ensure!(!rules.contains(address.as_str()), "rules of {address} are left: {rules}");
        }
        Ok(())
    }
}

/// Returns the names of the container's links, except `lo`.
fn links(node: &Node) -> Result<String> {
    node.sh_in("c1", "ip -o link show | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/' | grep -v '^lo$' | sort || true")
}

/// Returns the addresses of a result, without prefix lengths.
fn addresses(result: &Value) -> Vec<String> {
    let ips = result.get("ips").and_then(Value::as_array).into_iter().flatten();
    ips.filter_map(|ip| Some(ip.get("address")?.as_str()?.split('/').next()?.to_owned())).collect()
}

/// Tests the example of one page, from ADD to DEL.
fn works(plugin: &str) -> Result<()> {
    let page = page(plugin)?;
    let list = example(&page)?;
    ensure!(list.contains(&format!("\"type\": \"{plugin}\"")), "the list has no {plugin}");
    let place = Place::new(plugin, list)?;
    place.is_valid()?;
    let printed = place.net("add")?;
    let result: Value = serde_json::from_str(&printed).with_context(|| printed.clone())?;
    let addresses = addresses(&result);
    ensure!(!addresses.is_empty(), "no address: {result}");
    place.net("check")?;
    // A runtime may repeat DEL.
    place.net("del")?;
    place.net("del")?;
    if plugin == "host-device" {
        place.node.sh("ip link show dev eth1").context("the device is not on the node")?;
    }
    // Rules with the addresses of `lo` do not count.
    place.is_clean(if plugin == "loopback" { &[] } else { addresses.as_slice() })
}

/// Tests every page. In a virtual machine, `POSTERN_PAGES_OF` names the plugins whose links other kernels lack.
#[test]
fn the_list_of_each_page_works() -> Result<()> {
    let group = std::env::var("POSTERN_PAGES_OF").unwrap_or_default();
    let mut plugins = shipped()?;
    plugins.retain(|plugin| group.is_empty() || group.split(' ').any(|name| name == plugin));
    ensure!(!plugins.is_empty(), "no plugin has one of these names: {group}");
    each(
        plugins,
        |plugin| plugin.clone(),
        |plugin| match !KINDS.contains(&plugin.as_str()) || has_or_skips_part(plugin)? {
            true => works(plugin),
            false => Ok(()),
        },
    )
}

#[test]
fn each_page_has_its_parts_and_keys() -> Result<()> {
    each(
        shipped()?,
        |plugin| plugin.clone(),
        |plugin| {
            let page = page(plugin)?;
            for part in ["\n## Keys", "\n## Example", "\n## Grants", "\n## Differences from the native plugin"] {
                ensure!(page.contains(part), "no part {}", part.trim());
            }
            let table = postern_keys::plugin(plugin).context("no table of keys")?;
            for key in table.keys.iter().chain(table.runtime).chain(table.args) {
                // `key`, or `object.key`
                ensure!(
                    page.contains(&format!("`{}`", key.name)) || page.contains(&format!(".{}`", key.name)),
                    "no key {}",
                    key.name
                );
            }
            Ok(())
        },
    )
}

#[test]
fn each_page_names_the_grants_of_the_policy() -> Result<()> {
    each(
        shipped()?,
        |plugin| plugin.clone(),
        |plugin| {
            let page = page(plugin)?;
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests").join(plugin).join("policy.toml");
            let policy: toml::Table = toml::from_str(&std::fs::read_to_string(&path)?)?;
            let grants = policy.get("grant").and_then(toml::Value::as_table);
            let has_common = page.contains("[common grants](README.md#common-grants)");
            for grant in grants.into_iter().flat_map(toml::Table::keys) {
                let is_named = page.contains(&format!("`{grant}`"));
                ensure!(is_named || has_common && COMMON.contains(&grant.as_str()), "no grant {grant}");
            }
            Ok(())
        },
    )
}

/// Each plugin has a page, and each page a plugin.
#[test]
fn there_is_a_page_for_each_plugin_and_no_other() -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plugins");
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        pages.extend(name.strip_suffix(".md").filter(|name| *name != "README").map(str::to_owned));
    }
    pages.sort();
    let plugins = shipped()?;
    ensure!(pages == plugins, "pages {pages:?}, plugins {plugins:?}");
    let map = page("README")?;
    each(
        plugins,
        |plugin| plugin.clone(),
        |plugin| {
            ensure!(map.contains(&format!("[{plugin}]({plugin}.md)")), "README.md does not link the page");
            Ok(())
        },
    )
}
