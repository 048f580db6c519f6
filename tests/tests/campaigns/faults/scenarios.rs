//! The scenarios for faults: plugins with their configurations, and the node's state that each scenario needs.

use postern_tests::merge;
use serde_json::{Value, json};

/// One plugin in one configuration.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub plugin: &'static str,
    /// `CNI_IFNAME`.
    pub interface: &'static str,
    pub config: Value,
    /// The configuration of bridge, if bridge comes before the plugin. Bridge's runs have no faults.
    pub bridge: Option<Value>,
    /// True if an earlier plugin has made a link on the host that joins the bridge: `tap-c1` for `c1`.
    pub joins: bool,
}

/// The parent link on the node.
pub const MASTER: &str = "wire0";

/// The directory and the name of the scenario's native IPAM program.
pub const NATIVE: (&str, &str) = ("/run/native", "script-ipam");

/// A typical native IPAM program: it keeps one file for each attachment, and returns no error if no file is left.
pub const SCRIPT: &str = r#"#!/bin/sh
mkdir -p /run/native/leases
own=/run/native/leases/$CNI_CONTAINERID
cat > /dev/null
case $CNI_COMMAND in
ADD) echo "$CNI_IFNAME" > $own
  echo '{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.42/24","gateway":"10.9.0.1"}]}' ;;
CHECK) [ -e $own ] ;;
DEL) rm -f $own ;;
esac
"#;

/// Returns all scenarios.
pub fn all() -> Vec<Scenario> {
    let single = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let dual = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]});
    let fixed = json!({"type": "static", "addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]});
    let scenario = |name, plugin, ipam: &Value, patch: Value| {
        let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": plugin, "ipam": ipam});
        if plugin == "bridge" {
            merge(&mut config, &json!({"bridge": "br9", "isGateway": true}));
        }
        merge(&mut config, &patch);
        let interface = if plugin == "loopback" { "lo" } else { "eth0" };
        Scenario { name, plugin, interface, config, bridge: None, joins: false }
    };
    let behind_bridge = |name, plugin, patch: Value| {
        let mut scenario = scenario(name, plugin, &Value::Null, patch);
        merge(&mut scenario.config, &json!({"ipam": null}));
        let bridge = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true, "ipam": dual});
        Scenario { bridge: Some(bridge), ..scenario }
    };
    let tuned = json!({
        "mac": "02:00:00:00:00:aa", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 77,
        "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1"},
    });
    // Switches on spoofing protection in the bridge before the plugin.
    let guarded = |mut scenario: Scenario| {
        if let Some(bridge) = &mut scenario.bridge {
            merge(bridge, &json!({"macspoofchk": true}));
        }
        scenario
    };
    let joins = |scenario: Scenario| Scenario { joins: true, ..scenario };
    let behind = json!({"isGateway": false, "macspoofchk": true, "args": {"cni": {"mac": "02:00:00:00:01:01"}}});
    // The gateway of a DHCP server's network is no address of the node. Masquerading and spoofing protection are on, so
    // that faults in the removal of their rules are tested too.
    let behind_server = json!({"isGateway": false, "macspoofchk": true, "ipMasq": true, "ipMasqBackend": "nftables"});
    let masquerade = |backend: &str| json!({"ipMasq": true, "ipMasqBackend": backend});
    let everything = json!({
        "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true, "isDefaultGateway": true, "hairpinMode": true,
        "mtu": 1400,
    });
    vec![
        scenario("bridge L2", "bridge", &json!({}), json!({"isGateway": false})),
        scenario("bridge", "bridge", &single, json!({})),
        scenario("bridge dual stack", "bridge", &dual, json!({})),
        scenario("bridge masq nftables", "bridge", &single, masquerade("nftables")),
        scenario("bridge masq iptables", "bridge", &single, masquerade("iptables")),
        scenario("bridge macspoofchk", "bridge", &single, json!({"macspoofchk": true})),
        scenario("bridge everything", "bridge", &dual, everything),
        scenario("bridge + static", "bridge", &fixed, masquerade("nftables")),
        scenario("bridge + native", "bridge", &json!({"type": NATIVE.1}), json!({})),
        scenario("bridge + dhcp", "bridge", &json!({"type": "dhcp"}), behind_server),
        joins(scenario("bridge joins L2", "bridge", &json!({}), behind)),
        joins(scenario("bridge joins", "bridge", &single, masquerade("nftables"))),
        scenario(
            "flannel",
            "flannel",
            &json!({}),
            json!({"delegate": {"bridge": "br9", "ipMasq": true, "ipMasqBackend": "nftables"}}),
        ),
        scenario("ptp", "ptp", &dual, masquerade("nftables")),
        scenario("ptp masq iptables", "ptp", &single, masquerade("iptables")),
        scenario("macvlan", "macvlan", &dual, json!({"master": MASTER})),
        scenario("macvlan passthru L2", "macvlan", &json!({}), json!({"master": MASTER, "mode": "passthru"})),
        scenario("vlan", "vlan", &dual, json!({"master": MASTER, "vlanId": 5})),
        scenario("ipvlan", "ipvlan", &dual, json!({"master": MASTER, "mode": "l3"})),
        scenario("dummy", "dummy", &dual, json!({})),
        // The tap has no carrier, so a run would wait for an IPv6 address. `single` has no IPv6 address.
        scenario("tap", "tap", &single, json!({"owner": 0, "group": 0, "mtu": 1400})),
        scenario("host-device", "host-device", &dual, json!({})),
        scenario("host-device L2", "host-device", &json!({}), json!({})),
        behind_bridge("portmap nftables", "portmap", json!({"backend": "nftables"})),
        behind_bridge("portmap iptables", "portmap", json!({"backend": "iptables", "masqAll": true})),
        behind_bridge("firewall", "firewall", json!({"ingressPolicy": "same-bridge", "backend": "iptables"})),
        guarded(behind_bridge("tuning", "tuning", tuned)),
        behind_bridge(
            "bandwidth",
            "bandwidth",
            json!({"ingressRate": 8000, "ingressBurst": 16_000, "egressRate": 80_000, "egressBurst": 160_000}),
        ),
        behind_bridge("sbr", "sbr", json!({"addSourceHints": true})),
        behind_bridge("sbr table", "sbr", json!({"table": 500})),
        behind_bridge("vrf", "vrf", json!({"vrfname": "blue"})),
        behind_bridge("vrf table", "vrf", json!({"vrfname": "blue", "table": 500})),
        scenario("loopback", "loopback", &Value::Null, json!({})),
        scenario("host-local", "host-local", &dual, json!({})),
        scenario("static", "static", &fixed, json!({})),
    ]
}
