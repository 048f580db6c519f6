//! A tour: every shipped plugin with all its verbs, on networks that use most of its code. `tests/order` traces the
//! order of functions on a tour, and `numbers costs` counts the costs of the tour's runs.

use crate::{Answer, Call, Node, dhcp, kernel, merge, shipped};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

/// The directory of the plugins on the node of [`Leg::walk_in_place`].
const PLACE: &str = "/run/tour";

/// The verbs of a leg, in their order.
pub const VERBS: [&str; 6] = ["VERSION", "STATUS", "ADD", "CHECK", "GC", "DEL"];

/// One plugin with one network.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The plugin.
    pub plugin: String,
    /// The plugin's name, and a word for this network.
    pub name: String,
    /// The network configuration.
    pub config: Value,
    /// True if the plugin is chained behind bridge.
    is_chained: bool,
}

/// Returns the network of bridge that comes before a chained plugin. The networks of unchained plugins are variants of
/// this network.
fn first() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "tour", "type": "bridge", "bridge": "tour0", "isDefaultGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}

/// Returns the legs of a plugin. The list is empty if the tour does not know the plugin, or if the kernel lacks the
/// plugin's links.
///
/// # Errors
/// The node that tests the kernel can't be made.
pub fn legs(plugin: &str) -> Result<Vec<Leg>> {
    if ["vlan", "ipvlan", "macvlan", "dummy", "tap", "vrf"].contains(&plugin) && !kernel::has(plugin)? {
        return Ok(Vec::new());
    }
    let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let address = json!({"type": "static", "addresses": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1"}]});
    let both = json!([[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd09::/64"}]]);
    let (is_chained, variants): (bool, Vec<(&str, Value)>) = match plugin {
        "bridge" => (
            false,
            vec![
                ("", json!({"bridge": "tour0", "isDefaultGateway": true, "ipam": {"ranges": both}})),
                (
                    "nftables",
                    json!({"bridge": "tour0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}),
                ),
                (
                    "iptables",
                    json!({"bridge": "tour0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", "hairpinMode": true}),
                ),
                ("dhcp", json!({"bridge": "tour0", "ipam": {"type": "dhcp", "ranges": null}})),
            ],
        ),
        "ptp" => (
            false,
            vec![
                ("", json!({"mtu": 1400, "ipam": {"ranges": both}})),
                ("nftables", json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
            ],
        ),
        "macvlan" | "ipvlan" => (false, vec![("", json!({"master": "parent0"}))]),
        "vlan" => (false, vec![("", json!({"master": "parent0", "vlanId": 5}))]),
        "dummy" => (false, vec![("", json!({}))]),
        "tap" => (false, vec![("", json!({"owner": 0, "group": 0, "mtu": 1400}))]),
        "host-device" => (false, vec![("", json!({"device": "spare0"}))]),
        "flannel" => {
            (false, vec![("", json!({"delegate": {"bridge": "tour0"}, "subnetFile": "/run/subnet.env", "ipam": null}))])
        }
        "static" => (false, vec![("", json!({"ipam": address}))]),
        "loopback" => (false, vec![("", json!({"ipam": null}))]),
        "portmap" => (
            true,
            vec![
                ("nftables", json!({"backend": "nftables", "runtimeConfig": ports})),
                ("iptables", json!({"backend": "iptables", "runtimeConfig": ports})),
            ],
        ),
        "firewall" => (true, vec![("iptables", json!({"backend": "iptables"}))]),
        "bandwidth" => (true, vec![("", json!({"ingressRate": 1_000_000, "ingressBurst": 1_000_000}))]),
        "tuning" => (true, vec![("", json!({"sysctl": {"net.core.somaxconn": "500"}, "mtu": 1400}))]),
        "vrf" => (true, vec![("", json!({"vrfname": "tour0"}))]),
        "sbr" => (true, vec![("", json!({}))]),
        "host-local" => (false, vec![("", json!({}))]),
        // The simulated service gives a lease without looking at the link.
        "dhcp" => (false, vec![("", json!({"ipam": {"type": "dhcp", "ranges": null}}))]),
        _ => return Ok(Vec::new()),
    };
    let leg = |(kind, variant): &(&str, Value)| {
        let mut config = match is_chained {
            true => json!({"cniVersion": "1.1.0", "name": "tour"}),
            false => first(),
        };
        for key in ["bridge", "isDefaultGateway"] {
            config.as_object_mut().and_then(|config| config.remove(key));
        }
        merge(&mut config, variant);
        merge(&mut config, &json!({"type": plugin}));
        let name = format!("{plugin} {kind}").trim_end().to_owned();
        Leg { plugin: plugin.to_owned(), name, config, is_chained }
    };
    Ok(variants.iter().map(leg).collect())
}

impl Leg {
    /// True if another plugin made the link before.
    #[must_use]
    pub fn is_chained(&self) -> bool {
        self.is_chained
    }

    /// Makes a node, and calls all verbs on it in order. `call` makes each call.
    ///
    /// # Errors
    /// The node can't be made, or `call` fails.
    pub fn walk(&self, bin: &Path, call: impl FnMut(&Node, &str, &Call) -> Result<Answer>) -> Result<()> {
        self.go(&Node::new()?, bin, call)
    }

    /// As [`Leg::walk`], on this node.
    ///
    /// # Errors
    /// As [`Leg::walk`].
    pub fn walk_on(
        &self,
        node: &Node,
        bin: &Path,
        call: impl FnMut(&Node, &str, &Call) -> Result<Answer>,
    ) -> Result<()> {
        self.go(node, bin, call)
    }

    /// As [`Leg::walk`], with the plugins at the same path for each source tree. The path changes a run's costs,
    /// because the run checks every directory above its code.
    ///
    /// # Errors
    /// As [`Leg::walk`].
    pub fn walk_in_place(&self, bin: &Path, call: impl FnMut(&Node, &str, &Call) -> Result<Answer>) -> Result<()> {
        let node = Node::new()?;
        let host = bin.join("postern");
        let catalog = bin.join("postern.d");
        node.sh(&format!(
            "mkdir -p {PLACE}/postern.d; cd {PLACE}; touch postern; mount --bind {} postern; mount --bind {} postern.d
             for plugin in {}; do
                 printf '#!{PLACE}/postern --plugin=%s\n' $plugin > $plugin; chmod 755 $plugin
             done",
            host.display(),
            catalog.display(),
            shipped()?.join(" ")
        ))?;
        self.go(&node, Path::new(PLACE), call)
    }

    fn go(&self, node: &Node, bin: &Path, mut call: impl FnMut(&Node, &str, &Call) -> Result<Answer>) -> Result<()> {
        node.add_container("c1")?;
        node.sh("ip link add parent0 type veth peer name parent1; ip link set parent0 up; ip link set parent1 up; \
             ip link add spare0 type veth peer name spare1; \
             printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.9.0.1/24\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=false\\n' \
             > /run/subnet.env")?;
        if self.config.pointer("/ipam/type").and_then(Value::as_str) == Some("dhcp") {
            dhcp::Leases::serve(node)?;
        }
        let interface = if self.plugin == "loopback" { "lo" } else { "eth0" };
        let mut before = json!({});
        if self.is_chained {
            let add = Call::new(bin, "bridge", "ADD", first().to_string());
            let result = node.call(&add.attachment("c1", &node.netns("c1"), interface))?.success()?;
            before = json!({"prevResult": result});
        }
        let mut previous = Value::Null;
        for verb in VERBS {
            let mut given = self.config.clone();
            merge(&mut given, &before);
            match verb {
                "CHECK" | "DEL" => merge(&mut given, &json!({"prevResult": previous})),
                "GC" => {
                    let valid = json!([{"containerID": "c1", "ifname": interface}]);
                    merge(&mut given, &json!({"prevResult": null, "cni.dev/valid-attachments": valid}));
                }
                "VERSION" | "STATUS" => merge(&mut given, &json!({"prevResult": null})),
                _ => {}
            }
            let request = Call::new(bin, &self.plugin, verb, given.to_string());
            let request = match verb {
                "VERSION" | "STATUS" | "GC" => request,
                _ => request.attachment("c1", &node.netns("c1"), interface),
            };
            let answer = call(node, verb, &request)?;
            if verb == "ADD" {
                previous = serde_json::from_str(&answer.stdout).unwrap_or_default();
            }
        }
        Ok(())
    }
}
