//! Plugins in C, JavaScript and Python, from inspection to DEL. `tests/languages/run LANGUAGE` builds them.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Network, Node};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn built() -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/languages");
    path.canonicalize().with_context(|| format!("no {}: `tests/languages/build LANGUAGE` makes it", path.display()))
}

/// Checks the output of `inspect`: a sentence about the imports of WASI, and the agreement of imports and policy.
fn inspected(language: &str) -> Result<()> {
    let text = std::fs::read_to_string(built()?.join(language).join("inspected"))?;
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains("and WASI, with nothing behind it ("), "{text}");
    ensure!(words.contains("the component finds no argument and no directory; every socket"), "{text}");
    ensure!(words.contains("policy and imports agree"), "{text}");
    Ok(())
}

/// A network of built plugins, and a container, c1.
struct Place {
    net: Network,
}

impl Place {
    fn new(config: &Value) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        Ok(Self { net: Network::new(&node, config)?.by(&built()?.join("bin")) })
    }

    /// Calls the plugin at this place of the list, and prints the duration.
    fn timed(&self, at: usize, verb: &str, more: &Value) -> Result<Answer> {
        let start = Instant::now();
        let answer = self.net.call_at(at, verb, "c1", more)?;
        println!("plugin {at}, {verb}: {} ms", start.elapsed().as_millis());
        Ok(answer)
    }

    fn works(&self, at: usize, verb: &str, more: &Value) -> Result<Value> {
        self.timed(at, verb, more)?.success().with_context(|| format!("{verb} of plugin {at}"))
    }

    /// Checks the error object of a call that must fail.
    fn fails(&self, at: usize, verb: &str, more: &Value, words: &str) -> Result<()> {
        postern_tests::proof::Refusal::of(&self.timed(at, verb, more)?)?.expect(100, words)
    }

    fn leases(&self) -> Result<String> {
        self.net.node.sh("ls /var/lib/cni/networks/net 2>/dev/null | grep '^10' || true")
    }
}

/// An IPAM plugin, called by bridge.
fn ipam(language: &str, plugin: &str) -> Result<()> {
    inspected(language)?;
    let place = Place::new(&json!({"type": "bridge", "bridge": "cni0", "isGateway": true,
        "ipam": {"type": plugin, "subnet": "10.7.0.0/24"}}))?;
    let result = place.works(0, "ADD", &json!({}))?;
    let address = result.pointer("/ips/0/address").and_then(Value::as_str).context("no address")?;
    let bare = address.strip_suffix("/24").context("the prefix is not /24")?;
    ensure!(result.pointer("/ips/0/gateway") == Some(&json!("10.7.0.1")), "{result}");
    ensure!(place.leases()?.trim() == bare, "{}", place.leases()?);
    let shown = place.net.node.sh_in("c1", "ip -brief address show dev eth0")?;
    ensure!(shown.contains(address), "{shown}");
    let previous = json!({"prevResult": result});
    place.works(0, "CHECK", &previous)?;
    place.works(0, "GC", &json!({"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}))?;
    ensure!(place.leases()?.trim() == bare, "{}", place.leases()?);
    place.works(0, "STATUS", &json!({}))?;
    place.works(0, "DEL", &previous)?;
    ensure!(place.leases()?.is_empty(), "{}", place.leases()?);
    place.works(0, "DEL", &previous)?;
    // An operation without a grant gives the author a clear message.
    let other = json!({"ipam": {"dataDir": "relative"}});
    place.fails(0, "ADD", &other, plugin)?;
    ensure!(place.leases()?.is_empty(), "{}", place.leases()?);
    Ok(())
}

/// A chained plugin, after bridge.
fn chained(language: &str, plugin: &str) -> Result<()> {
    inspected(language)?;
    let place = Place::new(&json!([
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"}},
        {"type": plugin, "announce": {"routes": [{"dst": "192.0.2.0/24", "gw": "10.7.0.1"}]}},
    ]))?;
    let result = place.works(0, "ADD", &json!({}))?;
    let after = place.works(1, "ADD", &json!({"prevResult": result}))?;
    ensure!(after.pointer("/routes/0/dst") == Some(&json!("192.0.2.0/24")), "{after}");
    ensure!(after.pointer("/ips") == result.pointer("/ips"), "{after}");
    let inside = place.net.node.sh_in("c1", "cat /proc/sys/net/ipv4/conf/eth0/arp_notify; ip route show dev eth0")?;
    ensure!(inside.starts_with("1\n") && inside.contains("192.0.2.0/24 via 10.7.0.1"), "{inside}");
    place.works(1, "CHECK", &json!({"prevResult": after}))?;
    place.net.node.sh_in("c1", "ip route del 192.0.2.0/24")?;
    place.fails(1, "CHECK", &json!({"prevResult": after}), "announce: Error: the route to 192.0.2.0/24 is gone")?;
    place.works(1, "DEL", &json!({"prevResult": after}))?;
    place.works(0, "DEL", &json!({"prevResult": after}))?;
    ensure!(place.leases()?.is_empty(), "{}", place.leases()?);
    place.fails(1, "ADD", &json!({}), "prevResult is missing")
}

#[test]
#[ignore = "tests/languages/run builds the plugins first"]
fn c() -> Result<()> {
    ipam("c", "pool")
}

#[test]
#[ignore = "tests/languages/run builds the plugins first"]
fn javascript() -> Result<()> {
    chained("javascript", "announce")
}

#[test]
#[ignore = "tests/languages/run builds the plugins first"]
fn python() -> Result<()> {
    ipam("python", "sticky")
}
