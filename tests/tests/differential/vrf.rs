//! Cases of the vrf plugin that work on a kernel without VRFs. The test `plugins::vrf` compares VRFs, on a kernel that
//! has them.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes the container's link, as an earlier plugin would, and a bridge in the container.
const PREPARE: &str =
    "ip link add portv address 02:00:00:00:ee:05 type veth peer name eth0 address 02:00:00:00:ee:15 netns c1
    ip link set portv up; ip -n c1 address add 10.9.0.2/24 dev eth0; ip -n c1 link set eth0 up
    ip -n c1 link add inner0 type bridge";

fn vrf(name: &str, patch: &Value) -> Case {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "vrf", "vrfname": "blue",
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "eth0", "mac": "02:00:00:00:ee:15", "sandbox": "/run/netns/c1"}],
            "ips": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 0}],
        },
    });
    merge(&mut config, patch);
    Case::new(&format!("vrf/{name}"), "vrf", &config).prepare(PREPARE).fast()
}

/// All cases of vrf.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        vrf("no-name", &json!({"vrfname": null})).steps("ADD CHECK STATUS"),
        vrf("empty-name", &json!({"vrfname": ""})).steps("ADD CHECK"),
        vrf("type-name", &json!({"vrfname": 7})).steps("ADD CHECK"),
        vrf("type-table", &json!({"table": "x"})).steps("ADD CHECK"),
        vrf("table-negative", &json!({"table": -1})).steps("ADD CHECK"),
        vrf("table-too-large", &json!({"table": 4294967296_u64})).steps("ADD CHECK"),
        vrf("own-link", &json!({"vrfname": "eth0"})).steps("ADD"),
        vrf("bridge", &json!({"vrfname": "inner0"})).steps("ADD"),
        vrf("loopback", &json!({"vrfname": "lo"})).steps("ADD"),
        vrf("spelling-of-keys", &json!({"vrfname": null, "VRFNAME": "lo"})).steps("ADD"),
        vrf("previous-missing", &json!({"prevResult": null})).steps("ADD CHECK DEL"),
        vrf("check-unknown", &json!({})).steps("CHECK"),
        vrf("del-unknown", &json!({})).steps("DEL DEL@noprev"),
        vrf("empty-namespace", &json!({})).steps("DEL@emptyns"),
        vrf("namespace-gone", &json!({})).broken("sleep 1").steps("KILL:c1 BREAK DEL"),
        vrf("status", &json!({"cniVersion": "1.1.0", "prevResult": {"cniVersion": "1.1.0"}})).steps("STATUS GC"),
    ];
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let patch = json!({"cniVersion": version, "vrfname": "lo", "prevResult": {"cniVersion": version}});
        let patch = match version {
            "0.1.0" | "0.2.0" => json!({"cniVersion": version, "prevResult": null}),
            "0.3.0" | "0.3.1" | "0.4.0" => {
                json!({"cniVersion": version, "vrfname": "lo", "prevResult": {"cniVersion": version,
                    "ips": [{"version": "4", "address": "10.9.0.2/24", "interface": 0}]}})
            }
            _ => patch,
        };
        cases.push(vrf(&format!("version-{version}"), &patch).steps("ADD CHECK DEL STATUS GC VERSION"));
    }
    cases
}
