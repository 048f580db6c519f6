//! The scenarios of single calls: a plugin with a configuration, and its floor.

use crate::PORT;
use postern_tests::merge;
use serde_json::{Value, json};

/// The prefix of the directories of subnet files. The number of the side follows.
pub const SUBNETS: &str = "/run/subnets";
/// The parent link of VLANs, macvlans and ipvlans.
pub const WIRE: &str = "wire0";
/// The link that is moved into the container.
pub const DEVICE: &str = "device0";

/// A plugin, a configuration and the verbs that make one round.
pub struct Scenario {
    pub name: &'static str,
    pub plugin: &'static str,
    pub config: Value,
    pub verbs: &'static [&'static str],
    /// The interface plugin before this plugin in the list. Its calls are not measured.
    pub front: Option<Value>,
    /// A row for a part of the work: its name, and the configuration without that part. Both configurations run in the
    /// same rounds, and the row has the difference.
    pub without: Option<(&'static str, Value)>,
}

/// Returns the parts of a scenario's floor (`src/floor`), if the scenario has a floor.
pub fn floor(scenario: &str) -> Option<&'static str> {
    Some(match scenario {
        "bridge VERSION" | "static" => "none",
        "loopback" => "loopback",
        "host-local" => "lease",
        "bridge + host-local" => "lease+bridge+route",
        "bridge + masq nft" => "lease+bridge+route+masquerade",
        "bridge + masq iptables" | "bridge + masq default" => "lease+bridge+route+masquerade-iptables",
        "ptp + host-local" => "lease+ptp+route",
        "ptp + masq nft" => "lease+ptp+route+masquerade",
        "macvlan L2" => "macvlan-alone",
        "macvlan + host-local" => "lease+macvlan+route",
        "portmap nft" => "portmap-nftables",
        "portmap iptables" | "portmap default" => "portmap",
        "firewall iptables" | "firewall default" => "firewall",
        "bandwidth" => "bandwidth",
        "tuning" => "tuning",
        _ => return None,
    })
}

/// Returns all scenarios. `SIDE` in a configuration stands for the side's number.
pub fn scenarios() -> Vec<Scenario> {
    let single =
        json!({"type": "host-local", "ranges": [[{"subnet": "10.SIDE.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]});
    let dual = json!({"type": "host-local", "ranges": [[{"subnet": "10.SIDE.0.0/16"}], [{"subnet": "fd00:SIDE::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let fixed = json!({"type": "static", "addresses": [{"address": "10.SIDE.0.7/16", "gateway": "10.SIDE.0.1"}]});
    let with = |plugin: &str, ipam: &Value, patch: Value| {
        let mut config =
            json!({"cniVersion": "1.0.0", "name": "benchSIDE", "type": plugin, "bridge": "benchSIDE", "ipam": ipam});
        merge(&mut config, &patch);
        config
    };
    const ALL: &[&str] = &["ADD", "CHECK", "DEL"];
    const BOTH: &[&str] = &["ADD", "DEL"];
    let scenario = |name, plugin, config, verbs| Scenario { name, plugin, config, verbs, front: None, without: None };
    // Podman's default list has portmap and firewall behind bridge.
    let behind = |name, plugin: &'static str, ipam: &Value, patch: Value| Scenario {
        front: Some(with("bridge", ipam, json!({"isGateway": true}))),
        ..scenario(name, plugin, with(plugin, &Value::Null, patch), ALL)
    };
    // The ratio of whole runs includes both sides' work for the bridge, so masquerading also has its own row.
    let masquerade_alone = |part, of: Scenario| {
        let mut config = of.config.clone();
        merge(&mut config, &json!({"ipMasq": null}));
        Scenario { without: Some((part, config)), ..of }
    };
    let ports = |backend: Value| {
        json!({
            "bridge": null, "backend": backend, "snat": true,
            "runtimeConfig": {"portMappings": [{"hostPort": PORT, "containerPort": 80, "protocol": "tcp"}]},
        })
    };
    let filter = |patch: Value| {
        let mut config = json!({"bridge": null, "backend": "iptables"});
        merge(&mut config, &patch);
        config
    };
    let limits = json!({
        "bridge": null, "ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000,
    });
    let on_wire = |ipam: &Value| with("macvlan", ipam, json!({"master": WIRE, "bridge": null}));
    let of_kind = |kind: &'static str, name, patch: Value| {
        let mut config = with(kind, &single, json!({"master": WIRE, "bridge": null}));
        merge(&mut config, &patch);
        scenario(name, kind, config, ALL)
    };
    vec![
        scenario("bridge VERSION", "bridge", json!({}), &["VERSION"]),
        scenario("loopback", "loopback", with("loopback", &Value::Null, json!({})), ALL),
        scenario("host-local", "host-local", with("bridge", &single, json!({})), ALL),
        scenario("static", "static", with("bridge", &fixed, json!({})), ALL),
        scenario("bridge L2", "bridge", with("bridge", &json!({}), json!({"bridge": "benchl2SIDE"})), BOTH),
        scenario("bridge + host-local", "bridge", with("bridge", &single, json!({"isGateway": true})), ALL),
        scenario("bridge + host-local dual", "bridge", with("bridge", &dual, json!({"isGateway": true})), ALL),
        scenario(
            "bridge + masq nft",
            "bridge",
            with("bridge", &single, json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables"})),
            ALL,
        ),
        scenario(
            "bridge + masq iptables",
            "bridge",
            with("bridge", &single, json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables"})),
            ALL,
        ),
        masquerade_alone(
            "… masquerading alone",
            scenario(
                "bridge + masq default",
                "bridge",
                with("bridge", &single, json!({"isGateway": true, "ipMasq": true})),
                ALL,
            ),
        ),
        masquerade_alone(
            "… masquerading alone, dual",
            scenario(
                "bridge + masq default dual",
                "bridge",
                with("bridge", &dual, json!({"isGateway": true, "ipMasq": true})),
                BOTH,
            ),
        ),
        scenario(
            "bridge + macspoofchk",
            "bridge",
            with("bridge", &single, json!({"isGateway": true, "macspoofchk": true})),
            BOTH,
        ),
        scenario("ptp + host-local", "ptp", with("ptp", &single, json!({})), ALL),
        scenario("macvlan L2", "macvlan", on_wire(&json!({})), ALL),
        scenario("macvlan + host-local", "macvlan", on_wire(&single), ALL),
        scenario("macvlan + host-local dual", "macvlan", on_wire(&dual), ALL),
        of_kind("vlan", "vlan + host-local", json!({"vlanId": 5})),
        of_kind("ipvlan", "ipvlan + host-local", json!({"mode": "l3"})),
        of_kind("dummy", "dummy + host-local", json!({"master": null})),
        of_kind("tap", "tap L2", json!({"master": null, "ipam": null})),
        of_kind("tap", "tap + host-local", json!({"master": null})),
        of_kind("tap", "tap of a user + host-local", json!({"master": null, "owner": 0, "group": 0})),
        scenario(
            "host-device L2",
            "host-device",
            with("host-device", &json!({}), json!({"device": DEVICE, "bridge": null})),
            ALL,
        ),
        scenario(
            "host-device + host-local",
            "host-device",
            with("host-device", &single, json!({"device": DEVICE, "bridge": null})),
            ALL,
        ),
        scenario(
            "ptp + masq nft",
            "ptp",
            with("ptp", &single, json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
            BOTH,
        ),
        behind("portmap nft", "portmap", &single, ports(json!("nftables"))),
        behind("portmap nft dual", "portmap", &dual, ports(json!("nftables"))),
        behind("portmap iptables", "portmap", &single, ports(json!("iptables"))),
        behind("portmap iptables dual", "portmap", &dual, ports(json!("iptables"))),
        behind("portmap default", "portmap", &single, ports(Value::Null)),
        behind("firewall iptables", "firewall", &single, filter(json!({}))),
        behind("firewall iptables dual", "firewall", &dual, filter(json!({}))),
        behind("firewall default", "firewall", &single, filter(json!({"backend": null}))),
        behind("bandwidth", "bandwidth", &single, limits),
        behind("firewall same-bridge", "firewall", &single, filter(json!({"ingressPolicy": "same-bridge"}))),
        scenario(
            "flannel",
            "flannel",
            json!({
                "cniVersion": "0.4.0", "name": "benchSIDE", "type": "flannel", "delegate": {"bridge": "benchSIDE"},
                "subnetFile": format!("{SUBNETS}SIDE/subnet.env"), "dataDir": format!("{SUBNETS}SIDE"),
            }),
            BOTH,
        ),
        behind("sbr", "sbr", &single, json!({"bridge": null})),
        behind("sbr dual", "sbr", &dual, json!({"bridge": null})),
        behind("vrf", "vrf", &single, json!({"bridge": null, "vrfname": "benchvrf"})),
        behind("tuning", "tuning", &single, json!({"mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}})),
    ]
}
