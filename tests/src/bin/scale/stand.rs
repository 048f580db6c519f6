//! A node with a number of attachments that real runs have made.

use crate::{Options, Side};
use anyhow::{Context, Result, ensure};
use postern_tests::floor::Behind;
use postern_tests::measure::{Measured, timed};
use postern_tests::{Node, merge};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The number of attachments per bridge; a bridge takes 1023 ports.
pub const PER_BRIDGE: usize = 1000;
const PER_NAMESPACE: usize = 100;
/// The number of attachments that are made at once while a node is filled.
const WORKERS: usize = 3;

/// The counted objects of a node. They show that the node is full and has no other node's objects.
#[derive(Debug, PartialEq, Eq)]
struct Census {
    /// Host ends of attachments' links.
    links: usize,
    /// Leases of addresses.
    leases: usize,
    /// Rules in each chain that all attachments share.
    rules: Vec<usize>,
}

pub struct Stand {
    pub count: usize,
    node: Node,
    census: Census,
    chains: Option<Behind>,
}

impl Stand {
    /// Makes a node and fills it.
    pub fn new(options: &Options, count: usize) -> Result<Self> {
        let filling = options.sides.first().context("no plugins")?;
        let node = Node::new()?;
        node.sh("ip netns add probe")?;
        let start = Instant::now();
        node.within(None, || fill(filling, options, count))?;
        if !options.flood {
            node.within(None, stop_flooding)?;
        }
        let of_behind = options.behind.as_ref().map(|text| behind(text, 0, 0, &Value::Null)).transpose()?;
        let chains = of_behind.and_then(|config| Behind::of(&Behind::part(&config)));
        let census = Census::of(&node, chains.as_ref())?;
        ensure!(census.links == count && census.leases == count, "{count} attachments were made: {census:?}");
        for rules in &census.rules {
            // An attachment has up to two rules in a shared chain. Up to ten more rules serve all attachments.
            ensure!((count..=2 * count + 10).contains(rules), "{count} attachments were made: {census:?}");
        }
        println!("a node with {count} attachments: made in {:.1} s; {census:?}", start.elapsed().as_secs_f64());
        Ok(Self { count, node, census, chains })
    }

    /// Fails if the node's objects differ from those directly after the filling.
    pub fn is_as_full_as_before(&self) -> Result<()> {
        let now = Census::of(&self.node, self.chains.as_ref())?;
        ensure!(now == self.census, "the node with {} attachments had {:?}, and has {now:?}", self.count, self.census);
        Ok(())
    }

    /// Lets runs of a plugin take an hour, because a run that is traced step by step takes minutes.
    pub fn give_time(&self, plugin: &str) -> Result<()> {
        let script = format!(
            "mount -t tmpfs -o mode=755 etc /mnt; cp -a /etc/alternatives /etc/passwd /etc/group /etc/protocols /mnt
             mkdir -p /mnt/postern/policy; mount --move /mnt /etc
             printf '[limits]\\nseconds = 3600\\n' > /etc/postern/policy/{plugin}.toml"
        );
        self.node.sh(&script).map(drop)
    }

    /// Runs `work` on the node.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.node.within(None, work)
    }
}

impl Census {
    fn of(node: &Node, chains: Option<&Behind>) -> Result<Self> {
        let count = |script: &str| -> Result<usize> { Ok(node.sh(&format!("{script} | wc -l"))?.trim().parse()?) };
        let chain = |table: &str, chain: &str| {
            // Each rule's line ends with a handle, and the chain's own line does, too.
            Ok(count(&format!("nft -a list chain ip {table} {chain} | grep '# handle'"))?.saturating_sub(1))
        };
        let entries = chains.map(|chains| (chains.table, chains.entries)).unwrap_or_default();
        Ok(Self {
            links: count("ip -o link show type veth")?,
            leases: count("find /var/lib/cni/networks -name '10.*'")?,
            rules: entries.1.iter().map(|name| chain(entries.0, name)).collect::<Result<_>>()?,
        })
    }
}

fn sh(words: &[&str]) -> Result<()> {
    let (program, rest) = words.split_first().context("no program")?;
    let output = Command::new(program).args(rest).output()?;
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Sets all bridge ports so that they get no frames for unknown receivers.
fn stop_flooding() -> Result<()> {
    let output = Command::new("bridge").args(["-j", "link"]).output()?;
    let links: Vec<Value> = serde_json::from_slice(&output.stdout).context("bridge -j link")?;
    let line = |name: &str| format!("link set dev {name} flood off mcast_flood off bcast_flood off\n");
    let lines: String = links.iter().filter_map(|link| link.get("ifname")?.as_str().map(line)).collect();
    std::fs::write("/run/ports", lines)?;
    sh(&["bridge", "-batch", "/run/ports"])
}

/// Returns the network of a bridge.
pub fn network(bridge: usize, patch: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": format!("scale{bridge}"), "type": "bridge", "bridge": format!("scale{bridge}"),
        "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{}.0.0/16", 100 + bridge)}]]},
    });
    merge(&mut config, patch);
    config
}

/// Returns the configuration of the plugin behind bridge for an attachment.
pub fn behind(text: &str, bridge: usize, number: usize, previous: &Value) -> Result<Value> {
    let text = text.replace("PORT", &(10_000 + number).to_string());
    let mut config: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    merge(&mut config, &json!({"cniVersion": "1.1.0", "name": format!("scale{bridge}"), "prevResult": previous}));
    Ok(config)
}

/// Returns container, namespace and interface of an existing attachment. Each attachment has its own container ID,
/// because attachments of one container share chains of iptables.
pub fn filler(number: usize) -> (String, String, String) {
    (format!("c{number}"), format!("fill{}", number / PER_NAMESPACE), format!("eth{}", number % PER_NAMESPACE))
}

/// Makes `count` attachments by real runs.
fn fill(side: &Side, options: &Options, count: usize) -> Result<()> {
    for number in 0..count.div_ceil(PER_NAMESPACE) {
        sh(&["ip", "netns", "add", &format!("fill{number}")])?;
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let (container, netns, ifname) = filler(number);
                let bridge = number / PER_BRIDGE;
                let add = |config: &Value| -> Result<Value> {
                    let Measured { stdout, succeeded, .. } =
                        call(&side.bin, "ADD", &container, &netns, &ifname, config)?;
                    ensure!(succeeded, "attachment {number}: {stdout}");
                    Ok(serde_json::from_str(&stdout).unwrap_or_default())
                };
                let previous = add(&network(bridge, &options.patch))?;
                if let Some(text) = &options.behind {
                    add(&behind(text, bridge, number, &previous)?)?;
                }
            }
        };
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

/// Returns the command of a call.
pub fn command(bin: &Path, verb: &str, container: &str, netns: &str, ifname: &str, plugin: &str) -> Command {
    let mut command = Command::new(bin.join(plugin));
    command.env("CNI_COMMAND", verb).env("CNI_PATH", bin);
    if verb != "GC" {
        command
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", format!("/run/netns/{netns}"))
            .env("CNI_IFNAME", ifname);
    }
    command
}

/// Makes one call.
pub fn call(bin: &Path, verb: &str, container: &str, netns: &str, ifname: &str, config: &Value) -> Result<Measured> {
    let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default();
    timed(&mut command(bin, verb, container, netns, ifname, plugin), config.to_string().as_bytes())
}
