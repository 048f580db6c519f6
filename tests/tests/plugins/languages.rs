//! Plugins in C, JavaScript and Python, from inspection to DEL. `tests/languages/run LANGUAGE` builds them.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Call, Node};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn built() -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/languages");
    path.canonicalize().with_context(|| format!("no {}: `tests/languages/build LANGUAGE` makes it", path.display()))
}

/// Checks the output of `inspect`: one sentence about the imports of WASI, and the agreement of imports and policy.
fn inspected(language: &str) -> Result<()> {
    let text = std::fs::read_to_string(built()?.join(language).join("inspected"))?;
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains("and WASI, with nothing behind it ("), "{text}");
    ensure!(words.contains("it finds no argument and no directory; every socket"), "{text}");
    ensure!(words.contains("policy and imports agree"), "{text}");
    Ok(())
}

/// A node with a container, and a network whose plugins are called one by one.
struct Network {
    node: Node,
    bin: PathBuf,
    config: Value,
}

impl Network {
    fn new(config: Value) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        Ok(Self { node, bin: built()?.join("bin"), config })
    }

    fn call(&self, plugin: &str, verb: &str, more: &Value) -> Result<Answer> {
        let mut config = self.config.clone();
        postern_tests::merge(&mut config, more);
        let call = Call::new(&self.bin, plugin, verb, config.to_string());
        let start = Instant::now();
        let answer = self.node.call(&call.attachment("c1", &self.node.netns("c1"), "eth0"))?;
        println!("{plugin} {verb}: {} ms", start.elapsed().as_millis());
        Ok(answer)
    }

    fn works(&self, plugin: &str, verb: &str, more: &Value) -> Result<Value> {
        let answer = self.call(plugin, verb, more)?;
        ensure!(answer.status == 0, "{plugin} {verb}: {answer:?}");
        Ok(serde_json::from_str(&answer.stdout).unwrap_or(Value::Null))
    }

    /// Returns the error object of a call that fails.
    fn fails(&self, plugin: &str, verb: &str, more: &Value, words: &str) -> Result<()> {
        postern_tests::proof::Refusal::of(&self.call(plugin, verb, more)?)?.expect(100, words)
    }

    fn leases(&self) -> Result<String> {
        self.node.sh("ls /var/lib/cni/networks/net 2>/dev/null | grep '^10' || true")
    }
}

/// An IPAM plugin, called by bridge.
fn ipam(language: &str, plugin: &str) -> Result<()> {
    inspected(language)?;
    let network = Network::new(json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "cni0",
        "isGateway": true, "ipam": {"type": plugin, "subnet": "10.7.0.0/24"}}))?;
    let result = network.works("bridge", "ADD", &json!({}))?;
    let address = result.pointer("/ips/0/address").and_then(Value::as_str).context("no address")?;
    let bare = address.strip_suffix("/24").context("another prefix")?;
    ensure!(result.pointer("/ips/0/gateway") == Some(&json!("10.7.0.1")), "{result}");
    ensure!(network.leases()?.trim() == bare, "{}", network.leases()?);
    let shown = network.node.sh_in("c1", "ip -brief address show dev eth0")?;
    ensure!(shown.contains(address), "{shown}");
    let previous = json!({"prevResult": result});
    network.works("bridge", "CHECK", &previous)?;
    network.works("bridge", "GC", &json!({"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}))?;
    ensure!(network.leases()?.trim() == bare, "{}", network.leases()?);
    network.works("bridge", "STATUS", &json!({}))?;
    network.works("bridge", "DEL", &previous)?;
    ensure!(network.leases()?.is_empty(), "{}", network.leases()?);
    network.works("bridge", "DEL", &previous)?;
    // An operation without a grant gives the author a clear message.
    let other = json!({"ipam": {"dataDir": "relative"}});
    network.fails("bridge", "ADD", &other, plugin)?;
    ensure!(network.leases()?.is_empty(), "{}", network.leases()?);
    Ok(())
}

/// A chained plugin, after bridge.
fn chained(language: &str, plugin: &str) -> Result<()> {
    inspected(language)?;
    let network = Network::new(json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "cni0",
        "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.7.0.0/24"},
        "announce": {"routes": [{"dst": "192.0.2.0/24", "gw": "10.7.0.1"}]}}))?;
    let result = network.works("bridge", "ADD", &json!({}))?;
    let kind = json!({"type": plugin, "ipam": null});
    let merged = |previous: &Value| {
        let mut more = kind.clone();
        postern_tests::merge(&mut more, &json!({"prevResult": previous}));
        more
    };
    let after = network.works(plugin, "ADD", &merged(&result))?;
    ensure!(after.pointer("/routes/0/dst") == Some(&json!("192.0.2.0/24")), "{after}");
    ensure!(after.pointer("/ips") == result.pointer("/ips"), "{after}");
    let inside = network.node.sh_in("c1", "cat /proc/sys/net/ipv4/conf/eth0/arp_notify; ip route show dev eth0")?;
    ensure!(inside.starts_with("1\n") && inside.contains("192.0.2.0/24 via 10.7.0.1"), "{inside}");
    network.works(plugin, "CHECK", &merged(&after))?;
    network.node.sh_in("c1", "ip route del 192.0.2.0/24")?;
    network.fails(plugin, "CHECK", &merged(&after), "announce: Error: the route to 192.0.2.0/24 is gone")?;
    network.works(plugin, "DEL", &merged(&after))?;
    network.works("bridge", "DEL", &json!({"prevResult": after}))?;
    ensure!(network.leases()?.is_empty(), "{}", network.leases()?);
    network.fails(plugin, "ADD", &kind, "prevResult is missing")
}

#[test]
#[ignore = "tests/languages/run builds it first"]
fn c() -> Result<()> {
    ipam("c", "pool")
}

#[test]
#[ignore = "tests/languages/run builds it first"]
fn javascript() -> Result<()> {
    chained("javascript", "announce")
}

#[test]
#[ignore = "tests/languages/run builds it first"]
fn python() -> Result<()> {
    ipam("python", "sticky")
}
