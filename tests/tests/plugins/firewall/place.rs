//! A node with two bridges, containers on them and a place outside, and lists of bridge and firewall.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Call, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The plugins that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Native,
}

impl Side {
    fn bin(self) -> Result<PathBuf> {
        match self {
            Self::Ours => plugin_bin(),
            Self::Native => native_bin(),
        }
    }
}

pub struct Place {
    pub node: Node,
}

impl Place {
    /// Forwards nothing of its own accord. `out` is a namespace behind link `wan` with 192.0.2.2 and 2001:db8::2.
    pub fn new() -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2", "c3", "out"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(postern_tests::proof::PRIVATE_ETC)?;
        node.sh("ip link add wan type veth peer name wan netns out
             ip address add 192.0.2.1/24 dev wan; ip address add 2001:db8::1/64 dev wan nodad; ip link set wan up
             iptables -P FORWARD DROP; ip6tables -P FORWARD DROP")?;
        node.sh_in(
            "out",
            "ip link set lo up; ip address add 192.0.2.2/24 dev wan; ip address add 2001:db8::2/64 dev wan nodad
             ip link set wan up; ip route add 10.9.0.0/16 via 192.0.2.1; ip route add fd00:9::/32 via 2001:db8::1",
        )?;
        Ok(Self { node })
    }

    /// Writes the operator's policy of firewall.
    pub fn policy(&self, text: &str) -> Result<()> {
        std::fs::write(self.node.path("/etc/postern/policy/firewall.toml"), text).context("policy")
    }

    pub fn call(&self, whose: Side, verb: &str, container: &str, config: &Value) -> Result<Answer> {
        let plugin = config.get("type").and_then(Value::as_str).context("no type")?;
        let call = Call::new(&whose.bin()?, plugin, verb, config.to_string());
        let is_attached = !matches!(verb, "GC" | "STATUS" | "VERSION");
        let call = if is_attached { call.attachment(container, &self.node.netns(container), "eth0") } else { call };
        self.node.call(&call)
    }

    /// ADD of bridge `br1` or `br2`. Returns the firewall's configuration, with the result.
    pub fn attach(&self, whose: Side, container: &str, bridge: u8, patch: &Value) -> Result<Value> {
        let result = self.call(whose, "ADD", container, &bridge_conf(bridge))?.success()?;
        let mut config =
            json!({"cniVersion": "1.1.0", "name": format!("net{bridge}"), "type": "firewall", "prevResult": result});
        merge(&mut config, patch);
        Ok(config)
    }

    /// ADD of bridge and firewall.
    pub fn add(&self, container: &str, bridge: u8, patch: &Value) -> Result<Value> {
        let config = self.attach(Side::Ours, container, bridge, patch)?;
        let result = self.call(Side::Ours, "ADD", container, &config)?.success()?;
        ensure!(config.get("prevResult") == Some(&result), "the result was changed: {result}");
        Ok(config)
    }

    /// DEL of firewall and bridge.
    pub fn del(&self, container: &str, bridge: u8, config: &Value) -> Result<()> {
        self.call(Side::Ours, "DEL", container, config)?.success()?;
        let mut conf = bridge_conf(bridge);
        merge(&mut conf, &json!({"prevResult": config.get("prevResult")}));
        self.call(Side::Ours, "DEL", container, &conf)?.success().map(drop)
    }

    /// Rules of the firewall plugin that name this text, of both families.
    pub fn rules(&self, text: &str) -> Result<Vec<String>> {
        let said = self.node.sh("iptables-save -t filter; ip6tables-save -t filter")?;
        Ok(said.lines().filter(|line| line.starts_with("-A") && line.contains(text)).map(str::to_owned).collect())
    }

    /// Fails unless a ping gets an answer. IPv6 may take a moment until neighbours answer.
    pub fn reaches(&self, from: &str, to: &str) -> Result<()> {
        let said = self.node.sh_in(from, &format!("ping -c1 -w5 {to} >/dev/null 2>&1"));
        said.map(drop).with_context(|| format!("{from} does not reach {to}"))
    }

    /// Fails if a ping gets an answer.
    pub fn is_cut_off(&self, from: &str, to: &str) -> Result<()> {
        let said = self.node.sh_in(from, &format!("! ping -c2 -i0.3 -w1 {to} >/dev/null 2>&1"));
        said.map(drop).with_context(|| format!("{from} reaches {to}"))
    }

    /// As one of both.
    pub fn is_reached(&self, from: &str, to: &str, is_expected: bool) -> Result<()> {
        if is_expected { self.reaches(from, to) } else { self.is_cut_off(from, to) }
    }

    pub fn records(&self) -> Result<String> {
        self.node.sh("ls -A /run/postern/attachments 2>/dev/null || true")
    }
}

/// Network `netN` on bridge `brN`, 10.9.N.0/24 and fd00:9:N::/64.
pub fn bridge_conf(bridge: u8) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": format!("net{bridge}"), "type": "bridge", "bridge": format!("br{bridge}"),
        "isGateway": true,
        "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
                 "ranges": [[{"subnet": format!("10.9.{bridge}.0/24")}], [{"subnet": format!("fd00:9:{bridge}::/64")}]]},
    })
}

/// The addresses of a result, without prefix length.
pub fn addresses(config: &Value) -> Vec<String> {
    let ips = config.pointer("/prevResult/ips").and_then(Value::as_array).cloned().unwrap_or_default();
    let address = |ip: &Value| Some(ip.get("address")?.as_str()?.split('/').next()?.to_owned());
    ips.iter().filter_map(address).collect()
}
