//! Cases of the bridge plugin. `tests/tests/plugins/vlan.rs` tests VLAN filtering, which many kernels lack.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// Returns a network with one IPv4 range.
pub fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br9",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "192.168.7.0/24"}]},
    })
}

fn ranges(ranges: &Value, routes: &Value) -> Value {
    json!({"ipam": {"ranges": ranges, "routes": routes}})
}

/// Returns a case `bridge/NAME`: the base configuration with a merge patch.
fn bridge(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("bridge/{name}"), "bridge", &config)
}

fn layer2(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, &json!({"ipam": null}));
    merge(&mut config, patch);
    // The native CHECK fails without IPAM. Only `bridge/l2-check` has a CHECK.
    Case::new(&format!("bridge/l2-{name}"), "bridge", &config).steps("ADD DEL DEL")
}

const DUAL: &str = r#"[[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]"#;

/// All cases of bridge.
pub fn cases() -> Vec<Case> {
    let dual = || {
        ranges(
            &serde_json::from_str(DUAL).unwrap_or_default(),
            &json!([{"dst": "192.168.7.0/24"}, {"dst": "fd07::/64"}]),
        )
    };
    let dual_with = |patch: Value| {
        let mut config = dual();
        merge(&mut config, &patch);
        config
    };
    let routes = |routes: Value| json!({"ipam": {"routes": routes}});
    let mut all = vec![
        layer2("plain", &json!({})),
        layer2("check", &json!({})).steps("ADD CHECK DEL"),
        layer2("default-name", &json!({"bridge": null})),
        layer2("mtu", &json!({"mtu": 1400})),
        layer2("hairpin", &json!({"hairpinMode": true})),
        layer2("promisc", &json!({"promiscMode": true})),
        layer2("isolated", &json!({"portIsolation": true})),
        layer2("container-down", &json!({"disableContainerInterface": true})),
        layer2("empty-ipam-type", &json!({"ipam": {"type": ""}})),
        layer2("version-0.2.0-has-no-result", &json!({"cniVersion": "0.2.0"})).steps("ADD DEL"),
        layer2("version-0.3.1", &json!({"cniVersion": "0.3.1", "dns": {"nameservers": ["10.0.0.1"]}})),
        layer2("dns", &json!({"dns": {"nameservers": ["10.0.0.1"], "domain": "a.b", "search": ["x", "y"], "options": ["z"]}})),
        layer2("status-gc", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC STATUS DEL"),
        // An earlier plugin has made a link on the host. The native bridge makes a pair nevertheless, and does not
        // change the link.
        layer2("previous-host-link", &json!({"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "tap0", "mac": "02:00:00:00:00:21"}]}}))
            .prepare("ip link add name tap0 address 02:00:00:00:00:21 type ifb"),
        layer2("down-existing-bridge", &json!({"mtu": 1400})).prepare("ip link add name br9 mtu 1300 type bridge"),
        layer2("existing-is-no-bridge", &json!({})).prepare("ip link add name br9 type ifb").steps("ADD DEL"),
        bridge("plain", &json!({})),
        bridge("two-containers", &json!({"isGateway": true})).steps("ADD:c1 ADD:c2 CHECK:c1 CHECK:c2 DEL:c1 CHECK:c2 DEL:c2"),
        bridge("two-interfaces", &json!({"isGateway": true})).steps("ADD:c1/eth0 ADD:c1/eth1 CHECK:c1/eth1 DEL:c1/eth0 DEL:c1/eth1"),
        bridge("repeated-add", &json!({"isGateway": true})).steps("ADD ADD CHECK DEL"),
        // A bridge that lost its last port has a hardware address of zeros.
        bridge("l2-then-gateway", &json!({"ipam": {"routes": []}}))
            .changed(json!({"isGateway": true}))
            .steps("ADD DEL ADD@changed DEL@changed"),
        bridge("gateway", &json!({"isGateway": true})),
        bridge("default-gateway", &json!({"isDefaultGateway": true})),
        bridge("default-gateway-and-route", &json!({"isDefaultGateway": true, "ipam": {"routes": [{"dst": "0.0.0.0/0"}]}})),
        bridge("default-gateway-and-route-with-gw", &json!({"isDefaultGateway": true, "ipam": {"routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.77"}]}})),
        bridge("gateway-given", &json!({"isGateway": true, "ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "gateway": "10.9.0.254"}]]}})),
        bridge("previous-host-link", &json!({"isGateway": true, "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "tap0", "mac": "02:00:00:00:00:21"}], "ips": [{"address": "10.9.0.9/24", "interface": 0}]}}))
            .prepare("ip link add name tap0 address 02:00:00:00:00:21 type ifb; ip link set tap0 up"),
        bridge("address-conflict", &json!({"isGateway": true})).prepare("ip link add name br9 type bridge; ip addr add 10.8.0.1/24 dev br9").steps("ADD DEL"),
        bridge("address-force", &json!({"isGateway": true, "forceAddress": true})).prepare("ip link add name br9 type bridge; ip addr add 10.8.0.1/24 dev br9"),
        bridge("address-same", &json!({"isGateway": true})).prepare("ip link add name br9 type bridge; ip addr add 10.9.0.1/24 dev br9"),
        bridge("address-conflict-v6", &dual_with(json!({"isGateway": true}))).prepare("ip link add name br9 type bridge; ip addr add fd00:9::77/64 dev br9").steps("ADD DEL"),
        bridge("address-other-v6", &dual_with(json!({"isGateway": true}))).prepare("ip link add name br9 type bridge; ip addr add fd00:8::77/64 dev br9"),
        bridge("address-force-v6", &dual_with(json!({"isGateway": true, "forceAddress": true}))).prepare("ip link add name br9 type bridge; ip addr add fd00:9::77/64 dev br9"),
        bridge("dual", &dual()),
        bridge("dual-gateway", &dual_with(json!({"isGateway": true}))),
        bridge("dual-default-gateway", &dual_with(json!({"isDefaultGateway": true}))),
        bridge("dual-dad", &dual_with(json!({"isDefaultGateway": true, "enabledad": true}))),
        bridge("v6-only", &json!({"isDefaultGateway": true, "ipam": {"ranges": [[{"subnet": "fd00:9::/64"}]], "routes": []}})),
        bridge("v6-disabled", &dual_with(json!({"isGateway": true}))).prepare("nsenter --net=/run/netns/c1 sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6'"),
        bridge("two-sets-one-family", &json!({"isGateway": true, "ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.10.0.0/24"}]]}})).steps("ADD DEL"),
        bridge("mtu", &json!({"mtu": 1400, "isGateway": true})),
        bridge("hairpin", &json!({"hairpinMode": true, "isGateway": true})),
        bridge("promisc", &json!({"promiscMode": true, "isGateway": true})),
        bridge("promisc-differs-at-check", &json!({"isGateway": true})).changed(json!({"promiscMode": true})).steps("ADD CHECK@changed DEL"),
        bridge("hairpin-and-promisc", &json!({"hairpinMode": true, "promiscMode": true})).steps("ADD DEL"),
        bridge("isolated", &json!({"portIsolation": true})),
        bridge("container-down-with-ipam", &json!({"disableContainerInterface": true})).steps("ADD DEL"),
        bridge("no-fast-address", &json!({"enabledad": true})),
        bridge("dns", &json!({"dns": {"nameservers": ["10.0.0.1"], "domain": "a.b", "search": ["x", "y"], "options": ["z"]}})),
        bridge("dns-empty", &json!({"dns": {}})),
        bridge("mac-args", &json!({})).args("MAC=02:00:00:00:00:11;IgnoreUnknown=1"),
        bridge("mac-args-breaks-ipam", &json!({})).args("MAC=02:00:00:00:00:11").steps("ADD DEL"),
        bridge("mac-args-bad", &json!({})).args("IgnoreUnknown=1;MAC=zz").steps("ADD DEL"),
        bridge("mac-cni", &json!({"args": {"cni": {"mac": "02:00:00:00:00:12"}}})),
        bridge("mac-runtime", &json!({"capabilities": {"mac": true}, "runtimeConfig": {"mac": "02:00:00:00:00:13"}})),
        bridge("mac-precedence", &json!({"args": {"cni": {"mac": "02:00:00:00:00:12"}}, "runtimeConfig": {"mac": "02:00:00:00:00:13"}})).args("MAC=02:00:00:00:00:11;IgnoreUnknown=true"),
        bridge("mac-cni-silences-bad", &json!({"args": {"cni": {"mac": "02:00:00:00:00:12"}}})).args("MAC=zz;IgnoreUnknown=true"),
        bridge("conventional-keys", &json!({"args": {"cni": {"labels": [{"key": "app", "value": "a"}]}}, "capabilities": {"dns": true}, "runtimeConfig": {"dns": {"servers": ["1.1.1.1"], "searches": ["a.b"], "options": ["ndots:5"]}}})),
        bridge("mac-precedence-args", &json!({"args": {"cni": {"mac": "02:00:00:00:00:12"}}})).args("MAC=02:00:00:00:00:11;IgnoreUnknown=true"),
        bridge("mac-dashes", &json!({"runtimeConfig": {"mac": "02-00-00-00-00-AB"}})),
        bridge("mac-dots", &json!({"runtimeConfig": {"mac": "0200.0000.00ab"}})),
        bridge("mac-bad", &json!({"runtimeConfig": {"mac": "nonsense"}})).steps("ADD DEL"),
        bridge("mac-eight-bytes", &json!({"runtimeConfig": {"mac": "02:00:00:00:00:00:00:01"}})).steps("ADD DEL"),
        bridge("mac-multicast", &json!({"runtimeConfig": {"mac": "03:00:00:00:00:01"}})).steps("ADD DEL"),
        bridge("spoof", &json!({"macspoofchk": true, "isGateway": true})),
        bridge("spoof-two", &json!({"macspoofchk": true, "isGateway": true})).steps("ADD:c1 ADD:c2 DEL:c1 DEL:c2"),
        bridge("masq-nft", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "nftables"})),
        bridge("masq-nft-dual", &dual_with(json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "nftables"}))),
        bridge("masq-nft-two", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "nftables"})).steps("ADD:c1 ADD:c2 DEL:c1 DEL:c2"),
        bridge("masq-iptables", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "iptables"})),
        bridge("masq-iptables-dual", &dual_with(json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "iptables"}))),
        bridge("masq-iptables-two", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "iptables"})).steps("ADD:c1 ADD:c2 DEL:c1 DEL:c2"),
        bridge("masq-default", &json!({"ipMasq": true, "isGateway": true})),
        bridge("masq-unknown", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "pf"})).steps("ADD DEL"),
        bridge("masq-backend-without-masq", &json!({"ipMasqBackend": "pf"})),
        layer2("masq", &json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
        bridge("masq-and-spoof", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "nftables", "macspoofchk": true})),
        bridge("masq-namespace-gone", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "nftables", "macspoofchk": true})).steps("ADD KILL:c1 DEL DEL@emptyns"),
        bridge("masq-iptables-namespace-gone", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "iptables"})).steps("ADD KILL:c1 DEL"),
        bridge("masq-two-interfaces", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "nftables"})).steps("ADD:c1/eth0 ADD:c1/eth1 DEL:c1/eth0 DEL:c1/eth1"),
        bridge("masq-two-interfaces-iptables", &json!({"ipMasq": true, "isGateway": true, "ipMasqBackend": "iptables"})).steps("ADD:c1/eth0 ADD:c1/eth1 DEL:c1/eth0 DEL:c1/eth0 DEL:c1/eth1"),
        bridge("namespace-gone", &json!({"isGateway": true})).steps("ADD KILL:c1 DEL DEL"),
        bridge("del-empty-netns", &json!({"isGateway": true})).steps("ADD DEL@emptyns DEL"),
        bridge("del-without-previous", &json!({"isGateway": true})).steps("ADD DEL@noprev DEL@noprev"),
        bridge("del-unknown", &json!({})).steps("DEL"),
        bridge("del-link-gone", &json!({"isGateway": true})).steps("ADD KILL:c1 DEL"),
        bridge("check-without-previous", &json!({"isGateway": true})).steps("ADD CHECK@noprev DEL"),
        bridge("check-other-bridge", &json!({"isGateway": true})).changed(json!({"bridge": "br8"})).steps("ADD CHECK@changed DEL"),
        bridge("check-bridge-down", &json!({"isGateway": true})).broken("ip link set br9 down").steps("ADD CHECK BREAK CHECK DEL"),
        bridge("check-no-gateway", &json!({"isGateway": true})).broken("ip address delete 10.9.0.1/24 dev br9").steps("ADD CHECK BREAK CHECK DEL"),
        bridge("check-native-bridge-down", &json!({"isGateway": true})).broken("ip link set br9 down").steps("ADD@native CHECK BREAK CHECK DEL"),
        bridge("check-host-end-down", &json!({})).broken("ip link set $(ip -o link show master br9 | sed 's/^[0-9]*: \\([^@]*\\)@.*/\\1/') down").steps("ADD BREAK CHECK DEL"),
        bridge("check-container-down", &json!({"ipam": {"type": "static", "ranges": null, "routes": [], "addresses": [{"address": "10.9.0.7/32"}]}})).broken("ip -n c1 link set eth0 down").steps("ADD BREAK CHECK DEL"),
        bridge("check-unknown", &json!({})).steps("CHECK"),
        bridge("del-bad-ipam", &json!({"isGateway": true})).changed(json!({"ipam": {"type": "nonexistent"}})).steps("ADD DEL@changed DEL"),
        bridge("ipam-missing", &json!({"ipam": {"type": "nonexistent"}})).steps("ADD CHECK DEL"),
        bridge("ipam-slash", &json!({"ipam": {"type": "a/b"}})).steps("ADD DEL"),
        bridge("ipam-no-ranges", &json!({"ipam": {"ranges": []}})).steps("ADD DEL"),
        bridge("static", &json!({"isGateway": true, "ipam": {"type": "static", "ranges": null, "addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]}})),
        bridge("static-no-address", &json!({"ipam": {"type": "static", "ranges": null}})).steps("ADD DEL"),
        bridge("static-no-gateway", &json!({"isDefaultGateway": true, "ipam": {"type": "static", "ranges": null, "addresses": [{"address": "10.9.0.7/24"}]}})),
        bridge("static-host-prefix", &json!({"ipam": {"type": "static", "ranges": null, "routes": [], "addresses": [{"address": "10.9.0.7/32"}]}})),
        bridge("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL STATUS"),
        bridge("status-bad-ipam", &json!({"cniVersion": "1.1.0", "ipam": {"type": "nonexistent"}})).steps("STATUS"),
        bridge("spelling-of-keys", &json!({"isGateway": null, "isgateway": true, "MTU": 1410, "IPMASQ": true, "ipmasqbackend": "nftables"})),
        bridge("route-attributes", &{
            let mut config = routes(json!([{"dst": "10.50.0.0/16", "gw": "10.9.0.9", "priority": 100, "table": 77, "mtu": 1300, "advmss": 1200}, {"dst": "10.51.0.0/16"}]));
            merge(&mut config, &json!({"cniVersion": "1.1.0", "isGateway": true}));
            config
        })
        .steps("ADD DEL"),
        bridge("route-duplicate", &routes(json!([{"dst": "10.50.0.0/16"}, {"dst": "10.50.0.0/16"}]))).steps("ADD DEL"),
        bridge("route-unreachable", &routes(json!([{"dst": "10.50.0.0/16", "gw": "10.77.0.1"}]))).steps("ADD DEL"),
        bridge("forwarding-already-on", &json!({"isGateway": true})).prepare("echo 1 > /proc/sys/net/ipv4/ip_forward"),
    ];
    for (key, value) in [
        ("isGateway", json!("true")),
        ("mtu", json!(1.5)),
        ("mtu", json!("1400")),
        ("bridge", json!(7)),
        ("ipam", json!("host-local")),
        ("vlan", json!(4095)),
        ("vlan", json!(-1)),
        ("vlanTrunk", json!([{"minID": 10}])),
        ("vlanTrunk", json!([{"minID": 10, "maxID": 5}])),
        ("vlanTrunk", json!([{"minID": 0, "maxID": 5}])),
        ("vlanTrunk", json!([{"minID": 1, "maxID": 5000}])),
        ("vlanTrunk", json!([{"id": 5000}])),
        ("vlan", json!(7)),
        ("dns", json!([])),
        ("args", json!({"cni": 1})),
        ("runtimeConfig", json!([])),
        ("name", json!("a b")),
        ("name", json!("")),
        ("prevResult", json!("x")),
        ("bridge", json!("a-name-that-is-too-long")),
        ("bridge", json!("a/b")),
        ("bridge", json!("")),
        ("mtu", json!(-5)),
        ("mtu", json!(10)),
    ] {
        let value_text = value.to_string().chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        let number = all.len();
        all.push(bridge(&format!("bad-{key}-{value_text}-{number}"), &json!({key: value})).steps("ADD DEL"));
    }
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let patch = json!({"cniVersion": version, "isDefaultGateway": true, "dns": {"nameservers": ["10.0.0.1"]}});
        all.push(bridge(&format!("version-{version}"), &dual_with(patch)).steps("ADD CHECK DEL STATUS GC VERSION"));
    }
    all
}
