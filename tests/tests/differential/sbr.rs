//! Cases of the sbr plugin. Instead of earlier plugins in the list, the preparation makes the pairs.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes two links of the container, each with its default route, as earlier plugins would.
const PREPARE: &str = "ip link add port0 address 02:00:00:00:ee:01 type veth peer name eth0 address 02:00:00:00:ee:11 netns c1
    ip link add port1 address 02:00:00:00:ee:02 type veth peer name eth1 address 02:00:00:00:ee:12 netns c1
    ip link set port0 up; ip link set port1 up
    ip -n c1 address add 10.9.0.2/24 dev eth0; ip -n c1 address add fd00:9::2/64 dev eth0 nodad; ip -n c1 link set eth0 up
    ip -n c1 address add 10.8.0.2/24 dev eth1; ip -n c1 link set eth1 up
    ip -n c1 route add default via 10.9.0.1; ip -n c1 -6 route add default via fd00:9::1
    ip -n c1 route add 192.0.2.0/24 via 10.9.0.7; ip -n c1 route add 198.51.100.0/24 dev eth0 metric 7
    ip -n c1 route append default via 10.8.0.1";

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "sbr",
        "prevResult": {
            "cniVersion": "1.0.0", "dns": {"nameservers": ["10.0.0.1"]}, "routes": [{"dst": "0.0.0.0/0"}],
            "interfaces": [{"name": "port0", "mac": "02:00:00:00:ee:01"},
                           {"name": "eth0", "mac": "02:00:00:00:ee:11", "sandbox": "/run/netns/c1"}],
            "ips": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 1},
                    {"address": "fd00:9::2/64", "gateway": "fd00:9::1", "interface": 1}],
        },
    })
}

fn sbr(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("sbr/{name}"), "sbr", &config).prepare(PREPARE).fast()
}

fn with_ips(ips: &Value) -> Value {
    json!({"prevResult": {"ips": ips}})
}

/// All cases of sbr.
pub fn cases() -> Vec<Case> {
    let v4 = json!([{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 1}]);
    let used = format!(
        "{PREPARE}; ip -n c1 rule add from 10.8.0.2 lookup 100; ip -n c1 -6 rule add from fd00:8::2 lookup 102"
    );
    let mut cases = vec![
        sbr("plain", &json!({})),
        sbr("v4", &with_ips(&v4)),
        sbr("v6", &with_ips(&json!([{"address": "fd00:9::2/64", "gateway": "fd00:9::1", "interface": 1}]))),
        sbr("without-gateway", &with_ips(&json!([{"address": "10.9.0.2/24", "interface": 1}]))),
        sbr("without-interface", &with_ips(&json!([{"address": "10.9.0.2/24", "gateway": "10.9.0.1"}]))),
        sbr("another-interface", &with_ips(&json!([{"address": "10.9.0.2/24", "interface": 0}]))),
        sbr(
            "some-of-another-interface",
            &with_ips(&json!([
            {"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 1}, {"address": "10.8.0.2/24", "interface": 0}])),
        ),
        sbr("tables-in-use", &json!({})).prepare(&used),
        sbr("table", &json!({"table": 500})),
        sbr("table-large", &json!({"table": 4294967295_u32})),
        sbr("table-small", &json!({"table": 1})),
        sbr("table-0", &json!({"table": 0})).steps("ADD"),
        sbr("table-default", &json!({"table": 253})).steps("ADD"),
        sbr("table-main", &json!({"table": 254})).steps("ADD"),
        sbr("table-local", &json!({"table": 255})).steps("ADD"),
        sbr("table-negative", &json!({"table": -1})).steps("ADD"),
        sbr("table-too-large", &json!({"table": 4294967296_u64})).steps("ADD"),
        sbr("table-text", &json!({"table": "x"})).steps("ADD CHECK"),
        sbr("table-of-others", &json!({"table": 100})).prepare(&used).steps("ADD"),
        sbr("spelling-of-keys", &json!({"TABLE": 500})),
        sbr("no-link", &json!({})).prepare("true").steps("ADD CHECK DEL"),
        sbr("previous-missing", &json!({"prevResult": null})).steps("ADD CHECK DEL"),
        sbr("previous-without-ips", &with_ips(&json!(null))).steps("ADD CHECK DEL"),
        sbr("del-without-previous", &json!({})).steps("ADD DEL@noprev"),
        sbr("del-twice", &json!({})).steps("ADD DEL DEL"),
        sbr("del-unknown", &json!({})).steps("DEL"),
        sbr("empty-namespace", &json!({})).steps("ADD DEL@emptyns"),
        sbr("twice-in-a-list", &with_ips(&v4)).steps("ADD ADD"),
        sbr("twice-with-tables", &json!({"table": 500}))
            .changed(json!({"table": 501}))
            .steps("ADD ADD@changed CHECK@changed DEL@changed DEL"),
        sbr("removed-by-native", &json!({})).steps("ADD CHECK@native DEL@native"),
        sbr("made-by-native", &json!({})).steps("ADD@native CHECK DEL"),
        sbr("made-by-native-removed-twice", &json!({"table": 500})).steps("ADD@native DEL DEL"),
        sbr("status", &json!({"cniVersion": "1.1.0", "prevResult": {"cniVersion": "1.1.0"}}))
            .steps("STATUS ADD GC DEL"),
    ];
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let previous = match version {
            "0.1.0" | "0.2.0" => {
                json!({"cniVersion": version, "interfaces": null, "ips": null, "routes": null,
                    "ip4": {"ip": "10.9.0.2/24", "gateway": "10.9.0.1"}})
            }
            "0.3.0" | "0.3.1" | "0.4.0" => {
                json!({"cniVersion": version, "ips": [{"version": "4", "address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 1}]})
            }
            _ => json!({"cniVersion": version}),
        };
        let patch = json!({"cniVersion": version, "prevResult": previous});
        cases.push(sbr(&format!("version-{version}"), &patch).steps("ADD CHECK DEL STATUS GC VERSION"));
    }
    cases
}
