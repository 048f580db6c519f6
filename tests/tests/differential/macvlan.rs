//! Cases of the macvlan plugin.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// The link of the node that others are stacked on, with a default route through it.
const MASTER: &str = "ip link add wire0 address 02:00:00:00:ee:01 type veth peer name wire1 address 02:00:00:00:ee:02; ip link set wire0 up; \
                      ip link set wire1 up; ip address add 10.9.0.254/24 dev wire0; ip route add default via 10.9.0.253";

/// A case `macvlan/NAME`: one IPv4 range on `wire0`, with a merge patch.
fn macvlan(name: &str, patch: &Value) -> Case {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "wire0", "mac": "02:00:00:00:aa:01",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    });
    merge(&mut config, patch);
    Case::new(&format!("macvlan/{name}"), "macvlan", &config).prepare(MASTER)
}

/// All cases of macvlan.
pub fn cases() -> Vec<Case> {
    let mut all = vec![
        macvlan("plain", &json!({})),
        macvlan("default-master", &json!({"master": null})),
        macvlan("no-such-master", &json!({"master": "wire9"})).steps("ADD DEL"),
        macvlan("mtu", &json!({"mtu": 1400})),
        macvlan("mtu-too-large", &json!({"mtu": 1501})).steps("ADD DEL"),
        macvlan("mtu-negative", &json!({"mtu": -1})).steps("ADD DEL"),
        macvlan("mode-unknown", &json!({"mode": "open"})).steps("ADD DEL"),
        macvlan("queue", &json!({"bcqueuelen": 2000})),
        macvlan("layer2", &json!({"ipam": null})),
        macvlan("v6", &json!({"ipam": {"ranges": [[{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "::/0"}]}})),
        macvlan("dns", &json!({"dns": {"nameservers": ["10.0.0.1"]}})),
        macvlan("two-containers", &json!({"mac": null})).steps("ADD:c1 DEL:c1 ADD:c2 DEL:c2"),
        macvlan("repeated-add", &json!({})).steps("ADD ADD DEL"),
        macvlan("namespace-gone", &json!({})).steps("ADD KILL:c1 DEL"),
        macvlan("empty-namespace", &json!({})).steps("ADD DEL@emptyns DEL"),
        macvlan("mac-of-args", &json!({})).args("MAC=02:00:00:00:aa:02"),
        macvlan("mac-of-runtime", &json!({"runtimeConfig": {"mac": "02:00:00:00:aa:03"}}))
            .args("MAC=02:00:00:00:aa:02"),
        macvlan("mac-malformed", &json!({"mac": "x"})).steps("ADD DEL"),
        macvlan("args-unknown", &json!({})).args("IP=10.9.0.9").steps("ADD DEL"),
        macvlan("passthru", &json!({"mode": "passthru", "mac": null, "master": "wire1"})).steps("ADD CHECK DEL"),
        macvlan("check-other-mode", &json!({})).changed(json!({"mode": "vepa"})).steps("ADD CHECK@changed DEL"),
        macvlan("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
    ];
    for mode in ["bridge", "private", "vepa"] {
        all.push(macvlan(&format!("mode-{mode}"), &json!({"mode": mode})));
    }
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(macvlan(&format!("version-{version}"), &json!({"cniVersion": version})).steps("ADD DEL"));
    }
    all
}
