//! Limits of the rate: real traffic in both directions, lists of plugins, and leftovers.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, Refusal};
use postern_tests::{Answer, Attachment, Network, Node, flat, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

const TALK: &str = env!("CARGO_BIN_EXE_postern-talk");

/// 8 Mbit/s, and a burst of 40,000 bytes.
const RATE: u64 = 1_000_000;
const BURST: u64 = 40_000;

fn limits() -> Value {
    json!({"ingressRate": 8 * RATE, "ingressBurst": 8 * BURST, "egressRate": 8 * RATE, "egressBurst": 8 * BURST})
}

struct Place {
    node: Node,
    bridge: PathBuf,
}

impl Place {
    fn new(bridge: PathBuf) -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        node.sh("mkdir -p /etc/postern/policy; ip link set lo up")?;
        Ok(Self { node, bridge })
    }

    /// A network on a bridge, with bandwidth and these limits behind it.
    fn net(&self, limits: &Value) -> Result<Network> {
        let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
        let bridge = json!({"type": "bridge", "bridge": "br1", "isGateway": true, "ipam": ipam});
        let mut bandwidth = json!({"type": "bandwidth"});
        merge(&mut bandwidth, limits);
        Ok(Network::new(&self.node, &json!([bridge, bandwidth]))?.at_by(0, &self.bridge))
    }

    /// Limits an interface of c1. The attachment has the result of bridge.
    fn limit(&self, ifname: &str, limits: &Value) -> Result<Attachment> {
        let (attachment, answer) = self.attach(ifname, limits)?;
        answer.success().map(|_| attachment)
    }

    /// Limits an interface like [`Place::limit`], and also returns bandwidth's answer.
    fn attach(&self, ifname: &str, limits: &Value) -> Result<(Attachment, Answer)> {
        let attachment = self.net(limits)?.interface(ifname).add_first(1, "c1")?;
        let answer = attachment.call_at(1, "ADD")?;
        Ok((attachment, answer))
    }

    /// Sends 4 MB to an address. `from` and `to` are containers; `None` is the node. Returns the received bytes, and
    /// the time in microseconds.
    fn pour(&self, from: Option<&str>, to: Option<&str>, address: &str) -> Result<(u64, u64)> {
        let command = |of: Option<&str>| match of {
            Some(container) => self.node.command_in(container, TALK),
            None => self.node.command(TALK),
        };
        let mut gauge = command(to).args(["gauge", address]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(gauge.stdout.take().context("stdout")?).lines();
        let mut line = || lines.next().context("the gauge has ended")?.context("gauge");
        ensure!(line()? == "ready", "no gauge");
        ensure!(command(from).args(["pour", address, "3000"]).status()?.success(), "no traffic was sent");
        let seen = line()?;
        gauge.wait()?;
        let (bytes, microseconds) = seen.split_once(' ').context("gauge")?;
        Ok((bytes.parse()?, microseconds.parse()?))
    }

    fn has_ifb(&self) -> Result<bool> {
        Ok(self.node.sh("ls /sys/class/net 2>/dev/null; ip -br link show type ifb")?.contains("bwp"))
    }
}

fn detach(attachment: &Attachment) -> Result<()> {
    attachment.call_at(1, "DEL")?.success()?;
    attachment.network.call("DEL", &attachment.container)?.success().map(drop)
}

/// Returns the most bytes that may arrive within a time: the burst, the waiting bytes, one datagram on its way, and the
/// rate times the time. The time has no limit: on a slow machine the transfer takes longer, and more bytes may
/// arrive.
fn most(microseconds: u64) -> u64 {
    let waiting = BURST + RATE / 40;
    BURST + waiting + 1500 + RATE * microseconds / 1_000_000
}

#[test]
fn no_direction_exceeds_its_rate() -> Result<()> {
    let place = Place::new(plugin_bin()?)?;
    let (mut c1, answer) = place.attach("eth0", &limits())?;
    let result = answer.success()?;
    let names: Vec<&str> = result["interfaces"]
        .as_array()
        .context("interfaces")?
        .iter()
        .filter_map(|link| link["name"].as_str())
        .collect();
    ensure!(names.len() == 4 && names.iter().any(|name| name.starts_with("bwp")), "{names:?}");
    c1.network.add_first(1, "c2")?;
    c1.call_at(1, "CHECK")?.success()?;
    // CHECK of bridge accepts the link that bandwidth added to the result.
    let before = std::mem::replace(&mut c1.result, result);
    c1.call_at(0, "CHECK")?.success()?;
    c1.result = before;
    for (from, to, address) in [
        (None, Some("c1"), "10.1.0.2:7"),
        (Some("c2"), Some("c1"), "10.1.0.2:7"),
        (Some("c1"), None, "10.1.0.1:7"),
        (Some("c1"), Some("c2"), "10.1.0.3:7"),
    ] {
        let (bytes, microseconds) = place.pour(from, to, address)?;
        ensure!(bytes > BURST / 2, "{from:?} to {to:?}: only {bytes} bytes arrive");
        ensure!(
            bytes <= most(microseconds),
            "{from:?} to {to:?}: {bytes} bytes in {microseconds} µs are more than allowed"
        );
    }
    // Container c2 has no limit, and receives more. So the limits above can fail.
    let (bytes, microseconds) = place.pour(None, Some("c2"), "10.1.0.3:7")?;
    ensure!(bytes > most(microseconds), "without a limit only {bytes} bytes come in {microseconds} µs");
    detach(&c1)?;
    ensure!(!place.has_ifb()?, "the ifb is left");
    Ok(())
}

/// Limits as containerd requests them, with the largest burst that 32 bits hold. After a rollback the native plugin
/// finds the numbers that it would set.
#[test]
fn a_burst_as_containerd_asks_for_it_is_set_and_checked() -> Result<()> {
    let place = Place::new(plugin_bin()?)?;
    let patch = json!({"runtimeConfig": {"bandwidth": {
        "ingressRate": 10_000_000, "ingressBurst": u32::MAX, "egressRate": 1_000_000, "egressBurst": u32::MAX}}});
    let c1 = place.limit("eth0", &patch)?;
    for bin in [plugin_bin()?, native_bin()?] {
        c1.by(&bin).call_at(1, "CHECK")?.success()?;
    }
    let shown = place.node.sh("tc qdisc show | grep tbf")?;
    ensure!(shown.contains("rate 10Mbit") && shown.contains("rate 1Mbit"), "{shown}");
    detach(&c1)
}

/// Several host namespaces can share the directory of records. A record of another host namespace claims nothing in
/// this namespace.
#[test]
fn a_record_of_another_host_namespace_claims_nothing() -> Result<()> {
    let place = Place::new(plugin_bin()?)?;
    let ifb = || place.node.sh("ip -o link show type ifb | grep -o 'bwp[0-9a-f]*'");
    let c1 = place.limit("eth0", &limits())?;
    let name = ifb()?;
    place.node.sh("cd /run/postern/attachments; own=$(ls | head -n 1); last=$(printf %s \"$own\" | tail -c 1)
        other=${own%?}$(printf %s \"$last\" | tr 0-9a-f 1-9a-f0)
        sed 's/\"host_netns_cookie\":[0-9]*/\"host_netns_cookie\":1/' \"$own\" > \"$other\"; chmod 600 \"$other\"")?;
    detach(&c1)?;
    let c1 = place.limit("eth0", &limits())?;
    ensure!(ifb()? == name, "{name} became {}", ifb()?);
    detach(&c1)
}

/// The native plugin uses one name for both ifbs, and fails.
#[test]
fn two_interfaces_of_one_container_have_an_ifb_each() -> Result<()> {
    let place = Place::new(plugin_bin()?)?;
    let first = place.limit("eth0", &limits())?;
    let second = place.limit("eth1", &limits())?;
    ensure!(place.node.sh("ip -br link show type ifb | grep -c bwp")?.trim() == "2", "there must be two ifbs");
    detach(&first)?;
    second.call_at(1, "CHECK")?.success()?;
    detach(&second)?;
    ensure!(!place.has_ifb()?, "an ifb is left");
    Ok(())
}

/// A list may contain the plugin twice. Each entry limits one direction.
#[test]
fn a_list_may_have_it_twice() -> Result<()> {
    let place = Place::new(plugin_bin()?)?;
    let first = place.net(&json!({"ingressRate": 8000, "ingressBurst": 16_000}))?;
    let second = json!({"type": "bandwidth", "egressRate": 8000, "egressBurst": 16_000});
    let list = json!([first.config(0, &json!({}))?, first.config(1, &json!({}))?, second]);
    let mut c1 = Network::new(&place.node, &list)?.add_first(2, "c1")?;
    let result = c1.call_at(2, "ADD")?.success()?;
    // A third entry finds its direction limited already.
    c1.call_at(2, "ADD")?.success()?;
    c1.result = result;
    let other = json!({"ingressRate": 80, "prevResult": c1.result});
    Refusal::of(&c1.network.call_at(1, "ADD", "c1", &other)?)?
        .expect(999, "has a root qdisc (tbf) that another program set")?;
    for at in [1, 2] {
        c1.call_at(at, "CHECK")?.success()?;
    }
    c1.call_at(2, "DEL")?.success()?;
    detach(&c1)?;
    ensure!(!place.has_ifb()?, "an ifb is left");
    Ok(())
}

/// Behind a native bridge, the kernel confirms the host end. An operator can name the allowed links instead.
#[test]
fn behind_a_native_bridge_the_kernel_or_the_operator_confirms() -> Result<()> {
    let place = Place::new(native_bin()?)?;
    let c1 = place.limit("eth0", &limits())?;
    c1.call_at(1, "CHECK")?.success()?;
    detach(&c1)?;
    ensure!(!place.has_ifb()?, "an ifb is left");
    place.node.sh("printf '[previous]\nnames = [\"tap*\"]\n' > /etc/postern/policy/bandwidth.toml")?;
    let (c1, answer) = place.attach("eth0", &limits())?;
    Refusal::of(&answer)?.expect(110, "no record says that an earlier plugin made")?;
    ensure!(!place.has_ifb()?, "a refused ADD left an ifb");
    place.node.sh("printf '[previous]\nnames = [\"veth*\"]\n' > /etc/postern/policy/bandwidth.toml")?;
    c1.call_at(1, "ADD")?.success()?;
    c1.call_at(1, "CHECK")?.success()?;
    detach(&c1)?;
    ensure!(!place.has_ifb()?, "an ifb is left");
    Ok(())
}

/// `postern reapply` restores removed limits, but makes no link again.
#[test]
fn limits_that_were_wiped_are_noticed_and_put_back() -> Result<()> {
    let place = Place::new(plugin_bin()?)?;
    let c1 = place.limit("eth0", &limits())?;
    let postern = plugin_bin()?.join("postern");
    let postern = postern.display();
    for wipe in ["tc qdisc del dev $end root", "tc qdisc del dev $end ingress", "tc qdisc del dev $ifb root"] {
        place.node.sh(&format!("end=$(ls /sys/class/net | grep veth || ip -br link show type veth | sed 's/@.*//'); ifb=$(ip -br link show type ifb | grep -o 'bwp[0-9a-f]*'); {wipe}"))?;
        let answer = c1.call_at(1, "CHECK")?;
        ensure!(answer.success().is_err(), "{wipe}: CHECK succeeds");
        let shown = place.node.sh(&format!("{postern} doctor || true"))?;
        ensure!(shown.contains("postern reapply"), "{wipe}: {shown}");
        place.node.sh(&format!("{postern} reapply"))?;
        c1.call_at(1, "CHECK")?.success()?;
    }
    place.node.sh("ip link delete $(ip -br link show type ifb | grep -o 'bwp[0-9a-f]*')")?;
    let shown = place.node.sh(&format!("{postern} doctor || true"))?;
    ensure!(flat(&shown).contains(", which limits the container's sent traffic, is gone"), "{shown}");
    detach(&c1)
}

/// A later link with the host end's name belongs to another owner, even if it has the same limit.
#[test]
fn limits_of_a_later_link_of_the_same_name_stay() -> Result<()> {
    let place = Place::new(plugin_bin()?)?;
    let ingress = json!({"ingressRate": 8 * RATE, "ingressBurst": 8 * BURST});
    let c1 = place.limit("eth0", &ingress)?;
    let end = place.node.sh("tc qdisc show | sed -n 's/^qdisc tbf 1: dev \\([^ ]*\\) .*/\\1/p'")?.trim().to_owned();
    ensure!(end.starts_with("veth"), "{end:?}");
    let before = place.node.sh(&format!("tc qdisc show dev {end} root | sed 's. refcnt [0-9]*..'"))?;
    place.node.sh(&format!(
        "ip link delete {end}; ip link add {end} type veth peer name later; ip link set {end} up
         tc qdisc add dev {end} root handle 1: tbf rate 8mbit burst {BURST} latency 25ms"
    ))?;
    ensure!(
        place.node.sh(&format!("tc qdisc show dev {end} root | sed 's. refcnt [0-9]*..'"))? == before,
        "the later link's limit is not the same"
    );
    c1.call_at(1, "DEL")?.success()?;
    ensure!(
        place.node.sh(&format!("tc qdisc show dev {end} root | sed 's. refcnt [0-9]*..'"))? == before,
        "the later link's limit is gone"
    );
    Ok(())
}
