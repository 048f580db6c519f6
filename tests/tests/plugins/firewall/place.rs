//! A node with two bridges, containers on the bridges, an outside namespace, and lists of bridge and firewall.

use anyhow::{Context, Result, ensure};
use postern_tests::{Attachment, Network, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The plugins that the test calls.
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

    /// Returns the attachment with the plugins of this side.
    pub fn of(self, attachment: &Attachment) -> Result<Attachment> {
        Ok(attachment.by(&self.bin()?))
    }
}

pub struct Place {
    pub node: Node,
}

impl Place {
    /// Makes a node that forwards nothing by default. `out` is a namespace behind link `wan` with 192.0.2.2 and
    /// 2001:db8::2.
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

    /// Returns network `netN` on bridge `brN`, with 10.9.N.0/24 and fd00:9:N::/64, followed by firewall with these
    /// keys.
    pub fn net(&self, bridge: u8, keys: &Value) -> Result<Network> {
        let ranges =
            json!([[{"subnet": format!("10.9.{bridge}.0/24")}], [{"subnet": format!("fd00:9:{bridge}::/64")}]]);
        let ipam = json!({"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}], "ranges": ranges});
        let first = json!({"type": "bridge", "bridge": format!("br{bridge}"), "isGateway": true, "ipam": ipam});
        let mut firewall = json!({"type": "firewall"});
        merge(&mut firewall, keys);
        Network::new(&self.node, &json!({"name": format!("net{bridge}"), "plugins": [first, firewall]}))
    }

    /// Calls ADD of this side's plugin bridge, for `br1` or `br2`. The later plugins are ours.
    pub fn attach(&self, whose: Side, container: &str, bridge: u8, keys: &Value) -> Result<Attachment> {
        Side::Ours.of(&self.net(bridge, keys)?.by(&whose.bin()?).add_first(1, container)?)
    }

    /// Calls ADD of bridge and firewall.
    pub fn add(&self, container: &str, bridge: u8, keys: &Value) -> Result<Attachment> {
        let attachment = self.attach(Side::Ours, container, bridge, keys)?;
        let result = attachment.call_at(1, "ADD")?.success()?;
        ensure!(attachment.result == result, "the result was changed: {result}");
        Ok(attachment)
    }

    /// Returns firewall's rules that name this text, of both IP versions.
    pub fn rules(&self, text: &str) -> Result<Vec<String>> {
        let said = self.node.sh("iptables-save -t filter; ip6tables-save -t filter")?;
        Ok(said.lines().filter(|line| line.starts_with("-A") && line.contains(text)).map(str::to_owned).collect())
    }

    /// Fails unless a ping gets an answer. IPv6 neighbours may need a moment.
    pub fn reaches(&self, from: &str, to: &str) -> Result<()> {
        let said = self.node.sh_in(from, &format!("ping -c1 -w5 {to} >/dev/null 2>&1"));
        said.map(drop).with_context(|| format!("{from} does not reach {to}"))
    }

    /// Fails if a ping gets an answer.
    pub fn is_cut_off(&self, from: &str, to: &str) -> Result<()> {
        let said = self.node.sh_in(from, &format!("! ping -c2 -i0.3 -w1 {to} >/dev/null 2>&1"));
        said.map(drop).with_context(|| format!("{from} reaches {to}"))
    }

    /// Calls `reaches` or `is_cut_off`.
    pub fn is_reached(&self, from: &str, to: &str, is_expected: bool) -> Result<()> {
        if is_expected { self.reaches(from, to) } else { self.is_cut_off(from, to) }
    }

    pub fn records(&self) -> Result<String> {
        self.node.sh("ls -A /run/postern/attachments 2>/dev/null || true")
    }
}
